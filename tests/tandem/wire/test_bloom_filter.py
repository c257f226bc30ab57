"""The bits of a subscription: RocketMQ's positions, and no false "surely not"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.bloom_filter import BloomFilter, murmur3_low64


def test_the_golden_positions() -> None:
    """As in a consumerFilter.json that RocketMQ wrote."""
    assert BloomFilter().positions("g1#TopicA") == (19, 13, 46)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
        (b"hello, world", "342fac623a5ebc8e4cdcbc079642414d"),
        (b"19 Jan 2038 at 3:14:07 AM", "b89e5988b737affc664fc2950231b2cb"),
        (
            b"The quick brown fox jumps over the lazy dog.",
            "cd99481f9ee902c9695da1a38987b6e7",
        ),
    ],
)
def test_the_hash_is_murmur3(data: bytes, expected: str) -> None:
    """Published values of MurmurHash3_x64_128 with seed 0; the first half counts."""
    assert f"{murmur3_low64(data):016x}" == expected[:16]


def test_bits_count_from_the_least_significant_one() -> None:
    """BitsArray: position / 8 is the byte, 1 << position % 8 the mask."""
    bit_map = BloomFilter().bit_map([(0, 9, 111)])
    assert bit_map == b"\x01\x02" + bytes(11) + b"\x80"
    assert BloomFilter().bit_map([]) == bytes(14)


@given(st.lists(st.text(max_size=40), max_size=40), st.integers(1, 7), st.integers(1, 120))
def test_what_was_set_is_hit(texts: list[str], hash_count: int, byte_count: int) -> None:
    bloom = BloomFilter(hash_count, 8 * byte_count)
    subscriptions = [bloom.positions(text) for text in texts]
    assert all(0 <= p < bloom.bit_count for positions in subscriptions for p in positions)
    bit_map = bloom.bit_map(subscriptions)
    assert len(bit_map) * 8 == bloom.bit_count
    assert all(bloom.is_hit(bit_map, positions) for positions in subscriptions)


def test_a_missing_bit_is_no_hit() -> None:
    bloom = BloomFilter()
    bit_map = bloom.bit_map([(1, 2, 3)])
    assert bloom.is_hit(bit_map, (3, 1, 1))
    assert not bloom.is_hit(bit_map, (1, 2, 4))


@pytest.mark.parametrize("size", [0, 13, 15])
def test_a_bit_map_of_another_length_says_nothing(size: int) -> None:
    assert BloomFilter().is_hit(bytes(size), (1, 2, 3))
