"""Whom a session with the coordinator tells what it hears, and whom it asks about its own node."""

from __future__ import annotations

from typing import Protocol

from ha.fenced.group_view import GroupView
from tandem.wire.group_state import LifeRecord, NodeRecord


class GroupListener(Protocol):
    """Hears what the coordinator says, in the step in which it becomes known."""

    def group_changed(self, view: GroupView) -> None:
        """Something newer is known of the group."""

    def lease_lost(self, reason: str) -> None:
        """The lease is gone: whatever was attached to it is gone, too."""


class SelfKnowledge(Protocol):
    """What a session has to know of its own node: see `OwnReplica`."""

    def describe(self) -> NodeRecord:
        """Return the node's record as it should be now."""

    def judge(self, view: GroupView) -> None:
        """Find out whether the directory, or the coordinator, is an older copy."""

    def next_life(self, view: GroupView) -> LifeRecord | None:
        """Return what is to be remembered of this node; its directory knows of it then."""

    def remembered(self, life: LifeRecord) -> None:
        """The coordinator remembers this."""
