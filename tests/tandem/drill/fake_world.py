"""A make-believe cluster for scenarios: who is up decides what a send is answered."""

from typing import TYPE_CHECKING

import trio

from tandem.drill.breakable import Felt
from tandem.drill.outcomes import NOT_SENT, SEND_OK, SLAVE_NOT_AVAILABLE, SendMode
from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.rot import Rot, RotKind
from tandem.drill.scenario import (
    Expectation,
    NodeFailedError,
    NotPossibleError,
    OutOfPlaceError,
    Stage,
)
from tandem.drill.scenario_file import parse_scenario
from tandem.drill.timeline import Phase, Timeline
from tandem.drill.watched_group import WatchedGroup
from tandem.wire.group_state import GroupState, LeaderRecord
from tests.tandem.drill.samples import status as samples_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MASTER = "broker-a-0"
SLAVES = ("broker-a-1", "broker-a-2")
START_SECONDS = 0.5
CATCH_UP_SECONDS = 1.0
PRODUCERS: tuple[tuple[str, SendMode], ...] = (("sync-1", "sync"), ("async-1", "async"))


class World:
    """One master, two slaves, one producer of each mode, and a consumer."""

    def __init__(
        self,
        *,
        is_fenced: bool = False,
        name: str = "broker-a",
        others: "Sequence[World]" = (),
        timeline: Timeline | None = None,
        whole: Timeline | None = None,
    ) -> None:
        """`others`: of groups beside this one, whose nodes have the same names here.

        `whole`: the timeline of the one beside which this one is.
        """
        self.timeline = Timeline() if timeline is None else timeline
        self.replication = Replication(
            {node: f"127.0.0.{number}" for number, node in enumerate(SLAVES, start=2)},
            self.timeline,
        )
        self.up = {MASTER: trio.current_time(), **dict.fromkeys(SLAVES, trio.current_time())}
        self.answer: Callable[[SendMode], str] = self.usual_answer
        self.reason = "no slave connected"
        self.refuse_to_start: str | None = None
        self.sending = False
        self.reading = True
        self.lines_left = 0
        self.owed: str | None = None
        self.unpromised = 0
        """What groups have not got yet, in words; None: they are not audited."""
        self._latest: dict[str, tuple[Phase, str]] = {}
        self.exits: list[str] = []
        self.frozen: set[str] = set()
        self.done: list[str] = []
        """What was done to nodes, links and disks, in words."""
        self.full: set[str] = set()
        self.disks_possible = True
        self.heals = True
        self.watched = WatchedGroup([MASTER, *SLAVES]) if is_fenced else None
        self.epoch = 1
        self.master = MASTER
        self.machines_are_missing = False
        self.elects = True
        self.claims: set[str] = set()
        """Nodes that say that they are master, whoever is."""
        self.faults_are_felt = True
        self.looks = 0
        self.stage: Stage = Stage(
            nodes=[MASTER, *SLAVES],
            cluster=self,
            network=self if is_fenced else None,
            disks=self,
            load=self,
            replication=self.replication,
            watched=self.watched,
            timeline=self.timeline,
            now=trio.current_time,
            status_without_slaves=SLAVE_NOT_AVAILABLE,
            expectations=[],
            machines=self if is_fenced else None,
            name=name,
            others=[other.stage for other in others],
            whole=whole,
        )
        self.stage.scenario = "a-scenario"
        self.stage.load_seconds = 20.0

    async def play(self, *sentences: str) -> None:
        """Play sentences, after the load has begun."""
        lines = "".join(f"  - {sentence}\n" for sentence in ("start the load", *sentences))
        scenario = parse_scenario(f"promise: x\nsteps:\n{lines}", "a-scenario", "here")
        self.stage.bind("a-scenario")
        for step in scenario.steps:
            await step.play(self.stage)

    @property
    def failed(self) -> list[Expectation]:
        """What was expected and did not come."""
        return [expectation for expectation in self.stage.expectations if not expectation.held]

    def tell(self, watched: WatchedGroup, now: float) -> None:
        """Elect, if the master is gone and elections are not what is broken; tell who is what."""
        lost = self.master not in self.up or self.master in self.frozen
        if lost and self.elects:
            watched.coordinator_said(now, now, watched.state, None)
            self.elect(without=self.master)
        state = GroupState(
            epoch=self.epoch, master=self.master, isr=dict.fromkeys(self.up, "x"), min_isr=2
        )
        leader = LeaderRecord(node=self.master, session="s", epoch=self.epoch)
        watched.coordinator_said(now, now, state, leader)
        for node in (MASTER, *SLAVES):
            if node in self.up and node not in self.frozen:
                master = node if node in self.claims else self.master
                watched.node_said(now, now, node, samples_status(node, master, self.epoch))
            else:
                watched.node_silent(now, node)

    def attached(self, node: str) -> bool:
        """Whether a slave is up, its master too, and both for long enough to have met."""
        both = (self.up.get(node), self.up.get(MASTER))
        now = trio.current_time()
        return all(since is not None and now >= since + CATCH_UP_SECONDS for since in both)

    def usual_answer(self, mode: SendMode) -> str:
        if self.watched is not None:
            gone = self.master not in self.up or self.master in self.frozen
            return NOT_SENT if gone else SEND_OK
        if MASTER not in self.up:
            return NOT_SENT
        if mode == "sync" and not any(self.attached(slave) for slave in SLAVES):
            return SLAVE_NOT_AVAILABLE
        return SEND_OK

    async def run(self) -> None:
        """Send, read and ask for the lag, twenty times a second."""
        while True:
            now = trio.current_time()
            for producer, mode in PRODUCERS if self.sending else ():
                phase = self.timeline.sent()
                status = self.answer(mode)
                self._latest[producer] = (phase, status)
                self.timeline.answered(
                    now,
                    phase,
                    mode,
                    status,
                    reason="" if status == SEND_OK else self.reason,
                    send_id=f"{producer}-0",
                    latency_ms=1.0,
                )
            if self.timeline.phases and self.reading:
                self.timeline.read(now, 5)
            if self.watched is not None:
                self.tell(self.watched, now)
            if self.watched is not None or MASTER in self.up:
                reports = [
                    SlaveReport(f"127.0.0.{number}", 1000, 0)
                    for number, node in enumerate(SLAVES, start=2)
                    if self.attached(node) or self.watched is not None
                ]
                self.replication.sampled(now, 1000, reports)
            else:
                self.replication.silent(now)
            await trio.sleep(0.05)

    async def start(self, node: str) -> None:
        if node in self.up:
            raise OutOfPlaceError(f"{node} runs already")
        await trio.sleep(START_SECONDS)
        if self.refuse_to_start is not None:
            raise NodeFailedError(f"{node} did not start: {self.refuse_to_start}")
        self.up[node] = trio.current_time()

    async def kill(self, node: str) -> None:
        await trio.lowlevel.checkpoint()
        del self.up[node]

    async def stop(self, node: str) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append(f"stop {node}")
        self.up.pop(node, None)

    def upgrade(self, node: str) -> None:
        self.done.append(f"upgrade {node}")

    def go_back(self, node: str) -> None:
        self.done.append(f"go back {node}")

    async def freeze(self, node: str) -> None:
        await trio.lowlevel.checkpoint()
        self.frozen.add(node)

    async def wake(self, node: str) -> None:
        await trio.lowlevel.checkpoint()
        self.frozen.discard(node)

    async def resign(self, node: str) -> None:
        await trio.lowlevel.checkpoint()
        self.elect(without=node)

    async def promote(self, node: str) -> None:
        await trio.lowlevel.checkpoint()
        self.epoch += 1
        self.master = node

    def elect(self, *, without: str) -> None:
        """Let the first node that lives win, as a group with a coordinator would."""
        alive = [node for node in (MASTER, *SLAVES) if node in self.up and node != without]
        if alive:
            self.epoch += 1
            self.master = alive[0]

    def runs(self, node: str) -> bool:
        return node in self.up

    def cut(self, source: str, target: str, *, replication_only: bool = False) -> None:
        self.done.append(f"cut {source} {target}{' replication' if replication_only else ''}")

    def slow(
        self, source: str, target: str, *, delay_seconds: float = 0, bytes_per_second: float = 0
    ) -> None:
        self.done.append(f"slow {source} {target} {delay_seconds:g} {bytes_per_second:g}")

    def reset(self, node: str) -> None:
        self.done.append(f"reset {node}")

    async def cut_off(self, node: str, others: "Sequence[str]") -> None:
        await trio.lowlevel.checkpoint()
        for other in others:
            self.cut(node, other)
            self.cut(other, node)

    async def heal(self) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append("heal")

    async def disturb(self, node: str) -> str:
        await trio.lowlevel.checkpoint()
        self.done.append(f"disturb {node}")
        return "nonsense"

    def fill(self, node: str) -> None:
        if not self.disks_possible:
            raise NotPossibleError("only root can mount one")
        self.full.add(node)

    def free(self, node: str) -> None:
        self.full.discard(node)

    def keep_copy(self, who: str) -> None:
        self.done.append(f"copy {who}")

    def put_back(self, who: str) -> None:
        self.done.append(f"put back {who}")

    async def by_hand(self, *order: str) -> str:
        await trio.lowlevel.checkpoint()
        self.done.append(" ".join(order))
        return "refused"

    def damage_tail(self, node: str, size_bytes: int, *, cut: bool) -> None:
        self.done.append(f"{'cut' if cut else 'garble'} {size_bytes} {node}")

    def rot(self, node: str, kind: RotKind) -> Rot:
        self.done.append(f"{kind} {node}")
        return Rot(kind, f"/data/{node}/commitlog/0", 0, 1)

    def is_healed(self, node: str, rot: Rot) -> bool:
        return self.heals and node in rot.path

    def unexpected_exits(self) -> list[str]:
        return self.exits

    def latest(self, mode: SendMode, phase: Phase) -> list[str | None]:
        found = [self._latest.get(name) for name, of_mode in PRODUCERS if of_mode == mode]
        return [last[1] if last and last[0] is phase else None for last in found]

    def pause(self) -> None:
        self.sending = False

    def resume(self) -> None:
        self.sending = True

    def left_to_send(self) -> int:
        return self.lines_left

    def allow_early(self, seconds: float) -> None:
        self.done.append(f"early {seconds:g}")

    def lose(self, node: str) -> None:
        self.done.append(f"lose {node}")

    def check_ready(self, nodes: "Sequence[str]") -> None:
        if self.machines_are_missing:
            raise NotPossibleError("no compiler")

    def cut_power(self, node: str) -> int:
        self.done.append(f"cut power {node}")
        return 3 if self.faults_are_felt else 0

    def felt(self, node: str) -> Felt:
        if not self.faults_are_felt:
            return Felt()
        self.looks += 1
        return Felt(syncs_delayed=self.looks, syncs_forgotten=self.looks, times_wrong=self.looks)

    def count_files(self, node: str) -> int:
        return 0 if f"lose {node}" in self.done and self.faults_are_felt else 7

    def room_bytes(self, who: str) -> int:
        return 0 if self.faults_are_felt else 1 << 20

    def new_disk(self, node: str) -> None:
        self.done.append(f"new disk {node}")

    def set_clock(self, node: str, ahead_seconds: float) -> None:
        self.done.append(f"clock {node} {ahead_seconds:g}")

    def slow_syncs(self, node: str, seconds: float) -> None:
        self.done.append(f"slow {node} {seconds:g}")

    def lie_about_syncs(self, node: str) -> None:
        self.done.append(f"lie {node}")

    def left_to_handle(self) -> str | None:
        return self.owed

    def left_unpromised(self) -> int:
        return self.unpromised

    def left_to_read(self) -> int:
        return 0 if self.reading else 7
