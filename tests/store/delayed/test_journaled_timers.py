"""Timers whose progress is in a journal: masters come and go, with any beginning of the log."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from store.delayed.journaled_timers import JournaledTimers
from store.delayed.timer_place import TimerPlace
from store.results import PutMessage
from tandem.wire.system_topics import TIMER_TOPIC
from tests.store.delayed.timer_world import (
    SMALL_JOURNALED,
    T0,
    JournaledWorld,
    cancelling,
    earlier_of,
    log_up_to,
    timed,
)
from tests.store.store_world import (
    number_of,
    queue_messages,
)

if TYPE_CHECKING:
    from store import MessageStore
    from tandem.wire.message import MessageExt


@pytest.mark.parametrize("delay_ms", [12_000, 13_000, 17_000, 25_000, 59_000])
def test_a_message_beyond_the_window_is_rolled_and_still_in_time(delay_ms: int) -> None:
    world = JournaledWorld()
    world.send(timed(1, delay_ms))
    for at in range(delay_ms // 1000 - 1):
        world.deliver(1000)
        if at % 3 == 2:
            world = world.gone_on()
    world.deliver(999)
    assert world.delivered() == []
    world.deliver(1)
    assert world.delivered() == [1]


def test_a_cancelled_message_is_not_delivered_by_the_next_master_either() -> None:
    world = JournaledWorld()
    world.send(timed(1, 5000), timed(2, 5000))
    world.send(cancelling(3, 1, 5000))
    world.deliver(1000)
    world = world.gone_on()
    world.deliver(4000)
    assert world.delivered() == [2]


def test_a_cancelling_message_counts_in_a_slot_that_is_half_empty() -> None:
    world = JournaledWorld()
    world.send(cancelling(0, 69, 5000))
    world.send(*(timed(number, 5000) for number in range(1, 70)))
    world.deliver()
    world.timers.deliver_due(T0 + 5000)
    assert 0 < len(world.delivered()) < 60
    world = world.gone_on()
    world.deliver(5000)
    assert world.delivered() == list(range(1, 69))


@pytest.mark.parametrize(("cancelled_ms", "stops_ms"), [(1000, 7000), (2000, 2000)])
def test_cancelling_holds_when_one_of_both_is_rolled_after_the_other_was_due(
    cancelled_ms: int, stops_ms: int
) -> None:
    """Nothing is emptied for long, and only one of both is in the slot of their time by then."""
    world = JournaledWorld()
    world.send(timed(1, 14_000))
    world.clock.now_ms += cancelled_ms
    world.send(cancelling(2, 1, 14_000 - cancelled_ms))
    world.deliver(stops_ms - cancelled_ms)
    world.deliver(20_000)
    assert world.delivered() == []


def test_a_cancelling_message_counts_when_many_others_came_before_it() -> None:
    world = JournaledWorld()
    world.send(timed(0, 1000), timed(1, 1000))
    world.deliver()
    world.send(*(timed(number, 50_000) for number in range(2, 300)), cancelling(300, 0, 1000))
    world.deliver(1000)
    assert world.delivered() == [1]


def test_delivery_waits_only_for_what_was_there_when_it_was_due() -> None:
    world = JournaledWorld()
    world.send(timed(0, 1000))
    world.deliver()
    world.clock.now_ms += 1000
    for _ in range(2):
        world.send(*(timed(number, 50_000) for number in range(1, 300)))
        world.timers.deliver_due(world.clock.now_ms)
    assert world.delivered() == [0]


@pytest.mark.parametrize("others", [0, 300])
def test_what_waits_for_a_clock_that_is_behind_can_be_cancelled(others: int) -> None:
    world = JournaledWorld()
    world.send(timed(1, 3000))
    world.deliver(3000)
    world.write_place()
    world = world.fail_over(skew_ms=-3000)
    world.send(timed(2, 1000), timed(3, 1000), timed(4, 2000))
    world.send(*(timed(5 + number, 50_000) for number in range(others)))
    world.send(cancelling(1000, 2, 1000), cancelling(1001, 4, 2000))
    world.deliver(1000)
    assert world.delivered() == [1, 3]
    world = world.fail_over()
    world.deliver(1000)
    assert world.delivered() == [1, 3]
    world.deliver(10_000)
    assert world.delivered() == [1, 3]


def test_what_waits_for_a_clock_waits_only_for_messages_that_were_there() -> None:
    world = JournaledWorld()
    world.send(timed(1, 3000))
    world.deliver(3000)
    world.write_place()
    world = world.fail_over(skew_ms=-3000)
    world.send(timed(2, 1000))
    world.clock.now_ms += 1000
    for _ in range(3):
        world.send(*(timed(number, 50_000) for number in range(3, 303)))
        world.timers.deliver_due(world.clock.now_ms)
    assert world.delivered() == [1, 2]


def test_to_look_ahead_is_not_to_read_what_was_looked_at() -> None:
    world = JournaledWorld()
    world.send(*(timed(number, 3000) for number in range(100)))
    world.deliver(3000)
    world.write_place()
    world = world.fail_over(skew_ms=-3000)
    world.send(timed(100, 1000), timed(101, 50_000))
    message, read = world.timers._message, set()

    def reading(offset: int, size: int) -> memoryview | None:
        read.add(offset)
        return message(offset, size)

    world.timers._message = reading
    world.deliver(1000)
    assert 100 in world.delivered()
    assert len(read) == 2


def test_a_message_that_was_put_back_is_not_put_back_again() -> None:
    """One master puts it back and says nothing of it: the next one finds it in the queue."""
    world = JournaledWorld()
    world.send(timed(1, 14_000))
    world.deliver(6000)
    world.deliver(1000)
    world = world.fail_over()
    world.deliver(7000)
    assert world.delivered() == [1]


def test_a_kill_between_delivery_and_progress_repeats_nothing() -> None:
    world = JournaledWorld()
    world.send(timed(1, 1000), timed(2, 2000))
    world.deliver(1000)
    world.write_place()
    world.deliver(1000)
    assert world.delivered() == [1, 2]
    for _ in range(3):
        world = world.fail_over()
        world.deliver()
        assert world.delivered() == [1, 2]


def test_nothing_is_noted_before_all_was_taken_that_was_delivered() -> None:
    """A master after the next one knows only what is noted, and since when."""
    world = JournaledWorld()
    world.send(*(timed(number, 1000) for number in range(120)))
    world.deliver()
    world.write_place()
    world.deliver(1000)
    assert world.delivered() == list(range(120))
    place = world.place
    for _ in range(3):
        world = world.fail_over()
        world.timers.deliver_due(world.clock.now_ms)
        world.timers.deliver_due(world.clock.now_ms)
        world.write_place()
        assert world.place == TimerPlace(0, 120, 0, 0) != place
    world.deliver()
    assert world.place == place
    assert world.delivered() == list(range(120))


def test_of_two_messages_of_one_content_that_was_delivered_once_the_other_still_comes() -> None:
    world = JournaledWorld()
    world.send(timed(1, 1000), timed(1, 1000), timed(1, 1000))
    world.deliver(1000)
    ends = [m.physical_offset + m.store_size for m in queue_messages(world.store, "TopicA", 0)]
    for delivered, end in enumerate(ends, start=1):
        after = world.fail_over(end)
        assert len(after.delivered()) == delivered
        after.deliver()
        assert after.delivered() == [1, 1, 1]
    world.write_place()
    world.send(timed(1, 1000))
    world = world.fail_over()
    world.deliver(1000)
    assert world.delivered() == [1, 1, 1, 1], "what the place calls done is not taken for it"


def test_what_was_cut_off_with_its_progress_is_delivered_by_the_next_master() -> None:
    world = JournaledWorld()
    world.send(timed(1, 1000))
    world.deliver()
    end = world.store.max_physical_offset
    world.deliver(1000)
    world.write_place()
    world = world.fail_over(end)
    assert world.delivered() == []
    world.deliver()
    assert world.delivered() == [1]


def test_a_clock_that_is_behind_the_last_master_does_not_make_messages_early() -> None:
    world = JournaledWorld()
    world.send(timed(1, 3000))
    world.deliver(3000)
    world.write_place()
    world = world.fail_over(skew_ms=-3000)
    world.send(timed(2, 1000), timed(3, 20_000))
    assert world.deliver() == T0 + 1000
    assert world.delivered() == [1]
    world.deliver(1000)
    assert world.delivered() == [1, 2]
    world.deliver(19_000)
    assert world.delivered() == [1, 2, 3]


def test_nothing_is_delivered_before_the_whole_queue_was_read() -> None:
    world = JournaledWorld()
    world.send(*(timed(number, 5000) for number in range(300)))
    world.send(cancelling(300, 0, 5000))
    world = world.fail_over(skew_ms=5000)
    assert world.timers.deliver_due(world.clock.now_ms) == (0, world.clock.now_ms)
    world.deliver()
    assert world.delivered() == list(range(1, 300))


def test_the_place_stays_until_the_last_masters_messages_were_looked_at() -> None:
    world = JournaledWorld()
    world.send(*(timed(number, 50_000) for number in range(300)))
    world.deliver(1000)
    world.write_place()
    place = world.place
    world = world.fail_over()
    world.timers.deliver_due(world.clock.now_ms)
    assert world.place == place == TimerPlace(0, 300, 0, 0)


def test_after_a_classic_master_a_message_that_may_be_rolling_is_delivered() -> None:
    world = JournaledWorld()
    world.send(timed(1, 1000), timed(2, 25_000))
    world.deliver(1000)
    end = world.store.max_physical_offset
    stopped = TimerPlace(looked_at=2, slot_ms=T0 + 20_000)
    world = JournaledWorld(log_up_to(world.store, end), T0 + 20_000, stopped, was_classic=True)
    world.deliver()
    assert world.delivered() == [1]
    world.deliver(5000)
    assert world.delivered() == [1, 2]


@pytest.mark.slow
@given(data=st.data())
def test_whatever_happens_nothing_is_lost_early_or_repeated(
    data: st.DataObject,
) -> None:
    world = JournaledWorld()
    due: dict[int, int] = {}
    cancelled: dict[int, int] = {}
    number = 0
    for _ in range(data.draw(st.integers(1, 40))):
        step = data.draw(st.sampled_from(["send", "cancel", "pass", "pass", "place", "fail"]))
        now_ms = world.clock.now_ms
        if step == "send":
            number += 1
            delay_ms = data.draw(st.integers(1, 50_000))
            due[number] = now_ms + delay_ms
            world.send(timed(number, delay_ms))
        elif step == "cancel":
            at = data.draw(st.integers(1, max(1, number)))
            is_there = at in world.delivered() or at in cancelled
            if due.get(at, 0) > now_ms and not is_there:
                number += 1
                world.send(cancelling(number, at, due[at] - now_ms))
                cancelled[at] = number
        elif step == "pass":
            world.deliver(data.draw(st.integers(0, 15_000)))
        elif step == "place":
            world.write_place()
        else:
            at, _ = data.draw(st.sampled_from(world.journal))  # the last may be cut off as well
            ends = [m.physical_offset + m.store_size for m in all_messages(world.store)]
            end = data.draw(st.sampled_from([at, *(each for each in ends if each > at)]))
            world = world.fail_over(end, data.draw(st.integers(-3000, 3000)))
            held = {number_of(m) for m in queue_messages(world.store, TIMER_TOPIC, 0)}
            due = {at: ms for at, ms in due.items() if at in held}
            cancelled = {at: by for at, by in cancelled.items() if by in held and at in held}
            world.deliver()
    for _ in range(80):
        world.deliver(1000)
    found = queue_messages(world.store, "TopicA", 0)
    assert Counter(map(number_of, found)) == Counter(due.keys() - cancelled.keys())
    assert all(m.store_timestamp_ms >= due[number_of(m)] for m in found)


def all_messages(store: MessageStore) -> list[MessageExt]:
    """All there are, in the order of the log."""
    both = queue_messages(store, "TopicA", 0) + queue_messages(store, TIMER_TOPIC, 0)
    return sorted(both, key=lambda message: message.physical_offset)


async def test_it_sleeps_until_the_first_slot_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = JournaledWorld()
    rounds = []

    def after_delivery() -> None:
        rounds.append(trio.current_time() - begin)

    world.timers._wall_clock_ms = lambda: T0 + round((trio.current_time() - begin) * 1000)
    begin = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.timers.run, after_delivery)
        await trio.sleep(0.5)
        world.clock.now_ms = T0 + 500
        world.send(timed(1, 2000))
        world.timers.message_arrived()
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert rounds == [pytest.approx(3.0)] or rounds == [pytest.approx(2.5, abs=0.6)]
    assert world.delivered() == [1]


@pytest.mark.long
def test_many_timers_are_back_within_seconds() -> None:
    world = JournaledWorld()
    message = timed(1, 50_000)
    for _ in range(20_000):
        rewritten = world.timers.rewrite(message, world.clock.now_ms)
        assert isinstance(rewritten, PutMessage)
        assert world.store.puts.put_message(rewritten, hooks=False).status.is_stored
    world.store.announce()
    anew = JournaledTimers(
        TimerPlace(),
        SMALL_JOURNALED,
        was_classic=False,
        note=world._note,
        find_queue=lambda: world.store.queues.find(TIMER_TOPIC, 0),
        message=world.store.record_check.by_place(TIMER_TOPIC),
        put=world.put,
        wall_clock_ms=world.clock,
        chance=random.Random(1),
        earlier=earlier_of(world.store, 0),
    )
    began = time.process_time()
    while anew.deliver_due(world.clock.now_ms)[1] == world.clock.now_ms:
        pass
    assert time.process_time() - began < 5


# -- how many wait ---------------------------------------------------------------------------------
