"""Which tests the quick level has: what computes, and of what takes a while one of each place.

    quick      scripts/test               what everybody plays before a commit
    thorough   scripts/test --thorough    all but the long ones: what CI plays, and a release
    long       scripts/test --long        everything

A rule decides, and no list. What takes a while says so by its marks: whole clusters on virtual
time (`sim`), real processes (`fault`), and what is merely `slow`. Of each kind the first test of a
directory is quick; of Spark, whose start alone takes longer than a hundred others, the first of
all. All others get the mark `thorough`. A module whose first test is too much, too, has that mark
itself.
"""

from collections.abc import Iterable
from typing import Final

import pytest

KINDS: Final = ("spark", "fault", "sim", "slow")


def mark_thorough(items: Iterable[pytest.Item]) -> None:
    """Leave to the thorough level what the quick one does not have."""
    seen = set()
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if marks & {"long", "thorough"}:
            continue
        place = place_of(item.nodeid, marks)
        if place is None:
            continue
        if place in seen:
            item.add_marker("thorough")
        seen.add(place)


def place_of(nodeid: str, marks: set[str]) -> tuple[str, str] | None:
    """Kind and place of a test of which the quick level has one; None: it has all of these."""
    kind = next((each for each in KINDS if each in marks), None)
    if kind is None:
        return None
    return kind, "" if kind == "spark" else nodeid.partition("::")[0].rpartition("/")[0]
