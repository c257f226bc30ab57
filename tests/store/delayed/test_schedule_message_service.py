"""Delayed messages, on a store whose disk can die; the service is a fresh one after each start."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from node.simulated.disk import NothingKept, SimulatedDisk
from node.simulated.virtual_clock import WallClock
from store import MessageStore, PutMessage
from store.delayed.delay_offset_table import DelayOffsetTable
from store.delayed.schedule_message_service import (
    DeliveryRound,
    ScheduleMessageService,
    delay_rewrite,
    message_time_up,
)
from store.machine.table_file import TableFile
from store.results import PutMessageResult, PutMessageStatus
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import Host
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.store_layout import FILLER_SIZE
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    DIRECTORY,
    Clock,
    a_message,
    heal,
    note_damage,
    number_of,
    open_store,
    put,
    queue_messages,
)
from tests.support.logged import logged

LEVELS = DelayLevels()
T0 = 1_700_000_000_000
DELAY_OFFSETS = f"{DIRECTORY}/config/delayOffset.json"


def delayed(
    number: int, level: int | str = 1, *, queue_id: int = 0, more: dict[str, str] | None = None
) -> PutMessage:
    message = a_message(number, queue_id=queue_id)
    properties = decode_properties(message.properties) | {"DELAY": str(level)} | (more or {})
    return msgspec.structs.replace(message, properties=encode_properties(properties))


class World:
    """A store, its clock and the service, which can be started again on what a crash left."""

    def __init__(self, disk: SimulatedDisk | None = None, now_ms: int = T0) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = Clock(now_ms, step_ms=0)
        self.refused: PutMessageStatus | None = None
        self.store = open_store(self.disk, clock=self.clock)
        self.offsets = DelayOffsetTable(TableFile(self.disk, DELAY_OFFSETS), self.clock)
        self.service = service_of(self.store, self.offsets, self.clock, self.put)

    def put(self, message: PutMessage) -> PutMessageResult:
        if self.refused is not None:
            return PutMessageResult(self.refused, "refused")
        result = self.store.puts.put_message(message, hooks=False)
        self.store.announce()
        return result

    def send(self, *messages: PutMessage) -> None:
        for message in messages:
            put(self.store, delay_rewrite(message, LEVELS))

    def deliver(self, after_ms: int = 0) -> DeliveryRound:
        self.clock.now_ms += after_ms
        return self.service.deliver_due(self.clock.now_ms)

    def deliver_all(self, *, until_ms: int = T0 * 2) -> None:
        self.clock.now_ms = until_ms
        while self.deliver().next_ms is not None:
            pass

    def delivered(self, topic: str = "TopicA", queue_id: int = 0) -> list[int]:
        return [number_of(m) for m in queue_messages(self.store, topic, queue_id)]

    def sync(self) -> None:
        self.store.commit_log.files.sync_all()

    def restarted(self, disk: SimulatedDisk | None = None) -> World:
        return World(disk or self.disk.crashed(), self.clock.now_ms)


def service_of(
    store: MessageStore,
    offsets: DelayOffsetTable,
    clock: Clock,
    put_message: Callable[[PutMessage], PutMessageResult] | None = None,
    levels: DelayLevels = LEVELS,
) -> ScheduleMessageService:
    return ScheduleMessageService(
        levels,
        offsets,
        find_queue=lambda queue_id: store.queues.find(SCHEDULE_TOPIC, queue_id),
        message=store.record_check.by_place(SCHEDULE_TOPIC),
        put=put_message or (lambda message: store.puts.put_message(message, hooks=False)),
        flushed_where=lambda: store.flushed_where,
        wall_clock_ms=clock,
    )


# -- the hook --------------------------------------------------------------------------------------


def test_a_message_with_a_level_goes_to_the_queue_of_that_level() -> None:
    """HookUtils.transformDelayLevelMessage."""
    message = delayed(1, 3, queue_id=2)
    rewritten = delay_rewrite(message, LEVELS)
    assert (rewritten.topic, rewritten.queue_id) == (SCHEDULE_TOPIC, 2)
    assert decode_properties(rewritten.properties) == decode_properties(message.properties) | {
        "REAL_TOPIC": "TopicA",
        "REAL_QID": "2",
    }
    unchanged = msgspec.structs.replace(
        rewritten, topic="TopicA", queue_id=2, properties=message.properties
    )
    assert unchanged == message


def test_the_properties_of_a_rewritten_message_have_the_order_of_rocketmq() -> None:
    rewritten = delay_rewrite(delayed(1, 3), LEVELS)
    assert rewritten.properties == (
        b"UNIQ_KEY\x01U1\x02DELAY\x013\x02TAGS\x01TagA\x02KEYS\x01k1\x02"
        b"REAL_TOPIC\x01TopicA\x02REAL_QID\x010\x02"
    )


def test_a_rewritten_message_is_not_rewritten_again() -> None:
    rewritten = delay_rewrite(delayed(1), LEVELS)
    assert delay_rewrite(rewritten, LEVELS) is rewritten


def test_a_level_too_high_becomes_the_highest() -> None:
    rewritten = delay_rewrite(delayed(1, 99), LEVELS)
    assert rewritten.queue_id == 17
    assert decode_properties(rewritten.properties)["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-1", "soon"])
def test_a_message_without_a_level_stays_as_it_is(level: str) -> None:
    message = delayed(1, level)
    assert delay_rewrite(message, LEVELS) is message
    assert delay_rewrite(a_message(), LEVELS) == a_message()


@pytest.mark.parametrize(
    ("sys_flag", "is_rewritten"), [(0, True), (8, True), (4, False), (12, False)]
)
def test_only_plain_and_committed_messages_are_delayed(sys_flag: int, is_rewritten: bool) -> None:  # noqa: FBT001
    """HookUtils.handleScheduleMessage."""
    message = msgspec.structs.replace(delayed(1), sys_flag=sys_flag)
    assert (delay_rewrite(message, LEVELS).topic == SCHEDULE_TOPIC) is is_rewritten


def test_a_level_overrides_a_deliver_time_of_ones_own() -> None:
    """HookUtils.checkIfTimerMessage."""
    names = {"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "5"}
    rewritten = delay_rewrite(delayed(1, 2, more=names), LEVELS)
    assert not names.keys() & decode_properties(rewritten.properties).keys()


# -- the delivered record --------------------------------------------------------------------------


def test_a_delivered_record_is_the_senders_and_keeps_the_properties_of_the_delay() -> None:
    """ScheduleMessageService.messageTimeUp: the property string is written before they go."""
    world = World()
    sent = msgspec.structs.replace(delayed(1, queue_id=2), flag=7, sys_flag=9, reconsume_times=3)
    world.send(sent)
    world.deliver(1000)
    (found,) = queue_messages(world.store, "TopicA", 2)
    assert found.body == sent.body
    assert found.properties == decode_properties(sent.properties) | {
        "REAL_TOPIC": "TopicA",
        "REAL_QID": "2",
    }
    assert (found.flag, found.sys_flag, found.reconsume_times) == (7, 9, 3)
    assert found.born_host == Host("10.1.2.3", 1234)
    assert (found.born_timestamp_ms, found.store_timestamp_ms) == (
        sent.born_timestamp_ms,
        T0 + 1000,
    )


def test_a_delivered_record_keeps_the_host_that_stored_the_first() -> None:
    world = World()
    world.send(delayed(1))
    (record,) = queue_messages(world.store, SCHEDULE_TOPIC, 0)
    elsewhere = msgspec.structs.replace(record, store_host=Host("::1", 5))
    assert message_time_up(elsewhere).store_host == Host("::1", 5).packed


@pytest.mark.parametrize(
    "wrong",
    [
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC"},
        {"REAL_TOPIC": SCHEDULE_TOPIC},
        {"REAL_TOPIC": ""},
        {"REAL_QID": "first"},
        {"REAL_QID": "-1"},
    ],
)
def test_what_does_not_say_where_it_belongs_is_an_error(wrong: dict[str, str]) -> None:
    world = World()
    world.send(delayed(1))
    (record,) = queue_messages(world.store, SCHEDULE_TOPIC, 0)
    with pytest.raises(ValueError, match="cannot be delivered to topic"):
        message_time_up(msgspec.structs.replace(record, properties=record.properties | wrong))


# -- delivery --------------------------------------------------------------------------------------


def test_a_message_is_delivered_when_its_time_has_come_and_not_before() -> None:
    world = World()
    world.send(delayed(1, 2))
    assert world.deliver() == DeliveryRound(0, T0 + 5000)
    assert world.deliver(4999) == DeliveryRound(0, T0 + 5000)
    assert world.delivered() == []
    assert world.deliver(1) == DeliveryRound(1, None)
    assert world.delivered() == [1]
    assert world.deliver(10_000) == DeliveryRound(0, None)


def test_the_next_look_is_at_the_earliest_time_of_all_levels() -> None:
    world = World()
    world.send(delayed(1, 3), delayed(2, 1), delayed(3, 18))
    assert world.deliver().next_ms == T0 + 1000
    assert world.deliver(1000) == DeliveryRound(1, T0 + 10_000)
    assert world.deliver(9000) == DeliveryRound(1, T0 + 7_200_000)


def test_nothing_waits_in_a_store_without_delayed_messages() -> None:
    assert World().deliver() == DeliveryRound(0, None)


def test_many_due_at_once_are_delivered_in_several_rounds_and_in_order() -> None:
    world = World()
    world.send(*map(delayed, range(130)))
    first = world.deliver(1000)
    assert 0 < first.delivered < 130
    assert first.next_ms == T0 + 1000
    world.deliver_all()
    assert world.delivered() == list(range(130))


def test_a_refused_put_is_tried_again_a_little_later_and_holds_up_its_level_only() -> None:
    world = World()
    world.send(delayed(1), delayed(2), delayed(3, 2, queue_id=1))
    world.refused = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    assert world.deliver(1000) == DeliveryRound(0, T0 + 1100)
    world.refused = None
    assert world.deliver(99) == DeliveryRound(0, T0 + 1100)
    assert world.deliver(1) == DeliveryRound(2, T0 + 5000)
    assert world.delivered() == [1, 2]


@pytest.mark.parametrize("status", list(PutMessageStatus))
def test_a_message_is_put_until_it_is_stored_unless_it_never_can_be(
    status: PutMessageStatus,
) -> None:
    """RocketMQ puts again whatever is not PUT_OK: what is in the log already comes twice."""
    world = World()
    world.send(delayed(1))
    world.refused = status
    never = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
    assert world.deliver(1000).delivered == (status.is_stored or status in never)


def test_a_message_that_can_never_be_delivered_does_not_hold_up_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RocketMQ drops a half message, and tries others for ever."""
    world = World()
    half = msgspec.structs.replace(delayed(1), topic="RMQ_SYS_TRANS_HALF_TOPIC")
    world.send(half, delayed(2))
    world.deliver(1000)
    assert world.delivered() == [2]
    ((offset, _),) = logged(caplog, "store.delayed.schedule_message_service", logging.ERROR)
    assert offset == 0


def test_a_clock_put_back_does_not_keep_messages_back() -> None:
    world = World()
    world.send(delayed(1))
    assert world.deliver(-3_600_000).delivered == 1


def test_a_clock_put_back_does_not_keep_a_second_try_back() -> None:
    world = World()
    world.send(delayed(1))
    world.refused = PutMessageStatus.UNKNOWN_ERROR
    world.deliver(1000)
    world.refused = None
    assert world.deliver(-3_600_000).delivered == 1


class FakeQueue:
    """Units as a test wants them."""

    def __init__(self, units: list[tuple[int, int, int]], min_offset: int = 0) -> None:
        self._units = units
        self.min_offset = min_offset
        self.next_offset = len(units)

    def units(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        return iter(self._units[queue_offset : queue_offset + count_max])


def unit_of(world: World, queue_offset: int = 0) -> tuple[int, int, int]:
    queue = world.store.queues.find(SCHEDULE_TOPIC, 0)
    assert queue is not None
    return queue.unit(queue_offset)


def with_queue(world: World, queue: FakeQueue) -> ScheduleMessageService:
    return ScheduleMessageService(
        LEVELS,
        world.offsets,
        find_queue={0: queue}.get,
        message=world.store.record_check.by_place(SCHEDULE_TOPIC),
        put=world.put,
        flushed_where=lambda: world.store.flushed_where,
        wall_clock_ms=world.clock,
    )


def test_the_unit_says_when_a_message_is_due() -> None:
    """The delays may have been changed since it was stored."""
    world = World()
    world.send(delayed(1))
    offset, size, _ = unit_of(world)
    service = with_queue(world, FakeQueue([(offset, size, T0 + 400)]))
    assert service.deliver_due(T0 + 399) == DeliveryRound(0, T0 + 400)
    assert service.deliver_due(T0 + 400) == DeliveryRound(1, None)


@pytest.mark.parametrize("code", [0, 2598919, -(1 << 31), -(1 << 63) + 20])
def test_a_unit_without_a_time_is_due_its_delay_after_it_was_stored(code: int) -> None:
    """An ext address, or what a power loss or a tags hash has put there."""
    world = World()
    world.send(delayed(1))
    offset, size, _ = unit_of(world)
    service = with_queue(world, FakeQueue([(offset, size, code)]))
    assert service.deliver_due(T0) == DeliveryRound(0, T0 + 1000)
    assert service.deliver_due(T0 + 1000) == DeliveryRound(1, None)


def test_fillers_and_records_that_are_gone_are_passed_over() -> None:
    world = World()
    world.send(delayed(1), delayed(2))
    filler = (0, FILLER_SIZE, 0)
    gone = (-200, 100, T0)
    service = with_queue(world, FakeQueue([filler, gone, unit_of(world, 1)]))
    assert service.deliver_due(T0 + 1000) == DeliveryRound(3, None)
    assert world.delivered() == [2]


def test_a_unit_that_leads_nowhere_is_waited_for() -> None:
    world = World()
    world.send(delayed(1), delayed(2))
    for wrong in ((1 << 40, 100, T0), (unit_of(world)[0] + 4, 100, T0)):
        service = with_queue(world, FakeQueue([wrong, unit_of(world, 1)]))
        assert service.deliver_due(T0 + 1000).delivered == 0
        assert world.delivered() == []


def test_a_queue_whose_first_messages_were_deleted_goes_on_with_those_it_has() -> None:
    world = World()
    world.send(delayed(1), delayed(2))
    units = [unit_of(world, 0), unit_of(world, 1)]
    service = with_queue(world, FakeQueue(units, min_offset=1))
    service.deliver_due(T0 + 1000)
    assert world.delivered() == [2]


# -- progress --------------------------------------------------------------------------------------


def test_after_a_clean_stop_nothing_is_delivered_twice() -> None:
    world = World()
    world.send(*map(delayed, range(5)), delayed(5, 2))
    world.deliver(1000)
    world.sync()
    world.service.save()
    world.store.close()
    again = world.restarted()
    assert again.deliver() == DeliveryRound(0, T0 + 5000)
    again.deliver_all()
    assert again.delivered() == [0, 1, 2, 3, 4, 5]


def test_what_is_not_durable_does_not_count_as_delivered() -> None:
    """RocketMQ saves the offset all the same; a power loss then takes the message."""
    world = World()
    world.send(delayed(1))
    world.sync()
    world.deliver(1000)
    world.service.save()
    assert world.offsets.query(1) == 0
    lost = world.restarted(world.disk.powered_off(NothingKept()))
    assert lost.delivered() == []
    lost.deliver_all()
    assert lost.delivered() == [1]
    world.sync()
    world.service.save()
    assert world.offsets.query(1) == 1


def test_messages_of_a_level_that_was_taken_out_come_at_their_time_and_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.send(*(delayed(number, 7) for number in range(3)), delayed(9, 1))
    world.deliver(after_ms=60_000)
    world.sync()
    world.service.save()
    few = DelayLevels("1s 5s")
    service = service_of(world.store, world.offsets, world.clock, world.put, levels=few)
    assert logged(caplog, "store.delayed.schedule_message_service") == [(7, 3, SCHEDULE_TOPIC, 6)]
    assert service.deliver_due(T0 + 179_999) == DeliveryRound(0, T0 + 180_000)
    assert service.deliver_due(T0 + 180_000).delivered == 3
    assert world.delivered() == [9, 0, 1, 2]
    caplog.clear()
    world.sync()
    service.save()
    again = service_of(world.store, world.offsets, world.clock, world.put, levels=few)
    assert again.deliver_due(T0 + 999_999).delivered == 0
    assert not logged(caplog, "store.delayed.schedule_message_service")


def test_an_offset_outside_its_queue_is_moved_into_it(caplog: pytest.LogCaptureFixture) -> None:
    """ScheduleMessageService.correctDelayOffset."""
    world = World()
    world.send(delayed(1))
    world.offsets.update(1, 9)
    world.offsets.save()
    again = world.restarted()
    assert logged(caplog, "store.delayed.schedule_message_service") == [(1, 1)]
    again.send(delayed(2))
    again.deliver(1000)
    assert again.delivered() == [2]


# -- crashes ---------------------------------------------------------------------------------------


def run_through(disk: SimulatedDisk) -> World:
    """Delay, deliver, save, stop: everything that changes the disk."""
    world = World(disk)
    for number in range(12):
        world.send(delayed(number, 1 + number % 2))
    for after_ms in (1000, 0, 4000):
        world.sync()
        world.deliver(after_ms)
        world.service.save()
        world.sync()
        world.service.save()
        world.send(delayed(12 + after_ms))
    world.deliver(1000)
    world.sync()
    world.service.save()
    world.store.close()
    return world


def check_delivered_at_least_once(disk: SimulatedDisk) -> Counter[int]:
    """Deliver what is left; every delayed message of the log must come out, in its order."""
    world = World(disk)
    world.deliver_all()
    numbers = world.delivered()
    first_times = list(dict.fromkeys(numbers))
    for level in range(2):
        sent = [number_of(m) for m in queue_messages(world.store, SCHEDULE_TOPIC, level)]
        assert [number for number in first_times if number in sent] == sent
    return Counter(numbers)


@pytest.mark.slow
def test_killed_at_any_step_every_delayed_message_is_still_delivered() -> None:
    whole = SimulatedDisk()
    run_through(whole)
    assert check_delivered_at_least_once(whole.crashed()) == Counter([*range(12), 12, 1012, 4012])
    step = 0
    while True:
        step += 1
        disk = StepDisk()
        disk.on_step = die_at(step)
        try:
            run_through(disk)
        except Interrupted:
            counts = check_delivered_at_least_once(disk.crashed())
            assert max(counts.values(), default=0) <= 2
            continue
        break
    assert step > 50


@pytest.mark.parametrize("seed", range(4))
def test_after_a_power_loss_at_any_step_what_is_left_of_them_is_delivered(seed: int) -> None:
    chance = random.Random(seed)
    disk = StepDisk()
    pictures: list[SimulatedDisk] = []
    disk.on_step = lambda _: pictures.append(disk.powered_off(chance))
    run_through(disk)
    for picture in pictures:
        check_delivered_at_least_once(picture)
    assert len(pictures) > 50


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 3)),
            st.tuples(st.just("wait"), st.sampled_from((300, 1000, 5000))),
            st.tuples(st.just("save"), st.booleans()),
            st.tuples(st.just("kill"), st.just(0)),
            st.tuples(st.just("refuse"), st.booleans()),
        ),
        max_size=30,
    )
)
def test_whatever_happens_each_message_comes_in_order_and_twice_only_after_a_kill(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    sent: dict[int, list[int]] = {1: [], 2: [], 3: []}
    kills = number = 0
    for step, argument in steps:
        match step:
            case "send":
                sent[argument].append(number)
                world.send(delayed(number, argument))
                number += 1
            case "wait":
                world.deliver(argument)
            case "save":
                if argument:
                    world.sync()
                world.service.save()
            case "refuse":
                world.refused = PutMessageStatus.UNKNOWN_ERROR if argument else None
            case "kill":
                world = world.restarted()
                kills += 1
    world.refused = None
    world.deliver_all()
    numbers = world.delivered()
    assert max(Counter(numbers).values(), default=0) <= 1 + kills
    for level_sent in sent.values():
        assert [n for n in dict.fromkeys(numbers) if n in level_sent] == level_sent
    assert set(numbers) == set(range(number))


# -- the service -----------------------------------------------------------------------------------


class Looks:
    """Counts how often the service looks, by way of its clock."""

    def __init__(self) -> None:
        self.clock = WallClock()
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.clock.now_ms()


def running_world(looks: Looks) -> tuple[MessageStore, ScheduleMessageService, SimulatedDisk]:
    disk = SimulatedDisk()
    store = open_store(disk, clock=looks.clock.now_ms)  # type: ignore[arg-type] # a clock, too
    offsets = DelayOffsetTable(TableFile(disk, DELAY_OFFSETS), looks.clock.now_ms)
    return store, service_of(store, offsets, looks), disk  # type: ignore[arg-type]


async def test_the_service_sleeps_until_a_message_is_due(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    looks = Looks()
    store, service, _ = running_world(looks)
    rounds: list[float] = []

    def after_delivery() -> None:
        store.announce()
        rounds.append(trio.current_time())

    await nursery.start(service.run, after_delivery)
    for level in (2, 1):
        put(store, delay_rewrite(delayed(level, level), LEVELS))
        service.message_arrived()
    await trio.sleep(5.5)
    assert rounds == pytest.approx([1, 5], abs=0.01)
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [1, 2]
    assert looks.count < 10
    nursery.cancel_scope.cancel()


async def test_the_service_saves_its_progress_now_and_then(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    store, service, disk = running_world(Looks())
    await nursery.start(service.run, store.commit_log.files.sync_all)
    put(store, delay_rewrite(delayed(1), LEVELS))
    service.message_arrived()
    await trio.sleep(9)
    assert disk.read(DELAY_OFFSETS) is None
    await trio.sleep(2)
    assert b"{1:1" in (disk.read(DELAY_OFFSETS) or b"")
    nursery.cancel_scope.cancel()


async def test_a_full_disk_does_not_end_the_service(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    store, service, disk = running_world(Looks())
    await nursery.start(service.run, store.commit_log.files.sync_all)
    put(store, delay_rewrite(delayed(1), LEVELS))
    service.message_arrived()
    await trio.sleep(5)
    disk.capacity_bytes = disk.used_bytes
    await trio.sleep(10)
    assert disk.read(DELAY_OFFSETS) is None
    disk.capacity_bytes = 1 << 40
    await trio.sleep(10)
    assert disk.read(DELAY_OFFSETS) is not None
    nursery.cancel_scope.cancel()


async def test_a_clock_put_forward_is_noticed_within_seconds(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    looks = Looks()
    store, service, _ = running_world(looks)
    await nursery.start(service.run, lambda: None)
    put(store, delay_rewrite(delayed(1, 18), LEVELS))
    service.message_arrived()
    await trio.sleep(1)
    looks.clock.step(7_200_000)
    await trio.sleep(10)
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [1]
    nursery.cancel_scope.cancel()


async def test_cancelling_the_service_leaves_nothing_half_done(
    autojump_clock: trio.testing.MockClock,
) -> None:
    looks = Looks()
    store, service, _ = running_world(looks)
    put(store, delay_rewrite(delayed(1), LEVELS))
    with trio.move_on_after(0.5):
        await service.run(lambda: None)
    assert service.deliver_due(looks() + 1000) == DeliveryRound(1, None)


def test_a_damaged_message_is_waited_for() -> None:
    world = World()
    world.send(*(delayed(number) for number in range(4)))
    note_damage(world.store, SCHEDULE_TOPIC, 1)
    for _ in range(5):
        found = world.deliver(5000)
        assert found.next_ms is not None
        assert world.delivered() == [0]
    heal(world.store)
    world.deliver(5000)
    assert world.delivered() == [0, 1, 2, 3]
