"""What is asked for to heal a log, and who is believed."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from ha.fenced.healing import (
    RANGE_BYTES_MAX,
    Answer,
    Fetch,
    LogShape,
    Own,
    Piece,
    Stuck,
    Whole,
    can_give,
    crc_of,
    files,
    is_past,
    judge,
    pieces,
)
from tandem.wire.fingerprint import BLOCK_BYTES as BLOCK
from tandem.wire.peer_log import EpochPart, FileFingerprint, PeerLogPart

FILE = 3 * BLOCK + 100
LOG = LogShape(0, 2 * FILE + 1000, 2 * FILE + 1000, FILE)
EPOCHS = (EpochPart(1, 0, "x"),)
PIECE = Piece(BLOCK, 2 * BLOCK)
OWN = Own("a", 5, None, is_written=False, is_member=True, epochs=EPOCHS)


def fingerprint(*crcs: int, written_from: int = 1 << 40) -> FileFingerprint:
    data = b"".join(crc.to_bytes(4, "big") for crc in crcs)
    return FileFingerprint(start=0, size=FILE, crcs=data, written_from=written_from)


def answer(
    node: str,
    crc: int | None = None,
    *,
    is_member: bool = True,
    written_from: int = 1 << 40,
    **changes: Any,  # noqa: ANN401 - fields of PeerLogPart
) -> Answer:
    found = None if crc is None else fingerprint(1, crc, 3, 4, written_from=written_from)
    part = PeerLogPart(node=node, log_start=0, confirm=LOG.end, epochs=EPOCHS, fingerprint=found)
    return Answer(msgspec.structs.replace(part, **changes), is_member)


# pieces


def settled(bad: list[tuple[int, int]], log: LogShape = LOG) -> list[tuple[int, int]]:
    """The pieces of all files, of which those that are full have fingerprints."""
    return [
        (piece.start, piece.end)
        for file in files(bad, log)
        for piece in pieces(bad, file, log, by_blocks=file[1] <= log.end)
    ]


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ([], []),
        ([(5, 6)], [(0, BLOCK)]),
        ([(BLOCK - 1, BLOCK + 1)], [(0, BLOCK), (BLOCK, 2 * BLOCK)]),
        ([(5, 6), (7, 8)], [(0, BLOCK)]),
        ([(FILE - 1, FILE)], [(3 * BLOCK, FILE)]),
        ([(FILE - 1, FILE + 1)], [(3 * BLOCK, FILE), (FILE, FILE + BLOCK)]),
        ([(2 * FILE + 10, 2 * FILE + 20)], [(2 * FILE + 10, 2 * FILE + 20)]),
        ([(2 * FILE + 900, 2 * FILE + 5000)], [(2 * FILE + 900, 2 * FILE + 1000)]),
    ],
)
def test_what_has_a_fingerprint_is_healed_by_blocks_and_all_else_by_what_is_bad(
    bad: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert settled(bad) == expected


def test_without_a_fingerprint_no_more_than_fits_into_memory_is_taken_at_once() -> None:
    log = LogShape(0, 1 << 30, 1 << 30, 1 << 30)
    found = list(pieces([(5, 1 << 30)], (0, 1 << 30), log, by_blocks=False))
    assert found[0] == Piece(5, 5 + RANGE_BYTES_MAX)
    assert found[-1].end == 1 << 30
    assert all(one.end == other.start for one, other in pairwise(found))


def test_each_file_with_damage_is_looked_at_once() -> None:
    bad = [(5, 6), (7, 8), (FILE - 1, FILE + 1), (FILE + 5, FILE + 6)]
    assert list(files(bad, LOG)) == [(0, FILE), (FILE, 2 * FILE)]


def test_where_all_is_in_doubt_all_of_the_log_is_settled_once() -> None:
    found = settled([(0, (1 << 63) - 1)])
    assert (found[0][0], found[-1][1]) == (0, LOG.end)
    assert all(one[1] == other[0] for one, other in pairwise(found))


def test_what_is_before_the_log_is_nothing() -> None:
    assert settled([(0, 10)], msgspec.structs.replace(LOG, start=FILE)) == []


# giving up


def past(bad: list[tuple[int, int]], *log_starts: int, log: LogShape = LOG) -> bool:
    answers = [answer(str(at), log_start=at) for at in log_starts]
    return is_past((0, FILE), bad, answers, log)


def test_a_file_that_is_gone_and_that_all_others_have_deleted_is_given_up() -> None:
    assert past([(0, FILE)], FILE, FILE)
    assert past([(0, 2 * FILE)], FILE, 2 * FILE)
    assert not past([(0, FILE)], FILE, 0)
    assert not past([(0, FILE)], FILE - 1, FILE)


def test_what_is_left_of_a_file_is_kept() -> None:
    assert not past([(1, FILE)], FILE, FILE)
    assert not past([(0, FILE - 1)], FILE, FILE)
    assert not past([(FILE, 2 * FILE)], FILE, FILE)


def test_the_last_file_and_what_is_not_confirmed_are_never_given_up() -> None:
    assert not past([(0, FILE)], FILE, log=msgspec.structs.replace(LOG, confirm=FILE - 1))
    assert not past([(0, FILE)], FILE, log=msgspec.structs.replace(LOG, end=FILE))


# judging


def test_of_a_fingerprint_only_a_whole_block_counts() -> None:
    found = fingerprint(1, 2, 3, 4)
    assert crc_of(found, Piece(0, BLOCK)) == 1
    assert crc_of(found, Piece(3 * BLOCK, FILE)) == 4
    assert crc_of(found, Piece(0, BLOCK - 1)) is None
    assert crc_of(found, Piece(1, BLOCK)) is None
    assert crc_of(found, Piece(FILE, FILE + BLOCK)) is None
    assert crc_of(None, PIECE) is None
    assert crc_of(msgspec.structs.replace(found, crcs=b"123"), PIECE) is None


def test_bytes_that_fit_what_all_say_are_whole() -> None:
    own = msgspec.structs.replace(OWN, fingerprint=5)
    assert judge(own, [answer("b", 5), answer("c", 5)], PIECE, 3, memory_decides=True) == Whole()
    assert judge(own, [], PIECE, 3, memory_decides=True) == Whole()
    assert judge(OWN, [answer("b", 5)], PIECE, 3, memory_decides=True) == Whole()


def test_others_are_fetched_from_who_has_them() -> None:
    own = msgspec.structs.replace(OWN, fingerprint=7)
    assert judge(own, [answer("b", 7), answer("c", 7)], PIECE, 3, memory_decides=True) == Fetch(
        7, ("b", "c")
    )
    assert judge(own, [answer("b"), answer("c", 7)], PIECE, 3, memory_decides=True) == Fetch(
        7, ("c", "b")
    )


def test_without_any_fingerprint_all_who_have_it_are_asked() -> None:
    assert judge(OWN, [answer("b"), answer("c")], PIECE, 3, memory_decides=True) == Fetch(
        None, ("b", "c")
    )


def test_a_wrong_fingerprint_of_ours_does_not_win() -> None:
    own = msgspec.structs.replace(OWN, fingerprint=5)
    assert judge(own, [answer("b", 7), answer("c", 7)], PIECE, 3, memory_decides=True) == Fetch(
        7, ("b", "c")
    )
    assert judge(own, [answer("b", 7, written_from=0)], PIECE, 3, memory_decides=True) == Fetch(
        7, ("b",)
    )


def test_where_nobody_knows_an_operator_decides() -> None:
    own = msgspec.structs.replace(OWN, fingerprint=5)
    judgment = judge(own, [answer("b", 7)], PIECE, 3, memory_decides=True)
    assert isinstance(judgment, Stuck)
    assert judgment.is_undecided
    assert "a 00000005 (read later), b 00000007 (read later)" in judgment.why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"confirm": 2 * BLOCK - 1}, f"b has confirmed only {2 * BLOCK - 1}"),
        (
            {"confirm": BLOCK, "log_end": FILE, "epochs": (EpochPart(1, 0),)},
            f"b has confirmed only {BLOCK}",
        ),
        (
            {"confirm": BLOCK, "log_end": 2 * BLOCK - 1},
            f"b has a log that ends at {2 * BLOCK - 1}",
        ),
        ({"log_start": BLOCK + 1}, f"the log of b begins at {BLOCK + 1}"),
        ({"bad": ((BLOCK, BLOCK + 1),)}, "it is damaged at b, too"),
        ({"epochs": (EpochPart(2, 0, "x"),)}, "b has it from other masters"),
    ],
)
def test_who_cannot_give_it_is_not_asked(changes: dict[str, Any], why: str) -> None:
    assert judge(OWN, [answer("b", **changes)], PIECE, 3, memory_decides=True) == Stuck(why)
    assert judge(
        OWN, [answer("b", **changes), answer("c")], PIECE, 3, memory_decides=True
    ) == Fetch(None, ("c",))


def test_a_node_that_is_damaged_elsewhere_can_give() -> None:
    part = answer("b", bad=((0, BLOCK), (2 * BLOCK, FILE))).part
    assert can_give(part, PIECE, EPOCHS)


def test_what_is_not_confirmed_is_fetched_from_who_has_it_from_the_same_masters() -> None:
    behind: dict[str, Any] = {"confirm": 0, "log_end": 2 * BLOCK}
    assert judge(OWN, [answer("b", **behind)], PIECE, 3, memory_decides=True) == Fetch(None, ("b",))
    unknown = msgspec.structs.replace(OWN, epochs=(EpochPart(1, 0),))
    assert isinstance(judge(unknown, [answer("b", **behind)], PIECE, 3, memory_decides=True), Stuck)
    both = answer("b", epochs=unknown.epochs, **behind)
    assert isinstance(judge(unknown, [both], PIECE, 3, memory_decides=True), Stuck)


def test_masters_of_what_is_around_a_piece_do_not_count() -> None:
    """One log ends in a file of which another has more."""
    epochs = (*EPOCHS, EpochPart(2, 2 * BLOCK, "y"))
    assert judge(OWN, [answer("b", epochs=epochs)], PIECE, 3, memory_decides=True) == Fetch(
        None, ("b",)
    )
    within = (*EPOCHS, EpochPart(2, 2 * BLOCK - 1, "y"))
    assert judge(OWN, [answer("b", epochs=within)], PIECE, 3, memory_decides=True) == Stuck(
        "b has it from other masters"
    )


def test_without_a_fingerprint_of_ours_one_vote_waits_for_those_who_are_away() -> None:
    one, two = [answer("b", 7)], [answer("b", 7), answer("c", 7)]
    stuck = judge(OWN, one, PIECE, 3, memory_decides=False)
    assert isinstance(stuck, Stuck)
    assert stuck.is_undecided
    assert judge(OWN, one, PIECE, 3, memory_decides=True) == Fetch(7, ("b",))
    assert judge(OWN, two, PIECE, 3, memory_decides=False) == Fetch(7, ("b", "c"))
    known = msgspec.structs.replace(OWN, fingerprint=7)
    assert judge(known, one, PIECE, 3, memory_decides=False) == Fetch(7, ("b",))


def test_what_a_damaged_node_says_counts_although_it_cannot_give() -> None:
    """Its fingerprint is of before the damage."""
    bad = answer("c", 7, bad=((BLOCK, FILE),))
    own = msgspec.structs.replace(OWN, fingerprint=5)
    assert judge(own, [answer("b", 7), bad], PIECE, 3, memory_decides=True) == Fetch(7, ("b",))


def test_nobody_answers() -> None:
    assert judge(OWN, [], PIECE, 3, memory_decides=True) == Stuck("no other node answers")
