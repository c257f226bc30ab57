"""What one replica is in its group, for one round: its role, and all that goes with it.

It is plain state: the code that changes it also does what the change asks for.

    Participation  FOLLOWER, CANDIDATE: what it follows or waits for, and who is master
    Leadership     OPENING, MASTER, and the way out of them
    RoundEnd       RESTARTING, QUARANTINED

Everybody else reads it: the broker's questions, the status, an operator's orders.
"""

from __future__ import annotations

import msgspec
import trio

from ha.errors import LocalHAError
from ha.fenced.group_view import GroupView
from ha.fenced.master import FencedMaster
from ha.fenced.replica_follower import ReplicaFollower
from ha.fenced.replica_role import ReplicaRole, may_become
from store.machine.signal import Signal


class Parting(msgspec.Struct, frozen=True):
    """Our log is equal to that of the master of `epoch` below `offset`; -1: not compared."""

    epoch: int
    offset: int


class BadBytes(msgspec.Struct, frozen=True):
    """The record that `node` sends of `offset` is not sound."""

    node: str
    offset: int


class Standing:
    """Role, epoch, and master of one replica.

    Attributes:
        role: See `ReplicaRole`; changed by `become` only.
        epoch: Of the group's record that this node knows, or of the mastership it has won.
        master_name: Name of the master this node knows; empty if it knows of none.
        master_client_address: `host:port` of that master for clients; empty if it is not known.
        mastership: What this node has won; it stays after its end, to say why it ended.
        follower: What follows a master at the moment.
        parting: How far the log is equal to that of the last master that was followed.
        waits_for: Why this node follows nobody, in words; empty while it does.
        over_because: Why this round is over, in words; empty before that.
        won_an_epoch: Set once this node is about to be master, or is.
        bad_bytes: What a master has sent last that is no sound record; None for nothing.
        bad_bytes_seen: Notified when it has done so.
        doubted: Parts of our log that others say are bad, from where to where, not looked at yet.
        doubted_seen: Notified when there is one more.
    """

    def __init__(self) -> None:
        self.role = ReplicaRole.FOLLOWER
        self.epoch = 0
        self.master_name = ""
        self.master_client_address = ""
        self.mastership: FencedMaster | None = None
        self.follower: ReplicaFollower | None = None
        self.parting = Parting(0, -1)
        self.waits_for = "the coordinator has not answered yet"
        self.over_because = ""
        self.won_an_epoch = trio.Event()
        self.bad_bytes: BadBytes | None = None
        self.bad_bytes_seen = Signal()
        self.doubted: set[tuple[int, int]] = set()
        self.doubted_seen = Signal()

    def become(self, role: ReplicaRole) -> None:
        """Go on to another role.

        Raises:
            LocalHAError: there is no such way in the diagram of `replica_role`.
        """
        if not may_become(self.role, role):
            raise LocalHAError(f"a replica that is {self.role} does not become {role}")
        self.role = role

    def won(self, mastership: FencedMaster) -> None:
        """The election is won; no messages are taken yet."""
        self.become(ReplicaRole.OPENING)
        self.epoch = mastership.epoch
        self.mastership = mastership
        self.won_an_epoch.set()

    def was_sent_bad_bytes(self, node: str, offset: int) -> None:
        """Note it, for the task that says so to that node."""
        self.bad_bytes = BadBytes(node, offset)
        self.bad_bytes_seen.notify()

    def was_doubted(self, start: int, end: int) -> None:
        """Note it, for the task that looks at all of a file, and asks others."""
        self.doubted.add((start, end))
        self.doubted_seen.notify()

    def knows_master(self, name: str, view: GroupView | None = None) -> bool:
        """Note which node is master, "" for none, and where clients find it. True if news."""
        node = view.nodes.get(name) if view else None
        known = name, node.client_address if node else ""
        if known == (self.master_name, self.master_client_address):
            return False
        self.master_name, self.master_client_address = known
        return True
