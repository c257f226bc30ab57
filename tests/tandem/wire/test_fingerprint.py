from random import Random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of

SIZE = 5 * BLOCK_BYTES // 2
DATA = Random(1).randbytes(SIZE)


def _of(data: bytes = DATA, start: int = SIZE, written_from: int = 0) -> Fingerprint:
    return Fingerprint(start, len(data), crcs_of(data), written_from, 3)


def test_each_block_has_its_crc_and_the_last_one_is_shorter() -> None:
    fingerprint = _of()

    assert fingerprint.count == 3
    assert [fingerprint.crc(n) for n in range(3)] == [
        crc32(DATA[:BLOCK_BYTES]),
        crc32(DATA[BLOCK_BYTES : 2 * BLOCK_BYTES]),
        crc32(DATA[2 * BLOCK_BYTES :]),
    ]
    assert fingerprint.is_consistent


@given(st.integers(0, SIZE - 1), st.integers(1, 255))
def test_any_byte_that_changes_is_found_in_its_block_and_nowhere_else(
    place: int, bits: int
) -> None:
    changed = bytearray(DATA)
    changed[place] ^= bits
    begin = place // BLOCK_BYTES * BLOCK_BYTES

    found = _of().differing(SIZE, bytes(changed))

    assert found == [(SIZE + begin, SIZE + min(begin + BLOCK_BYTES, SIZE))]


def test_a_piece_is_compared_with_its_own_blocks() -> None:
    fingerprint = _of()
    piece = DATA[BLOCK_BYTES:]

    assert fingerprint.differing(SIZE + BLOCK_BYTES, piece) == []
    assert fingerprint.differing(SIZE + BLOCK_BYTES, b"?" + piece[1:]) == [
        (SIZE + BLOCK_BYTES, SIZE + 2 * BLOCK_BYTES)
    ]


@pytest.mark.parametrize(
    ("place", "is_written"),
    [(0, False), (BLOCK_BYTES - 1, False), (BLOCK_BYTES, True), (SIZE - 1, True)],
)
def test_only_whole_blocks_from_memory_count_as_written(
    place: int,
    is_written: bool,  # noqa: FBT001
) -> None:
    fingerprint = _of(written_from=SIZE + 1)  # the first block has a byte from before

    assert fingerprint.is_written(SIZE + place) is is_written


def test_blocks_around_a_part_are_within_the_file_and_numbered_from_its_beginning() -> None:
    end = SIZE + SIZE
    whole = [
        (0, SIZE, SIZE + BLOCK_BYTES),
        (1, SIZE + BLOCK_BYTES, SIZE + 2 * BLOCK_BYTES),
        (2, SIZE + 2 * BLOCK_BYTES, end),
    ]
    blocks = _of().blocks

    assert list(blocks(0, 1 << 40)) == whole
    assert list(blocks(SIZE, end)) == whole
    assert list(blocks(SIZE + BLOCK_BYTES - 1, SIZE + BLOCK_BYTES)) == whole[:1]
    assert list(blocks(SIZE + BLOCK_BYTES, SIZE + BLOCK_BYTES + 1)) == whole[1:2]
    assert list(blocks(end - 1, end + 5)) == whole[2:]


@pytest.mark.parametrize("crc_bytes", [0, 8, 11, 13, 16])
def test_one_with_more_or_fewer_blocks_than_its_file_is_inconsistent(crc_bytes: int) -> None:
    assert not Fingerprint(SIZE, SIZE, bytes(crc_bytes), 0, 3).is_consistent
    assert Fingerprint(SIZE, SIZE, bytes(12), 0, 3).is_consistent
    assert not Fingerprint(-SIZE, SIZE, bytes(12), 0, 3).is_consistent
    assert not Fingerprint(SIZE, 0, b"", 0, 3).is_consistent


def test_a_block_counts_as_written_from_the_very_one_on_that_was() -> None:
    second = SIZE + BLOCK_BYTES

    assert _of(written_from=second).is_written(second)
    assert not _of(written_from=second + 1).is_written(second)
