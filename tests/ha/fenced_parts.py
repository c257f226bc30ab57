"""The parts of one replica's round, without the tasks around them: a step at a time."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ha.fenced.election import Won
from ha.fenced.events import HAEvent
from ha.fenced.leadership import Leadership
from ha.fenced.own_replica import OwnReplica
from ha.fenced.participation import Participation
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.round_end import RoundEnd
from ha.fenced.standing import Standing
from node.simulated.virtual_clock import WallClock
from store import MessageStore
from store.machine.machine import Machine
from tandem.wire.group_state import GroupState, LeaderRecord
from tests.ha.fenced_world import FencedWorld
from tests.ha.scripted_session import Desk
from tests.ha.world import fenced_config


class Parts:
    """Node `a` of a group whose coordinator is a script; a `ReplicationListener` that notes."""

    def __init__(self, world: FencedWorld, store: MessageStore, *script: str) -> None:
        self.world = world
        self.store = store
        self.config = fenced_config("a")
        self.events: list[HAEvent] = []
        self.heard: list[str] = []
        self.machine = Machine(
            disk=world.disks["a"],
            network=world.network.machine("127.0.0.1"),
            wall_clock_ms=WallClock().now_ms,
            boottime=trio.current_time,
            boot_id="boot-1",
            random=random.Random(1),
            on_event=self.events.append,
        )
        self.session = Desk(*script)
        self.replica = OwnReplica(
            self.config, store, world.disks["a"], random.Random(1), self.events.append
        )
        self.replica.begin("boot-1")
        self.replica.judge(self.session.truth)
        self.standing = Standing()
        parts = self.parts = ReplicaParts(
            config=self.config,
            store=store,
            machine=self.machine,
            session=self.session,
            replica=self.replica,
            standing=self.standing,
            on_event=self.events.append,
        )
        self.round_end = RoundEnd(parts, self)
        self.leadership = Leadership(parts, self.round_end, self)
        self.participation = Participation(parts, self.leadership, self.round_end, self)

    def opened(self, epoch: int) -> None:
        self.heard.append(f"opened {epoch}")

    def role_changed(self) -> None:
        self.heard.append(f"{self.standing.role} {self.standing.master_name}".strip())

    def answered(self) -> None:
        self.heard.append("answered")

    def ended(self, reason: str) -> None:
        self.heard.append(f"ended: {reason}")


@contextmanager
def open_parts(*script: str) -> Iterator[Parts]:
    world = FencedWorld()
    with world.open_store("a") as store:
        yield Parts(world, store, *script)


def won_by(parts: Parts, *, log_end: int = 0) -> Won:
    """Let the coordinator have elected node `a`, alone in its set."""
    state = GroupState(
        epoch=6, master="a", isr={"a": parts.replica.file.incarnation}, min_isr=1, reason="test"
    )
    parts.session.write(state, LeaderRecord(node="a", session="s-a", epoch=6))
    parts.session.view = parts.session.truth
    parts.standing.become(ReplicaRole.CANDIDATE)
    return Won(state=state, state_revision=11, leader_revision=11, log_end=log_end)
