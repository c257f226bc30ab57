"""Timed messages, on a store whose disk can die; wheel and window are small, so that both turn."""

from __future__ import annotations

import logging
import random
import struct
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from node.simulated.disk import NothingKept, SimulatedDisk
from node.simulated.virtual_clock import WallClock
from store import MessageStore
from store.delayed.timer_message_store import TimerMessageStore
from store.delayed.timer_request import TimerSettings
from store.machine.errors import CorruptLogError, LogFault
from store.results import PutMessage, PutMessageResult, PutMessageStatus
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import decode_properties, encode_properties, java_string_hash
from tandem.wire.system_topics import TIMER_TOPIC
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    DIRECTORY,
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
SMALL = TimerSettings(
    timer_roll_window_slots=12,
    timer_max_delay_seconds=60,
    mapped_file_size_timer_log_bytes=52 * 4 + 20,
    slots=40,
)


def timed(
    number: int, delay_ms: int, more: dict[str, str] | None = None, *, topic: str = "TopicA"
) -> PutMessage:
    message = a_message(number, topic)
    properties = decode_properties(message.properties) | {"TIMER_DELAY_MS": str(delay_ms)}
    return msgspec.structs.replace(message, properties=encode_properties(properties | (more or {})))


def timers_of(
    store: MessageStore,
    disk: SimulatedDisk,
    clock: Callable[[], int],
    put: Callable[[PutMessage], PutMessageResult],
    wanted: TimerSettings = SMALL,
) -> TimerMessageStore:
    timers = TimerMessageStore(
        DIRECTORY,
        wanted,
        disk,
        find_queue=lambda: store.queues.find(TIMER_TOPIC, 0),
        message=store.record_check.by_place(TIMER_TOPIC),
        put=put,
        log_end=lambda: store.max_physical_offset,
        flushed_where=lambda: store.flushed_where,
        wall_clock_ms=clock,
        chance=random.Random(1),
    )
    timers.recover()
    return timers


class World:
    """A store, its clock and its timers, which can be started again on what a crash left."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        now_ms: int = T0,
        wanted: TimerSettings = SMALL,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = Clock(now_ms, step_ms=0)
        self.refused: PutMessageStatus | None = None
        self.wanted = wanted
        self.store = open_store(self.disk, clock=self.clock)
        self.timers = timers_of(self.store, self.disk, self.clock, self.put, wanted)

    def put(self, message: PutMessage) -> PutMessageResult:
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
        """Let time pass, and deliver what is due; return when to come back."""
        self.clock.now_ms += after_ms
        while True:
            _, next_ms = self.timers.deliver_due(self.clock.now_ms)
            if next_ms is None or next_ms > self.clock.now_ms:
                return next_ms

    def deliver_all(self) -> None:
        self.refused = None
        for _ in range(80):
            self.deliver(1000)

    def delivered(self) -> list[int]:
        return [number_of(m) for m in queue_messages(self.store, "TopicA", 0)]

    def waiting(self) -> dict[str, int]:
        found = self.timers.metrics.timing_count
        return {topic: metric.count for topic, metric in found.items()}

    def sync(self) -> None:
        self.store.commit_log.files.sync_all()

    def flush(self) -> None:
        self.sync()
        self.timers.flush_blocking()

    def restarted(self, disk: SimulatedDisk | None = None) -> World:
        return World(disk or self.disk.crashed(), self.clock.now_ms, self.wanted)

    def checkpoint(self) -> tuple[int, ...]:
        data = self.disk.read(f"{DIRECTORY}/config/timercheck") or b""
        assert len(data) == 4096
        return struct.unpack_from(">7q", data)


# -- delivery --------------------------------------------------------------------------------------


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
    """TimerMessageStore.convert and convertMessage: the real topic stays in the string."""
    world = World()
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


def test_messages_of_one_slot_keep_their_order() -> None:
    world = World()
    world.send(*(timed(number, 3000) for number in range(120)))
    world.deliver()
    world.deliver(3000)
    assert world.delivered() == list(range(120))


def test_a_message_that_comes_late_is_put_at_once() -> None:
    world = World()
    world.send(timed(1, 3000))
    world.deliver(9000)
    (found,) = queue_messages(world.store, "TopicA", 0)
    assert found.properties["TIMER_ENQUEUE_MS"] == str((1 << 63) - 1)


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
    world.deliver()
    world.refused = PutMessageStatus.MESSAGE_ILLEGAL
    assert world.deliver(1000) is None
    assert len(logged(caplog, "store.delayed.timer_message_store", logging.ERROR)) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"TIMER_OUT_MS": "x"}, {"REAL_QID": "-1"}, {"REAL_TOPIC": TIMER_TOPIC}, {"REAL_TOPIC": ""}],
)
def test_a_message_that_belongs_nowhere_does_not_hold_up_the_others(wrong: dict[str, str]) -> None:
    world = World()
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


def test_a_clock_put_back_holds_nothing_up_for_ever() -> None:
    world = World()
    world.send(timed(1, 3000))
    world.deliver()
    world.deliver(8000)
    world.clock.now_ms -= 6000
    world.send(timed(2, 1000))
    world.deliver()
    world.deliver(7000)
    assert world.delivered() == [1, 2]


def test_after_a_very_long_stop_old_messages_keep_their_slot_until_they_are_delivered() -> None:
    """RocketMQ gives the slot to the new message, and the old ones are lost."""
    world = World()
    world.send(*(timed(number, 5000) for number in range(60)))
    world.deliver()
    world.clock.now_ms += 36_000
    world.send(timed(60, 9000))
    assert world.timers.deliver_due(world.clock.now_ms) == (50, world.clock.now_ms + 100)
    world.deliver(100)
    world.deliver(9000)
    assert world.delivered() == list(range(61))


# -- files -----------------------------------------------------------------------------------------


def test_units_and_slots_are_those_of_rocketmq() -> None:
    """TimerMessageStore.doEnqueue."""
    world = World()
    world.send(timed(1, 5000), timed(2, 5000))
    world.deliver()
    data = world.disk.read(f"{DIRECTORY}/timerlog/{0:020d}") or b""
    records = queue_messages(world.store, TIMER_TOPIC, 0)
    expected = [
        (52, previous, 1, T0, 4000, m.physical_offset, m.store_size, java_string_hash("TopicA"), 0)
        for previous, m in zip((-1, 0), records, strict=True)
    ]
    assert [struct.unpack_from(">iqiqiqiiq", data, at) for at in (0, 52)] == expected
    wheel = world.disk.read(f"{DIRECTORY}/timerwheel") or b""
    tick = (T0 + 4000) // 1000
    assert struct.unpack_from(">qqqii", wheel, tick % 40 * 32) == (tick, 0, 52, 2, 0)


def test_the_checkpoint_says_how_far_everything_is() -> None:
    world = World()
    world.send(timed(1, 2000), timed(2, 5000))
    world.deliver()
    world.flush()
    assert world.checkpoint() == (T0, 104, 2, 2, 0, T0, 1)
    world.deliver(3000)
    world.flush()
    assert world.checkpoint() == (T0 + 3000, 104, 2, 2, 0, T0 + 3000, 2)
    world.flush()
    assert world.checkpoint()[6] == 2


def test_a_checkpoint_of_another_length_is_an_error_with_a_remedy() -> None:
    disk = SimulatedDisk()
    disk.replace(f"{DIRECTORY}/config/timercheck", b"short")
    with pytest.raises(CorruptLogError) as caught:
        World(disk)
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == f"{DIRECTORY}/config/timercheck"


def test_old_files_of_the_timer_log_are_deleted() -> None:
    world = World()
    world.send(*(timed(number, 1000) for number in range(12)))
    world.deliver()
    world.timers._timer_log.delete_expired_files(1 << 40, T0)
    assert [name for name, _ in world.disk.list_files(f"{DIRECTORY}/timerlog")] == [f"{456:020d}"]


# -- far delays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [12_000, 13_000, 17_000, 25_000, 59_000])
def test_a_message_beyond_the_window_is_rolled_and_still_in_time(delay_ms: int) -> None:
    world = World()
    world.send(timed(1, delay_ms))
    world.deliver()
    for _ in range(delay_ms // 1000 - 1):
        world.deliver(1000)
    world.deliver(999)
    assert world.delivered() == []
    world.deliver(1)
    assert world.delivered() == [1]
    rolls = len(queue_messages(world.store, TIMER_TOPIC, 0)) - 1
    (found,) = queue_messages(world.store, "TopicA", 0)
    assert found.properties.get("TIMER_ROLL_TIMES") == (str(rolls) if rolls else None)
    assert rolls == {12_000: 0, 13_000: 1, 17_000: 1, 25_000: 1, 59_000: 4}[delay_ms]


# -- cancelling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["U1", "TopicA+U1"])
def test_a_message_is_cancelled_by_its_key_at_its_time(key: str) -> None:
    """TimerMessageStore.buildDeleteKey: topic, plus sign, unique key."""
    world = World()
    world.send(timed(1, 5000), timed(2, 5000))
    world.deliver(1000)
    world.send(timed(3, 4000, {"TIMER_DEL_UNIQKEY": key}))
    world.deliver()
    world.deliver(9000)
    assert world.delivered() == [2]


def test_a_cancelling_message_works_for_its_own_time_only_and_is_never_delivered() -> None:
    world = World()
    world.send(timed(1, 5000), timed(3, 6000, {"TIMER_DEL_UNIQKEY": "TopicA+U1"}))
    world.deliver()
    world.deliver(9000)
    world.send(timed(4, 3000, {"TIMER_DEL_UNIQKEY": "TopicA+U9"}))
    world.deliver(9000)
    assert world.delivered() == [1]


def test_a_far_message_can_be_cancelled_too() -> None:
    world = World()
    world.send(timed(1, 30_000), timed(2, 30_000, {"TIMER_DEL_UNIQKEY": "TopicA+U1"}))
    for _ in range(40):
        world.deliver(1000)
    assert world.delivered() == []


# -- how many wait ---------------------------------------------------------------------------------


def test_what_waits_is_counted_by_its_topic() -> None:
    world = World()
    assert world.waiting() == {}
    world.send(timed(1, 2000), timed(2, 5000), timed(3, 5000, topic="Other"))
    world.deliver()
    assert world.waiting() == {"TopicA": 2, "Other": 1}
    world.deliver(2000)
    assert world.waiting() == {"TopicA": 1, "Other": 1}
    world.deliver(3000)
    assert world.waiting() == {}


def test_a_message_that_comes_late_was_never_waiting() -> None:
    world = World()
    world.send(timed(1, 3000))
    world.clock.now_ms += 9000
    world.timers.deliver_due(world.clock.now_ms)
    assert (world.delivered(), world.waiting()) == ([1], {})


def test_a_far_message_counts_once_before_and_after_it_is_rolled() -> None:
    world = World()
    world.send(timed(1, 59_000), timed(2, 59_500))
    for _ in range(59):
        world.deliver()
        assert world.waiting() == {"TopicA": 2}
        world.deliver(1000)
    assert world.waiting() == {"TopicA": 1}
    world.deliver(1000)
    assert world.waiting() == {}


@pytest.mark.parametrize("delay_ms", [5000, 30_000])
@pytest.mark.parametrize("starts_again", [False, True])
def test_a_cancelled_message_does_not_wait_any_more(delay_ms: int, *, starts_again: bool) -> None:
    world = World()
    cancel = timed(9, delay_ms, {"TIMER_DEL_UNIQKEY": "TopicA+U1"})
    world.send(*(timed(number, delay_ms) for number in range(3)), cancel)
    world.send(timed(4, delay_ms + 5000))
    world.deliver()
    if starts_again:
        world.flush()
        world = world.restarted()
        world.deliver()
    assert world.waiting() == {"TopicA": 3}
    for _ in range(delay_ms // 1000):
        world.deliver(1000)
    assert world.delivered() == [0, 2]
    assert world.waiting() == {"TopicA": 1}


def test_what_cancels_nothing_is_even_again_after_its_time() -> None:
    world = World()
    world.send(timed(1, 3000, {"TIMER_DEL_UNIQKEY": "TopicA+U9"}), timed(2, 5000))
    world.deliver()
    assert world.waiting() == {}
    world.deliver(3000)
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


def test_after_a_start_what_waits_is_counted_from_the_timer_log() -> None:
    world = World()
    for number in range(120):
        world.send(timed(number, 9000, topic=f"T{number // 2}"))
    world.send(timed(120, 1000, topic="Done"))
    world.deliver()
    world.deliver(1000)
    expected = {f"T{number}": 2 for number in range(60)}
    assert world.waiting() == expected
    world.flush()
    again = world.restarted()
    assert again.waiting() == {}
    _, next_ms = again.timers.deliver_due(again.clock.now_ms)
    assert (len(again.waiting()), next_ms) == (50, again.clock.now_ms)
    again.deliver()
    assert again.waiting() == expected
    again.deliver(9000)
    assert again.waiting() == {}


def test_after_a_crash_that_kept_nothing_of_the_timers_the_queue_is_counted() -> None:
    world = World()
    world.send(timed(1, 3000), timed(2, 9000))
    world.sync()
    lost = world.restarted(world.disk.powered_off(NothingKept()))
    lost.deliver()
    assert lost.waiting() == {"TopicA": 2}
    lost.deliver(3000)
    assert lost.waiting() == {"TopicA": 1}


# -- crashes ---------------------------------------------------------------------------------------


def test_after_a_clean_stop_everything_goes_on() -> None:
    world = World()
    world.send(*(timed(number, 1000 * number) for number in range(1, 30)))
    world.deliver()
    world.deliver(5000)
    world.flush()
    world.store.close()
    world.timers.close()
    again = world.restarted()
    again.deliver_all()
    assert again.delivered() == list(range(1, 30))


def test_what_is_not_durable_does_not_count_as_delivered() -> None:
    world = World()
    world.send(timed(1, 1000))
    world.deliver()
    world.flush()
    world.deliver(1000)
    world.timers.flush_blocking()
    assert world.checkpoint()[0] == T0
    lost = world.restarted(world.disk.powered_off(NothingKept()))
    assert lost.delivered() == []
    lost.deliver()
    assert lost.delivered() == [1]
    lost.flush()
    assert lost.checkpoint()[0] == T0 + 1000


async def test_what_comes_during_a_flush_is_not_in_its_checkpoint(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    world.send(timed(1, 2000))
    world.deliver()
    world.sync()
    nursery.start_soon(world.timers.flush)
    await trio.testing.wait_all_tasks_blocked()
    world.send(timed(2, 2000))
    world.deliver()
    world.sync()
    await trio.sleep(1)
    assert world.checkpoint()[1:3] == (52, 1)
    lost = world.restarted(world.disk.powered_off(NothingKept()))
    lost.deliver_all()
    assert lost.delivered() == [1, 2]


async def test_what_comes_during_a_flush_is_synced_by_the_next_one(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    world.send(timed(1, 2000))
    world.deliver()
    nursery.start_soon(world.timers.flush)
    await trio.testing.wait_all_tasks_blocked()
    world.send(timed(2, 2000))
    world.deliver()
    await trio.sleep(1)
    await world.timers.flush()
    path = f"{DIRECTORY}/timerlog/{0:020d}"
    assert world.disk.powered_off(NothingKept()).read(path) == world.disk.read(path)


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_flush_leaves_log_wheel_and_checkpoint_on_the_disk(
    autojump_clock: trio.testing.MockClock, *, blocking: bool
) -> None:
    world = World()
    world.send(timed(1, 2000))
    world.deliver()
    world.sync()
    if blocking:
        world.timers.flush_blocking()
    else:
        await world.timers.flush()
    left = world.disk.powered_off(NothingKept())
    for name in ("timerlog/00000000000000000000", "timerwheel", "config/timercheck"):
        path = f"{DIRECTORY}/{name}"
        assert any(left.read(path) or b"")
        assert left.read(path) == world.disk.read(path)


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "config/timercheck"])
def test_a_lost_file_costs_no_message(lost: str) -> None:
    world = World()
    world.send(*(timed(number, 1000 * number) for number in range(1, 10)))
    world.deliver()
    world.deliver(4000)
    world.flush()
    disk = world.disk.crashed()
    for path in [path for path in disk._files if path.startswith(f"{DIRECTORY}/{lost}")]:
        disk.remove(path)
    again = world.restarted(disk)
    again.deliver_all()
    assert set(again.delivered()) == set(range(1, 10))
    if lost != "config/timercheck":
        assert len(again.delivered()) == 9


def run_through(disk: SimulatedDisk) -> None:
    """Near and far, late and cancelled; flushed now and then."""
    world = World(disk)
    for number in range(6):
        world.send(timed(number, 1000 + 700 * number))
    world.send(timed(6, 20_000), timed(7, 4000))
    world.deliver()
    world.send(timed(8, 4000, {"TIMER_DEL_UNIQKEY": "TopicA+U7"}))
    for after_ms in (1500, 500, 3000, 6000, 12_000):
        world.deliver(after_ms)
        world.timers.flush_blocking()
        world.flush()
    world.store.close()


def finish(disk: SimulatedDisk) -> Counter[int]:
    """Deliver what is left: all that was stored, except what was cancelled."""
    world = World(disk, T0 + 30_000)
    world.deliver_all()
    stored = queue_messages(world.store, TIMER_TOPIC, 0)
    kept = {number_of(m) for m in stored if "TIMER_DEL_UNIQKEY" not in m.properties}
    counts = Counter(world.delivered())
    assert counts.keys() - {7} == kept - {7}
    if has_cancelled(stored):
        assert 8 not in counts
    return counts


def has_cancelled(stored: list[MessageExt]) -> bool:
    return any("TIMER_DEL_UNIQKEY" in m.properties for m in stored)


@pytest.mark.slow
def test_killed_at_any_step_every_timed_message_is_still_delivered() -> None:
    step = 0
    while True:
        step += 1
        disk = StepDisk()
        disk.on_step = die_at(step)
        try:
            run_through(disk)
        except Interrupted:
            counts = finish(disk.crashed())
            # One that was rolled since the checkpoint is rolled again, and comes that way, too.
            assert max((counts[number] for number in range(6)), default=0) <= 2
            assert counts[6] <= 3
            continue
        break
    assert finish(disk.crashed()) == Counter(range(7))
    assert step > 60


@pytest.mark.parametrize("seed", range(3))
def test_after_a_power_loss_at_any_step_what_is_left_of_them_is_delivered(seed: int) -> None:
    chance = random.Random(seed)
    disk = StepDisk()
    pictures: list[SimulatedDisk] = []
    disk.on_step = lambda _: pictures.append(disk.powered_off(chance))
    run_through(disk)
    for picture in pictures:
        finish(picture)
    assert len(pictures) > 60


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 50_000)),
        st.tuples(st.just("wait"), st.sampled_from((300, 1000, 5000, 90_000))),
        st.tuples(st.just("flush"), st.booleans()),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("refuse"), st.booleans()),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(deadline=None)
@given(STEPS)
def test_whatever_happens_each_message_comes_in_time_and_repeats_only_after_a_kill(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    due: dict[int, int] = {}
    kills = 0
    for step, argument in steps:
        match step:
            case "send":
                number = len(due)
                due[number] = world.clock.now_ms + argument
                world.send(timed(number, argument))
            case "wait":
                world.clock.now_ms += argument
                for _ in range(40):
                    world.timers.deliver_due(world.clock.now_ms)
            case "flush":
                if argument:
                    world.sync()
                world.timers.flush_blocking()
            case "refuse":
                world.refused = PutMessageStatus.UNKNOWN_ERROR if argument else None
            case "kill":
                world = world.restarted()
                kills += 1
    world.deliver_all()
    found = queue_messages(world.store, "TopicA", 0)
    for message in found:
        assert message.store_timestamp_ms >= due[number_of(message)]
    counts = Counter(map(number_of, found))
    assert counts.keys() == due.keys()
    assert kills or max(counts.values(), default=0) <= 1


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=100), st.binary(max_size=56))
def test_whatever_is_in_the_files_the_messages_of_the_queue_are_delivered_or_were(
    timer_log: bytes, wheel: bytes, checkpoint: bytes
) -> None:
    """Units that lie, but point nowhere; a checkpoint that lies can only hide what it covers."""
    world = World()
    world.send(timed(1, 3000), timed(2, 9000))
    disk = world.disk.crashed()
    path = f"{DIRECTORY}/timerlog/{0:020d}"
    disk.create(path, SMALL.mapped_file_size_timer_log_bytes).buffer[:50] = timer_log[:50].ljust(50)
    disk.open(f"{DIRECTORY}/timerwheel").buffer[: len(wheel)] = wheel
    lying = disk.crashed()
    lying.open(f"{DIRECTORY}/config/timercheck").buffer[: len(checkpoint)] = checkpoint
    again = world.restarted(disk)
    again.deliver_all()
    assert sorted(again.delivered()) == [1, 2]
    unsure = world.restarted(lying)
    unsure.deliver_all()
    assert set(unsure.delivered()) <= {1, 2}


# -- the service -----------------------------------------------------------------------------------


async def test_the_service_delivers_flushes_and_sleeps_in_between(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    disk, clock = SimulatedDisk(), WallClock()
    store = open_store(disk, clock=clock.now_ms)  # type: ignore[arg-type] # a clock, too
    looks = 0

    def now_ms() -> int:
        nonlocal looks
        looks += 1
        return clock.now_ms()

    def put(message: PutMessage) -> PutMessageResult:
        return store.puts.put_message(message, hooks=False)

    timers = timers_of(store, disk, now_ms, put)

    def after_delivery() -> None:
        store.announce()
        store.commit_log.files.sync_all()

    await nursery.start(timers.run, after_delivery, lambda: 0)
    await trio.sleep(0.5)
    for number, delay_ms in ((1, 7000), (2, 3000)):
        rewritten = timers.rewrite(timed(number, delay_ms), clock.now_ms())
        assert isinstance(rewritten, PutMessage)
        put(rewritten)
    store.announce()
    timers.message_arrived()
    await trio.sleep(3.6)
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [2]
    await trio.sleep(9)
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [2, 1]
    read_time_ms, *_ = struct.unpack_from(
        ">q", disk.read(f"{DIRECTORY}/config/timercheck") or bytes(8)
    )
    assert read_time_ms >= clock.now_ms() - 7000
    assert looks < 25
    nursery.cancel_scope.cancel()


async def test_a_failed_sync_ends_the_flushing_and_is_told(
    autojump_clock: trio.testing.MockClock,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await nursery.start(world.timers.run, world.store.announce, lambda: 0)
    world.send(timed(1, 5000))
    world.timers.message_arrived()
    world.disk.sync_fails = True
    await trio.sleep(3)
    assert len(logged(caplog, "store.delayed.timer_message_store", logging.ERROR)) == 1
    world.disk.sync_fails = False
    await trio.sleep(3)
    assert world.checkpoint()[0] == 0
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("waits", [False, True])
def test_a_damaged_message_is_waited_for(*, waits: bool) -> None:
    world = World()
    world.send(*(timed(number, 3000) for number in range(4)))
    if waits:
        world.deliver(1000)
    note_damage(world.store, TIMER_TOPIC, 1)
    for _ in range(8):
        world.deliver(1000)
    assert 1 not in world.delivered()
    heal(world.store)
    world.deliver_all()
    assert sorted(world.delivered()) == [0, 1, 2, 3]
