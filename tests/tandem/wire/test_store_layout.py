"""Values of RocketMQ 5.3.3's own classes."""

import pytest

from tandem.wire.store_layout import (
    BATCH_CQ_COMPACTED_OFFSET,
    BATCH_CQ_STORE_UNIT,
    EXT_ADDRESS_MAX,
    ext_address,
    ext_offset,
    index_file_bytes,
    index_key,
    index_key_hash,
    is_ext_address,
    offset_named,
)


def test_the_default_index_file_has_the_length_rocketmq_gives_it() -> None:
    assert index_file_bytes(5_000_000, 20_000_000) == 420_000_040


def test_index_hashes_are_rocketmqs() -> None:
    assert index_key_hash(index_key("TopicA", "U0")) == 1_903_241_332
    assert index_key_hash(index_key("TopicA", "k1")) == 1_903_240_649


def test_the_one_hash_without_an_absolute_value_counts_as_zero() -> None:
    assert index_key_hash("polygenelubricants") == 0


def test_ext_addresses_set_the_top_bit_and_lie_below_every_tags_code() -> None:
    assert ext_address(0) & (1 << 64) - 1 == 0x8000000000000000
    assert ext_address(0x64) & (1 << 64) - 1 == 0x8000000000000064
    assert ext_offset(ext_address(0x14)) == 0x14
    assert is_ext_address(ext_address(9223372034707292159))
    assert not is_ext_address(-(1 << 31))
    assert EXT_ADDRESS_MAX == -2147483649


def test_a_batch_unit_is_packed_as_rocketmq_packs_it() -> None:
    unit = BATCH_CQ_STORE_UNIT.pack(0, 284, 0, 5, 0, 3, BATCH_CQ_COMPACTED_OFFSET, 0)
    assert unit.hex() == (
        "0000000000000000"
        "0000011c"
        "0000000000000000"
        "0000000000000005"
        "0000000000000000"
        "0003"
        "ffffffff"
        "00000000"
    )


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("0" * 20, 0),
        (f"{1 << 30:020d}", 1 << 30),
        ("9" * 20, 10**20 - 1),
        ("0" * 19, None),
        ("0" * 21, None),
        ("-" + "0" * 19, None),
        ("0" * 19 + " ", None),
        ("\u0660" * 20, None),
        ("0" * 16 + ".tmp", None),
    ],
)
def test_twenty_digits_name_an_offset_and_nothing_else_does(name: str, offset: int | None) -> None:
    assert offset_named(name) == offset
