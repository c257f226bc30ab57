"""The scenarios: plain async functions that break a cluster under load and say what must be seen.

A scenario is a list of phases. Every phase ends because something was *seen*, with a deadline, or
because the load had run for its share of the time; in that case each send of the phase is judged.

    start -> steady -> (fault) -> (state with the fault) -> (repair) -> recovered -> drain

A condition that is not met in time ends its scenario: what would follow means nothing. It is kept
as an expectation that did not hold, with what was seen instead.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec
import trio

from tandem.drill.outcomes import NOT_SENT, REJECTED, SEND_OK, UNKNOWN, SendMode
from tandem.drill.replication import CAUGHT_UP_BYTES, Replication
from tandem.drill.timeline import Phase, Timeline

READY_SECONDS_MAX: Final = 30.0
"""A node recovers a log of this size within a second; ten times that on a busy machine."""

SEEN_SECONDS_MAX: Final = 20.0
"""For everything else that must be seen: three times a slave's timeout plus a reconnect."""

LOOK_SECONDS: Final = 0.05


class Seen(msgspec.Struct, frozen=True):
    """What a look at the cluster showed, and whether it is what was expected."""

    held: bool
    text: str


class Expectation(msgspec.Struct, frozen=True):
    """One thing a phase had to show. `waited_seconds` is how long it took, or the deadline."""

    at_seconds: float
    scenario: str
    phase: str
    expected: str
    seen: str
    held: bool
    waited_seconds: float


class UnmetError(Exception):
    """A condition was not met in time; the scenario cannot go on. It is already recorded."""


class NodeFailedError(Exception):
    """A node could not be started or stopped; the text says why."""


class Cluster(Protocol):
    """The nodes, to be broken. `start` returns once a node recovered and listens."""

    async def start(self, node: str) -> None:
        """Start a node that is not running. Raises NodeFailedError."""
        ...

    async def kill(self, node: str) -> None:
        """Kill -9; returns when the process is gone. Raises NodeFailedError."""
        ...

    def unexpected_exits(self) -> list[str]:
        """Nodes that ended by themselves, each as one sentence."""
        ...


class Load(Protocol):
    """The producers and consumers."""

    def latest(self, mode: SendMode, phase: Phase) -> list[str | None]:
        """Per producer: the status of its last answer to a send of this phase, if there is one."""
        ...

    def pause(self) -> None:
        """Let producers rest once their sends are answered."""
        ...

    def resume(self) -> None:
        """Let producers send again."""
        ...

    def left_to_send(self) -> int:
        """Lines of the input that have not been acknowledged yet."""
        ...

    def left_to_read(self) -> int:
        """Acknowledged messages that the consumers have not seen yet."""
        ...


class Stage:
    """What a scenario acts on, and the notes that are taken in `expectations`.

    Whoever plays a scenario sets `scenario`, `load_seconds` (time under load to share out) and, for
    the last one with an input file, `rest_seconds_max` (how long the rest of the file may take).
    """

    def __init__(
        self,
        *,
        master: str,
        slaves: Sequence[str],
        cluster: Cluster,
        load: Load,
        replication: Replication,
        timeline: Timeline,
        now: Callable[[], float],
        status_without_slaves: str,
        expectations: list[Expectation],
    ) -> None:
        self.master = master
        self.slaves = list(slaves)
        self.cluster = cluster
        self.load = load
        self.replication = replication
        self.timeline = timeline
        self.status_without_slaves = status_without_slaves
        self.expectations = expectations
        self.scenario = ""
        self.load_seconds = 0.0
        self.rest_seconds_max = 0.0
        self._now = now

    async def begin(self, name: str) -> None:
        """Begin a phase; returns when the sends of the one before are answered.

        Only then may a fault follow: otherwise it would be blamed on the phase before. Beginning
        the phase that is being played changes nothing.
        """
        if self.timeline.phases and self.timeline.phase.is_current(self.scenario, name):
            return
        before = self.timeline.phases[-1] if self.timeline.phases else None
        self.timeline.start_phase(self._now(), self.scenario, name)
        if before is not None:
            with trio.move_on_after(SEEN_SECONDS_MAX):
                await _until(lambda: not before.in_flight)

    async def play(self, share: float) -> None:
        """Let the load run for a share of this scenario's time."""
        await trio.sleep(share * self.load_seconds)

    async def kill(self, *nodes: str) -> None:
        """Kill nodes with SIGKILL and mark it."""
        self.timeline.fault(self._now(), f"kill -9 {', '.join(nodes)}")
        await self._for_each(self.cluster.kill, nodes, "is killed")

    async def restart(self, *nodes: str) -> None:
        """Start killed nodes again; returns when each has recovered and listens."""
        self.timeline.fault(self._now(), f"restart {', '.join(nodes)}")
        await self._for_each(self.cluster.start, nodes, "is back: recovered and listening")

    async def _for_each(
        self, act: Callable[[str], Awaitable[None]], nodes: Sequence[str], expected: str
    ) -> None:
        for node in nodes:
            started = self._now()
            seen = Seen(held=True, text="yes")
            try:
                with trio.fail_after(READY_SECONDS_MAX):
                    await act(node)
            except NodeFailedError as error:
                seen = Seen(held=False, text=str(error))
            except trio.TooSlowError:
                seen = Seen(held=False, text=f"not within {READY_SECONDS_MAX:g} s")
            self._note(f"{node} {expected}", seen, self._now() - started)
            if not seen.held:
                raise UnmetError

    async def expect(
        self, expected: str, look: Callable[[], Seen], within_seconds: float = SEEN_SECONDS_MAX
    ) -> None:
        """Wait until a look shows what is expected, but not for a node that ended by itself.

        Raises:
            UnmetError: it did not within the time.
        """
        started = self._now()
        with trio.move_on_after(within_seconds):
            await _until(lambda: look().held or bool(self.cluster.unexpected_exits()))
        seen = look()
        exits = self.cluster.unexpected_exits()
        if exits and not seen.held:
            seen = Seen(held=False, text="; ".join([seen.text, *exits]))
        self._note(expected, seen, self._now() - started)
        if not seen.held:
            raise UnmetError

    def check(self, expected: str, seen: Seen) -> None:
        """Note something that must hold now. The scenario goes on either way."""
        self._note(expected, seen, 0.0)

    def _note(self, expected: str, seen: Seen, waited_seconds: float) -> None:
        phase = self.timeline.phase
        self.expectations.append(
            Expectation(
                at_seconds=self._now(),
                scenario=phase.scenario,
                phase=phase.name,
                expected=expected,
                seen=seen.text,
                held=seen.held,
                waited_seconds=waited_seconds,
            )
        )

    async def expect_replicas(self, expected: str, *, lag_bytes_max: int) -> None:
        """Wait until every slave is connected and not further behind, asked from now on.

        Raises:
            UnmetError: they were not within the time.
        """
        asked_at = self._now()

        def look() -> Seen:
            fresh = self.replication.sampled_at >= asked_at
            held = fresh and self.replication.behind_at_most(lag_bytes_max)
            return Seen(held, str(self.replication) if fresh else "no news from the master")

        await self.expect(expected, look)

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


async def _until(holds: Callable[[], bool]) -> None:
    """Look again and again: what is looked at is another process, and sends no events."""
    while True:
        if holds():
            return
        await trio.sleep(LOOK_SECONDS)


Scenario = Callable[[Stage], Awaitable[None]]

_FAILED: Final = (NOT_SENT, UNKNOWN, REJECTED)


async def slave_loss(stage: Stage) -> None:
    """Lose every slave under load and get them back."""
    slaves = " and ".join(stage.slaves)
    lone = stage.status_without_slaves
    await _start(stage)
    await _steady(stage, "steady", share=0.3)

    await stage.begin("kill-slaves")
    await stage.kill(*stage.slaves)
    await stage.expect(f"sync sends answer {lone}", lambda: stage.all_producers_see("sync", lone))
    await stage.begin("slaves-down")
    await stage.play(0.35)
    stage.check(f"every sync send answers {lone}", stage.every_send_was("sync", lone))
    stage.check("each of them gives a reason", _all_have_reasons(stage, lone))
    stage.check("every async send answers SEND_OK", stage.every_send_was("async", SEND_OK))

    await stage.begin("restart-slaves")
    await stage.restart(*stage.slaves)
    await stage.begin("catch-up")
    await _in_sync(stage, f"{slaves} caught up with the master")
    await _sends_ok(stage)
    await _steady(stage, "recovered", share=0.35)
    await _drain(stage)


async def master_loss(stage: Stage) -> None:
    """Lose the master under load, read on from the slaves, and get it back."""
    await _start(stage)
    await _steady(stage, "steady", share=0.3)

    await stage.begin("kill-master")
    await stage.kill(stage.master)
    await stage.expect("sync sends fail", lambda: stage.all_producers_see("sync", *_FAILED))
    await stage.expect("async sends fail", lambda: stage.all_producers_see("async", *_FAILED))
    await stage.begin("master-down")
    await stage.play(0.35)
    for mode in ("sync", "async"):
        stage.check(f"no {mode} send answers SEND_OK", stage.every_send_was(mode, *_FAILED))
    stage.check("consumers go on reading from a slave", _messages_read(stage))

    await stage.begin("restart-master")
    await stage.restart(stage.master)
    await stage.begin("re-attach")
    await _in_sync(stage, f"{' and '.join(stage.slaves)} attached to the recovered master")
    await _sends_ok(stage)
    await _steady(stage, "recovered", share=0.35)
    await _drain(stage)


async def _start(stage: Stage) -> None:
    await stage.begin("start")
    stage.load.resume()
    await _in_sync(stage, f"{' and '.join(stage.slaves)} in sync")
    await _sends_ok(stage)


async def _in_sync(stage: Stage, expected: str) -> None:
    await stage.expect_replicas(expected, lag_bytes_max=CAUGHT_UP_BYTES)


async def _sends_ok(stage: Stage) -> None:
    await stage.expect(
        "sync sends answer SEND_OK", lambda: stage.all_producers_see("sync", SEND_OK)
    )
    await stage.expect(
        "async sends answer SEND_OK", lambda: stage.all_producers_see("async", SEND_OK)
    )


async def _steady(stage: Stage, name: str, *, share: float) -> None:
    await stage.begin(name)
    await stage.play(share)
    stage.check("every sync send answers SEND_OK", stage.every_send_was("sync", SEND_OK))
    stage.check("every async send answers SEND_OK", stage.every_send_was("async", SEND_OK))
    exits = stage.cluster.unexpected_exits()
    stage.check("no node ended by itself", Seen(not exits, "; ".join(exits) or "all are running"))


async def _drain(stage: Stage) -> None:
    if stage.rest_seconds_max:
        await stage.begin("rest-of-input")
        await stage.expect(
            "every line of the input is acknowledged",
            lambda: _nothing_left_to_send(stage),
            stage.rest_seconds_max,
        )
    await stage.begin("drain")
    stage.load.pause()
    await stage.expect("every send is answered", lambda: _nothing_in_flight(stage))
    await stage.expect_replicas("the slaves have the whole log", lag_bytes_max=0)
    await stage.expect("consumers have read everything", lambda: _nothing_left_to_read(stage))


def _nothing_left_to_send(stage: Stage) -> Seen:
    left = stage.load.left_to_send()
    return Seen(not left, f"{left:,} lines to go" if left else "all were")


def _nothing_in_flight(stage: Stage) -> Seen:
    in_flight = sum(phase.in_flight for phase in stage.timeline.phases)
    return Seen(not in_flight, f"{in_flight} in flight")


def _nothing_left_to_read(stage: Stage) -> Seen:
    left = stage.load.left_to_read()
    return Seen(not left, f"{left:,} messages to go" if left else "they have")


def _all_have_reasons(stage: Stage, status: str) -> Seen:
    """Look whether an answer that is not SEND_OK came without a reason."""
    missing = stage.timeline.phase.without_reason
    examples = [
        reason.text for reason in stage.timeline.reasons.values() if reason.status == status
    ]
    return Seen(not missing, f"“{examples[-1]}”" if not missing and examples else f"{missing} bare")


def _messages_read(stage: Stage) -> Seen:
    phase = stage.timeline.phase
    return Seen(phase.messages_read > 0, f"{phase.messages_read:,} messages read")


SCENARIOS: Final[dict[str, Scenario]] = {"slave-loss": slave_loss, "master-loss": master_loss}
