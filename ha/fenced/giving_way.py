"""GivingWay: the task of a master that looks whether its log is damaged, and another's is whole.

Then it resigns. The other one must follow well, not only be registered: else two nodes that cannot
reach each other would pass mastership to and fro.
"""

from __future__ import annotations

from typing import Final

import trio

from ha.fenced.leadership import Leadership
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.wholeness import whole_members

LOOK_AGAIN_SECONDS: Final = 0.5
"""Others become whole, or catch up, without a change on this node."""


class GivingWay:
    """Lives for one round."""

    def __init__(self, parts: ReplicaParts, leadership: Leadership) -> None:
        self._parts = parts
        self._leadership = leadership

    async def run(self) -> None:
        """Look until cancelled."""
        damage = self._parts.store.commit_log.damage
        while True:
            reason = self.why_resign()
            if reason is not None:
                self._leadership.resign(reason)
            with trio.move_on_after(LOOK_AGAIN_SECONDS):
                await damage.changed.wait()

    def why_resign(self) -> str | None:
        """Return why another member should be master now, in words; None if none should."""
        parts = self._parts
        master, view = parts.standing.mastership, parts.session.view
        damage = parts.store.commit_log.damage
        if not damage or parts.standing.role is not ReplicaRole.MASTER or not master or not view:
            return None
        isr, now = master.isr, trio.current_time()
        others = [
            name
            for name in whole_members(isr.recorded, view.nodes, but=parts.config.name)
            if isr.why_not_live(name, now) is None
        ]
        if not others:
            return None
        return f"{parts.replica.damage}, and the log of {', '.join(others)} is whole"
