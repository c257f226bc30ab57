"""Messages with a deliver time of their own, to the tick of a wheel.

    put with TIMER_DELAY_SEC, _MS or TIMER_DELIVER_MS --rewritten--> rmq_sys_wheel_timer, queue 0
      --enqueue--> unit in the timer log, slot of the wheel
        --its time has come--> real topic; or back into the timer topic, if it has to wait longer

A message is never early: its slot is the tick of the millisecond before its time, and is emptied
when that tick is over. Later than `timer_roll_window_slots` ticks ahead the wheel is not used: such
a message is taken out on the way and put back into the timer topic, to be enqueued again.

A message with TIMER_DEL_UNIQKEY is never delivered. It cancels the message of that key (topic, +,
UNIQ_KEY, or UNIQ_KEY alone) that has the same time; it must be there before that time.

Progress is in `config/timercheck`: see `timer_checkpoint.py`. After a crash some messages may be
repeated, and none is missing. At a start the wheel is built again from the timer log, and messages
in the queue that have no unit yet are enqueued.

Source: RocketMQ 5.3.3, TimerMessageStore, HookUtils.transformTimerMessage.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Final, Protocol

import msgspec
import trio

from store.delayed.due_slots import DueSlots
from store.delayed.timed_message import (
    NEVER_STORED,
    RETRY_MS,
    delivered_message,
    is_cancelled,
    read_timed_message,
    roll_time_ms,
    rolled_message,
)
from store.delayed.timer_checkpoint import TimerCheckpoint, TimerProgress
from store.delayed.timer_log import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, TimerLog, TimerUnit
from store.delayed.timer_metrics import TimerMetrics, TimerMetricsSerializeWrapper
from store.delayed.timer_request import Refusal, TimerSettings, timer_rewrite
from store.delayed.timer_wheel import TimerWheel
from store.machine.disk import Disk
from store.machine.errors import RecordDamagedError, StoreFullError
from store.machine.signal import Signal
from store.results import PutMessage, PutMessageResult, QueueOffset
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
    java_string_hash,
)
from tandem.wire.store_layout import FILLER_SIZE

_log = logging.getLogger(__name__)

CLEAN_INTERVAL_SECONDS: Final = 30.0
_SLICE: Final = 50
_ENQUEUED_LATE_MS: Final = (1 << 63) - 1
"""What RocketMQ writes as the time of enqueueing for a message that was due by then."""


class TimerQueue(Protocol):
    """What is read of queue 0 of the timer topic. `ConsumeQueue` has it."""

    @property
    def min_offset(self) -> QueueOffset:
        """The first queue offset that can be read."""

    @property
    def next_offset(self) -> QueueOffset:
        """The queue offset of the next message."""

    def units(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Physical offset, size and code of messages from `queue_offset` on; maybe fewer."""


class _OpenSlot(msgspec.Struct):
    """The slot that is being emptied: what is left of it, and which keys are cancelled."""

    time_ms: int
    units: deque[TimerUnit]
    cancelling: list[TimerUnit]
    cancelled: set[str]


class TimerMessageStore:
    """The timers of one master."""

    def __init__(
        self,
        directory: str,
        settings: TimerSettings,
        disk: Disk,
        *,
        find_queue: Callable[[], TimerQueue | None],
        message: Callable[[int, int], memoryview | None],
        put: Callable[[PutMessage], PutMessageResult],
        log_end: Callable[[], int],
        flushed_where: Callable[[], int],
        wall_clock_ms: Callable[[], int],
        chance: Random,
    ) -> None:
        """Open or create the files; call `recover` before anything else.

        Args:
            directory: The root of the store.
            settings: See there.
            disk: Of that store.
            find_queue: Queue 0 of the timer topic, None if there is none.
            message: The record at a physical offset, of that size; None if it is not held.
            put: Puts a message as it is, without hooks.
            log_end: The end of the commit log.
            flushed_where: The offset below which the commit log is durable.
            wall_clock_ms: The wall clock.
            chance: Decides who is refused when a slot is nearly full.
        """
        self._settings = settings
        self._precision_ms = settings.timer_precision_ms
        self._disk = disk
        self._find_queue = find_queue
        self._message = message
        self._put_message = put
        self._log_end = log_end
        self._flushed_where = flushed_where
        self._wall_clock_ms = wall_clock_ms
        self._chance = chance
        self._arrived = Signal()
        self._checkpoint = TimerCheckpoint(f"{directory}/config/timercheck", disk)
        self._wheel = TimerWheel(
            f"{directory}/timerwheel", self._precision_ms, disk, slots=settings.slots
        )
        self._timer_log = TimerLog(
            f"{directory}/timerlog", settings.mapped_file_size_timer_log_bytes, disk
        )
        self._queue_offset = 0
        self._read_time_ms = 0
        """Slots before it are done."""
        self._write_time_ms = 0
        """The tick it is now; what is due before it is late."""
        self._due = DueSlots(self._wheel, self._precision_ms)
        self._metrics = TimerMetrics(wall_clock_ms)
        self._has_unit: set[int] = set()
        self._done_until = 0
        self._done_before_ms = 0
        """The checkpoint at the start: what is before both was delivered."""
        self._replayed_until = 0
        """The end of the queue at the start: before it, messages may have a unit."""
        self._open: _OpenSlot | None = None
        self._retry_ms = 0
        self._puts = 0
        self._put_end = 0

    @property
    def checkpoint(self) -> bytes:
        """How far they have got, as far as that is durable: what `config/timercheck` says."""
        return self._checkpoint.data

    @property
    def metrics(self) -> TimerMetricsSerializeWrapper:
        """How many wait for each topic; after a start, of more and more topics at first."""
        return self._metrics.shown

    # -- start -----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Build the wheel from the timer log, and find out where to go on.

        Raises:
            CorruptLogError: a file of the timer log has a wrong length or name.
        """
        checkpoint = self._checkpoint
        flushed, queue_offset = checkpoint.timer_log_end, checkpoint.queue_offset
        units = self._timer_log.recover(self._log_end())
        self._read_time_ms = self._write_time_ms = self._tick(checkpoint.read_time_ms)
        self._due.build(units, self._read_time_ms)
        self._metrics.build(units, self._read_time_ms)
        queue = self._find_queue()
        low, high = (queue.min_offset, queue.next_offset) if queue is not None else (0, 0)
        self._done_until, self._done_before_ms = min(queue_offset, high), self._read_time_ms
        self._replayed_until = high
        if self._timer_log.max_offset < flushed:
            _log.warning("the timer log has lost units: all messages in the queue are looked at")
            queue_offset = flushed = 0
        self._has_unit = set(units.offsets[units.positions >= flushed].tolist())
        self._queue_offset = min(max(queue_offset, low), high)

    def _tick(self, time_ms: int) -> int:
        return time_ms // self._precision_ms * self._precision_ms

    # -- put -------------------------------------------------------------------------------------

    def rewrite(self, message: PutMessage, now_ms: int) -> PutMessage | Refusal:
        """Return what is put instead of a timer request, or why nothing is."""

        def num_at(slot_ms: int) -> int:
            return self._wheel.slot(slot_ms).num

        return timer_rewrite(message, now_ms, self._settings, num_at, self._chance)

    # -- delivery --------------------------------------------------------------------------------

    def message_arrived(self) -> None:
        """Look again: the timer topic has a new message."""
        self._arrived.notify()

    def deliver_due(self, now_ms: int) -> tuple[int, int | None]:
        """Enqueue and deliver some messages; return how many were put and when to come back.

        The time is now or earlier if there is more to do, None if nothing waits.
        """
        if now_ms < self._retry_ms <= now_ms + RETRY_MS:
            return 0, self._retry_ms
        # Never back: what is due in a slot that was emptied would wait for ever.
        self._write_time_ms = max(self._write_time_ms, self._tick(now_ms))
        before = self._puts
        try:
            is_behind = self._dequeue_some(now_ms)
            is_behind |= self._enqueue_some(now_ms)
            is_behind |= self._name_some()
        except (_PutLaterError, RecordDamagedError):
            self._retry_ms = now_ms + RETRY_MS
            return self._puts - before, self._retry_ms
        if is_behind:
            return self._puts - before, now_ms
        first_ms = self._due.first_ms
        return self._puts - before, None if first_ms is None else first_ms + self._precision_ms

    def _enqueue_some(self, now_ms: int) -> bool:
        """Take messages from the queue into the timer log; return whether there are more."""
        queue = self._find_queue()
        if queue is None:
            return False
        self._queue_offset = min(max(self._queue_offset, queue.min_offset), queue.next_offset)
        for offset, size, _ in queue.units(self._queue_offset, _SLICE):
            has_unit = self._queue_offset < self._replayed_until and offset in self._has_unit
            if size != FILLER_SIZE and not has_unit:
                self._enqueue(offset, size, now_ms)
            self._queue_offset += 1
        if self._queue_offset >= self._replayed_until:
            self._has_unit = set()
        return self._queue_offset < queue.next_offset

    def _enqueue(self, offset: int, size: int, now_ms: int) -> None:
        message = self._read(offset, size)
        if message is None:
            return
        out_ms = int(message.properties[PROPERTY_TIMER_OUT_MS])
        if self._queue_offset < self._done_until and out_ms < self._done_before_ms:
            return  # its unit is lost, but it was delivered before
        if out_ms < self._write_time_ms:
            self._put_real(message, _ENQUEUED_LATE_MS, now_ms)
        else:
            self._append(message, size, out_ms)

    def _name_some(self) -> bool:
        """Find out what some topics of the timer log are called; return whether there are more."""
        nameless = self._metrics.nameless(_SLICE)
        for topic_hash, position in nameless:
            message, unit = None, self._timer_log.unit(position)
            with suppress(RecordDamagedError):  # it is healed until it is due, and named then
                message = self._read(unit.physical_offset, unit.size) if unit is not None else None
            name = message.properties[PROPERTY_REAL_TOPIC] if message is not None else ""
            self._metrics.give_name(topic_hash, name)
        return len(nameless) == _SLICE

    def _append(self, message: MessageExt, size: int, out_ms: int) -> None:
        """Source: TimerMessageStore.doEnqueue."""
        write_ms = self._write_time_ms
        window_ms = self._settings.timer_roll_window_slots * self._precision_ms
        magic = MAGIC_DEFAULT
        if (roll_ms := roll_time_ms(out_ms, write_ms, window_ms)) is not None:
            magic |= MAGIC_ROLL
            out_ms = roll_ms
        if PROPERTY_TIMER_DEL_UNIQKEY in message.properties:
            magic |= MAGIC_DELETE
        topic, slot_ms = message.properties[PROPERTY_REAL_TOPIC], self._tick(out_ms)
        if self._due.is_taken(slot_ms):
            raise _PutLaterError  # after a very long stop: that slot has to be emptied first
        unit = TimerUnit(
            previous=self._wheel.slot(slot_ms).last_position,
            magic=magic,
            written_ms=write_ms,
            delay_ms=out_ms - write_ms,
            physical_offset=message.physical_offset,
            size=size,
            topic_hash=java_string_hash(topic),
        )
        try:
            position = self._timer_log.append(unit)
        except StoreFullError as error:
            raise _PutLaterError from error
        self._due.enter(slot_ms, position, is_delete=unit.is_delete)
        self._metrics.enter(unit.topic_hash, topic, cancels=unit.is_delete)

    def _dequeue_some(self, now_ms: int) -> bool:
        """Empty slots whose tick is over; return whether there are more."""
        for _ in range(_SLICE):
            slot = self._open = self._open or self._next_slot()
            if slot is None:
                return False
            if slot.units:
                self._dequeue(slot.units[0], slot.cancelled, now_ms)
                self._leave(slot.units.popleft())
            else:
                self._close(slot)
        return True

    def _next_slot(self) -> _OpenSlot | None:
        """Open the first slot whose tick is over, None if there is none."""
        slot_ms = self._due.first_ms
        if slot_ms is None or slot_ms >= self._write_time_ms:
            self._read_time_ms = self._write_time_ms
            return None
        units = self._units_of(slot_ms)
        deletes = [unit for unit in units if unit.is_delete and not unit.is_roll]
        others = deque(unit for unit in units if not unit.is_delete or unit.is_roll)
        messages = [self._read(unit.physical_offset, unit.size) for unit in deletes]
        keys = {m.properties.get(PROPERTY_TIMER_DEL_UNIQKEY, "") for m in messages if m is not None}
        return _OpenSlot(slot_ms, others, deletes, keys)

    def _units_of(self, slot_ms: int) -> list[TimerUnit]:
        """Return the units of a slot, oldest first. A unit of another slot ends the chain."""
        units: list[TimerUnit] = []
        position = self._wheel.slot(slot_ms).last_position
        while position >= 0:
            unit = self._timer_log.unit(position)
            if unit is None or self._tick(unit.due_ms) != slot_ms:
                break
            units.append(unit)
            position = unit.previous
        units.reverse()
        return units

    def _leave(self, unit: TimerUnit) -> None:
        self._metrics.leave(unit.topic_hash, cancels=unit.is_delete)

    def _close(self, slot: _OpenSlot) -> None:
        for unit in slot.cancelling:
            self._leave(unit)
        self._due.drop_first()
        if self._due.first_ms is None:
            self._metrics.clear()
        self._read_time_ms = slot.time_ms + self._precision_ms
        self._open = None

    def _dequeue(self, unit: TimerUnit, cancelled: set[str], now_ms: int) -> None:
        message = self._read(unit.physical_offset, unit.size)
        if message is None:
            return
        if unit.is_roll:
            self._put(rolled_message(message, unit.written_ms, now_ms))
            return
        if not is_cancelled(message, cancelled):
            self._put_real(message, unit.written_ms, now_ms)

    def _read(self, offset: int, size: int) -> MessageExt | None:
        return read_timed_message(self._message(offset, size), offset)

    def _put_real(self, message: MessageExt, enqueued_ms: int, now_ms: int) -> None:
        if PROPERTY_TIMER_DEL_UNIQKEY not in message.properties:
            self._put(delivered_message(message, enqueued_ms, now_ms))

    def _put(self, message: PutMessage) -> None:
        result = self._put_message(message)
        if result.status.is_stored:
            self._puts += 1
            self._put_end = max(self._put_end, result.end_offset)
        elif result.status in NEVER_STORED:
            _log.error("a timed message for %s is passed over: %s", message.topic, result.reason)
        else:
            raise _PutLaterError

    # -- progress --------------------------------------------------------------------------------

    def _progress(self) -> TimerProgress:
        return TimerProgress(
            self._put_end, self._read_time_ms, self._queue_offset, self._timer_log.max_offset
        )

    def _note(self, progress: TimerProgress) -> bool:
        return self._checkpoint.note(progress, self._flushed_where(), self._wall_clock_ms())

    async def flush(self) -> None:
        """Sync timer log, wheel and checkpoint, in this order, if there is anything new.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        progress = self._progress()
        dirty = self._timer_log.files.dirty_files(0)
        for file in dirty:
            wrote = file.wrote_position
            await self._disk.sync(file.file)
            file.flushed_position = max(file.flushed_position, wrote)
        if dirty:
            await self._disk.sync(self._wheel.file)
        if self._note(progress):
            await self._disk.sync(self._checkpoint.file)

    def flush_blocking(self) -> None:
        """The same, holding everything up: for a stop, after the commit log was synced.

        Raises:
            OSError: the disk failed.
        """
        progress = self._progress()
        self._timer_log.files.sync_all()
        self._wheel.file.sync()
        if self._note(progress):
            self._checkpoint.file.sync()

    def close(self) -> None:
        """Close the files without writing."""
        self._timer_log.close()
        self._wheel.close()
        self._checkpoint.close()

    # -- running ---------------------------------------------------------------------------------

    async def run(
        self,
        after_delivery: Callable[[], None],
        min_physical_offset: Callable[[], int],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Deliver, flush and clean until cancelled; `after_delivery` after each round of puts.

        After a failed sync nothing more is flushed: what is durable is then unknown, and the next
        start delivers again what it does not find in the checkpoint.
        """
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_flushing)
            nursery.start_soon(self._keep_cleaning, min_physical_offset)
            while True:
                now_ms = self._wall_clock_ms()
                delivered, next_ms = self.deliver_due(now_ms)
                if delivered:
                    after_delivery()
                if next_ms is not None and next_ms <= now_ms:
                    await trio.lowlevel.checkpoint()
                    continue
                # A clock put forward is noticed within the interval of cleaning.
                wait_seconds = CLEAN_INTERVAL_SECONDS
                if next_ms is not None:
                    wait_seconds = min(wait_seconds, (next_ms - now_ms) / 1000)
                with trio.move_on_after(wait_seconds):
                    await self._arrived.wait()

    async def _keep_flushing(self) -> None:
        while True:
            await trio.sleep(self._settings.timer_flush_interval_ms / 1000)
            try:
                await self.flush()
            except OSError as error:
                _log.error(
                    "timers are no longer flushed; some messages may be delivered again: %s", error
                )
                return

    async def _keep_cleaning(self, min_physical_offset: Callable[[], int]) -> None:
        while True:
            await trio.sleep(CLEAN_INTERVAL_SECONDS)
            self._timer_log.delete_expired_files(min_physical_offset(), self._wall_clock_ms())


class _PutLaterError(Exception):
    """A put was refused that may succeed later. Never leaves this module."""
