"""Replication as a broker sees it: one interface, of which there are two kinds.

    classic  `ha.classic.ha_service.HAService`        the role is in the cluster file
    fenced   `ha.fenced.ha_service.FencedHAService`   the nodes elect their master

A broker asks whether a put is taken, what it has to wait for, and how far replication is. It
hears through a `ReplicationListener` when this node begins to take messages, when its role changes,
when waiting puts were answered, and when the round of this node is over. Up to where clients may
read is no question of the broker: the store bounds that.
"""

from __future__ import annotations

from typing import Protocol

import trio

from ha.results import Ack, PutWait, Refusal, ReplicaStanding
from tandem.wire.request_headers import HARuntimeInfo


class ReplicationListener(Protocol):
    """What replication tells its broker. Called between two awaits, never from a thread."""

    def opened(self, epoch: int) -> None:
        """From this step on this node takes messages. In a classic group the epoch is 0.

        Raises:
            StoreError: the broker cannot begin; it ends the node.
        """

    def role_changed(self) -> None:
        """`is_master`, `is_quarantined` or `epoch` is another now."""

    def answered(self) -> None:
        """Waiting puts were answered; their answers may be sent."""

    def ended(self, reason: str) -> None:
        """The owner of the store has to close it, and to open all of it again."""


class Replication(Protocol):
    """Replication of one store, for as long as the store is open."""

    @property
    def is_master(self) -> bool:
        """Whether clients are to send to this node."""

    @property
    def is_quarantined(self) -> bool:
        """Whether this node answers nothing but questions about itself."""

    @property
    def epoch(self) -> int:
        """The epoch this node knows of; 0 in a classic group."""

    def refusal(self) -> Refusal | None:
        """Return why no put is taken now; None if puts are taken. Asked for every put."""

    def why_behind(self) -> str | None:
        """Return why this node may not know all that was acknowledged; None if it surely does.

        Only the master knows it, and one of a fenced group only while its lease holds.
        """

    def waits(self, ack: Ack) -> PutWait | None:
        """Return which progress of replication such a put waits for; None: it waits for nobody."""

    def runtime_info(self) -> HARuntimeInfo:
        """Return the state of replication: the answer to GET_BROKER_HA_STATUS."""

    def replica_standing(self) -> ReplicaStanding:
        """Return what this replica is at the moment: for figures, and for who asks for health."""

    def why_not_served(self) -> str:
        """Return why a quarantined node serves nobody, in words."""

    async def run(
        self,
        listener: ReplicationListener,
        *,
        task_status: trio.TaskStatus[None] = ...,
    ) -> None:
        """Replicate until cancelled.

        Raises:
            StoreError: what replication has to remember cannot be written.
            AddressInUseError: something else listens on the replication port.
        """
