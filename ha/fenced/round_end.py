"""How the round of one replica ends: it begins again, with or without its log, or takes no part.

begin_again  the store is closed and opened anew in the same process, by its owner
begin_empty  the same, with a store that has been set aside
quarantine   nothing is changed until an operator has looked; if that one runs recover-group, the
             round ends, and the next one compares the log anew
"""

from __future__ import annotations

import logging

import trio

from ha.fenced.events import Quarantined
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.replication import ReplicationListener
from store.running_flags import RunningFlag
from tandem.wire.group_state import GroupState

_log = logging.getLogger(__name__)


class RoundEnd:
    """The end of one round; `is_over` is set once there is nothing left to take part in."""

    def __init__(self, parts: ReplicaParts, listener: ReplicationListener) -> None:
        self._standing = parts.standing
        self._replica = parts.replica
        self._store = parts.store
        self._listener = listener
        self._on_event = parts.on_event
        self._session = parts.session
        self._recoveries = 0
        self.is_over = trio.Event()

    def begin_again(self, reason: str) -> None:
        """End this round. The next one begins at once, unless a sync of this store has failed.

        What is in memory need not be on the disk then, and a new round would take it for that.
        """
        if self.is_over.is_set():
            return
        if not self._store.flags.is_set(RunningFlag.NOT_WRITEABLE):
            self._begin(reason)
            return
        self._standing.over_because = reason
        self.is_over.set()
        self._replica.quarantine = f"{reason}; start this node again on a sound disk"
        self._standing.become(ReplicaRole.QUARANTINED)
        _log.critical("this node takes no part any more: %s", self._replica.quarantine)
        self._report()

    def begin_empty(self, reason: str) -> None:
        """End this round. The store has been set aside: whatever became of it does not matter."""
        self._begin(reason)

    def _begin(self, reason: str) -> None:
        self._standing.over_because = reason
        self.is_over.set()
        self._standing.become(ReplicaRole.RESTARTING)
        self._listener.ended(reason)
        self._report()

    def quarantine(self, reason: str) -> None:
        """Take no part, and serve nobody, until an operator has looked."""
        view = self._session.view
        self._recoveries = view.state.recoveries if view and view.state else 0
        self._replica.quarantine = reason
        self._store.fence(f"{self._replica.config.name} is in quarantine: {reason}")
        self._standing.become(ReplicaRole.QUARANTINED)
        self._on_event(Quarantined(reason=reason))
        _log.critical(
            "this node is in quarantine, and changes nothing until an operator has looked: %s",
            reason,
        )
        self._report()

    def is_recovered(self, state: GroupState | None) -> bool:
        """True if this replica is in quarantine and an operator has recovered the group since."""
        is_in_quarantine = self._standing.role is ReplicaRole.QUARANTINED
        return is_in_quarantine and state is not None and state.recoveries > self._recoveries

    def _report(self) -> None:
        self._standing.knows_master("")
        self._listener.role_changed()
