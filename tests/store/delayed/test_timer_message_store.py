"""Timed messages, on a store whose disk can die; wheel and window are small, so that both turn."""

from __future__ import annotations

import logging
import random
import struct
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from node.simulated.disk import NothingKept, SimulatedDisk
from node.simulated.virtual_clock import WallClock
from store.machine.errors import CorruptLogError, LogFault
from store.results import PutMessage, PutMessageResult, PutMessageStatus
from tandem.wire.message_properties import java_string_hash
from tandem.wire.system_topics import TIMER_TOPIC
from tests.store.delayed.timer_world import SMALL, T0, FileWorld, timed, timers_of
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    DIRECTORY,
    number_of,
    open_store,
    queue_messages,
)
from tests.support.logged import logged

if TYPE_CHECKING:
    from tandem.wire.message import MessageExt


# -- delivery --------------------------------------------------------------------------------------


def test_messages_of_one_slot_keep_their_order() -> None:
    world = FileWorld()
    world.send(*(timed(number, 3000) for number in range(120)))
    world.deliver()
    world.deliver(3000)
    assert world.delivered() == list(range(120))


def test_a_message_that_comes_late_is_put_at_once() -> None:
    world = FileWorld()
    world.send(timed(1, 3000))
    world.deliver(9000)
    (found,) = queue_messages(world.store, "TopicA", 0)
    assert found.properties["TIMER_ENQUEUE_MS"] == str((1 << 63) - 1)


def test_a_clock_put_back_holds_nothing_up_for_ever() -> None:
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld()
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
        FileWorld(disk)
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == f"{DIRECTORY}/config/timercheck"


def test_old_files_of_the_timer_log_are_deleted() -> None:
    world = FileWorld()
    world.send(*(timed(number, 1000) for number in range(12)))
    world.deliver()
    world.timers._timer_log.delete_expired_files(1 << 40, T0)
    assert [name for name, _ in world.disk.list_files(f"{DIRECTORY}/timerlog")] == [f"{456:020d}"]


# -- far delays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [12_000, 13_000, 17_000, 25_000, 59_000])
def test_a_message_beyond_the_window_is_rolled_and_still_in_time(delay_ms: int) -> None:
    world = FileWorld()
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
    world = FileWorld()
    world.send(timed(1, 5000), timed(2, 5000))
    world.deliver(1000)
    world.send(timed(3, 4000, {"TIMER_DEL_UNIQKEY": key}))
    world.deliver()
    world.deliver(9000)
    assert world.delivered() == [2]


def test_a_cancelling_message_works_for_its_own_time_only_and_is_never_delivered() -> None:
    world = FileWorld()
    world.send(timed(1, 5000), timed(3, 6000, {"TIMER_DEL_UNIQKEY": "TopicA+U1"}))
    world.deliver()
    world.deliver(9000)
    world.send(timed(4, 3000, {"TIMER_DEL_UNIQKEY": "TopicA+U9"}))
    world.deliver(9000)
    assert world.delivered() == [1]


def test_a_far_message_can_be_cancelled_too() -> None:
    world = FileWorld()
    world.send(timed(1, 30_000), timed(2, 30_000, {"TIMER_DEL_UNIQKEY": "TopicA+U1"}))
    for _ in range(40):
        world.deliver(1000)
    assert world.delivered() == []


# -- how many wait ---------------------------------------------------------------------------------


def test_a_message_that_comes_late_was_never_waiting() -> None:
    world = FileWorld()
    world.send(timed(1, 3000))
    world.clock.now_ms += 9000
    world.timers.deliver_due(world.clock.now_ms)
    assert (world.delivered(), world.waiting()) == ([1], {})


def test_what_cancels_nothing_is_even_again_after_its_time() -> None:
    world = FileWorld()
    world.send(timed(1, 3000, {"TIMER_DEL_UNIQKEY": "TopicA+U9"}), timed(2, 5000))
    world.deliver()
    assert world.waiting() == {}
    world.deliver(3000)
    assert world.waiting() == {"TopicA": 1}


def test_after_a_start_what_waits_is_counted_from_the_timer_log() -> None:
    world = FileWorld()
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
    world = FileWorld()
    world.send(timed(1, 3000), timed(2, 9000))
    world.sync()
    lost = world.restarted(world.disk.powered_off(NothingKept()))
    lost.deliver()
    assert lost.waiting() == {"TopicA": 2}
    lost.deliver(3000)
    assert lost.waiting() == {"TopicA": 1}


# -- crashes ---------------------------------------------------------------------------------------


def test_after_a_clean_stop_everything_goes_on() -> None:
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld(disk)
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
    world = FileWorld(disk, T0 + 30_000)
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
    world = FileWorld()
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
    world = FileWorld()
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
    world = FileWorld()
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
