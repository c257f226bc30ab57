"""The record of what is no more: one for several tables, so that none of them is a moment late."""

from __future__ import annotations

import msgspec

from node.tables.consumer_offset_table import is_offset_of
from node.tables.table_part import BASE_FORMAT_VERSION


class Deleted(msgspec.Struct, frozen=True, tag="deleted"):
    """Topics, with the offsets of all groups in them, and groups that are no more."""

    topics: list[str] = []
    groups: list[str] = []
    offsets_of_groups: list[str] = []
    version: int = BASE_FORMAT_VERSION

    def is_gone(self, key: str) -> bool:
        """Whether the offset of this `topic@group` is no more."""
        return any(is_offset_of(key, topic=topic) for topic in self.topics) or any(
            is_offset_of(key, group=group) for group in self.offsets_of_groups
        )
