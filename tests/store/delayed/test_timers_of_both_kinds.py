"""What users see of timed messages is the same whichever kind of timers a store has."""

import logging
from collections.abc import Callable

import msgspec
import pytest

from store.results import PutMessageStatus
from tandem.wire.message_properties import decode_properties
from tandem.wire.system_topics import TIMER_TOPIC
from tests.store.delayed.timer_world import (
    T0,
    FileWorld,
    JournaledWorld,
    TimerWorld,
    cancelling,
    timed,
)
from tests.store.store_world import a_message, heal, note_damage, queue_messages
from tests.support.logged import logged

pytestmark = pytest.mark.parametrize("kind", [FileWorld, JournaledWorld])


@pytest.mark.parametrize("delay_ms", [1, 999, 1000, 1001, 2500, 11_999])
def test_a_message_is_never_early_and_at_most_a_tick_late(
    kind: Callable[..., TimerWorld], delay_ms: int
) -> None:
    world = kind(now_ms=T0 + 300)
    world.send(timed(1, delay_ms))
    for _ in range(delay_ms // 10):
        world.deliver(10)
        if world.clock.now_ms < T0 + 300 + delay_ms:
            assert world.delivered() == []
    world.deliver(1000)
    assert world.delivered() == [1]


def test_the_next_look_is_when_the_first_slot_is_over(kind: Callable[..., TimerWorld]) -> None:
    world = kind()
    assert world.deliver() is None
    world.send(timed(1, 5000), timed(2, 3000))
    assert world.deliver() == T0 + 3000
    assert world.deliver(3000) == T0 + 5000
    assert world.deliver(2000) is None
    assert world.delivered() == [2, 1]


def test_a_delivered_record_tells_its_way(kind: Callable[..., TimerWorld]) -> None:
    """TimerMessageStore.convert and convertMessage: the real topic stays in the string."""
    world = kind()
    sent = msgspec.structs.replace(timed(1, 3000), flag=7, sys_flag=1, reconsume_times=2)
    world.send(sent)
    world.deliver()
    world.deliver(3200)
    (found,) = queue_messages(world.store, "TopicA", 0)
    assert found.properties == decode_properties(sent.properties) | {
        "TIMER_OUT_MS": str(T0 + 2000),
        "REAL_TOPIC": "TopicA",
        "REAL_QID": "0",
        "TIMER_ENQUEUE_MS": str(T0),
        "TIMER_DEQUEUE_MS": str(T0 + 3200),
    }
    assert (found.flag, found.sys_flag, found.reconsume_times) == (7, 1, 2)
    assert found.born_timestamp_ms == sent.born_timestamp_ms


def test_a_refused_put_is_tried_again_and_nothing_is_put_twice(
    kind: Callable[..., TimerWorld],
) -> None:
    world = kind()
    world.send(*(timed(number, 1000) for number in range(3)))
    world.deliver()
    world.clock.now_ms += 1000
    world.refused = PutMessageStatus.OS_PAGE_CACHE_BUSY
    assert world.timers.deliver_due(world.clock.now_ms) == (0, T0 + 1100)
    world.refused = None
    assert world.timers.deliver_due(T0 + 1099) == (0, T0 + 1100)
    world.deliver(100)
    assert world.delivered() == [0, 1, 2]


def test_a_message_that_can_never_be_put_is_passed_over(
    kind: Callable[..., TimerWorld], caplog: pytest.LogCaptureFixture
) -> None:
    world = kind()
    world.send(timed(1, 1000))
    world.deliver()
    world.refused = PutMessageStatus.MESSAGE_ILLEGAL
    assert world.deliver(1000) is None
    assert len(logged(caplog, type(world.timers).__module__, logging.ERROR)) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"TIMER_OUT_MS": "x"}, {"REAL_QID": "-1"}, {"REAL_TOPIC": TIMER_TOPIC}, {"REAL_TOPIC": ""}],
)
def test_a_message_that_belongs_nowhere_does_not_hold_up_the_others(
    kind: Callable[..., TimerWorld], wrong: dict[str, str]
) -> None:
    world = kind()
    properties = {"TIMER_OUT_MS": "1", "REAL_TOPIC": "TopicA", "REAL_QID": "0"} | wrong
    bad = msgspec.structs.replace(
        a_message(1, TIMER_TOPIC),
        properties=b"".join(f"{k}\x01{v}\x02".encode() for k, v in properties.items()),
    )
    world.put(bad)
    world.send(timed(2, 1000))
    world.deliver()
    world.deliver(1000)
    assert world.delivered() == [2]


@pytest.mark.parametrize("waits", [False, True])
def test_a_damaged_message_is_waited_for(kind: Callable[..., TimerWorld], *, waits: bool) -> None:
    world = kind()
    world.send(*(timed(number, 3000) for number in range(4)))
    if waits:
        world.deliver(1000)
    note_damage(world.store, TIMER_TOPIC, 1)
    for _ in range(8):
        world.deliver(1000)
    assert 1 not in world.delivered()
    heal(world.store)
    for _ in range(4):
        world.deliver(1000)
    assert sorted(world.delivered()) == [0, 1, 2, 3]


# -- how many wait ---------------------------------------------------------------------------------


def test_what_waits_is_counted_by_its_topic_and_anew_by_what_goes_on(
    kind: Callable[..., TimerWorld],
) -> None:
    world = kind()
    world.send(timed(1, 2000), timed(2, 5000), timed(3, 5000, topic="Other"))
    assert world.waiting() == {}
    world.deliver()
    assert world.waiting() == {"TopicA": 2, "Other": 1}
    world.deliver(2000)
    assert world.waiting() == {"TopicA": 1, "Other": 1}
    world = world.gone_on()
    assert world.waiting() == {}
    world.deliver()
    assert world.waiting() == {"TopicA": 1, "Other": 1}
    world.deliver(3000)
    assert world.waiting() == {}


@pytest.mark.parametrize("goes_on_every", [7, 100])
def test_a_far_message_counts_once_before_and_after_it_is_rolled(
    kind: Callable[..., TimerWorld], goes_on_every: int
) -> None:
    world = kind()
    world.send(timed(1, 59_000), timed(2, 59_500))
    for at in range(1, 60):
        world.deliver()
        assert world.waiting() == {"TopicA": 2}
        world.deliver(1000)
        if at % goes_on_every == 0:
            world = world.gone_on()
    assert world.waiting() == {"TopicA": 1}
    world.deliver(1000)
    assert world.waiting() == {}


@pytest.mark.parametrize("delay_ms", [5000, 30_000])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_cancelled_message_does_not_wait_any_more(
    kind: Callable[..., TimerWorld], delay_ms: int, *, goes_on: bool
) -> None:
    world = kind()
    world.send(*(timed(number, delay_ms) for number in range(3)), cancelling(9, 1, delay_ms))
    world.send(timed(4, delay_ms + 5000))
    world.deliver()
    if goes_on:
        world = world.gone_on()
        world.deliver()
    assert world.waiting() == {"TopicA": 3}
    for _ in range(delay_ms // 1000):
        world.deliver(1000)
    assert world.delivered() == [0, 2]
    assert world.waiting() == {"TopicA": 1}


def test_a_refused_put_waits_and_one_that_can_never_be_put_does_not(
    kind: Callable[..., TimerWorld],
) -> None:
    world = kind()
    world.send(timed(1, 1000), timed(2, 9000))
    world.deliver()
    world.clock.now_ms += 1000
    world.refused = PutMessageStatus.OS_PAGE_CACHE_BUSY
    world.timers.deliver_due(world.clock.now_ms)
    assert world.waiting() == {"TopicA": 2}
    world.refused = PutMessageStatus.MESSAGE_ILLEGAL
    world.deliver(100)
    assert world.waiting() == {"TopicA": 1}
