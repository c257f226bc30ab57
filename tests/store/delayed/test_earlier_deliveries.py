"""What was delivered before a master opened is found in the log, once for each record."""

from collections.abc import Callable

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from store import PutMessage, PutMessageResult
from store.delayed.delay_offset_table import DelayOffsetTable
from store.delayed.earlier_deliveries import (
    CLOCK_STEP_MS,
    EarlierDeliveries,
    SearchGoesOnError,
)
from store.delayed.schedule_message_service import ScheduleMessageService, delay_rewrite
from store.machine.table_file import TableFile
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.store.store_world import DIRECTORY, Clock, a_message, number_of, open_store
from tests.store.store_world import queue_messages as messages_of

T0 = 1_700_000_000_000
LEVELS = DelayLevels()


def delivered(number: int, topic: str = "TopicA") -> PutMessage:
    message = a_message(number)
    properties = decode_properties(message.properties)
    properties |= {"REAL_TOPIC": topic, "REAL_QID": "0", "DELAY": "1"}
    return msgspec.structs.replace(message, properties=encode_properties(properties))


class World:
    """A store with a clock."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = Clock(T0, step_ms=0)
        self.store = open_store(self.disk, clock=self.clock)
        self.read: list[int] = []

    def put(self, message: PutMessage, at_ms: int = T0) -> int:
        """Put a message as it is, at that time; return where the log ends then."""
        self.clock.now_ms = at_ms
        result = self.store.puts.put_message(message, hooks=False)
        self.store.announce()
        return result.end_offset

    def service(
        self,
        earlier: EarlierDeliveries,
        put: Callable[[PutMessage], PutMessageResult] | None = None,
    ) -> tuple[ScheduleMessageService, DelayOffsetTable]:
        """Delay levels of a master whose journal says nothing of them."""
        offsets = DelayOffsetTable(TableFile(self.disk, f"{DIRECTORY}/none.json"), self.clock)
        service = ScheduleMessageService(
            LEVELS,
            offsets,
            find_queue=lambda queue_id: self.store.queues.find(SCHEDULE_TOPIC, queue_id),
            message=self.store.commit_log.message,
            put=put or (lambda message: self.store.puts.put_message(message, hooks=False)),
            flushed_where=lambda: self.store.max_physical_offset,
            wall_clock_ms=self.clock,
            earlier=earlier,
        )
        return service, offsets

    def since(self, begin: int) -> EarlierDeliveries:
        def message(offset: int, size: int) -> memoryview | None:
            self.read.append(offset)
            return self.store.commit_log.message(offset, size)

        return EarlierDeliveries(
            begin,
            self.store.max_physical_offset,
            opened_ms=self.clock.now_ms,
            find_queue=self.store.queues.find,
            message=message,
        )


def test_each_record_stands_for_one_message() -> None:
    world = World()
    for number in (1, 2, 2):
        world.put(delivered(number))
    earlier = world.since(0)
    takes = [earlier.take(delivered(number), 0, T0) for number in (2, 1, 2, 1, 2, 3)]
    assert takes == [True, True, True, False, False, False]


def test_what_the_progress_speaks_of_stands_for_none() -> None:
    """Of two messages of one content, one was noted as delivered, and one waits."""
    world = World()
    begin = world.put(delivered(1))
    assert not world.since(begin).take(delivered(1), 0, T0)
    world.put(delivered(1))
    earlier = world.since(begin)
    assert earlier.take(delivered(1), 0, T0)
    assert not earlier.take(delivered(1), 0, T0)


def test_a_message_of_after_the_opening_cannot_have_been_delivered_before() -> None:
    world = World()
    end = world.put(delivered(1))
    earlier = world.since(0)
    world.put(delivered(2))
    assert not earlier.take(delivered(1), end, T0)
    assert not earlier.take(delivered(2), 0, T0), "by this master itself"
    assert earlier.take(delivered(1), 0, T0)


def test_what_a_client_put_is_no_delivery() -> None:
    world = World()
    world.put(a_message(1))
    assert not world.since(0).take(a_message(1), 0, T0)


@pytest.mark.parametrize(
    "changes", [{"body": b"other"}, {"born_timestamp_ms": 1}, {"queue_id": 1}, {"topic": "TopicB"}]
)
def test_another_message_is_another(changes: dict[str, object]) -> None:
    world = World()
    world.put(delivered(1))
    other = msgspec.structs.replace(delivered(1), **changes)
    assert not world.since(0).take(other, 0, T0)


def test_nothing_is_read_that_was_stored_long_before_the_time() -> None:
    world = World()
    ends = [world.put(delivered(number), T0 + number * 1000) for number in range(100)]
    earlier = world.since(0)
    due_ms = T0 + 90_000
    assert not earlier.take(delivered(-1), 0, due_ms)
    assert len(world.read) == 10 + CLOCK_STEP_MS // 1000 + 1
    assert not earlier.take(delivered(-1), 0, due_ms)
    assert not earlier.take(delivered(-1), 0, due_ms + 5)
    assert len(world.read) == 10 + CLOCK_STEP_MS // 1000 + 1, "and nothing twice"
    assert earlier.take(delivered(80), 0, T0 + 80_000)
    assert min(world.read) == ends[80 - CLOCK_STEP_MS // 1000 - 2]


def test_much_is_read_in_slices() -> None:
    world = World()
    for number in range(250):
        world.put(delivered(number))
    earlier = world.since(0)
    for done in (100, 200):
        with pytest.raises(SearchGoesOnError):
            earlier.take(delivered(0), 0, T0)
        assert len(world.read) == done
    assert earlier.take(delivered(0), 0, T0)
    assert earlier.take(delivered(249), 0, T0)
    assert len(world.read) == 250


def test_what_waits_for_a_later_time_or_came_later_was_not_delivered_before() -> None:
    world = World()
    end = world.put(delivered(1))
    earlier = world.since(0)
    assert not earlier.is_past(end - 1, T0 + CLOCK_STEP_MS)
    assert earlier.is_past(end - 1, T0 + CLOCK_STEP_MS + 1)
    assert earlier.is_past(end, T0)
    assert world.since(end).is_past(0, T0), "nothing is in the log that is not noted"


@pytest.mark.parametrize("other", [{}, {2: 1}])
def test_nothing_is_noted_before_all_was_taken_that_was_delivered(other: dict[int, int]) -> None:
    """A master after the next one knows only what is noted, and since when."""
    world = World()
    for number in range(30):
        message = msgspec.structs.replace(a_message(number), properties=b"DELAY\x011\x02")
        world.put(delay_rewrite(message, LEVELS))
    if other:
        message = msgspec.structs.replace(a_message(-1), properties=b"DELAY\x012\x02")
        world.put(delay_rewrite(message, LEVELS), T0 + 1)
    world.clock.now_ms = T0 + 2000
    begin = world.store.max_physical_offset
    first, _ = world.service(world.since(begin))
    first.deliver_due(T0 + 2000)
    first.deliver_due(T0 + 2000)
    world.store.announce()
    second, offsets = world.service(world.since(begin))
    noted = []
    for _ in range(5):
        second.deliver_due(T0 + 2000)
        noted.append(offsets.progress())
    world.store.announce()
    numbers = [number_of(message) for message in messages_of(world.store, "TopicA", 0)]
    assert numbers == list(range(30))
    assert noted[:2] == [{}, {}]
    if not other:
        assert noted[-1] == {1: 30}
        return
    assert noted[-1] == {}, "level 2 is due so soon that it may have been delivered"
    second.deliver_due(T0 + 5001)
    assert offsets.progress() == {1: 30, 2: 1}


def test_a_delay_level_goes_on_after_what_was_delivered_and_not_noted() -> None:
    world = World()
    for number in (1, 1, 2):
        message = msgspec.structs.replace(a_message(number), properties=b"DELAY\x011\x02")
        world.put(delay_rewrite(message, LEVELS))
    begin = world.store.max_physical_offset

    def deliver(earlier: EarlierDeliveries, count: int) -> list[int]:
        """Deliver as a master that begins before all of them, and dies after some."""
        left = count

        def put(message: PutMessage) -> PutMessageResult:
            nonlocal left
            left -= 1
            if left < 0:
                return world.store.puts.put_message(msgspec.structs.replace(message, topic=""))
            return world.store.puts.put_message(message, hooks=False)

        service, _ = world.service(earlier, put)
        world.clock.now_ms = T0 + 2000
        service.deliver_due(world.clock.now_ms)
        world.store.announce()
        return [number_of(message) for message in messages_of(world.store, "TopicA", 0)]

    assert deliver(world.since(begin), 1) == [1]
    assert deliver(world.since(begin), 1) == [1, 1]
    assert deliver(world.since(begin), 3) == [1, 1, 2]
    assert deliver(world.since(begin), 3) == [1, 1, 2]


def test_progress_is_noted_while_what_no_earlier_master_can_have_delivered_waits() -> None:
    """Level 3 is due in ten seconds, long after this master has opened."""
    world = World()
    for number, level in ((0, 3), (1, 1)):
        properties = b"DELAY\x01%d\x02" % level
        message = msgspec.structs.replace(a_message(number), properties=properties)
        world.put(delay_rewrite(message, LEVELS))
    world.clock.now_ms = T0 + 2000
    service, offsets = world.service(world.since(world.store.max_physical_offset))
    service.deliver_due(T0 + 2000)
    assert offsets.progress() == {1: 1}
