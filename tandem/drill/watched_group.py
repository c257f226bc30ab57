"""What is known of a fenced group while it is drilled: its coordinator's records, its nodes' words.

Pure: `watch` asks them and passes on each answer, with the time. Everything that changed is in
`history`, from which `switches` reads how long each step of a failover took.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from tandem.wire.group_state import GroupState, LeaderRecord
from tandem.wire.ha_status import FencedStatus

MASTER_ROLE = "MASTER"

NO_BOUND: Final = 1 << 62
"""The confirm offset of RocketMQ's brokers, which say of none: logs are compared to their ends."""

ChangeKind = Literal["leader-gone", "epoch", "open", "stepped-down", "ended"]


class Change(msgspec.Struct, frozen=True):
    """Something that changed, in seconds since the drill started.

    leader-gone: the coordinator has no leader of the group any more. epoch: its state names a new
    one, won by `node`. open: that node says that it is master. stepped-down: it says so no more, or
    that its lease is over. ended: its process was killed or stopped.

    `text` and `cause`, a value of `SwitchCause`, say why there is a new epoch.
    """

    at_seconds: float
    kind: ChangeKind
    node: str
    epoch: int
    text: str = ""
    cause: str = ""


class WatchedGroup:
    """The last that is known of each node and of the group, and the history."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = list(nodes)
        self.history: list[Change] = []
        self.state: GroupState | None = None
        self.leader: LeaderRecord | None = None
        self.statuses: dict[str, FencedStatus | None] = dict.fromkeys(nodes)
        self.asked_at: dict[str, float] = dict.fromkeys(nodes, float("-inf"))
        """When the question was asked that a node answered last."""
        self.confirms: dict[str, int] = {}
        """The last confirm offset that each node reported."""
        self.too_slow: dict[str, str] = {}
        """What nodes said last of machines that do not run them in time, in words."""
        self.coordinator_asked_at = float("-inf")
        self._open_epochs: dict[str, int] = {}
        self._opened_at: dict[str, float] = {}
        """When nodes that say that they are master have said so first, of their epoch."""
        self._newest_epoch = 0

    @property
    def epoch(self) -> int:
        """The epoch of the group's state; 0 while there is none."""
        return self.state.epoch if self.state is not None else 0

    @property
    def master(self) -> str:
        """The node that has said that it is master of the newest epoch; empty if none has."""
        if self.state is None:
            return ""
        name = self.state.master
        status = self.statuses.get(name)
        is_open = status is not None and status.role == MASTER_ROLE and status.epoch == self.epoch
        return name if is_open and self.leader is not None else ""

    @property
    def masters(self) -> list[str]:
        """Nodes that say now that they are master and may answer."""
        return [
            name
            for name, status in self.statuses.items()
            if status is not None and status.role == MASTER_ROLE and not status.refusal
        ]

    @property
    def masters_at_once(self) -> list[str]:
        """Those of `masters` that were asked when the newest of them had said that it is one.

        Nodes are asked in turn: that one was master before it gave up is no second master.
        """
        names = self.masters
        newest = max(names, key=lambda name: self._open_epochs.get(name, 0), default="")
        since = self._opened_at.get(newest, float("-inf"))
        return [name for name in names if name == newest or self.asked_at[name] > since]

    @property
    def in_sync(self) -> list[str]:
        """The recorded in-sync replicas, sorted."""
        return sorted(self.state.isr) if self.state is not None else []

    def coordinator_said(
        self, asked_at: float, now: float, state: GroupState | None, leader: LeaderRecord | None
    ) -> None:
        """Take the records of the group as they are."""
        self.coordinator_asked_at = asked_at
        leader_before = self.leader
        self.state, self.leader = state, leader
        if leader_before is not None and (leader is None or leader.epoch != leader_before.epoch):
            self._note(now, "leader-gone", leader_before.node, leader_before.epoch)
        # Not an epoch from a backup, nor that of a recovery, which nobody has won yet.
        if state is not None and state.master and state.epoch > self._newest_epoch:
            self._newest_epoch = state.epoch
            self.history.append(
                Change(now, "epoch", state.master, state.epoch, state.reason, state.cause)
            )

    def node_said(self, asked_at: float, now: float, node: str, status: FencedStatus) -> None:
        """Take a node's answer."""
        self.asked_at[node] = asked_at
        self.statuses[node] = status
        self.confirms[node] = status.confirm
        if status.too_slow:
            self.too_slow[node] = status.too_slow
        opened = self._open_epochs.get(node)
        if status.role == MASTER_ROLE and status.lease_left_ms > 0:
            if opened != status.epoch:
                self._open_epochs[node] = status.epoch
                self._opened_at[node] = now
                self._note(now, "open", node, status.epoch)
        elif opened is not None:
            del self._open_epochs[node]
            self._note(now, "stepped-down", node, opened, status.refusal)

    def node_silent(self, asked_at: float, node: str) -> None:
        """Note that a node did not answer."""
        self.asked_at[node] = asked_at
        self.statuses[node] = None

    def node_ended(self, now: float, node: str) -> None:
        """Note that a node's process is gone."""
        self.statuses[node] = None
        epoch = self._open_epochs.pop(node, 0)
        self._note(now, "ended", node, epoch)

    def _note(self, now: float, kind: ChangeKind, node: str, epoch: int, text: str = "") -> None:
        self.history.append(Change(now, kind, node, epoch, text))

    def __str__(self) -> str:
        if self.state is None:
            return "the coordinator has no state of the group"
        master = self.master or "nobody"
        return f"epoch {self.epoch}, master {master}, in sync: {', '.join(self.in_sync)}"
