"""Delayed messages: put aside for the delay of their level, then put where they belong.

    put with DELAY=n --rewritten--> SCHEDULE_TOPIC_XXXX, queue n-1 --its time has come--> real topic

One queue per level, and within a level the delay is the same for all: so the first message that is
not due ends the look at its queue, and its time is when to look again. Nothing polls. RocketMQ
looks at every level each 100 ms.

How far a level has got is an offset in `config/delayOffset.json`. It moves when the message is in
the log, and it is saved only up to where the log is durable: after a crash a message may come
twice, and after a power loss too, but none is missing. (RocketMQ saves what it has put, durable or
not, and after a power loss can lack what the file says was delivered.)

A delivered record keeps DELAY, REAL_TOPIC and REAL_QID, as in RocketMQ. So it must not pass through
`delay_rewrite` again: the service is given a put without hooks.

Source: RocketMQ 5.3.3, ScheduleMessageService, HookUtils.transformDelayLevelMessage.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec
import trio

from store.delayed.delay_offset_table import DelayOffsetTable
from store.delayed.earlier_deliveries import EarlierDeliveries, SearchGoesOnError
from store.machine.errors import RecordDamagedError, StoreError
from store.machine.signal import Signal
from store.results import PutMessage, PutMessageResult, PutMessageStatus, QueueOffset
from tandem.wire.delay_level import DelayLevels, delay_level_of
from tandem.wire.errors import MalformedMessageError
from tandem.wire.java_map import encode_in_java_order
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
    TRANSACTION_NOT_TYPE,
    MessageExt,
    decode_message,
)
from tandem.wire.message_properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    TIMER_REQUEST_PROPERTIES,
    decode_properties,
)
from tandem.wire.store_layout import FILLER_SIZE
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC, SCHEDULE_TOPIC

_log = logging.getLogger(__name__)

FLUSH_DELAY_OFFSET_INTERVAL_SECONDS: Final = 10.0
"""A stepped clock misleads no longer. Source: MessageStoreConfig.flushDelayOffsetInterval."""

RETRY_MS: Final = 100
"""After a put that failed. Source: ScheduleMessageService.DELAY_FOR_A_WHILE."""

LEVELS_TAKEN_OUT_MAX: Final = 256
"""How many levels above the highest are looked for at a start: more than anybody has had."""

DELAY_MS_MAX: Final = 366 * 86_400_000
"""Of a level whose delay is not known any more: what is further off has a wrong clock."""

_SLICE_UNITS: Final = 50
"""Of one level, then the others have their turn, and other tasks theirs."""

_TIMES_FROM: Final = 1 << 31
"""A unit's code below it is no time: a tags hash, zeros after a power loss, or an ext address."""

_DELAY: Final = f"{PROPERTY_DELAY_LEVEL}\x01".encode()
_NOT_A_DESTINATION: Final = ("", SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC)
_NEVER_STORED: Final = (
    PutMessageStatus.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
)


def delay_rewrite(message: PutMessage, levels: DelayLevels) -> PutMessage:
    """Return what is put instead of `message`: itself, unless it has a delay level.

    Prepared and rolled-back messages stay as they are, and so does one that was rewritten before.

    Source: HookUtils.handleScheduleMessage and transformDelayLevelMessage.
    """
    if _DELAY not in message.properties or message.topic == SCHEDULE_TOPIC:
        return message
    if message.sys_flag & TRANSACTION_MASK not in (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE):
        return message
    level = delay_level_of(message.properties)
    if level <= 0:
        return message
    properties = decode_properties(message.properties)
    for name in TIMER_REQUEST_PROPERTIES:
        properties.pop(name, None)
    if level > levels.level_max:
        level = levels.level_max
        properties[PROPERTY_DELAY_LEVEL] = str(level)
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    return msgspec.structs.replace(
        message,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=encode_in_java_order(properties),
    )


def message_time_up(message: MessageExt) -> PutMessage:
    """Return the message to put for a delayed one whose time has come.

    Raises:
        ValueError: the record does not say where it belongs.

    Source: ScheduleMessageService.messageTimeUp.
    """
    topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
    queue_id = message.properties.get(PROPERTY_REAL_QUEUE_ID, "")
    if topic in _NOT_A_DESTINATION or not queue_id.isdecimal():
        raise ValueError(f"it cannot be delivered to topic {topic!r}, queue {queue_id!r}")
    return PutMessage(
        topic=topic,
        queue_id=int(queue_id),
        body=message.body,
        properties=encode_in_java_order(message.properties),
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host.packed,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        store_host=message.store_host.packed,
    )


class ScheduleQueue(Protocol):
    """What the delivery reads of a queue of SCHEDULE_TOPIC_XXXX. `ConsumeQueue` has it."""

    @property
    def min_offset(self) -> QueueOffset:
        """The first queue offset that can be read."""

    @property
    def next_offset(self) -> QueueOffset:
        """The queue offset of the next message."""

    def units(self, queue_offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Physical offset, size and code of messages from `queue_offset` on; maybe fewer."""


class DeliveryRound(msgspec.Struct, frozen=True):
    """What one look at all levels came to.

    `next_ms` is when to look again, in wall-clock time: now or earlier if there is more to do,
    None if nothing waits.
    """

    delivered: int
    next_ms: int | None


class _Level:
    """Where the delivery of one level is.

    `delivered` holds (end of the record put, offset to go on from) of what may not be durable yet.
    No message waits for more than `delay_ms_max`. `is_taken` is whether nothing waits any more that
    an earlier master may have delivered.
    """

    def __init__(
        self, level: int, delay_ms: int, next_offset: int, delay_ms_max: int | None = None
    ) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self.delay_ms_max = delay_ms if delay_ms_max is None else delay_ms_max
        self.next_offset = next_offset
        self.retry_ms = 0
        self.is_taken = False
        self.delivered: deque[tuple[int, int]] = deque()


class ScheduleMessageService:
    """The delivery of one master's delayed messages. Slaves have none: they copy the log."""

    def __init__(
        self,
        levels: DelayLevels,
        offsets: DelayOffsetTable,
        *,
        find_queue: Callable[[int], ScheduleQueue | None],
        message: Callable[[int, int], memoryview | None],
        put: Callable[[PutMessage], PutMessageResult],
        flushed_where: Callable[[], int],
        wall_clock_ms: Callable[[], int],
        earlier: EarlierDeliveries | None = None,
    ) -> None:
        """Take up the delivery where the offsets say.

        Args:
            levels: The delays.
            offsets: Where the progress is kept; this service is the only one to change it.
            find_queue: The queue of that id in SCHEDULE_TOPIC_XXXX, None if there is none.
            message: The record at a physical offset, of that size; None if it is not held.
                Raises RecordDamagedError.
            put: Puts a message as it is, without hooks.
            flushed_where: The offset below which the log is durable.
            wall_clock_ms: The clock that store timestamps come from.
            earlier: What was delivered although the offsets do not say so; None for nothing.
        """
        self._earlier = earlier
        self._offsets = offsets
        self._find_queue = find_queue
        self._message = message
        self._put = put
        self._flushed_where = flushed_where
        self._wall_clock_ms = wall_clock_ms
        self._arrived = Signal()
        # With a journal a level is moved as it is delivered: the journal says what was delivered.
        moved = offsets.correct(self._bounds_of) if earlier is None else {}
        for level, offset in moved.items():
            _log.warning(
                "delay level %d goes on from %d: its queue is not where it was", level, offset
            )
        self._levels = [
            _Level(number, delay_ms, offsets.query(number))
            for number, delay_ms in enumerate(levels.delays_ms, 1)
        ]
        self._levels += self._levels_taken_out(levels)

    def _levels_taken_out(self, levels: DelayLevels) -> list[_Level]:
        """Levels that the setting does not have any more, and whose messages still wait.

        Their units have the time at which each is due, so they are delivered as was promised; one
        without a time counts as of the highest level, as in `DelayLevels.dispatch_code`. RocketMQ
        leaves them where they are.
        """
        taken_out = []
        highest = levels.level_max
        for number in range(highest + 1, highest + LEVELS_TAKEN_OUT_MAX + 1):
            bounds = self._bounds_of(number)
            if bounds is None:
                continue
            next_offset = max(self._offsets.query(number), bounds[0])
            if (waiting := bounds[1] - next_offset) <= 0:
                continue
            _log.warning(
                "delay level %d is not in message_delay_level any more, and %d messages of it wait"
                " in %s, queue %d: each is delivered at the time that it was given",
                number,
                waiting,
                SCHEDULE_TOPIC,
                number - 1,
            )
            delay_ms = levels.delay_ms(highest)
            taken_out.append(_Level(number, delay_ms, next_offset, DELAY_MS_MAX))
        return taken_out

    def _bounds_of(self, level: int) -> tuple[int, int] | None:
        queue = self._find_queue(level - 1)
        return (queue.min_offset, queue.next_offset) if queue is not None else None

    # -- delivery --------------------------------------------------------------------------------

    def deliver_due(self, now_ms: int) -> DeliveryRound:
        """Put messages whose time has come, some of each level; say when to come back."""
        delivered = 0
        next_ms: int | None = None
        for level in self._levels:
            before = level.next_offset
            due_ms = self._deliver_level(level, now_ms)
            delivered += level.next_offset - before
            if due_ms is not None and (next_ms is None or due_ms < next_ms):
                next_ms = due_ms
        if delivered:
            self._settle()
        return DeliveryRound(delivered, next_ms)

    def _deliver_level(self, level: _Level, now_ms: int) -> int | None:
        """Return when the level's next message is due, None if it has none."""
        queue = self._find_queue(level.level - 1)
        if queue is None:
            level.is_taken = True
            return None
        # Cleaning moves the first message; the last one may have been cut off by a recovery.
        level.next_offset = min(max(level.next_offset, queue.min_offset), queue.next_offset)
        if now_ms < level.retry_ms <= now_ms + RETRY_MS:
            return level.retry_ms
        for offset, size, code in queue.units(level.next_offset, _SLICE_UNITS):
            try:
                deliver_ms = self._deliver_time(level, offset, size, code)
                if self._earlier is None or self._earlier.is_past(offset, deliver_ms):
                    level.is_taken = True
                # Further off than any message of this level can be: the clock was put back.
                if now_ms < deliver_ms <= now_ms + level.delay_ms_max:
                    return deliver_ms
                is_done = self._deliver(level, offset, size)
            except SearchGoesOnError:
                break
            except RecordDamagedError:  # logged where it was found; the level waits for it
                is_done = False
            if not is_done:
                level.retry_ms = now_ms + RETRY_MS
                return level.retry_ms
        if level.next_offset < queue.next_offset:
            return now_ms
        level.is_taken = True
        return None

    def _deliver_time(self, level: _Level, offset: int, size: int, code: int) -> int:
        if code >= _TIMES_FROM or size == FILLER_SIZE:
            return code
        record = self._read(offset, size)
        return record.store_timestamp_ms + level.delay_ms if record is not None else 0

    def _read(self, offset: int, size: int) -> MessageExt | None:
        view = self._message(offset, size)
        try:
            return decode_message(view)[0] if view is not None else None
        except MalformedMessageError as error:
            _log.error("no delayed message at %d: %s", offset, error)
            return None

    def _deliver(self, level: _Level, offset: int, size: int) -> bool:
        """Put one message, or pass over what can never be put. False: try again later."""
        record = self._read(offset, size) if size != FILLER_SIZE else None
        end_offset = 0
        if record is not None:
            try:
                result = self._put_once(message_time_up(record), level, record)
            except ValueError as error:
                _log.error("delayed message at %d of the log is passed over: %s", offset, error)
            else:
                if result.status in _NEVER_STORED:
                    _log.error(
                        "delayed message at %d of the log is passed over: %s", offset, result.reason
                    )
                elif not result.status.is_stored:
                    return False
                end_offset = max(0, result.end_offset)
        level.next_offset += 1
        level.delivered.append((end_offset, level.next_offset))
        return True

    def _put_once(self, message: PutMessage, level: _Level, record: MessageExt) -> PutMessageResult:
        due_ms = record.store_timestamp_ms + level.delay_ms
        earlier = self._earlier
        if earlier is not None and earlier.take(message, record.physical_offset, due_ms):
            return PutMessageResult(PutMessageStatus.PUT_OK)
        return self._put(message)

    # -- progress --------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Take into the table what is durable; nothing before all levels are taken over."""
        if self._earlier is not None and not all(level.is_taken for level in self._levels):
            return
        flushed = self._flushed_where()
        for level in self._levels:
            delivered = level.delivered
            while delivered and delivered[0][0] <= flushed:
                self._offsets.update(level.level, delivered.popleft()[1])

    def save(self) -> None:
        """Write the offsets of what was delivered and is durable. Blocks for two small writes.

        At a stop, sync the log first: what is not durable will be delivered again.

        Raises:
            StoreFullError, DiskFailedError: as `DelayOffsetTable.save`; the next call tries again.
        """
        self._settle()
        self._offsets.save()

    # -- running ---------------------------------------------------------------------------------

    def message_arrived(self) -> None:
        """Look again: SCHEDULE_TOPIC_XXXX has a new message."""
        self._arrived.notify()

    async def run(
        self,
        after_delivery: Callable[[], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Deliver and save until cancelled; call `after_delivery` after each round of puts."""
        task_status.started()
        save_at = trio.current_time() + FLUSH_DELAY_OFFSET_INTERVAL_SECONDS
        while True:
            if trio.current_time() >= save_at:
                self._try_to_save()
                save_at = trio.current_time() + FLUSH_DELAY_OFFSET_INTERVAL_SECONDS
            now_ms = self._wall_clock_ms()
            delivery = self.deliver_due(now_ms)
            if delivery.delivered:
                after_delivery()
            wake_at = save_at
            if delivery.next_ms is not None:
                wake_at = min(wake_at, trio.current_time() + (delivery.next_ms - now_ms) / 1000)
            if wake_at <= trio.current_time():
                await trio.lowlevel.checkpoint()
                continue
            with trio.move_on_at(wake_at):
                await self._arrived.wait()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except StoreError as error:
            _log.warning("the offsets of delayed messages could not be saved: %s", error)
