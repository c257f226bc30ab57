"""The stage that scenarios are played on: what they break, what they wait for, what they note.

A scenario is a list of steps, read from a file (`scenario_file`); what each sentence does is in
`sentences`. Its steps form phases. Every phase ends because something was *seen*, with a deadline,
or because the load had run for its time; in that case each send of the phase is judged.

A condition that is not met in time ends its scenario: what would follow means nothing. It is kept
as an expectation that did not hold, with what was seen instead.
"""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.drill.breakable import Cluster, Disks, Load, Machines, Network
from tandem.drill.effects import Effects
from tandem.drill.lost_leases import LATE_SECONDS_MIN
from tandem.drill.outcomes import SendMode
from tandem.drill.replication import Replication
from tandem.drill.switches import longest_gap
from tandem.drill.timeline import Timeline
from tandem.drill.watched_group import WatchedGroup

ANOTHER_GROUP: Final = "another"
"""In the place of a group's name: one that is not drilled, the same for a whole scenario."""

if TYPE_CHECKING:
    from tandem.drill.rot import Rot

READY_SECONDS_MAX: Final = 30.0
"""A node recovers a log of this size within a second; ten times that on a busy machine."""

SEEN_SECONDS_MAX: Final = 20.0
"""For everything else that must be seen: three times a replication timeout plus a reconnect."""

LOOK_SECONDS: Final = 0.05

HEAR_SECONDS_MAX: Final = 5.0
"""A node that does not answer is known to be silent after a second."""


PLAYED: Final = "ran to its end"
ENDED_EARLY: Final = "ended early"
NOT_POSSIBLE: Final = "not possible here"


class Seen(msgspec.Struct, frozen=True):
    """What a look at the cluster showed, and whether it is what was expected."""

    held: bool
    text: str


class Expectation(msgspec.Struct, frozen=True):
    """One thing a phase had to show. `waited_seconds` is how long it took, or the deadline.

    `is_liveness`: it is about time, and a machine that is too slow may explain that it did not
    come. What is not may never be otherwise, however slow the machine is.
    """

    at_seconds: float
    scenario: str
    phase: str
    expected: str
    seen: str
    held: bool
    waited_seconds: float
    is_liveness: bool


class ScenarioRun(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario as it was played. Times in seconds since the drill started."""

    name: str
    promise: str
    started_at_seconds: float
    ended_at_seconds: float
    outcome: str
    """`ran to its end`, or why it did not: `not possible here: …`, `ended early`."""
    unavailable_seconds: float | None
    """The longest time without a SEND_OK for a sync send, from the first fault to the drain."""
    unavailable_from_seconds: float | None

    @property
    def is_possible(self) -> bool:
        """Whether this machine could do what the scenario asks for."""
        return not self.outcome.startswith(NOT_POSSIBLE)


class UnmetError(Exception):
    """A condition was not met in time; the scenario cannot go on. It is already recorded."""


class NodeFailedError(Exception):
    """A node could not be started or stopped, or did not take an order; the text says why."""


class OutOfPlaceError(NodeFailedError):
    """The step makes no sense as things are: to start what runs, to hurt the disk of what runs.

    It is a mistake of the scenario, or of the cluster. No slow machine is the reason.
    """


class NotPossibleError(Exception):
    """This machine cannot do what a step asks for; the text says why. Nothing was broken."""


class Roles:
    """Who is meant by "the master" and "slave 1": bound when a scenario begins."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = list(nodes)
        self.old_master = self.nodes[0]

    @property
    def slaves(self) -> list[str]:
        """Everybody but the master of the scenario's beginning, in the order of the file."""
        return [node for node in self.nodes if node != self.old_master]

    def find(self, who: str, master: str) -> list[str]:
        """Return the nodes that words of a scenario mean; `master` is the one of now.

        Raises:
            NodeFailedError: there is nobody like that.
        """
        match who.split():
            case ["the", "master"]:
                found = [master] if master else []
            case ["the", "old", "master"]:
                found = [self.old_master]
            case ["the", "slaves"]:
                found = self.slaves
            case ["the", "others"]:
                found = [node for node in self.nodes if node != master]
            case ["slave", number]:
                found = self.slaves[int(number) - 1 : int(number)]
            case ["the", "coordinator"]:
                found = [COORDINATOR]
            case ["every", "node"]:
                found = self.nodes
            case _:
                found = [who] if who in self.nodes else []
        if not found:
            raise NodeFailedError(f"there is no {who.removeprefix('the ')} now")
        return found


class Stage:
    """What a scenario acts on, and the notes that are taken in `expectations`.

    The caller sets `scenario`, `load_seconds` (time under load to share out) and, for
    the last one with an input file, `rest_seconds_max` (how long the rest of the file may take).

    All deadlines are multiplied by `patience`: what is slow by nature gets more time.
    """

    def __init__(
        self,
        *,
        nodes: Sequence[str],
        cluster: Cluster,
        network: Network | None,
        disks: Disks,
        load: Load,
        replication: Replication,
        watched: WatchedGroup | None,
        timeline: Timeline,
        now: Callable[[], float],
        status_without_slaves: str,
        expectations: list[Expectation],
        seed: int = 1,
        patience: float = 1.0,
        machines: Machines | None = None,
        effects: Effects | None = None,
        name: str = "",
        whole: Timeline | None = None,
        others: Sequence["Stage"] = (),
        settle_seconds: float = 0.0,
    ) -> None:
        self._whole = whole
        """The timeline of the drill, for a group beside the one that is drilled."""
        self.name = name
        """The group, where there are others."""
        self.others = list(others)
        """The stages of the other groups of the cluster."""
        self._another = self.others[0] if self.others else None
        self.chance = Random(seed)
        self._patience = patience
        self.settle_seconds = settle_seconds
        """How long nodes may go on writing by themselves when groups have got everything."""
        self.is_last = True
        """Whether no scenario follows, so that what nobody promised is waited for."""
        self.rotten: list[tuple[str, Rot]] = []
        """What was hurt at rest and not seen whole again, with its node."""
        self.roles = Roles(nodes)
        self.cluster = cluster
        self.disks = disks
        self.load = load
        self.replication = replication
        self.watched = watched
        self.timeline = timeline
        self.status_without_slaves = status_without_slaves
        self.expectations = expectations
        self.scenario = ""
        self.load_seconds = 0.0
        self.rest_seconds_max = 0.0
        self.epoch_before_fault = 0
        self.first_fault_at: float | None = None
        self.drained_at: float | None = None
        self.now = now
        self._network = network
        self._machines = machines
        self.effects = Effects() if effects is None else effects

    @property
    def every(self) -> list["Stage"]:
        """This stage, and those of the other groups."""
        return [self, *self.others]

    def of_group(self, name: str) -> "Stage":
        """Return the stage of a group: of its name, of `another` one, or this one for "".

        Raises:
            NotPossibleError: there is no such group.
        """
        if not name:
            return self
        if name == ANOTHER_GROUP and self._another is not None:
            return self._another
        for stage in self.every:
            if stage.name == name:
                return stage
        what = "no other group" if name == ANOTHER_GROUP else f"no group {name}"
        raise NotPossibleError(f"the cluster has {what}")

    @property
    def network(self) -> Network:
        """The network, which can be broken only if the drill was started for that."""
        if self._network is None:
            raise NotPossibleError("the nodes are not connected by way of the fault proxy")
        return self._network

    @property
    def machines(self) -> Machines:
        """The machines of the nodes, which can be hurt only if the drill was started for that."""
        if self._machines is None:
            raise NotPossibleError("the nodes were not started on machines of the drill")
        return self._machines

    def another_disk(self, node: str) -> None:
        """Note that the store of a node was exchanged by other means than the node's own."""
        if self._machines is not None:
            self._machines.new_disk(node)

    @property
    def master(self) -> str:
        """The master of now; empty if there is none."""
        return self.watched.master if self.watched is not None else self.roles.nodes[0]

    @property
    def fenced_group(self) -> WatchedGroup:
        """What is known of the group, for sentences that only fenced groups understand."""
        if self.watched is None:  # of the drilled group it was checked when the file was read
            raise NotPossibleError(f"{self.name} is a classic group")
        return self.watched

    def bind(self, scenario: str) -> None:
        """Begin a scenario: from here "slave 1" means one and the same node."""
        self.scenario = scenario
        self.first_fault_at = None
        self.drained_at = None
        self.roles.old_master = self.master or self.roles.old_master
        for other in self.others:
            other.bind(scenario)
        if self.others:
            self._another = self.chance.choice(self.others)

    def find(self, who: str) -> list[str]:
        """Return the nodes that words mean now."""
        return self.roles.find(who, self.master)

    async def begin(self, name: str) -> None:
        """Begin a phase; returns when the sends of the one before are answered.

        Only then may a fault follow: otherwise it would be blamed on the phase before. Beginning
        the phase that is being played changes nothing.
        """
        if self.timeline.phases and self.timeline.phase.is_current(self.scenario, name):
            return
        before = self.timeline.phases[-1] if self.timeline.phases else None
        for stage in self.every:
            stage.timeline.start_phase(self.now(), self.scenario, name)
        if before is not None:
            with trio.move_on_after(SEEN_SECONDS_MAX * self._patience):
                await until(lambda: not before.in_flight)

    def fault(self, text: str) -> None:
        """Mark a fault; elections after it count as new ones."""
        if self.watched is not None:
            self.epoch_before_fault = self.watched.epoch
        if self.first_fault_at is None:
            self.first_fault_at = self.now()
        self.timeline.fault(self.now(), text)
        if self._whole is not None:
            # For people alone: it is none of what was done to the group that is drilled.
            self._whole.fault(self.now(), text, hurts=False)

    def did(self, fault: str, text: str, *, count: int, is_felt: bool) -> None:
        """Note what a fault has done, as it is seen and not as it was asked for."""
        self.effects.note(self.now(), self.scenario, fault, text=text, count=count, is_felt=is_felt)

    def lasts(self, fault: str, of: tuple[str, str], what: str, count: Callable[[], int]) -> None:
        """Count what a fault does from now on: see `Effects.begin`."""
        self.effects.begin(self.now(), self.scenario, fault, of=of, what=what, count=count)

    def mark(self, text: str) -> None:
        """Mark something that helps the cluster."""
        self.timeline.fault(self.now(), text, hurts=False)

    def unavailable(self) -> tuple[float | None, float | None]:
        """How long no sync send was acknowledged since the first fault, and from when."""
        if self.first_fault_at is None:
            return None, None
        end = self.now() if self.drained_at is None else self.drained_at
        gap = longest_gap(self.timeline.sync_acks, self.first_fault_at, end)
        return round(gap.seconds, 3), round(gap.start_seconds, 3)

    async def for_each(
        self, act: Callable[[str], Awaitable[None]], nodes: Sequence[str], expected: str
    ) -> None:
        """Do something to nodes at once, and note for each that it came about.

        Raises:
            UnmetError: it did not, with one of them.
        """
        results: dict[str, tuple[Seen, float, bool]] = {}
        ready_seconds_max = READY_SECONDS_MAX * self._patience

        async def do(node: str) -> None:
            started = self.now()
            seen, is_liveness = Seen(held=True, text="yes"), True
            try:
                with trio.fail_after(ready_seconds_max):
                    await act(node)
            except NodeFailedError as error:
                seen = Seen(held=False, text=str(error))
                is_liveness = not isinstance(error, OutOfPlaceError)
            except trio.TooSlowError:
                seen = Seen(held=False, text=f"not within {ready_seconds_max:g} s")
            results[node] = (seen, self.now() - started, is_liveness)

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(do, node)
        for node in nodes:
            seen, seconds, is_liveness = results[node]
            self._note(f"{node} {expected}", seen, seconds, is_liveness=is_liveness)
        if not all(seen.held for seen, *_ in results.values()):
            raise UnmetError

    async def expect(
        self,
        expected: str,
        look: Callable[[], Seen],
        within_seconds: float = SEEN_SECONDS_MAX,
        *,
        is_liveness: bool = True,
    ) -> None:
        """Wait until a look shows what is expected, but not for a node that ended by itself.

        See `Expectation` for `is_liveness`. Of what no slow machine explains, the time does not
        count in which the drill itself did not run: what is looked at is what it was told last.

        Raises:
            UnmetError: it did not within the time.
        """
        started = self.now()

        def is_over() -> bool:
            return look().held or bool(self.cluster.unexpected_exits())

        if is_liveness:
            with trio.move_on_after(within_seconds * self._patience):
                await until(is_over)
        else:
            await self._until_or_awake_for(is_over, within_seconds * self._patience)
        seen = look()
        exits = self.cluster.unexpected_exits()
        if exits and not seen.held:
            seen = Seen(held=False, text="; ".join([seen.text, *exits]))
        self._note(expected, seen, self.now() - started, is_liveness=is_liveness)
        if not seen.held:
            raise UnmetError

    async def hear(self, group: WatchedGroup) -> None:
        """Return when each node has answered what it was asked from now on, or did not in time."""
        started = self.now()
        with trio.move_on_after(HEAR_SECONDS_MAX * self._patience):
            await until(lambda: all(group.asked_at[node] > started for node in group.nodes))

    async def _until_or_awake_for(self, holds: Callable[[], bool], seconds: float) -> None:
        """Return once it holds, or once the drill has been awake for that long."""
        left = seconds
        while left > 0 and not holds():
            before = self.now()
            await trio.sleep(LOOK_SECONDS)
            left -= min(self.now() - before, LATE_SECONDS_MIN)

    def check(self, expected: str, seen: Seen, *, is_liveness: bool = False) -> None:
        """Note something that must hold now. The scenario goes on either way.

        See `Expectation` for `is_liveness`.
        """
        self._note(expected, seen, 0.0, is_liveness=is_liveness)

    def _note(self, expected: str, seen: Seen, waited_seconds: float, *, is_liveness: bool) -> None:
        phase = self.timeline.phase
        self.expectations.append(
            Expectation(
                at_seconds=self.now(),
                scenario=phase.scenario,
                phase=phase.name,
                expected=expected if self._whole is None else f"{self.name}: {expected}",
                seen=seen.text,
                held=seen.held,
                waited_seconds=waited_seconds,
                is_liveness=is_liveness,
            )
        )

    async def expect_replicas(
        self, expected: str, *, lag_bytes_max: int, within_seconds: float = SEEN_SECONDS_MAX
    ) -> None:
        """Wait until every other node is connected and not further behind, asked from now on.

        Raises:
            UnmetError: they were not within the time.
        """
        asked_at = self.now()

        def look() -> Seen:
            fresh = self.replication.sampled_at >= asked_at
            held = fresh and self.replication.behind_at_most(lag_bytes_max)
            return Seen(held, str(self.replication) if fresh else "no news from the master")

        await self.expect(expected, look, within_seconds)

    def all_producers_see(self, mode: SendMode, *statuses: str) -> Seen:
        """Look whether every producer's last answer to a send of this phase is one of these."""
        latest = self.load.latest(mode, self.timeline.phase)
        seen = ", ".join(status or "no answer yet" for status in latest)
        return Seen(all(status in statuses for status in latest), seen)

    def every_send_was(self, mode: SendMode, *statuses: str) -> Seen:
        """Look at all answered sends of a mode in this phase; there must be some."""
        phase = self.timeline.phase
        counts = {
            status: count for (of, status), count in sorted(phase.sends.items()) if of == mode
        }
        text = ", ".join(f"{count:,} {status}" for status, count in counts.items())
        return Seen(bool(counts) and set(counts) <= set(statuses), text or "no answered send")


async def until(holds: Callable[[], bool]) -> None:
    """Look again and again: what is looked at is another process, and sends no events."""
    while True:
        if holds():
            return
        await trio.sleep(LOOK_SECONDS)
