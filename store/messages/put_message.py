"""Puts: a message is checked, gets its queue offset, is appended and enters its queue.

    put_message --hooks--> delayed? into SCHEDULE_TOPIC_XXXX
                --checks, in RocketMQ's order--> refused, with a status and a reason
                --append--> commit log --> consume queue, unless the message cannot be read yet

Everything happens at once: no other task runs in between, so one put is one step for all others.

Queue offsets (see docs/store.md):

    normal, COMMIT         the queue's next one; the queue moves on after the append
    PREPARED, ROLLBACK     0 is stored, the queue does not move and has no unit
    inner batch            the queue's next one; the queue moves on by the number of messages

Source: DefaultMessageStore.putMessage, HookUtils, CommitLog.asyncPutMessage of 5.3.3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TypeAlias

from store.config import StoreConfig
from store.delayed.schedule_message_service import delay_rewrite
from store.delayed.timer_request import is_timer_request
from store.log.commit_log import CommitLog
from store.log.log_end import TORN_BYTES_MIN
from store.log.message_encoder import (
    Fault,
    IllegalBatchError,
    IllegalMessageError,
    inner_batch,
    inner_batch_fault,
    message_num,
    topic_fault,
    with_inner_base,
)
from store.machine.errors import DiskFailedError, StoreError, StoreFullError
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore, is_queued
from store.results import Arrival, PutBatch, PutMessage, PutMessageResult, PutMessageStatus
from store.running_flags import RunningFlag, RunningFlags
from tandem.wire.delay_level import DelayLevels
from tandem.wire.demands import DELAY_HINT
from tandem.wire.message import INNER_BATCH_FLAG, RECORD_OVERHEAD_BYTES_MAX, Host
from tandem.wire.message_properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_INNER_NUM,
    tags_code_of,
)
from tandem.wire.send_run import SendPlace, SendRuns, WrittenRun
from tandem.wire.system_topics import SCHEDULE_TOPIC

TimerRewrite: TypeAlias = "Callable[[PutMessage, int], PutMessage | Fault]"
"""(message, now in ms) -> what is put instead, or why nothing is."""

_NEVER_MS: Final = sys.maxsize
_RESERVED_CRC_BYTES: Final = 32
"""More than the checksum over a record's properties takes."""

_RUN_OVERHEAD_BYTES_MAX: Final = 1024
"""More than the rest of a record takes whose topic has a length in one byte and whose properties
are shorter than TORN_BYTES_MIN."""

_DELAY_HINT: Final = DELAY_HINT.encode()
_INNER_NUM: Final = (PROPERTY_INNER_NUM + NAME_VALUE_SEPARATOR).encode()

_NOT_APPENDED: Final = (IllegalMessageError, IllegalBatchError, StoreFullError, DiskFailedError)


class MessagePuts:
    """The puts of one store. `enters_queue` is false where dispatch enters messages in queues.

    `on_clock_back` is called with the time before a message is stored whose time is earlier than
    that of the last one. Records that have entered a queue are added to `entered`.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        flags: RunningFlags,
        config: StoreConfig,
        *,
        delay_levels: DelayLevels,
        wall_clock_ms: Callable[[], int],
        store_host: Host,
        enters_queue: bool,
        on_clock_back: Callable[[int], None],
        entered: list[Arrival],
    ) -> None:
        self.no_room: str | None = None
        """Why the last put that found no room did not; empty once there was room again."""
        self._timer_rewrite: TimerRewrite | None = None
        self._commit_log = commit_log
        self._queues = queues
        self._flags = flags
        self._delay_levels = delay_levels
        self._now_ms = wall_clock_ms
        self._on_clock_back = on_clock_back
        self._host_hex = store_host.packed.hex().upper()
        self._enters_queue = enters_queue
        self._entered = entered
        self.takes_runs = enters_queue and not config.enabled_append_prop_crc
        """Whether `put_run` may be called."""
        self._busy_timeout_ms = config.os_page_cache_busy_timeout_ms
        self._busy_after_ms = _NEVER_MS
        self._surely_fits_bytes = (
            min(config.max_message_size_bytes, commit_log.record_bytes_max)
            - RECORD_OVERHEAD_BYTES_MAX
        )
        """A body up to this size needs no further look: properties take at most half the rest."""
        self.run_body_bytes_max = min(
            config.max_message_size_bytes, commit_log.record_bytes_max - _RUN_OVERHEAD_BYTES_MAX
        )
        """Of a message in `put_run`."""

    def take_timed(self, rewrite: TimerRewrite) -> None:
        """Take messages with a time of their own from now on; `rewrite` is that of their timers."""
        self._timer_rewrite = rewrite

    def found_room(self) -> None:
        """Take note that there is room again, whatever the last put has found."""
        self.no_room = None

    def end_round(self) -> None:
        """Forget how long the puts of this round took; see `put_message`, OS_PAGE_CACHE_BUSY."""
        self._busy_after_ms = _NEVER_MS

    def put_message(self, message: PutMessage, *, hooks: bool = True) -> PutMessageResult:
        """Append one message, or refuse it; never waits. Call `announce` after a round of puts.

        Order of checks as in RocketMQ (HookUtils, MessageExtEncoder). Without `hooks` a message
        goes where it says even if it has a delay level: for the store's own services.
        """
        properties = message.properties
        # `find` and not `in`, which costs bytes twice as much.
        if hooks and not message.is_usual and properties.find(_DELAY_HINT) >= 0:
            hooked = self._hooked(message)
            if isinstance(hooked, PutMessageResult):
                return hooked
            message, properties = hooked, hooked.properties
        topic = message.topic
        queue = self._queues.find(topic, message.queue_id) or self._new_queue(
            topic, message.queue_id
        )
        if self._flags.refusal is not None or isinstance(queue, PutMessageResult):
            return self._refused(queue)
        now_ms = self._now_ms()
        if now_ms > self._busy_after_ms:
            return self._busy()
        self._busy_after_ms = now_ms + self._busy_timeout_ms
        if now_ms < self._commit_log.last_store_timestamp_ms:
            self._on_clock_back(now_ms)
        if not self._is_usual(message, queue):
            return self._put_unusual(message, queue, now_ms)
        queue_offset = queue.next_offset
        try:
            queue.ensure_room()
            offset, size = self._commit_log.append_message(
                message, queue.topic_bytes, queue_offset, now_ms
            )
        except _NOT_APPENDED as error:
            return self._not_appended(error, queue)
        code = tags_code_of(properties)
        queue.append(offset, size, code, now_ms)
        # `+=` on a list, and not `append`: no call.
        entered = self._entered
        entered += ((offset + size, topic, message.queue_id, queue.next_offset, code),)
        return PutMessageResult(
            PutMessageStatus.PUT_OK, "", offset, size, queue_offset, 1, now_ms, self._host_hex
        )

    def put_pair(self, first: PutMessage, second: PutMessage) -> PutMessageResult:
        """Append two messages with nothing between them, both or none; return the second's result.

        For the store's own services: no hooks. A log that was cut holds both, none, or ends with
        the first.
        """
        if self._now_ms() > self._busy_after_ms:
            return self._busy()
        room_bytes = 0
        for message in (first, second):
            topic, queue_id = message.topic, message.queue_id
            queue = self._queues.find(topic, queue_id) or self._new_queue(topic, queue_id)
            if self._flags.refusal is not None or isinstance(queue, PutMessageResult):
                return self._refused(queue)
            room_bytes += self._size_bound(message, queue.topic_bytes)
            try:
                if self._enters_queue:
                    queue.ensure_room()
                self._commit_log.file_with_room(min(room_bytes, self._commit_log.record_bytes_max))
            except _NOT_APPENDED as error:
                return self._not_appended(error, queue)
        result = self.put_message(first, hooks=False)
        if not result.status.is_stored:
            return result
        self._busy_after_ms = _NEVER_MS  # however long the first took: the second belongs to it
        return self.put_message(second, hooks=False)

    def _size_bound(self, message: PutMessage, topic: bytes) -> int:
        """Return at least the bytes that its record takes."""
        shape = self._commit_log.encoder.shape(
            len(message.body), topic, len(message.properties), len(message.born_host)
        )
        return shape.size + _RESERVED_CRC_BYTES

    def _is_usual(self, message: PutMessage, queue: AnyConsumeQueue) -> bool:
        """Say whether `_put_unusual` would surely do what the plain path does.

        Nearly all messages are usual. They are spared the whole look, which costs more than this.
        """
        properties = message.properties
        return (
            not message.sys_flag
            and len(message.body) <= self._surely_fits_bytes
            and len(properties) < TORN_BYTES_MIN
            and properties[-1:] != b"\0"
            and message.topic != SCHEDULE_TOPIC
            and (message.is_usual or properties.find(_INNER_NUM) < 0)
            and type(queue) is ConsumeQueue
            and self._enters_queue
        )

    def _put_unusual(
        self, message: PutMessage, queue: AnyConsumeQueue, now_ms: int
    ) -> PutMessageResult:
        """Put a message that needs a closer look: the same, with every case in it."""
        queued = is_queued(message.sys_flag)
        queue_offset = queue.assigned_offset if queued else 0
        if message.sys_flag & INNER_BATCH_FLAG:
            message = with_inner_base(message, queue_offset)
        fault = self._fault(message, queue)
        if fault is not None:
            return PutMessageResult(*fault)
        count = message_num(message.properties) if message.sys_flag & INNER_BATCH_FLAG else 1
        try:
            if queued and self._enters_queue:
                queue.ensure_room()
            offset, size = self._commit_log.append_message(
                message, queue.topic_bytes, queue_offset, now_ms
            )
        except _NOT_APPENDED as error:
            return self._not_appended(error, queue)
        if queued and not self._enters_queue:
            queue.assign(count)
        elif queued:
            code = self._delay_levels.dispatch_code(message.topic, message.properties, now_ms)
            if isinstance(queue, BatchConsumeQueue):
                queue.append(offset, size, code, now_ms, count)
            else:
                queue.append(offset, size, code, now_ms)
            end = offset + size
            self._entered.append((end, message.topic, message.queue_id, queue.next_offset, code))
        return PutMessageResult(
            PutMessageStatus.PUT_OK, "", offset, size, queue_offset, count, now_ms, self._host_hex
        )

    def _hooked(self, message: PutMessage) -> PutMessage | PutMessageResult:
        """Return what is put instead of a message that may have a delay, or why nothing is.

        Source: HookUtils.checkBeforePutMessage, handleScheduleMessage.
        """
        fault = topic_fault(message.topic)
        if (refusal := self._flags.refusal) is not None:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, refusal.text)
        if fault is not None:
            return PutMessageResult(*fault)
        if self._now_ms() > self._busy_after_ms:
            return self._busy()
        if is_timer_request(message):
            return self._timed(message)
        return delay_rewrite(message, self._delay_levels)

    def _timed(self, message: PutMessage) -> PutMessage | PutMessageResult:
        """Return what is put instead of a message with a time of its own, or why nothing is."""
        if self._timer_rewrite is None:
            return PutMessageResult(
                PutMessageStatus.WHEEL_TIMER_NOT_ENABLE,
                "messages with a time of their own (TIMER_DELAY_MS and the like) are switched off"
                " (timer_wheel_enable); use a delay level (DELAY), or switch them on",
            )
        rewritten = self._timer_rewrite(message, self._now_ms())
        return PutMessageResult(*rewritten) if isinstance(rewritten, tuple) else rewritten

    def _fault(self, message: PutMessage, queue: AnyConsumeQueue) -> Fault | None:
        """Return why the message itself cannot be stored, None if it can."""
        is_batch_topic = isinstance(queue, BatchConsumeQueue)
        if is_batch_topic and not message.sys_flag & INNER_BATCH_FLAG:
            # RocketMQ stores it, and no consumer ever gets it.
            return PutMessageStatus.MESSAGE_ILLEGAL, (
                f"topic {message.topic} has batch queues (queue.type=BatchCQ): send batches"
            )
        return inner_batch_fault(
            message.sys_flag, message.properties, is_batch_topic=is_batch_topic
        ) or self._commit_log.encoder.message_fault(message, queue.topic_bytes)

    def _busy(self) -> PutMessageResult:
        """Refuse what came while a put took too long: the disk does not keep up.

        RocketMQ refuses those that come while the lock of the put is held. Here they have been
        waiting in their connections, and are all refused up to the next `announce`.
        """
        return PutMessageResult(
            PutMessageStatus.OS_PAGE_CACHE_BUSY,
            f"a put before this one took more than {self._busy_timeout_ms} ms"
            " (os_page_cache_busy_timeout_ms): the disk is too slow; send again",
        )

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Append the messages of a client's batch as one run of records, or refuse all of them.

        For a topic with batch queues it becomes one record that holds them all.

        Source: CommitLog.asyncPutMessages, SendMessageProcessor.sendBatchMessage.
        """
        queue = self._queues.find(batch.topic, batch.queue_id) or self._new_queue(
            batch.topic, batch.queue_id
        )
        if self._flags.refusal is not None or isinstance(queue, PutMessageResult):
            return self._refused(queue)
        now_ms = self._now_ms()
        if now_ms > self._busy_after_ms:
            return self._busy()
        fault = self._batch_fault(batch, queue)
        if fault is not None:
            return PutMessageResult(*fault)
        try:
            if isinstance(queue, BatchConsumeQueue):
                return self.put_message(inner_batch(batch))
            self._busy_after_ms = now_ms + self._busy_timeout_ms
            if now_ms < self._commit_log.last_store_timestamp_ms:
                self._on_clock_back(now_ms)
            first = queue.assigned_offset
            reserve = queue.ensure_room if self._enters_queue else _nothing
            units = self._commit_log.append_batch(batch, queue.topic_bytes, first, now_ms, reserve)
        except _NOT_APPENDED as error:
            return self._not_appended(error, queue)
        self._enter_units(queue, units, now_ms)
        return PutMessageResult(
            PutMessageStatus.PUT_OK,
            "",
            units[0],
            units[-3] + units[-2] - units[0],
            first,
            len(units) // 3,
            now_ms,
            self._host_hex,
            tuple(units[::3]),
        )

    def run_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue of a place of a run; None if its messages have to be put one by one."""
        queue = self._queues.find(topic, queue_id)
        return queue if type(queue) is ConsumeQueue and topic != SCHEDULE_TOPIC else None

    def put_run(
        self, run: SendRuns, places: list[SendPlace], queues: list[ConsumeQueue], born_host: bytes
    ) -> WrittenRun | None:
        """Append usual messages that came together, as `put_message` would one after the other.

        None: nothing was changed, put them one by one; the reason is then found there. What one
        message is checked for, `SendRuns` has found of all; what the store is checked for, is
        checked here once for the whole run.
        """
        now_ms = self._now_ms()
        if self._flags.refusal is not None or now_ms > self._busy_after_ms:
            return None
        log = self._commit_log
        file = log.file_of_run(run.record_bytes(born_host))
        if file is None:
            return None
        try:
            for queue, place in zip(queues, places, strict=True):
                queue.ensure_room(place.sends)
        except _NOT_APPENDED:
            return None
        self._busy_after_ms = now_ms + self._busy_timeout_ms
        if now_ms < log.last_store_timestamp_ms:
            self._on_clock_back(now_ms)
        first_offsets = [queue.next_offset for queue in queues]
        written = run.write(born_host, first_offsets, file.end_offset, now_ms)
        log.append_run(file, written, now_ms)
        start = 0
        for queue, place in zip(queues, places, strict=True):
            end = start + 3 * place.sends
            self._enter_units(queue, written.units[start:end], now_ms)
            start = end
        return written

    def _batch_fault(self, batch: PutBatch, queue: AnyConsumeQueue) -> Fault | None:
        encoder = self._commit_log.encoder
        return encoder.batch_fault(batch) or inner_batch_fault(
            batch.sys_flag, batch.properties, is_batch_topic=isinstance(queue, BatchConsumeQueue)
        )

    def _enter_units(self, queue: ConsumeQueue, units: list[int], now_ms: int) -> None:
        if not self._enters_queue:
            queue.assign(len(units) // 3)
            return
        try:
            queue.append_many(units, now_ms)
        except (StoreFullError, DiskFailedError) as error:
            # The batch is in the log; the next start enters it in the queue.
            self._flags.set(
                RunningFlag.WRITE_LOGICS_QUEUE_ERROR,
                f"{error} (a consume queue is behind: free space, then restart this node)",
            )
        end = units[-3] + units[-2]
        self._entered.append((end, queue.topic, queue.queue_id, queue.next_offset, None))

    def _not_appended(
        self, error: ValueError | StoreError, queue: AnyConsumeQueue
    ) -> PutMessageResult:
        """Return the result of a put that has changed nothing."""
        if isinstance(error, ValueError):
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, str(error))
        self.no_room = str(error)
        queue.drop_empty_file()
        return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, str(error))

    def _new_queue(self, topic: str, queue_id: int) -> AnyConsumeQueue | PutMessageResult:
        fault = topic_fault(topic)
        if fault is not None:
            return PutMessageResult(*fault)
        if (refusal := self._flags.refusal) is not None:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, refusal.text)
        return self._queues.find_or_create(topic, queue_id)

    def _refused(self, queue: AnyConsumeQueue | PutMessageResult) -> PutMessageResult:
        if (refusal := self._flags.refusal) is not None:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, refusal.text)
        assert isinstance(queue, PutMessageResult)
        return queue


def _nothing(_: int) -> None:
    """Stand in for a hook that nobody set, and for room in queues that the dispatch makes."""
