"""Sentences that wait until something is seen (`expect …`), or note what is seen (`check …`).

A slow machine may be the reason that something does not come: liveness. It is none for two masters,
for a message that no consumer sees, or for an answer that does not say why: safety.
"""

from typing import Final

import trio

from tandem.drill.outcomes import NOT_SENT, REJECTED, SEND_OK, STATUSES, UNKNOWN, SendMode
from tandem.drill.replication import CAUGHT_UP_BYTES
from tandem.drill.scenario import NotPossibleError, Seen, Stage
from tandem.drill.sentences.sentence import Sentence, Takes, Words

_FAILED: Final = (NOT_SENT, UNKNOWN, REJECTED)
_MODES: Final[tuple[SendMode, ...]] = ("sync", "async")


async def expect_in_sync(stage: Stage, within_seconds: float) -> None:
    """Wait until every node has all but the last bytes of the log.

    Raises:
        UnmetError: one had not, in time.
    """
    await stage.expect_replicas(
        "every node is in sync", lag_bytes_max=CAUGHT_UP_BYTES, within_seconds=within_seconds
    )


async def expect_sends_ok(stage: Stage, within_seconds: float) -> None:
    """Wait until the last answer of every producer is SEND_OK.

    Raises:
        UnmetError: one was not, in time.
    """
    for mode in _MODES:
        await stage.expect(
            f"{mode} sends answer {SEND_OK}",
            lambda mode=mode: stage.all_producers_see(mode, SEND_OK),  # type: ignore[misc]
            within_seconds,
        )


def bad_status(text: str) -> str:
    """Return a word that is no status of a send, empty if all are."""
    known = (*STATUSES, "FAILED", "NO_SLAVE")
    return next((name for name in text.split(" or ") if name not in known), "")


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


def _mode(words: Words) -> SendMode:
    return "sync" if words["mode"] == "sync" else "async"


async def _in_sync(stage: Stage, words: Words) -> None:
    await expect_in_sync(stage, float(words["seconds"]))


async def _sends_ok(stage: Stage, words: Words) -> None:
    await expect_sends_ok(stage, float(words["seconds"]))


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
        f"every {mode} send answers {' or '.join(statuses)}",
        stage.every_send_was(mode, *statuses),
        is_liveness=True,
    )


async def _check_all_ok(stage: Stage, words: Words) -> None:
    for mode in _MODES:
        seen = stage.every_send_was(mode, SEND_OK)
        stage.check(f"every {mode} send answers {SEND_OK}", seen, is_liveness=True)
    exits = stage.cluster.unexpected_exits()
    stage.check("no node ended by itself", Seen(not exits, "; ".join(exits) or "all are running"))


async def _new_master(stage: Stage, words: Words) -> None:
    group = stage.fenced_group
    before = stage.epoch_before_fault
    await stage.expect(
        "there is a new master",
        lambda: Seen(bool(group.master) and group.epoch > before, str(group)),
        float(words["seconds"]),
    )
    # This one was wanted; "check no election" asks about others from here on.
    stage.epoch_before_fault = group.epoch


async def _is_master(stage: Stage, words: Words) -> None:
    group = stage.fenced_group
    (node,) = stage.find(words["who"])
    await stage.expect(
        f"{node} is master",
        lambda: Seen(group.master == node, str(group)),
        float(words["seconds"]),
    )


async def _steps_down(stage: Stage, words: Words) -> None:
    group = stage.fenced_group
    (node,) = stage.find(words["who"])

    def look() -> Seen:
        is_master = node in group.masters
        return Seen(not is_master, f"{node} {'still says' if is_master else 'no longer says'} so")

    await stage.expect(
        f"{node} no longer says that it is master",
        look,
        float(words["seconds"]),
        is_liveness=False,
    )


async def _out_of_sync(stage: Stage, words: Words) -> None:
    group = stage.fenced_group
    nodes = stage.find(words["who"])
    await stage.expect(
        f"{', '.join(nodes)} left the in-sync set",
        lambda: Seen(not set(nodes) & set(group.in_sync), str(group)),
        float(words["seconds"]),
    )


async def _no_election(stage: Stage, words: Words) -> None:
    group = stage.fenced_group
    held = group.epoch == stage.epoch_before_fault
    stage.check("there was no election", Seen(held, str(group)), is_liveness=True)


async def _one_master(stage: Stage, words: Words) -> None:
    group = stage.fenced_group
    await stage.hear(group)
    masters = group.masters_at_once
    stage.check(
        "at most one node says that it takes sends",
        Seen(len(masters) <= 1, ", ".join(masters) or "none does"),
    )


async def _unavailable(stage: Stage, words: Words) -> None:
    seconds, _ = stage.unavailable()
    allowed = float(words["seconds"])
    seen = Seen(seconds is not None and seconds <= allowed, f"{seconds} s")
    expected = f"sync sends were acknowledged at least every {allowed:g} s"
    stage.check(expected, seen, is_liveness=True)


async def _reasons(stage: Stage, words: Words) -> None:
    missing = stage.timeline.phase.without_reason
    texts = [reason.text for reason in stage.timeline.reasons.values()]
    seen = f"“{texts[-1]}”" if not missing and texts else f"{missing} bare"
    stage.check("each answer that is not SEND_OK gives a reason", Seen(not missing, seen))


async def _reads(stage: Stage, words: Words) -> None:
    count = stage.timeline.phase.messages_read
    seen = Seen(count > 0, f"{count:,} messages read")
    stage.check("consumers go on reading", seen, is_liveness=True)


async def _need_ok_alone(stage: Stage, words: Words) -> None:
    await trio.lowlevel.checkpoint()
    if stage.status_without_slaves != SEND_OK:
        raise NotPossibleError("with these settings a master alone acknowledges nothing")


EXPECTATIONS: Final = (
    Sentence("need sends ok without slaves", _need_ok_alone),
    Sentence("expect everybody in sync within {seconds} s", _in_sync),
    Sentence("expect sends ok within {seconds} s", _sends_ok),
    Sentence("expect {mode} sends to answer {statuses}", _sends_answer),
    Sentence("expect a new master within {seconds} s", _new_master, fenced_only=True),
    Sentence(
        "expect {who} to be master within {seconds} s",
        _is_master,
        fenced_only=True,
        takes=Takes.ONE_NODE,
    ),
    Sentence(
        "expect {who} to step down within {seconds} s",
        _steps_down,
        fenced_only=True,
        takes=Takes.ONE_NODE,
    ),
    Sentence("expect {who} out of sync within {seconds} s", _out_of_sync, fenced_only=True),
    Sentence("check all sends are ok", _check_all_ok),
    Sentence("check {mode} sends answered {statuses}", _check_answers),
    Sentence("check no election", _no_election, fenced_only=True),
    Sentence("check at most one master", _one_master, fenced_only=True),
    Sentence("check unavailable at most {seconds} s", _unavailable),
    Sentence("check reasons are given", _reasons),
    Sentence("check messages are read", _reads),
)
