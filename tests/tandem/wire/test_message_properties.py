"""Property strings and tag hashes, as RocketMQ writes and reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.errors import ArgumentError
from tandem.wire.message_properties import (
    decode_properties,
    encode_properties,
    inner_batch_of,
    java_map_order,
    java_string_hash,
    property_value,
    tags_code,
    tags_code_of,
    with_properties,
    without_property,
)

PLAIN = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))


def test_the_golden_string() -> None:
    """MessageDecoder.messageProperties2String: a separator behind every pair, the last too."""
    properties = {"KEYS": "k1 k2", "UNIQ_KEY": "U0", "TAGS": "TagA"}
    golden = bytes.fromhex("4b455953016b31206b3202554e49515f4b45590155300254414753015461674102")
    assert encode_properties(properties) == golden
    assert decode_properties(golden) == properties


@given(st.dictionaries(PLAIN.filter(bool), PLAIN.filter(bool)))
def test_what_was_encoded_comes_back(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_complaint(data: bytes) -> None:
    for name, value in decode_properties(data).items():
        assert name
        assert value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x02b\x01c\x02", {"b": "c"}),
        (b"\x01b\x02", {}),
        (b"nothing\x02", {}),
        (b"a\x01old\x02a\x01new\x02", {"a": "new"}),
        (b"a\x01kept\x02a\x01\x02", {"a": "kept"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_pieces_without_name_or_value_are_dropped(text: bytes, expected: dict[str, str]) -> None:
    """MessageDecoder.string2messageProperties: the first 0x01 splits, the last duplicate wins."""
    assert decode_properties(text) == expected


@pytest.mark.parametrize("bad", [{"": "x"}, {"a\x01": "x"}, {"a": "x\x02"}, {"a\x02b": "x"}])
def test_what_the_format_cannot_express_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        encode_properties(bad)
    assert caught.value.names == tuple(bad)


PIECES = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"TAGS", b"A", b"TAGS\x01x", b"\x02TAGS\x01y"])
)


@given(PIECES.map(b"".join))
def test_the_value_found_without_decoding_is_the_decoded_one(data: bytes) -> None:
    """Of a string with two TAGS, Java's map holds the last: the code must be of that one."""
    expected = decode_properties(data).get("TAGS")
    found = property_value(data, b"TAGS")
    assert (found.decode() if found else None) == expected
    assert tags_code_of(data) == tags_code(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2_598_919),
        ("TopicA#U0", -1_903_241_332),
        ("TopicA#k1", -1_903_240_649),
        # Beyond the basic plane a character is two UTF-16 units, and both count.
        ("Tag\u4e2d\U0001f600", -1_776_463_210),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    """String.hashCode, run in Java for these texts."""
    assert java_string_hash(text) == expected


@given(st.text(max_size=10))
def test_the_hash_is_the_polynomial_over_utf16_units(text: str) -> None:
    units = memoryview(text.encode("utf-16-be", "surrogatepass")).cast("B")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = 31 * value + 256 * high + low
    assert java_string_hash(text) % 2**32 == value % 2**32
    assert -(2**31) <= java_string_hash(text) < 2**31


def test_a_lone_surrogate_counts_as_it_is() -> None:
    assert java_string_hash("\ud83d") == 0xD83D


def test_no_tags_have_the_code_zero() -> None:
    """MessageExtBrokerInner.tagsString2tagsCode."""
    assert tags_code(None) == tags_code("") == 0
    assert tags_code_of(b"") == tags_code_of(b"KEYS\x01k\x02") == 0


def test_tags_that_only_look_like_the_property_are_not_it() -> None:
    assert tags_code_of(b"XTAGS\x01TagA\x02") == 0
    assert tags_code_of(b"A\x01TAGS\x01TagA\x02") == 0
    assert tags_code_of(b"A\x01b\x02TAGS\x01TagA") == 2_598_919


def test_a_java_map_lists_its_entries_by_hash() -> None:
    """The order in which RocketMQ's own producer wrote the golden records."""
    golden = ["KEYS", "UNIQ_KEY", "TAGS"]
    assert list(java_map_order(dict.fromkeys(sorted(golden), ""), capacity=16)) == golden
    golden = ["KEYS", "WAIT", "TAGS"]
    assert list(java_map_order(dict.fromkeys(sorted(golden), ""), capacity=16)) == golden


def test_equal_buckets_keep_their_order_and_a_full_map_doubles() -> None:
    """java.util.HashMap: "Aa" and "BB" have the same hash."""
    assert list(java_map_order({"BB": "", "Aa": ""})) == ["BB", "Aa"]
    assert list(java_map_order({"Aa": "", "BB": ""})) == ["Aa", "BB"]
    letters = {chr(65 + n): "" for n in range(13)}
    assert java_map_order(letters, capacity=16) == java_map_order(letters, capacity=32)


def test_properties_are_added_as_rocketmq_adds_them() -> None:
    """MessageAccessor.putProperty, MessageDecoder.messageProperties2String."""
    stored = with_properties(b"a\x01b\x01c\x02a\x01last\x02broken\x02q\x01", {"INNER_BASE": "7"})
    assert decode_properties(stored) == {"a": "last", "INNER_BASE": "7"}
    assert stored.endswith(b"\x02")
    assert with_properties(b"a\x01b\x01c", {}) == b"a\x01b\x01c\x02"
    assert with_properties(b"a\x01b\x02", {"a": "new"}) == b"a\x01new\x02"


@given(st.binary(max_size=60), st.sampled_from([b"a", b"name"]))
def test_what_is_taken_out_is_gone_and_the_rest_as_it_was(data: bytes, name: bytes) -> None:
    """MessageUtils.deleteProperty."""
    whole = data + b"\x02" + name + b"\x01v\x02" + data
    left = without_property(whole, name)
    assert property_value(left, name) is None
    pieces = [p for p in whole.split(b"\x02") if not p.startswith(name + b"\x01")]
    assert [p for p in left.split(b"\x02") if p] == [p for p in pieces if p]
    assert without_property(left, name) == left


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (b"INNER_BASE\x0140\x02INNER_NUM\x017\x02", (40, 7)),
        (b"INNER_NUM\x017\x02", (5, 1)),
        (b"INNER_BASE\x01-1\x02INNER_NUM\x017\x02", (5, 1)),
        (b"", (5, 1)),
    ],
)
def test_an_inner_batch_says_in_numbers_how_many_messages_it_is(
    properties: bytes, found: tuple[int, int]
) -> None:
    assert inner_batch_of(properties, 5) == found
