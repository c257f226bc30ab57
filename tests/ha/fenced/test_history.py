"""Two nodes with one history have the same bytes; where a master is not known, nobody can say."""

import pytest

from ha.fenced.epochs import EpochEntry
from ha.fenced.history import (
    are_of_one_history,
    epochs_within,
    history_of,
    narrowed,
    shared_end,
)
from tandem.wire.peer_log import EPOCHS_MAX, EpochPart

OWN = (EpochPart(3, 100, "x"), EpochPart(4, 900, "y"), EpochPart(6, 950, "z"))


def test_epochs_of_a_part() -> None:
    entries = (EpochEntry(1, 0, "x"), EpochEntry(2, 50, "y"), EpochEntry(3, 90, "z"))
    assert epochs_within(entries, 10, 60) == (EpochPart(1, 0, "x"), EpochPart(2, 50, "y"))
    assert epochs_within(entries, 50, 90) == (EpochPart(2, 50, "y"),)
    assert epochs_within(entries[1:], 10, 60) == (EpochPart(2, 50, "y"),)
    assert epochs_within((), 10, 60) == ()


def test_those_of_a_smaller_part_are_what_the_list_says_of_it() -> None:
    entries = (EpochEntry(1, 0, "x"), EpochEntry(2, 50, "y"), EpochEntry(3, 90, "z"))
    for begin in (0, 10, 50):
        for known in (entries, entries[1:], ()):
            of_all = epochs_within(known, begin, 200)
            for start, end in ((begin, 200), (50, 90), (60, 80), (90, 91), (95, 200)):
                assert narrowed(of_all, start, end) == epochs_within(known, start, end)


def test_only_what_the_same_masters_wrote_is_compared() -> None:
    own = OWN[:2]
    assert are_of_one_history(own, own)
    assert are_of_one_history(own, [EpochPart(3, 500, "x"), EpochPart(4, 900, "y")])
    assert are_of_one_history(own, [EpochPart(3, 100, ""), EpochPart(4, 900, "y")])
    assert not are_of_one_history(own, own[:1])
    assert not are_of_one_history(own, [EpochPart(3, 100, "z"), EpochPart(4, 900, "y")])
    assert not are_of_one_history(own, [EpochPart(2, 100, "x"), EpochPart(4, 900, "y")])
    assert not are_of_one_history(own, [EpochPart(3, 100, "x"), EpochPart(4, 901, "y")])
    assert are_of_one_history([], [])


@pytest.mark.parametrize(
    "other",
    [
        (EpochPart(3, 100, "w"), *OWN[1:]),
        (EpochPart(2, 100, "x"), *OWN[1:]),
        (OWN[0], EpochPart(4, 901, "y"), OWN[2]),
        (OWN[0], EpochPart(4, 900, "w"), OWN[2]),
        (OWN[0], EpochPart(5, 900, "y"), OWN[2]),
        OWN[:2],
        OWN[1:],
    ],
)
def test_whoever_has_a_part_from_others_has_another_history(other: tuple[EpochPart, ...]) -> None:
    assert history_of(other, 200, 1000) != history_of(OWN, 200, 1000)


def test_what_is_outside_of_a_part_says_nothing_about_it() -> None:
    """Where its first master began may be gone, and others may have come after it."""
    assert history_of(OWN, 200, 950) == history_of(OWN[:2], 200, 950)
    assert history_of(OWN, 200, 950) == history_of((EpochPart(3, 150, "x"), OWN[1]), 200, 950)
    assert history_of(OWN, 900, 950) == history_of((EpochPart(4, 900, "y"),), 900, 950)
    assert history_of(OWN, 200, 300) != history_of(OWN, 900, 950)


@pytest.mark.parametrize(
    "epochs",
    [
        (),
        (EpochPart(3, 201, "x"),),
        (EpochPart(3, 100, ""), OWN[1]),
        (OWN[0], EpochPart(4, 900, "")),
        (EpochPart(3, 100, "x"),) * EPOCHS_MAX,
    ],
)
def test_where_a_master_is_not_known_there_is_none(epochs: tuple[EpochPart, ...]) -> None:
    assert history_of(epochs, 200, 1000) == ""


@pytest.mark.parametrize(
    ("theirs", "end"),
    [
        (OWN, 1000),
        ((EpochPart(3, 150, "x"), *OWN[1:]), 1000),
        ((EpochPart(3, 100, ""), *OWN[1:]), 1000),
        (OWN[:2], 950),
        ((*OWN[:2], EpochPart(6, 950, "w")), 950),
        ((*OWN[:2], EpochPart(6, 940, "z")), 940),
        ((*OWN[:2], EpochPart(6, 960, "z")), 950),
        ((*OWN, EpochPart(7, 990, "w")), 990),
        ((*OWN, EpochPart(7, 1000, "w")), 1000),
        (OWN[:1], 900),
        ((EpochPart(3, 100, "w"), *OWN[1:]), 200),
        ((), 200),
    ],
)
def test_up_to_where_a_part_is_shared(theirs: tuple[EpochPart, ...], end: int) -> None:
    assert shared_end(OWN, theirs, 200, 1000) == end
    assert shared_end(theirs, OWN, 200, 1000) == end
    assert shared_end((), (), 200, 1000) == 1000
    if end > 200:
        assert are_of_one_history(narrowed(OWN, 200, end), narrowed(theirs, 200, end))
    if end < 1000:
        assert not are_of_one_history(narrowed(OWN, 200, end + 1), narrowed(theirs, 200, end + 1))
