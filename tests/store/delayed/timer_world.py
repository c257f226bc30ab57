"""Timed messages of a small store, of both kinds: those of RocketMQ's files and of the journal."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import msgspec

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.delayed.earlier_deliveries import EarlierDeliveries
from store.delayed.journaled_timers import JournaledTimers
from store.delayed.timer_message_store import TimerMessageStore
from store.delayed.timer_place import TimerPlace
from store.delayed.timer_request import TimerSettings
from store.results import PutMessage, PutMessageResult, PutMessageStatus
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.system_topics import TIMER_TOPIC
from tests.store.store_world import (
    DIRECTORY,
    Clock,
    a_message,
    number_of,
    open_store,
    queue_messages,
)

T0 = 1_700_000_000_000
SMALL = TimerSettings(
    timer_roll_window_slots=12,
    timer_max_delay_seconds=60,
    mapped_file_size_timer_log_bytes=52 * 4 + 20,
    slots=40,
)
SMALL_JOURNALED = TimerSettings(timer_roll_window_slots=12, timer_max_delay_seconds=60)


def timed(
    number: int, delay_ms: int, more: dict[str, str] | None = None, *, topic: str = "TopicA"
) -> PutMessage:
    message = a_message(number, topic)
    properties = decode_properties(message.properties) | {"TIMER_DELAY_MS": str(delay_ms)}
    return msgspec.structs.replace(message, properties=encode_properties(properties | (more or {})))


def cancelling(number: int, other: int, delay_ms: int) -> PutMessage:
    return timed(number, delay_ms, {"TIMER_DEL_UNIQKEY": f"TopicA+U{other}"})


class TimerWorld:
    """A store, its clock and its timers."""

    timers: TimerMessageStore | JournaledTimers

    def __init__(self, disk: SimulatedDisk | None, now_ms: int) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = Clock(now_ms, step_ms=0)
        self.refused: PutMessageStatus | None = None
        self.store = open_store(self.disk, clock=self.clock)

    def gone_on(self) -> TimerWorld:
        """Return what comes after a stop and a start, or after a change of the master."""
        raise NotImplementedError

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

    def delivered(self) -> list[int]:
        """What was delivered, in order."""
        return [number_of(m) for m in queue_messages(self.store, "TopicA", 0)]

    def waiting(self) -> dict[str, int]:
        found = self.timers.metrics.timing_count
        return {topic: metric.count for topic, metric in found.items()}


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


class FileWorld(TimerWorld):
    """A store, its clock and its timers, which can be started again on what a crash left."""

    timers: TimerMessageStore

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        now_ms: int = T0,
        wanted: TimerSettings = SMALL,
    ) -> None:
        super().__init__(disk, now_ms)
        self.wanted = wanted
        self.timers = timers_of(self.store, self.disk, self.clock, self.put, wanted)

    def deliver_all(self) -> None:
        self.refused = None
        for _ in range(80):
            self.deliver(1000)

    def sync(self) -> None:
        self.store.commit_log.files.sync_all()

    def flush(self) -> None:
        self.sync()
        self.timers.flush_blocking()

    def restarted(self, disk: SimulatedDisk | None = None) -> FileWorld:
        return FileWorld(disk or self.disk.crashed(), self.clock.now_ms, self.wanted)

    def gone_on(self) -> FileWorld:
        self.flush()
        return self.restarted()

    def checkpoint(self) -> tuple[int, ...]:
        data = self.disk.read(f"{DIRECTORY}/config/timercheck") or b""
        assert len(data) == 4096
        return struct.unpack_from(">7q", data)


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


class JournaledWorld(TimerWorld):
    """The master of the moment, and what its journal says."""

    timers: JournaledTimers

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        now_ms: int = T0,
        place: TimerPlace | None = None,
        *,
        was_classic: bool = False,
        place_at: int = 0,
    ) -> None:
        super().__init__(disk, now_ms)
        self.place = place or TimerPlace()
        self.journal = [(place_at, self.place)]
        self.timers = JournaledTimers(
            self.place,
            SMALL_JOURNALED,
            was_classic=was_classic,
            note=self._note,
            find_queue=lambda: self.store.queues.find(TIMER_TOPIC, 0),
            message=self.store.record_check.by_place(TIMER_TOPIC),
            put=self.put,
            wall_clock_ms=self.clock,
            chance=random.Random(1),
            earlier=earlier_of(self.store, place_at, now_ms),
        )

    def _note(self, place: TimerPlace) -> None:
        self.place = place

    def write_place(self) -> None:
        if self.place != self.journal[-1][1]:
            self.journal.append((self.store.max_physical_offset, self.place))

    def fail_over(self, end: int | None = None, skew_ms: int = 0) -> JournaledWorld:
        """Let a node take over that has the log up to `end`, and the places in it."""
        end = self.store.max_physical_offset if end is None else end
        at, place = [each for each in self.journal if each[0] <= end][-1]
        disk = log_up_to(self.store, end)
        return JournaledWorld(disk, self.clock.now_ms + skew_ms, place, place_at=at)

    def gone_on(self) -> JournaledWorld:
        self.write_place()
        return self.fail_over()
