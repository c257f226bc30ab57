"""MessageStore: one node's messages on disk. Opens, recovers, puts, gets.

    <directory>/commitlog/<20 digits>                 the truth
               /consumequeue/<topic>/<id>/<20 digits>  built from it
               /checkpoint                            how far both are on disk
               /abort                                 exists while the store is open
               /lock                                  held while the store is open
               /torn/<20 digits>                      what recovery has cut off, for people

Opening is recovering: after a clean stop it only starts further down the log. Every method is
synchronous and so atomic for other tasks; only `run` waits.

Index files, the extended queue, the transient pool, cleaning, delayed and transactional messages
are not here yet. Their places: `index_file.py` and `clean_service.py` beside this file, dispatch in
`ConsumeQueueStore.dispatch`, hooks in front of `MessageStore.put_message`.

Source: org.apache.rocketmq.store.DefaultMessageStore of 5.3.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Self

import trio

from store.commit_log import CommitLog, IllegalBatchError, IllegalMessageError
from store.consume_queue_store import ConsumeQueueStore, is_queued
from store.errors import DiskFailedError, StoreClosedError, StoreFullError
from store.flush_service import FlushService
from store.get_message import MESSAGE_BYTES_MAX, MESSAGE_COUNT_MAX, collect, position_status
from store.recovery import (
    TORN_BYTES_MIN,
    looks_torn,
)
from store.reput_message_service import OnArrival, ReputMessageService
from store.results import (
    GetMessageResult,
    GetMessageStatus,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
)
from store.running_flags import RunningFlag, RunningFlags
from store.signal import Signal
from store.store_checkpoint import StoreCheckpoint
from store.store_recovery import StoreRecovery
from tandem.wire.message import INNER_BATCH_FLAG
from tandem.wire.message_properties import PROPERTIES_BYTES_MAX, tags_code_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueue
    from store.disk import Disk
    from tandem.wire.message import Host

_log = logging.getLogger(__name__)

TOPIC_BYTES_MAX: Final = 127
RETRY_TOPIC_BYTES_MAX: Final = 255
RETRY_TOPIC_PREFIX: Final = "%RETRY%"
RECORD_OVERHEAD_BYTES_MAX: Final = 65_536
"""How much larger than the largest body a record may be (MessageExtEncoder)."""

ALLOCATE_RETRY_SECONDS: Final = 5.0

_INNER_BATCH_FAULT: Final = (
    "inner batches are for topics with batch queues, which there are none of"
)


class MessageStore:
    """An open store. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        store_host: Host,
        is_slave: bool,
    ) -> None:
        self.config = config
        self.is_slave = is_slave
        self.grown = Signal()
        """Notified by `announce`: the commit log has grown."""
        self._disk = disk
        self._now_ms = wall_clock_ms
        self._host_hex = store_host.packed.hex().upper()
        self._release_lock: Callable[[], None] | None = None
        self._closed = False
        self.flags = RunningFlags()
        """Why no message is taken, as far as disks are concerned."""
        root = config.directory
        self.commit_log = CommitLog(
            f"{root}/commitlog", config.mapped_file_size_commit_log_bytes, disk, store_host
        )
        self._surely_fits_bytes = (
            min(config.max_message_size_bytes, self.commit_log.record_bytes_max)
            - RECORD_OVERHEAD_BYTES_MAX
        )
        """A body up to this size needs no further look: properties take at most half the rest."""
        unit = -(-config.mapped_file_size_consume_queue_bytes // 20) * 20
        self.queues = ConsumeQueueStore(f"{root}/consumequeue", unit, disk)
        self.reput_service = ReputMessageService(self.commit_log, self.queues, self.grown)
        self._announced = 0

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        store_host: Host,
        is_slave: bool,
    ) -> Self:
        """Lock, load and recover the store in `config.directory`; an empty directory is fine.

        Raises:
            StoreLockedError: another process has it open.
            CorruptLogError: a file is not what it must be; nothing was changed.
            StoreFullError: no room for what recovery has to write.
            DiskFailedError: the disk does not do what it is asked.
        """
        store = cls(
            config,
            disk=disk,
            wall_clock_ms=wall_clock_ms,
            store_host=store_host,
            is_slave=is_slave,
        )
        try:
            store._release_lock = disk.lock(f"{config.directory}/lock")
            store._load()
        except BaseException as error:
            store._closed = True
            store._unmap()
            if isinstance(error, OSError):
                raise _disk_failed(config.directory, error) from error
            raise
        return store

    # -- opening ---------------------------------------------------------------------------------

    def _load(self) -> None:
        config = self.config
        abort = f"{config.directory}/abort"
        clean = not self._disk.exists(abort)
        self.commit_log.files.load()
        self.queues.load()
        self.checkpoint = StoreCheckpoint(f"{config.directory}/checkpoint", self._disk)
        recovery = StoreRecovery(
            config.directory, self.commit_log, self.queues, self.checkpoint, self._disk
        )
        recovery.run(clean=clean)
        self.reput_service.reput_from_offset = self._announced = self.commit_log.max_offset
        self._disk.replace(abort, b"")
        self.flush_service = FlushService(
            self.commit_log,
            self.queues,
            self.checkpoint,
            self._disk,
            flush_disk_type=config.flush_disk_type,
            flush_interval_commit_log_seconds=config.flush_interval_commit_log_ms / 1000,
            flush_commit_log_least_pages=config.flush_commit_log_least_pages,
            flush_commit_log_thorough_interval_seconds=(
                config.flush_commit_log_thorough_interval_ms / 1000
            ),
            flush_interval_consume_queue_seconds=config.flush_interval_consume_queue_ms / 1000,
            on_failure=self._refuse,
        )

    # -- closing ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sync everything, mark the stop as clean, release the lock. Blocks; harmless twice.

        After a failed sync, or when the queues are behind, the stop does not count as clean.

        Raises:
            DiskFailedError: the last sync failed.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not self.flags.is_set(RunningFlag.NOT_WRITEABLE):
                self._sync_everything()
                if self.flags.may_dispatch and not self.reput_service.is_behind:
                    self._disk.remove(f"{self.config.directory}/abort")
        except OSError as error:
            raise _disk_failed(self.config.directory, error) from error
        finally:
            self._unmap()

    def _sync_everything(self) -> None:
        try:
            while self.reput_service.is_behind:
                self.reput_service.dispatch_some(1000)
        except StoreFullError as error:
            _log.error("consume queues are behind the log at the stop: %s", error)
        log = self.commit_log
        log.files.sync_all()
        if not self.flags.may_dispatch:
            return  # the checkpoint must not speak for queues that lack units
        self.queues.sync_all()
        if log.last_store_timestamp_ms:
            self.checkpoint.physic_msg_timestamp_ms = log.last_store_timestamp_ms
            self.checkpoint.logics_msg_timestamp_ms = log.last_store_timestamp_ms
        self.checkpoint.confirm_physical_offset = log.max_offset
        self.checkpoint.flush_blocking()

    def _unmap(self) -> None:
        self.commit_log.files.close()
        self.queues.close()
        if hasattr(self, "checkpoint"):
            self.checkpoint.close()
        if self._release_lock is not None:
            self._release_lock()

    def _refuse(self, reason: str) -> None:
        self.flags.set(RunningFlag.NOT_WRITEABLE, reason)

    @property
    def refusal(self) -> str:
        """Why the store takes no messages; empty if it does."""
        if self._closed:
            return "the store is closed"
        if self.is_slave:
            return "this node is a slave"
        return self.flags.refusal

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush and dispatch until cancelled.

        Raises:
            CorruptLogError: see `ReputMessageService.run`.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self.flush_service.run)
            await nursery.start(self.reput_service.run)
            nursery.start_soon(self._allocate_mapped_files)
            task_status.started()

    async def _allocate_mapped_files(self) -> None:
        """Have the next commit log file ready before it is needed.

        Source: AllocateMappedFileService.
        """
        files = self.commit_log.files
        while True:
            # Look again after each one: the log may have grown past it meanwhile.
            if not files.wants_next:
                await self.grown.wait()
                continue
            try:
                await files.prepare_next()
            except StoreFullError as error:
                _log.warning("puts will be refused when this file is full: %s", error)
                await trio.sleep(ALLOCATE_RETRY_SECONDS)

    # -- putting ---------------------------------------------------------------------------------

    def put_message(self, message: PutMessage) -> PutMessageResult:
        """Append one message, or refuse it; never waits. Call `announce` after a round of puts.

        Order of checks as in RocketMQ (HookUtils, MessageExtEncoder).
        """
        topic, flags = message.topic, self.flags
        queue = self.queues.find(topic, message.queue_id) or self._new_queue(
            topic, message.queue_id
        )
        if self._closed or self.is_slave or flags.refusal or isinstance(queue, PutMessageResult):
            return self._refused(queue)
        properties, sys_flag = message.properties, message.sys_flag
        # What nearly all messages pass is tested here; the whole look is worth a call only then.
        if (
            sys_flag
            or len(message.body) > self._surely_fits_bytes
            or len(properties) >= TORN_BYTES_MIN
            or properties[-1:] == b"\0"
        ):
            fault = self._fault(message, queue)
            if fault is not None:
                return fault
        queued = not sys_flag or is_queued(sys_flag)
        queue_offset = queue.next_offset if queued else 0
        now_ms = self._now_ms()
        try:
            queue.ensure_room()
            offset, size = self.commit_log.append_message(
                message, queue.topic_bytes, queue_offset, now_ms
            )
        except IllegalMessageError as error:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, str(error))
        except (StoreFullError, DiskFailedError) as error:
            queue.drop_empty_file()
            return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, str(error))
        if queued:
            code = tags_code_of(properties)
            queue.append(offset, size, code)
            if self.reput_service.on_arrival is not None:
                self.reput_service.on_arrival(topic, message.queue_id, queue.next_offset, code)
        return PutMessageResult(
            PutMessageStatus.PUT_OK, "", offset, size, queue_offset, 1, now_ms, self._host_hex
        )

    def _fault(self, message: PutMessage, queue: ConsumeQueue) -> PutMessageResult | None:
        """Return why the message itself cannot be stored, None if it can.

        The order is RocketMQ's: properties, body, whole record (MessageExtEncoder.encode).
        """
        properties_bytes = len(message.properties)
        body_bytes = len(message.body)
        if properties_bytes > PROPERTIES_BYTES_MAX:
            return PutMessageResult(
                PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
                f"properties take {properties_bytes} bytes, the limit is {PROPERTIES_BYTES_MAX}",
            )
        illegal = ""
        if body_bytes > self._surely_fits_bytes:
            illegal = self._size_fault(message, queue)
        if not illegal and looks_torn(message.properties):
            illegal = "the properties end in, or hold many, NUL characters"
        if message.sys_flag & INNER_BATCH_FLAG:
            illegal = illegal or _INNER_BATCH_FAULT
        return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, illegal) if illegal else None

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Append the messages of a client's batch as one run of records, or refuse all of them.

        Source: CommitLog.asyncPutMessages.
        """
        flags = self.flags
        queue = self.queues.find(batch.topic, batch.queue_id) or self._new_queue(
            batch.topic, batch.queue_id
        )
        if self._closed or self.is_slave or flags.refusal or isinstance(queue, PutMessageResult):
            return self._refused(queue)
        fault = self._batch_fault(batch)
        if fault:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, fault)
        first = queue.next_offset
        now_ms = self._now_ms()
        try:
            units = self.commit_log.append_batch(
                batch, queue.topic_bytes, first, now_ms, queue.ensure_room
            )
        except IllegalBatchError as error:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, str(error))
        except (StoreFullError, DiskFailedError) as error:
            queue.drop_empty_file()
            return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, str(error))
        self._append_units(queue, units)
        if self.reput_service.on_arrival is not None:
            self.reput_service.on_arrival(batch.topic, batch.queue_id, queue.next_offset, None)
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

    def _append_units(self, queue: ConsumeQueue, units: list[int]) -> None:
        try:
            queue.append_many(units)
        except (StoreFullError, DiskFailedError) as error:
            # The batch is in the log; the next start enters it in the queue.
            self.flags.set(
                RunningFlag.WRITE_LOGICS_QUEUE_ERROR,
                f"{error} (a consume queue is behind: free space, then restart this node)",
            )

    def _batch_fault(self, batch: PutBatch) -> str:
        if not batch.body:
            return "the batch is empty"
        if len(batch.body) > self.config.max_message_size_bytes:
            return (
                f"the batch takes {len(batch.body)} bytes, the limit is"
                f" {self.config.max_message_size_bytes} (max_message_size_bytes)"
            )
        if batch.sys_flag & INNER_BATCH_FLAG:
            return _INNER_BATCH_FAULT
        return "" if is_queued(batch.sys_flag) else "a batch cannot be transactional"

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue | PutMessageResult:
        size = len(topic.encode())
        is_retry = topic.startswith(RETRY_TOPIC_PREFIX)
        limit = RETRY_TOPIC_BYTES_MAX if is_retry else TOPIC_BYTES_MAX
        if not 0 < size <= limit:
            return PutMessageResult(
                PutMessageStatus.MESSAGE_ILLEGAL,
                f"the topic has {size} bytes, allowed are 1 to {limit}",
            )
        if "/" in topic or "\0" in topic or topic in {".", ".."}:
            return PutMessageResult(
                PutMessageStatus.MESSAGE_ILLEGAL, f"{topic!r} cannot be the name of a directory"
            )
        if self.refusal:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, self.refusal)
        return self.queues.find_or_create(topic, queue_id)

    def _refused(self, queue: ConsumeQueue | PutMessageResult) -> PutMessageResult:
        if self.refusal or not isinstance(queue, PutMessageResult):
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, self.refusal)
        return queue

    def _size_fault(self, message: PutMessage, queue: ConsumeQueue) -> str:
        """Say what is too large. A record too large for a file would make RocketMQ lose it."""
        body_bytes = len(message.body)
        limit = self.config.max_message_size_bytes
        if body_bytes > limit:
            return f"the body has {body_bytes} bytes, the limit is {limit} (max_message_size_bytes)"
        size = self.commit_log.shape(
            body_bytes, queue.topic_bytes, len(message.properties), len(message.born_host)
        ).size
        size_max = min(limit + RECORD_OVERHEAD_BYTES_MAX, self.commit_log.record_bytes_max)
        return f"the record has {size} bytes, the limit is {size_max}" if size > size_max else ""

    def append_data(self, offset: int, data: bytes | memoryview) -> None:
        """Append raw log bytes from a master. Call `announce` after a round of appends.

        Raises:
            AppendGapError: they do not continue the log.
            StoreFullError: no room for the next file.
            StoreClosedError: the store is closed, or its disk has failed.
        """
        if self._closed:
            raise StoreClosedError(self.refusal)
        if not self.flags.may_dispatch:
            raise StoreClosedError(self.flags.refusal)
        self.commit_log.append_data(offset, data)

    def announce(self) -> None:
        """Wake replication, group commit and dispatch if the log has grown."""
        end = self.commit_log.max_offset
        if end != self._announced:
            self._announced = end
            if not self.is_slave:
                self.reput_service.reput_from_offset = end
            self.flush_service.wake()
            self.grown.notify()

    # -- getting ---------------------------------------------------------------------------------

    @property
    def on_arrival(self) -> OnArrival | None:
        """Called for every message that has entered its queue."""
        return self.reput_service.on_arrival

    @on_arrival.setter
    def on_arrival(self, hook: OnArrival | None) -> None:
        self.reput_service.on_arrival = hook

    @property
    def min_physical_offset(self) -> int:
        """The first byte of the log that is held."""
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """The end of the log: the first byte not written yet."""
        return self.commit_log.max_offset

    @property
    def flushed_where(self) -> int:
        """The offset below which the log is durable."""
        return self.commit_log.files.flushed_where

    @property
    def dispatched_offset(self) -> int:
        """The offset below which every message is in its queue."""
        if self.is_slave:
            return self.reput_service.reput_from_offset
        return self.commit_log.max_offset

    @property
    def last_record_offset(self) -> int:
        """Where the last record known to be whole starts, -1 if there is none."""
        return self.commit_log.last_record_offset

    def list_queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue that holds or held a message."""
        return self.queues.queues()

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be read; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return queue.next_offset if queue else 0

    def read_log(self, offset: int, bytes_max: int) -> memoryview:
        """Return raw bytes of one file from `offset` on; see `CommitLog.read`."""
        return self.commit_log.read(offset, bytes_max)

    def look_message_by_offset(self, offset: int) -> bytes | None:
        """Return the record at `offset`, None if none starts there.

        Source: DefaultMessageStore.lookMessageByOffset.
        """
        head = self.commit_log.message(offset, 36)
        if head is None:
            return None
        size = int.from_bytes(head[:4], "big")
        if int.from_bytes(head[28:36], "big") != offset:
            return None
        record = self.commit_log.message(offset, size)
        return bytes(record) if record is not None else None

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        *,
        max_bytes: int = MESSAGE_BYTES_MAX,
        tags_codes: frozenset[int] | None = None,
    ) -> GetMessageResult:
        """Read records of one queue from queue offset `offset` on.

        At least one record is returned where one matches, whatever its size. Filtering is by tags
        code: the reader has to compare the tags themselves.

        Source: DefaultMessageStore.getMessage.
        """
        queue = self.queues.find(topic, queue_id)
        status, next_offset = position_status(queue, offset)
        if self.is_slave and status is not GetMessageStatus.FOUND:
            # A slave may only be late: it does not correct what a consumer asks for.
            next_offset = offset
        if queue is None:
            return GetMessageResult(status, next_offset, 0, 0)
        if status is GetMessageStatus.FOUND:
            count_max = min(max_msg_nums, MESSAGE_COUNT_MAX)
            return collect(self.commit_log, queue, offset, count_max, max_bytes, tags_codes)
        return GetMessageResult(status, next_offset, queue.min_offset, queue.next_offset)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the queue offset for a store time.

        Lower bound: the first message stored at `timestamp_ms` or later, the end if there is none.
        Upper bound: the last one stored then or earlier, 0 if there is none.

        Source: ConsumeQueue.getOffsetInQueueByTime.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.next_offset
        while low < high:
            middle = (low + high) // 2
            stored_ms = self.commit_log.store_timestamp_ms(queue.unit(middle)[0])
            if stored_ms < timestamp_ms or (upper and stored_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(queue.min_offset, low - 1) if upper else low


def _disk_failed(directory: str, error: OSError) -> DiskFailedError:
    return DiskFailedError(
        f"{error.filename or directory}: {error.strerror or error};"
        " check the disk and who may write to it, then start again"
    )
