"""Timers whose progress is in a journal: masters come and go, with any beginning of the log."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.delayed.earlier_deliveries import EarlierDeliveries
from store.delayed.journaled_timers import JournaledTimers
from store.delayed.timer_place import TimerPlace
from store.delayed.timer_request import TimerSettings
from store.results import PutMessage, PutMessageResult, PutMessageStatus
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.system_topics import TIMER_TOPIC
from tests.store.store_world import (
    Clock,
    a_message,
    heal,
    note_damage,
    number_of,
    open_store,
    queue_messages,
)
from tests.support.logged import logged

T0 = 1_700_000_000_000
SMALL = TimerSettings(timer_roll_window_slots=12, timer_max_delay_seconds=60)


def timed(number: int, delay_ms: int, more: dict[str, str] | None = None) -> PutMessage:
    message = a_message(number)
    properties = decode_properties(message.properties) | {"TIMER_DELAY_MS": str(delay_ms)}
    return msgspec.structs.replace(message, properties=encode_properties(properties | (more or {})))


def cancelling(number: int, other: int, delay_ms: int) -> PutMessage:
    return timed(number, delay_ms, {"TIMER_DEL_UNIQKEY": f"TopicA+U{other}"})


def log_up_to(store: MessageStore, end: int) -> SimulatedDisk:
    """A disk whose store has the log of another one up to there."""
    disk = SimulatedDisk()
    with open_store(disk, is_slave=True) as slave:
        while slave.max_physical_offset < end:
            offset = slave.max_physical_offset
            with store.read_log(offset, end - offset) as view:
                slave.append_data(offset, bytes(view))
        slave.announce()
    return disk


def earlier_of(store: MessageStore, begin: int, now_ms: int = T0) -> EarlierDeliveries:
    return EarlierDeliveries(
        begin,
        store.max_physical_offset,
        opened_ms=now_ms,
        find_queue=store.queues.find,
        message=store.commit_log.message,
    )


class World:
    """The master of the moment, and what its journal says."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        now_ms: int = T0,
        place: TimerPlace | None = None,
        *,
        was_classic: bool = False,
        place_at: int = 0,
    ) -> None:
        self.clock = Clock(now_ms, step_ms=0)
        self.refused: PutMessageStatus | None = None
        self.store = open_store(disk or SimulatedDisk(), clock=self.clock)
        self.place = place or TimerPlace()
        self.journal = [(place_at, self.place)]
        self.timers = JournaledTimers(
            self.place,
            SMALL,
            was_classic=was_classic,
            note=self._note,
            find_queue=lambda: self.store.queues.find(TIMER_TOPIC, 0),
            message=self.store.record_check.by_place(TIMER_TOPIC),
            put=self._put,
            wall_clock_ms=self.clock,
            chance=random.Random(1),
            earlier=earlier_of(self.store, place_at, now_ms),
        )

    def _note(self, place: TimerPlace) -> None:
        self.place = place

    def _put(self, message: PutMessage) -> PutMessageResult:
        if self.refused is not None:
            return PutMessageResult(self.refused, "refused")
        result = self.store.puts.put_message(message, hooks=False)
        self.store.announce()
        return result

    def send(self, *messages: PutMessage) -> None:
        for message in messages:
            rewritten = self.timers.rewrite(message, self.clock.now_ms)
            assert isinstance(rewritten, PutMessage), rewritten
            assert self.store.puts.put_message(rewritten, hooks=False).status.is_stored
            self.store.announce()

    def deliver(self, after_ms: int = 0) -> int | None:
        self.clock.now_ms += after_ms
        while True:
            _, next_ms = self.timers.deliver_due(self.clock.now_ms)
            if next_ms is None or next_ms > self.clock.now_ms:
                return next_ms

    def write_place(self) -> None:
        if self.place != self.journal[-1][1]:
            self.journal.append((self.store.max_physical_offset, self.place))

    def waiting(self) -> dict[str, int]:
        found = self.timers.metrics.timing_count
        return {topic: metric.count for topic, metric in found.items()}

    def delivered(self) -> list[int]:
        """What was delivered, in order."""
        return [number_of(m) for m in queue_messages(self.store, "TopicA", 0)]

    def fail_over(self, end: int | None = None, skew_ms: int = 0) -> World:
        """Let a node take over that has the log up to `end`, and the places in it."""
        end = self.store.max_physical_offset if end is None else end
        at, place = [each for each in self.journal if each[0] <= end][-1]
        disk = log_up_to(self.store, end)
        return World(disk, self.clock.now_ms + skew_ms, place, place_at=at)


@pytest.mark.parametrize("delay_ms", [1, 999, 1000, 1001, 2500, 11_999])
def test_a_message_is_never_early_and_at_most_a_tick_late(delay_ms: int) -> None:
    world = World(now_ms=T0 + 300)
    world.send(timed(1, delay_ms))
    for _ in range(delay_ms // 10):
        world.deliver(10)
        if world.clock.now_ms < T0 + 300 + delay_ms:
            assert world.delivered() == []
    world.deliver(1000)
    assert world.delivered() == [1]


def test_the_next_look_is_when_the_first_slot_is_over() -> None:
    world = World()
    assert world.deliver() is None
    world.send(timed(1, 5000), timed(2, 3000))
    assert world.deliver() == T0 + 3000
    assert world.deliver(3000) == T0 + 5000
    assert world.deliver(2000) is None
    assert world.delivered() == [2, 1]


def test_a_delivered_record_tells_its_way() -> None:
    world = World()
    sent = msgspec.structs.replace(timed(1, 3000), flag=7, sys_flag=1, reconsume_times=2)
    world.send(sent)
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


def test_a_refused_put_is_tried_again_and_nothing_is_put_twice() -> None:
    world = World()
    world.send(*(timed(number, 1000) for number in range(3)))
    world.deliver()
    world.clock.now_ms += 1000
    world.refused = PutMessageStatus.OS_PAGE_CACHE_BUSY
    assert world.timers.deliver_due(world.clock.now_ms) == (0, T0 + 1100)
    world.refused = None
    assert world.timers.deliver_due(T0 + 1099) == (0, T0 + 1100)
    world.deliver(100)
    assert world.delivered() == [0, 1, 2]


def test_a_message_that_can_never_be_put_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.send(timed(1, 1000))
    world.refused = PutMessageStatus.MESSAGE_ILLEGAL
    assert world.deliver(1000) is None
    assert len(logged(caplog, "store.delayed.journaled_timers", logging.ERROR)) == 1


def test_a_message_that_belongs_nowhere_does_not_hold_up_the_others() -> None:
    world = World()
    properties = b"TIMER_OUT_MS\x01x\x02REAL_TOPIC\x01TopicA\x02REAL_QID\x010\x02"
    world._put(msgspec.structs.replace(a_message(1, TIMER_TOPIC), properties=properties))
    world.send(timed(2, 1000))
    world.deliver(1000)
    assert world.delivered() == [2]


@pytest.mark.parametrize("delay_ms", [12_000, 13_000, 17_000, 25_000, 59_000])
def test_a_message_beyond_the_window_is_rolled_and_still_in_time(delay_ms: int) -> None:
    world = World()
    world.send(timed(1, delay_ms))
    for at in range(delay_ms // 1000 - 1):
        world.deliver(1000)
        if at % 3 == 2:
            world.write_place()
            world = world.fail_over()
    world.deliver(999)
    assert world.delivered() == []
    world.deliver(1)
    assert world.delivered() == [1]


def test_a_cancelled_message_is_not_delivered_by_the_next_master_either() -> None:
    world = World()
    world.send(timed(1, 5000), timed(2, 5000))
    world.send(cancelling(3, 1, 5000))
    world.deliver(1000)
    world.write_place()
    world = world.fail_over()
    world.deliver(4000)
    assert world.delivered() == [2]


def test_a_cancelling_message_counts_in_a_slot_that_is_half_empty() -> None:
    world = World()
    world.send(cancelling(0, 69, 5000))
    world.send(*(timed(number, 5000) for number in range(1, 70)))
    world.deliver()
    world.timers.deliver_due(T0 + 5000)
    assert 0 < len(world.delivered()) < 60
    world.write_place()
    world = world.fail_over()
    world.deliver(5000)
    assert world.delivered() == list(range(1, 69))


@pytest.mark.parametrize(("cancelled_ms", "stops_ms"), [(1000, 7000), (2000, 2000)])
def test_cancelling_holds_when_one_of_both_is_rolled_after_the_other_was_due(
    cancelled_ms: int, stops_ms: int
) -> None:
    """Nothing is emptied for long, and only one of both is in the slot of their time by then."""
    world = World()
    world.send(timed(1, 14_000))
    world.clock.now_ms += cancelled_ms
    world.send(cancelling(2, 1, 14_000 - cancelled_ms))
    world.deliver(stops_ms - cancelled_ms)
    world.deliver(20_000)
    assert world.delivered() == []


def test_a_cancelling_message_counts_when_many_others_came_before_it() -> None:
    world = World()
    world.send(timed(0, 1000), timed(1, 1000))
    world.deliver()
    world.send(*(timed(number, 50_000) for number in range(2, 300)), cancelling(300, 0, 1000))
    world.deliver(1000)
    assert world.delivered() == [1]


def test_delivery_waits_only_for_what_was_there_when_it_was_due() -> None:
    world = World()
    world.send(timed(0, 1000))
    world.deliver()
    world.clock.now_ms += 1000
    for _ in range(2):
        world.send(*(timed(number, 50_000) for number in range(1, 300)))
        world.timers.deliver_due(world.clock.now_ms)
    assert world.delivered() == [0]


@pytest.mark.parametrize("others", [0, 300])
def test_what_waits_for_a_clock_that_is_behind_can_be_cancelled(others: int) -> None:
    world = World()
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
    world = World()
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
    world = World()
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
    world = World()
    world.send(timed(1, 14_000))
    world.deliver(6000)
    world.deliver(1000)
    world = world.fail_over()
    world.deliver(7000)
    assert world.delivered() == [1]


def test_a_kill_between_delivery_and_progress_repeats_nothing() -> None:
    world = World()
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
    world = World()
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
    world = World()
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
    world = World()
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
    world = World()
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
    world = World()
    world.send(*(timed(number, 5000) for number in range(300)))
    world.send(cancelling(300, 0, 5000))
    world = world.fail_over(skew_ms=5000)
    assert world.timers.deliver_due(world.clock.now_ms) == (0, world.clock.now_ms)
    world.deliver()
    assert world.delivered() == list(range(1, 300))


def test_the_place_stays_until_the_last_masters_messages_were_looked_at() -> None:
    world = World()
    world.send(*(timed(number, 50_000) for number in range(300)))
    world.deliver(1000)
    world.write_place()
    place = world.place
    world = world.fail_over()
    world.timers.deliver_due(world.clock.now_ms)
    assert world.place == place == TimerPlace(0, 300, 0, 0)


def test_after_a_classic_master_a_message_that_may_be_rolling_is_delivered() -> None:
    world = World()
    world.send(timed(1, 1000), timed(2, 25_000))
    world.deliver(1000)
    end = world.store.max_physical_offset
    stopped = TimerPlace(looked_at=2, slot_ms=T0 + 20_000)
    world = World(log_up_to(world.store, end), T0 + 20_000, stopped, was_classic=True)
    world.deliver()
    assert world.delivered() == [1]
    world.deliver(5000)
    assert world.delivered() == [1, 2]


@pytest.mark.slow
@given(data=st.data())
def test_whatever_happens_nothing_is_lost_early_or_repeated(
    data: st.DataObject,
) -> None:
    world = World()
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
    world = World()
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
    world = World()
    message = timed(1, 50_000)
    for _ in range(20_000):
        rewritten = world.timers.rewrite(message, world.clock.now_ms)
        assert isinstance(rewritten, PutMessage)
        assert world.store.puts.put_message(rewritten, hooks=False).status.is_stored
    world.store.announce()
    anew = JournaledTimers(
        TimerPlace(),
        SMALL,
        was_classic=False,
        note=world._note,
        find_queue=lambda: world.store.queues.find(TIMER_TOPIC, 0),
        message=world.store.record_check.by_place(TIMER_TOPIC),
        put=world._put,
        wall_clock_ms=world.clock,
        chance=random.Random(1),
        earlier=earlier_of(world.store, 0),
    )
    began = time.process_time()
    while anew.deliver_due(world.clock.now_ms)[1] == world.clock.now_ms:
        pass
    assert time.process_time() - began < 5


def test_a_damaged_message_is_waited_for() -> None:
    world = World()
    world.send(*(timed(number, 3000) for number in range(4)))
    note_damage(world.store, TIMER_TOPIC, 1)
    for _ in range(8):
        world.deliver(1000)
    assert world.delivered() == []
    heal(world.store)
    for _ in range(3):
        world.deliver(1000)
    assert sorted(world.delivered()) == [0, 1, 2, 3]


def test_a_message_that_is_damaged_while_it_waits_is_waited_for() -> None:
    world = World()
    world.send(*(timed(number, 3000) for number in range(4)))
    world.deliver(1000)
    note_damage(world.store, TIMER_TOPIC, 1)
    for _ in range(8):
        world.deliver(1000)
    assert 1 not in world.delivered()
    heal(world.store)
    for _ in range(3):
        world.deliver(1000)
    assert sorted(world.delivered()) == [0, 1, 2, 3]


# -- how many wait ---------------------------------------------------------------------------------


def test_what_waits_is_counted_and_by_the_next_master_anew() -> None:
    world = World()
    other = msgspec.structs.replace(timed(3, 5000), topic="Other")
    world.send(timed(1, 2000), timed(2, 5000), other)
    assert world.waiting() == {}
    world.deliver()
    assert world.waiting() == {"TopicA": 2, "Other": 1}
    world.deliver(2000)
    assert world.waiting() == {"TopicA": 1, "Other": 1}
    world.write_place()
    world = world.fail_over()
    assert world.waiting() == {}
    world.deliver()
    assert world.waiting() == {"TopicA": 1, "Other": 1}
    world.deliver(3000)
    assert world.waiting() == {}


def test_a_far_message_counts_once_before_and_after_it_is_rolled() -> None:
    world = World()
    world.send(timed(1, 59_000))
    for at in range(59):
        world.deliver()
        assert world.waiting() == {"TopicA": 1}
        world.deliver(1000)
        if at % 7 == 6:
            world.write_place()
            world = world.fail_over()
    assert world.waiting() == {}


@pytest.mark.parametrize("delay_ms", [5000, 30_000])
@pytest.mark.parametrize("fails_over", [False, True])
def test_a_cancelled_message_does_not_wait_any_more(delay_ms: int, *, fails_over: bool) -> None:
    world = World()
    world.send(*(timed(number, delay_ms) for number in range(3)), cancelling(9, 1, delay_ms))
    world.send(timed(4, delay_ms + 5000))
    world.deliver()
    if fails_over:
        world.write_place()
        world = world.fail_over()
        world.deliver()
    assert world.waiting() == {"TopicA": 3}
    for _ in range(delay_ms // 1000):
        world.deliver(1000)
    assert world.delivered() == [0, 2]
    assert world.waiting() == {"TopicA": 1}


def test_a_refused_put_waits_and_one_that_can_never_be_put_does_not() -> None:
    world = World()
    world.send(timed(1, 1000), timed(2, 9000))
    world.deliver()
    world.clock.now_ms += 1000
    world.refused = PutMessageStatus.OS_PAGE_CACHE_BUSY
    world.timers.deliver_due(world.clock.now_ms)
    assert world.waiting() == {"TopicA": 2}
    world.refused = PutMessageStatus.MESSAGE_ILLEGAL
    world.deliver(100)
    assert world.waiting() == {"TopicA": 1}
