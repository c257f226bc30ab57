"""Sentences that start, pace and end the load."""

from typing import Final

import trio

from tandem.drill.scenario import READY_SECONDS_MAX, SEEN_SECONDS_MAX, Seen, Stage, until
from tandem.drill.sentences.expectations import expect_in_sync, expect_sends_ok
from tandem.drill.sentences.sentence import Sentence, Words

REST_OF_INPUT: Final = "rest-of-input"
DRAIN_SECONDS_MAX: Final = 40.0
HANDLED_SECONDS_MAX: Final = 60.0
"""Messages wait, fail and come back, and brokers ask about transactions: seconds each."""

UNPROMISED_SECONDS_MAX: Final = 30.0
"""For what may come to groups after a switch, and nobody has promised."""

FIRST_SENDS_SECONDS_MAX: Final = 20.0


async def _begin(stage: Stage, words: Words) -> None:
    await stage.begin(words["name"])


async def _play_share(stage: Stage, words: Words) -> None:
    await trio.sleep(int(words["share"]) / 100 * stage.load_seconds)


async def _play_seconds(stage: Stage, words: Words) -> None:
    await trio.sleep(float(words["seconds"]))


async def _start_load(stage: Stage, words: Words) -> None:
    await stage.begin("start")
    for each in stage.every:
        each.load.resume()
    for each in stage.every:
        await expect_in_sync(each, READY_SECONDS_MAX)
        await expect_sends_ok(each, FIRST_SENDS_SECONDS_MAX)
        if each.watched is not None:
            each.roles.old_master = each.master or each.roles.old_master
            each.epoch_before_fault = each.watched.epoch


async def _rest(stage: Stage, words: Words) -> None:
    for each in stage.every:
        each.load.pause()
    for each in stage.every:
        await _expect_answers(each)


async def _work(stage: Stage, words: Words) -> None:
    for each in stage.every:
        each.load.resume()


async def _drain(stage: Stage, words: Words) -> None:
    await drain(stage)


async def drain(stage: Stage) -> None:
    """Stop the load, and wait until everything is where it belongs.

    Raises:
        UnmetError: something is not, in time.
    """
    for each in stage.every:
        each.drained_at = stage.now()
    if stage.rest_seconds_max:
        await stage.begin(REST_OF_INPUT)
        await stage.expect(
            "every line of the input is acknowledged",
            lambda: _none_left(stage.load.left_to_send(), "lines"),
            stage.rest_seconds_max,
        )
    await stage.begin("drain")
    for each in stage.every:
        each.load.pause()
    for each in stage.every:
        await _drained(each)


async def _drained(stage: Stage) -> None:
    await _expect_answers(stage, DRAIN_SECONDS_MAX)
    await _expect_whole_logs(stage)
    await stage.expect(
        "consumers have read everything",
        lambda: _none_left(stage.load.left_to_read(), "messages"),
        DRAIN_SECONDS_MAX,
        is_liveness=False,
    )
    if stage.load.left_to_handle() is not None:
        await stage.expect(
            "groups have got what they were promised",
            lambda: _nothing_owed(stage.load.left_to_handle()),
            HANDLED_SECONDS_MAX,
        )
    if not stage.is_last:
        return  # Nothing is audited yet, and the next scenario gives the rest its time.
    if stage.load.left_to_handle() is not None:
        # What else comes is still judged, and not waited for as long as what has to.
        with trio.move_on_after(UNPROMISED_SECONDS_MAX):
            await until(lambda: not stage.load.left_unpromised())
    if stage.settle_seconds:
        await trio.sleep(stage.settle_seconds)
        await _expect_whole_logs(stage)


async def _expect_whole_logs(stage: Stage) -> None:
    await stage.expect_replicas(
        "the other nodes have the whole log", lag_bytes_max=0, within_seconds=DRAIN_SECONDS_MAX
    )


def _nothing_owed(left: str | None) -> Seen:
    return Seen(not left, left or "all of it")


async def _expect_answers(stage: Stage, within_seconds: float = SEEN_SECONDS_MAX) -> None:
    def look() -> Seen:
        return _none_left(sum(phase.in_flight for phase in stage.timeline.phases), "in flight")

    await stage.expect("every send is answered", look, within_seconds)


def _none_left(left: int, what: str) -> Seen:
    return Seen(not left, f"{left:,} {what} to go" if left else "all done")


LOAD: Final = (
    Sentence("start the load", _start_load),
    Sentence("begin {name}", _begin),
    Sentence("play {share} %", _play_share),
    Sentence("play {seconds} s", _play_seconds),
    Sentence("rest", _rest),
    Sentence("work again", _work),
    Sentence("drain", _drain),
)
