"""The sentences of which scenarios are made, and what each does on a stage.

A sentence is a template with places to fill in. `SENTENCES` is all there is; the file reader
matches lines against it, and `docs/drill.md` lists it.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
import trio

from tandem.drill.outcomes import NOT_SENT, REJECTED, SEND_OK, STATUSES, UNKNOWN, SendMode
from tandem.drill.replication import CAUGHT_UP_BYTES
from tandem.drill.scenario import (
    READY_SECONDS_MAX,
    NodeFailedError,
    NotPossibleError,
    Seen,
    Stage,
    UnmetError,
)

COORDINATOR: Final = "coordinator"
REST_OF_INPUT: Final = "rest-of-input"
DRAIN_SECONDS_MAX: Final = 40.0

_FAILED: Final = (NOT_SENT, UNKNOWN, REJECTED)
_MODES: Final[tuple[SendMode, ...]] = ("sync", "async")

_WHO: Final = (
    r"the master|the old master|the slaves|the others|slave \d+|every node|the coordinator"
    r"|[A-Za-z0-9][\w-]*"
)
_PLACES: Final = {
    "who": _WHO,
    "other": f"{_WHO}|everything",
    "seconds": r"\d+(?:\.\d+)?",
    "share": r"\d+",
    "number": r"\d+",
    "name": r"[\w-]+",
    "mode": "sync|async",
    "statuses": r"[A-Z_]+(?: or [A-Z_]+)*",
}

Words = Mapping[str, str]
"""What a line has in the places of its template."""

Action = Callable[[Stage, Words], Awaitable[None]]


class Sentence(msgspec.Struct, frozen=True):
    """One sentence. `needs` names what has to be prepared before the cluster starts."""

    template: str
    play: Action
    needs: str = ""
    """`network`: the fault proxy; `disks`: a small file system for each node."""
    fenced_only: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """What a line of this sentence looks like."""
        parts = re.split(r"\{(\w+)\}", self.template)
        text = "".join(
            f"(?P<{part}>{_PLACES[part]})" if index % 2 else re.escape(part)
            for index, part in enumerate(parts)
        )
        return re.compile(text)


class Step(msgspec.Struct, frozen=True):
    """One line of a scenario."""

    text: str
    line: int
    sentence: Sentence
    words: dict[str, str]


async def play_step(stage: Stage, step: Step) -> None:
    """Do what a line says.

    Raises:
        UnmetError: it could not be done, or what it waits for did not come; it is noted.
        NotPossibleError: this machine cannot do it.
    """
    try:
        await step.sentence.play(stage, step.words)
    except NodeFailedError as error:
        stage.check(step.text, Seen(held=False, text=str(error)))
        raise UnmetError from error
    except NotPossibleError as error:
        raise NotPossibleError(f"line {step.line}, {step.text!r}: {error}") from error


# --- load ---------------------------------------------------------------------------------------


async def _begin(stage: Stage, words: Words) -> None:
    await stage.begin(words["name"])


async def _play_share(stage: Stage, words: Words) -> None:
    await trio.sleep(int(words["share"]) / 100 * stage.load_seconds)


async def _play_seconds(stage: Stage, words: Words) -> None:
    await trio.sleep(float(words["seconds"]))


async def _start_load(stage: Stage, words: Words) -> None:
    await stage.begin("start")
    stage.load.resume()
    await _in_sync(stage, {"seconds": f"{READY_SECONDS_MAX:g}"})
    await _sends_ok(stage, {"seconds": "20"})
    if stage.view is not None:
        stage.roles.old_master = stage.master or stage.roles.old_master
        stage.epoch_before_fault = stage.view.epoch


async def _drain(stage: Stage, words: Words) -> None:
    await drain(stage)


async def drain(stage: Stage) -> None:
    """Stop the load, and wait until everything is where it belongs.

    Raises:
        UnmetError: something is not, in time.
    """
    stage.drained_at = stage.now()
    if stage.rest_seconds_max:
        await stage.begin(REST_OF_INPUT)
        await stage.expect(
            "every line of the input is acknowledged",
            lambda: _none_left(stage.load.left_to_send(), "lines"),
            stage.rest_seconds_max,
        )
    await stage.begin("drain")
    stage.load.pause()
    await stage.expect(
        "every send is answered",
        lambda: _none_left(sum(phase.in_flight for phase in stage.timeline.phases), "in flight"),
        DRAIN_SECONDS_MAX,
    )
    await stage.expect_replicas(
        "the slaves have the whole log", lag_bytes_max=0, within_seconds=DRAIN_SECONDS_MAX
    )
    await stage.expect(
        "consumers have read everything",
        lambda: _none_left(stage.load.left_to_read(), "messages"),
        DRAIN_SECONDS_MAX,
    )


def _none_left(left: int, what: str) -> Seen:
    return Seen(not left, f"{left:,} {what} to go" if left else "all done")


# --- faults -------------------------------------------------------------------------------------


async def _kill(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.fault(f"kill -9 {', '.join(nodes)}")
    await stage.for_each(stage.cluster.kill, nodes, "is killed")


async def _stop(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.fault(f"stop {', '.join(nodes)}")
    await stage.for_each(stage.cluster.stop, nodes, "is stopped")


async def _start(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.mark(f"start {', '.join(nodes)}")
    await stage.for_each(stage.cluster.start, nodes, "is back: recovered and listening")


async def _start_down(stage: Stage, words: Words) -> None:
    nodes = [node for node in stage.roles.nodes if not stage.cluster.runs(node)]
    stage.mark(f"start {', '.join(nodes) or 'nobody: all are up'}")
    await stage.for_each(stage.cluster.start, nodes, "is back: recovered and listening")


async def _rest(stage: Stage, words: Words) -> None:
    stage.load.pause()
    await stage.expect(
        "every send is answered",
        lambda: _none_left(sum(phase.in_flight for phase in stage.timeline.phases), "in flight"),
    )


async def _work(stage: Stage, words: Words) -> None:
    stage.load.resume()


async def _restart(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.fault(f"restart {node}")
        await stage.for_each(stage.cluster.stop, [node], "is stopped")
        await stage.for_each(stage.cluster.start, [node], "is back: recovered and listening")


async def _freeze(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.fault(f"freeze {', '.join(nodes)}")
    await stage.for_each(stage.cluster.freeze, nodes, "is frozen")


async def _resume(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    stage.mark(f"resume {', '.join(nodes)}")
    await stage.for_each(stage.cluster.wake, nodes, "goes on")


async def _resign(stage: Stage, words: Words) -> None:
    (node,) = stage.find(words["who"])
    stage.fault(f"ask {node} to resign")
    await stage.for_each(stage.cluster.resign, [node], "was asked to resign")


async def _promote(stage: Stage, words: Words) -> None:
    (node,) = stage.find(words["who"])
    stage.fault(f"promote {node}, now master is {stage.master}")
    await stage.for_each(stage.cluster.promote, [node], "was asked to take over")


# --- network ------------------------------------------------------------------------------------


def _targets(stage: Stage, sources: Sequence[str], words: str) -> list[str]:
    everybody = [*stage.roles.nodes, COORDINATOR]
    found = everybody if words == "everything" else _ends(stage, words)
    return [name for name in found if name not in sources]


def _named(stage: Stage, words: str) -> str:
    """Words for nodes with the nodes' names, for the list of faults."""
    return words if words == "everything" else ", ".join(_ends(stage, words))


def _ends(stage: Stage, words: str) -> list[str]:
    return [COORDINATOR] if words == "the coordinator" else stage.find(words)


async def _cut_both_ways(stage: Stage, words: Words) -> None:
    sources = _ends(stage, words["who"])
    network = stage.network
    stage.fault(f"cut {', '.join(sources)} from {_named(stage, words['other'])}")
    for source in sources:
        for target in _targets(stage, sources, words["other"]):
            network.cut(source, target)
            network.cut(target, source)


async def _cut_one_way(stage: Stage, words: Words) -> None:
    sources = _ends(stage, words["who"])
    network = stage.network
    stage.fault(f"cut bytes from {', '.join(sources)} to {_named(stage, words['other'])}")
    for source in sources:
        for target in _targets(stage, sources, words["other"]):
            network.cut(source, target)


async def _cut_replication(stage: Stage, words: Words) -> None:
    sources = _ends(stage, words["who"])
    network = stage.network
    other = _named(stage, words["other"])
    stage.fault(f"cut replication between {', '.join(sources)} and {other}")
    for source in sources:
        for target in _targets(stage, sources, words["other"]):
            network.cut(source, target, replication_only=True)
            network.cut(target, source, replication_only=True)


async def _delay(stage: Stage, words: Words) -> None:
    sources = _ends(stage, words["who"])
    network = stage.network
    other = _named(stage, words["other"])
    stage.fault(f"delay {', '.join(sources)} and {other} by {words['number']} ms")
    for source in sources:
        for target in _targets(stage, sources, words["other"]):
            for one, other in ((source, target), (target, source)):
                network.slow(one, other, delay_seconds=int(words["number"]) / 1000)


async def _limit(stage: Stage, words: Words) -> None:
    targets = _ends(stage, words["who"])
    network = stage.network
    stage.fault(f"limit bytes to {', '.join(targets)} to {words['number']} kB/s")
    for target in targets:
        for source in _targets(stage, targets, "everything"):
            network.slow(source, target, bytes_per_second=int(words["number"]) * 1000)


async def _reset(stage: Stage, words: Words) -> None:
    nodes = _ends(stage, words["who"])
    network = stage.network
    stage.fault(f"reset the connections of {', '.join(nodes)}")
    for node in nodes:
        network.reset(node)


async def _heal(stage: Stage, words: Words) -> None:
    stage.network.heal()
    stage.mark("heal the network")


async def _disturb(stage: Stage, words: Words) -> None:
    network = stage.network
    for node in stage.find(words["who"]):
        stage.fault(f"{await network.disturb(node)} ({node})")


# --- disks --------------------------------------------------------------------------------------


async def _fill(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    for node in nodes:
        stage.disks.fill(node)
    stage.fault(f"fill the disk of {', '.join(nodes)}")


async def _free(stage: Stage, words: Words) -> None:
    nodes = stage.find(words["who"])
    for node in nodes:
        stage.disks.free(node)
    stage.mark(f"free the disk of {', '.join(nodes)}")


async def _cut_tail(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.disks.damage_tail(node, int(words["number"]), cut=True)
        stage.fault(f"cut the last {words['number']} bytes of the log of {node}")


async def _garble_tail(stage: Stage, words: Words) -> None:
    for node in stage.find(words["who"]):
        stage.disks.damage_tail(node, int(words["number"]), cut=False)
        stage.fault(f"garble the last {words['number']} bytes of the log of {node}")


# --- what must be seen --------------------------------------------------------------------------


async def _in_sync(stage: Stage, words: Words) -> None:
    await stage.expect_replicas(
        "every node is in sync",
        lag_bytes_max=CAUGHT_UP_BYTES,
        within_seconds=float(words["seconds"]),
    )


async def _sends_ok(stage: Stage, words: Words) -> None:
    for mode in _MODES:
        await stage.expect(
            f"{mode} sends answer {SEND_OK}",
            lambda mode=mode: stage.all_producers_see(mode, SEND_OK),  # type: ignore[misc]
            float(words["seconds"]),
        )


async def _sends_answer(stage: Stage, words: Words) -> None:
    statuses = _statuses(stage, words["statuses"])
    mode = _mode(words)
    await stage.expect(
        f"{mode} sends answer {' or '.join(statuses)}",
        lambda: stage.all_producers_see(mode, *statuses),
    )


async def _check_answers(stage: Stage, words: Words) -> None:
    statuses = _statuses(stage, words["statuses"])
    mode = _mode(words)
    stage.check(
        f"every {mode} send answers {' or '.join(statuses)}", stage.every_send_was(mode, *statuses)
    )


def _mode(words: Words) -> SendMode:
    return "sync" if words["mode"] == "sync" else "async"


def _statuses(stage: Stage, text: str) -> list[str]:
    """The statuses of a line. FAILED: no answer, refused, or never sent."""
    found: list[str] = []
    for name in text.split(" or "):
        if name == "FAILED":
            found += _FAILED
        elif name == "NO_SLAVE":
            found.append(stage.status_without_slaves)
        else:
            found.append(name)
    return found


def bad_status(text: str) -> str:
    """Return a word that is no status of a send, empty if all are."""
    known = (*STATUSES, "FAILED", "NO_SLAVE")
    return next((name for name in text.split(" or ") if name not in known), "")


async def _check_all_ok(stage: Stage, words: Words) -> None:
    for mode in _MODES:
        stage.check(f"every {mode} send answers {SEND_OK}", stage.every_send_was(mode, SEND_OK))
    exits = stage.cluster.unexpected_exits()
    stage.check("no node ended by itself", Seen(not exits, "; ".join(exits) or "all are running"))


async def _new_master(stage: Stage, words: Words) -> None:
    view = stage.view
    assert view is not None, "checked when the file was read"
    before = stage.epoch_before_fault
    await stage.expect(
        "there is a new master",
        lambda: Seen(bool(view.master) and view.epoch > before, str(view)),
        float(words["seconds"]),
    )
    # This one was wanted; "check no election" asks about others from here on.
    stage.epoch_before_fault = view.epoch


async def _is_master(stage: Stage, words: Words) -> None:
    view = stage.view
    assert view is not None, "checked when the file was read"
    (node,) = stage.find(words["who"])
    await stage.expect(
        f"{node} is master",
        lambda: Seen(view.master == node, str(view)),
        float(words["seconds"]),
    )


async def _steps_down(stage: Stage, words: Words) -> None:
    view = stage.view
    assert view is not None, "checked when the file was read"
    (node,) = stage.find(words["who"])

    def look() -> Seen:
        is_master = node in view.masters
        return Seen(not is_master, f"{node} {'still says' if is_master else 'no longer says'} so")

    await stage.expect(f"{node} no longer says that it is master", look, float(words["seconds"]))


async def _out_of_sync(stage: Stage, words: Words) -> None:
    view = stage.view
    assert view is not None, "checked when the file was read"
    nodes = stage.find(words["who"])
    await stage.expect(
        f"{', '.join(nodes)} left the in-sync set",
        lambda: Seen(not set(nodes) & set(view.in_sync), str(view)),
        float(words["seconds"]),
    )


async def _no_election(stage: Stage, words: Words) -> None:
    view = stage.view
    assert view is not None, "checked when the file was read"
    held = view.epoch == stage.epoch_before_fault
    stage.check("there was no election", Seen(held, str(view)))


async def _one_master(stage: Stage, words: Words) -> None:
    view = stage.view
    assert view is not None, "checked when the file was read"
    masters = view.masters
    stage.check(
        "at most one node says that it takes sends",
        Seen(len(masters) <= 1, ", ".join(masters) or "none does"),
    )


async def _unavailable(stage: Stage, words: Words) -> None:
    seconds, _ = stage.unavailable()
    allowed = float(words["seconds"])
    seen = Seen(seconds is not None and seconds <= allowed, f"{seconds} s")
    stage.check(f"sync sends were acknowledged at least every {allowed:g} s", seen)


async def _reasons(stage: Stage, words: Words) -> None:
    missing = stage.timeline.phase.without_reason
    texts = [reason.text for reason in stage.timeline.reasons.values()]
    seen = f"“{texts[-1]}”" if not missing and texts else f"{missing} bare"
    stage.check("each answer that is not SEND_OK gives a reason", Seen(not missing, seen))


async def _reads(stage: Stage, words: Words) -> None:
    count = stage.timeline.phase.messages_read
    stage.check("consumers go on reading", Seen(count > 0, f"{count:,} messages read"))


SENTENCES: Final = (
    Sentence("start the load", _start_load),
    Sentence("begin {name}", _begin),
    Sentence("play {share} %", _play_share),
    Sentence("play {seconds} s", _play_seconds),
    Sentence("rest", _rest),
    Sentence("work again", _work),
    Sentence("drain", _drain),
    Sentence("kill {who}", _kill),
    Sentence("stop {who}", _stop),
    Sentence("start whoever is down", _start_down),
    Sentence("start {who}", _start),
    Sentence("restart {who}", _restart),
    Sentence("freeze {who}", _freeze),
    Sentence("resume {who}", _resume),
    Sentence("ask {who} to resign", _resign, fenced_only=True),
    Sentence("promote {who}", _promote, fenced_only=True),
    Sentence("cut {who} from {other}", _cut_both_ways, "network", fenced_only=True),
    Sentence("cut bytes from {who} to {other}", _cut_one_way, "network", fenced_only=True),
    Sentence(
        "cut replication between {who} and {other}", _cut_replication, "network", fenced_only=True
    ),
    Sentence("delay {who} and {other} by {number} ms", _delay, "network", fenced_only=True),
    Sentence("limit bytes to {who} to {number} kB/s", _limit, "network", fenced_only=True),
    Sentence("reset connections of {who}", _reset, "network", fenced_only=True),
    Sentence("heal the network", _heal, "network", fenced_only=True),
    Sentence("disturb {who}", _disturb, "network", fenced_only=True),
    Sentence("fill the disk of {who}", _fill, "disks"),
    Sentence("free the disk of {who}", _free, "disks"),
    Sentence("cut the last {number} bytes of the log of {who}", _cut_tail),
    Sentence("garble the last {number} bytes of the log of {who}", _garble_tail),
    Sentence("expect everybody in sync within {seconds} s", _in_sync),
    Sentence("expect sends ok within {seconds} s", _sends_ok),
    Sentence("expect {mode} sends to answer {statuses}", _sends_answer),
    Sentence("expect a new master within {seconds} s", _new_master, fenced_only=True),
    Sentence("expect {who} to be master within {seconds} s", _is_master, fenced_only=True),
    Sentence("expect {who} to step down within {seconds} s", _steps_down, fenced_only=True),
    Sentence("expect {who} out of sync within {seconds} s", _out_of_sync, fenced_only=True),
    Sentence("check all sends are ok", _check_all_ok),
    Sentence("check {mode} sends answered {statuses}", _check_answers),
    Sentence("check no election", _no_election, fenced_only=True),
    Sentence("check at most one master", _one_master, fenced_only=True),
    Sentence("check unavailable at most {seconds} s", _unavailable),
    Sentence("check reasons are given", _reasons),
    Sentence("check messages are read", _reads),
)
"""Every sentence, in the order in which lines are matched: "start the load" before "start WHO"."""


def match(text: str) -> tuple[Sentence, dict[str, str]] | None:
    """Find the sentence of a line."""
    for sentence in SENTENCES:
        found = sentence.pattern.fullmatch(text)
        if found is not None:
            return sentence, found.groupdict()
    return None
