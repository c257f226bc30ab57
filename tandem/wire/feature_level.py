"""Feature levels: what a fenced group writes and says, so that all of its members can read it.

A group has one level, which is in its record at the coordinator. Each member knows the levels from
`LEVEL_MIN` to `LEVEL_MAX`, whatever the group's is. So members of two versions are in one group, as
long as nobody raises its level; an operator does that, when all members know the next one. A group
goes no level back: an older version could not read what is in its log. See docs/upgrades.md.

A level says which version of each format is written. What is new in a format comes with a new
level, and with a line here.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class FeatureLevel(NamedTuple):
    """What a group writes at a level.

    Attributes:
        number: Of the level.
        program: The first version of TandemMQ that knows it.
        link: The version of the link between its nodes.
        journal: The newest format of its journal.
        brings: What is new, in words.
    """

    number: int
    program: str
    link: int
    journal: int
    brings: str

    @property
    def needs(self) -> str:
        """What a node has to be to take part, in at most 48 characters."""
        return f"TandemMQ {self.program} or later (feature level {self.number})"


LEVELS: Final = (
    FeatureLevel(
        1,
        "0.1.0.dev0",
        link=3,
        journal=5,
        brings="what there was before feature levels",
    ),
    FeatureLevel(
        2,
        "0.1.0",
        link=4,
        journal=6,
        brings="the level is in the group's record, in its log and on its links: older versions"
        " are kept out, and say why",
    ),
)
"""By number, from 1 on, without a gap."""

LEVEL_MIN: Final = LEVELS[0].number
"""The lowest level at which this version takes part."""

LEVEL_MAX: Final = LEVELS[-1].number
"""The highest one that it knows, and that of a new group."""


def feature_level(number: int) -> FeatureLevel:
    """Return what is written at a level that this version knows."""
    return LEVELS[number - 1]


def level_of_journal(version: int) -> int:
    """Return from which level on a journal has records of this format."""
    return next((each.number for each in LEVELS if each.journal >= version), LEVEL_MAX + 1)


def needed_for(number: int) -> str:
    """Return what a node has to be for a level, in words; also for one that is not known here."""
    if number <= LEVEL_MAX:
        return feature_level(number).needs
    return f"a later version of TandemMQ (feature level {number})"
