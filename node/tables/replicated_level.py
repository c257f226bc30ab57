"""The feature level of a fenced group, as a replicated table: so that its log says it, too.

A version that does not know the level stops at the record of it, whatever the coordinator says, and
shows its beginning: what a node has to be. At the lowest level nothing of it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from node.tables.table_part import Content, Field, FieldKind, TablePart
from tandem.wire.feature_level import needed_for
from tandem.wire.remoting_command import Int64

LEVEL_VERSION: Final = 6
"""Of the journal's format: nodes of older versions do not read a journal with a level."""


class LevelRaised(msgspec.Struct, frozen=True, tag="featureLevel"):
    """The group is at this level from now on. `needs` comes first, for versions that stop here."""

    needs: str
    feature_level: Int64
    version: int = LEVEL_VERSION


def level_raised(level: int) -> LevelRaised:
    """Return the record of a level."""
    return LevelRaised(needed_for(level), level)


class LevelPart(TablePart):
    """The level; 0 where nothing is said, as at the lowest one."""

    record = LevelRaised
    fields: ClassVar = (Field("feature_level", Int64, FieldKind.WHOLE),)
    version = LEVEL_VERSION
    is_in_plain_files = False

    def __init__(self, level: int = 0) -> None:
        self.level = level

    def apply(self, record: LevelRaised) -> None:
        """See `TablePart`. A level is never taken back."""
        self.level = max(self.level, record.feature_level)

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        self.level = max(self.level, content["feature_level"] or 0)

    def content(self) -> Content:
        """See `TablePart`."""
        return {"feature_level": self.level}

    def copy(self) -> LevelPart:
        """See `TablePart`."""
        return LevelPart(self.level)
