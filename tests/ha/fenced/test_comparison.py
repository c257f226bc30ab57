"""Whose bytes are right where replicas differ."""

import pytest

from ha.fenced.comparison import (
    FileVote,
    Vote,
    disputes,
    right_crc,
    votes_in_words,
)
from tandem.wire.fingerprint import BLOCK_BYTES as BLOCK


def votes(words: str) -> list[Vote]:
    """`a1w b2r c2r!`: a says 1 as written; b and c say 2 as read later, c is no member."""
    return [
        Vote(word[0], int(word[1]), is_written=word[2] == "w", is_member="!" not in word)
        for word in words.split()
    ]


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("a1r", 1),
        ("a1r b1r c1w", 1),
        ("a1r b2w", 2),  # as written, before what was read later
        ("a1r b1r c2w", 1),  # memory may have changed before its fingerprint was taken
        ("a1w b2w c2r", 2),  # then more than half of the set
        ("a1w b1w c2w", 1),
        ("a1r b2r c2r", 2),
        ("a1r b2r", None),
        ("a1w b2w", None),
        ("a1r b2r c3r", None),
        ("a1r b2r c2r!", None),  # the one of the set that is silent may say the same as a
    ],
)
def test_who_is_right(said: str, right: int | None) -> None:
    assert right_crc(votes(said), 3, memory_decides=True) == right


def test_memory_alone_decides_nothing_while_a_node_is_waited_for() -> None:
    """A page may change between the write and the fingerprint; the node that is away may know."""
    assert right_crc(votes("a1r b2w"), 3, memory_decides=False) is None
    assert right_crc(votes("a1r b2w c1w"), 3, memory_decides=False) == 1
    assert right_crc(votes("a1w"), 3, memory_decides=False) == 1


def test_a_majority_is_of_the_whole_set() -> None:
    assert right_crc(votes("a1r b2r c2r"), 5, memory_decides=True) is None
    assert right_crc(votes("a1r b2r c2r d2r"), 5, memory_decides=True) == 2


def test_one_node_is_no_majority_even_if_it_is_all_of_the_set() -> None:
    assert right_crc(votes("a1r b2r!"), 1, memory_decides=True) is None
    assert right_crc(votes("a1r b2w!"), 1, memory_decides=True) == 2
    assert right_crc(votes("a1r b2r! c2r!"), 1, memory_decides=True) == 2
    assert right_crc(votes("a1r b2r c2r!"), 2, memory_decides=True) == 2


def test_who_says_what_is_said_in_words() -> None:
    words = votes_in_words(votes("b2r a1w"))
    assert words == "a 00000001 (as written), b 00000002 (read later)"


def test_of_a_file_the_blocks_that_differ_are_decided_one_by_one() -> None:
    def says(node: str, *crcs: int, written_from: int = 1 << 40) -> FileVote:
        return FileVote(node, b"".join(crc.to_bytes(4, "big") for crc in crcs), written_from)

    file = (100, 100 + 2 * BLOCK + 7)
    assert (
        list(disputes(file, [says("a", 1, 2, 3), says("b", 1, 2, 3)], 3, memory_decides=True)) == []
    )
    assert list(disputes(file, [says("a", 1, 2, 3)], 3, memory_decides=True)) == []
    said = [
        says("a", 1, 2, 3),
        says("b", 1, 9, 4, written_from=100 + BLOCK + 1),
        says("c", 1, 9, 5),
    ]
    second, third = disputes(file, said, 3, memory_decides=True)
    small = list(disputes((100, 128), said, 3, memory_decides=True, block_bytes=10))
    assert [(each.start, each.end) for each in small] == [(110, 120), (120, 128)]
    assert (second.block, second.start, second.end) == (1, 100 + BLOCK, 100 + 2 * BLOCK)
    assert (third.block, third.start, third.end) == (2, 100 + 2 * BLOCK, 100 + 2 * BLOCK + 7)
    assert second.right == 9
    assert third.right == 4  # only b has it as written
    assert "b 00000009 (read later)" in second.words
