"""ReputMessageService: lets queues and index follow the commit log.

    commit log   |=============================|------|     |      what is written
    queues       |=============================|  reput_from_offset
    index        |=====================|  index_from_offset

Two cursors, each the first byte that was not dispatched yet; neither goes past the end of the log.
On a master a put enters its message in the queue itself, unless it goes through a transient pool:
there, and on a slave, whose log grows by raw bytes, the records are read here. The index is always
built here, and gives way to everything else; a query by key enters the last records first.

Nothing is entered twice: queues filter repeats, and the index has none, because its cursor starts
where the index ends.

Source: org.apache.rocketmq.store.DefaultMessageStore.ReputMessageService of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Protocol

import trio

from store.files.mapped_file import MappedFile
from store.log.commit_log import CommitLog
from store.log.log_end import (
    DELAY_LEVELS,
    Blank,
    Damage,
    DispatchRequest,
    next_records,
    read_record,
    record_behind,
)
from store.machine.errors import CorruptLogError, DiskFailedError, LogFault, StoreFullError
from store.machine.signal import Signal
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.queue_units import QueueGapError
from store.results import Arrival
from store.running_flags import RunningFlags
from store.services.dispatch import ConsumeQueueDispatcher
from store.services.usual_records import UsualRecord, usual_records
from tandem.wire.delay_level import DelayLevels
from tandem.wire.record_scan import RecordColumns

_log = logging.getLogger(__name__)

SLICE_BYTES: Final = 512 << 10
"""What is dispatched before other tasks have their turn: well under a millisecond's work."""

SLICE_RECORDS: Final = 2000

NEW_QUEUES_MAX: Final = 8
"""Of one slice: a new queue is directories and a file, up to 0.3 ms of CPU."""

SHORT_SLICE_RECORDS: Final = 8 * NEW_QUEUES_MAX
"""Of the slice after one that they ended: what it leaves over is looked at again by the next."""

USUAL_RECORDS_MAX: Final = 128
"""Up to about this many usual records a plain loop beats numpy's cost per call."""

PLAIN_LOOP_RECORDS_MAX: Final = 24
"""So does a closer look at up to about this many of any kind."""

INDEX_SLICE_BYTES: Final = 2 << 20

INDEX_SLICE_RECORDS: Final = 1024
"""About this many at once: a hundred take half a millisecond, these a little more than one."""

INDEXED_ONE_BY_ONE_MAX: Final = 24
"""Up to about this many records a plain loop beats numpy's cost per call."""

INDEXED_AT_STOP_BYTES_MAX: Final = 64 << 20
"""A fraction of a second's work. An index that is further behind goes on after the next start."""

INDEXED_FOR_QUERY_BYTES_MAX: Final = 4 << 20
"""A few milliseconds' work. Of an index that is further behind a query takes what is there."""

RETRY_SECONDS: Final = 1.0

HEALING_MS: Final = 60_000
"""So long the index waits for a bad part of the log to be healed. Heals take seconds."""
"""When to look again whether the disk has room, or the running flags allow dispatch."""

GATHER_SECONDS: Final = 0.01
"""The queues of a slave let records gather, unless a slice is there: one of four hundred costs half
of what one of a hundred does. Its next report does not wait for them, and its readers lag anyway.
"""

INDEX_GATHER_SECONDS: Final = 0.1
"""So does the index, of any node. A query does not wait for it: see `index_the_last`."""

INDEX_LOOKS: Final = 5
"""How often it is looked in that time whether there is a slice."""

INDEX_REST: Final = 3
"""While others are at work, the index rests three times as long as it works."""


class IndexBuilder(Protocol):
    """What the service needs of an IndexService."""

    def dispatch(
        self, topic: str, properties: bytes, offset: int, store_timestamp_ms: int, sys_flag: int, /
    ) -> object:
        """Enter the keys of one record.

        Raises:
            StoreFullError: as below.
        """

    def dispatch_columns(self, buffer: bytes | memoryview, columns: RecordColumns) -> object:
        """Enter the keys of these records. Those of rolled-back messages it leaves out.

        Raises:
            StoreFullError: no room for an index file; call again with the same records.
        """


class ReputMessageService:
    """The dispatch of one store.

    `stands_still` says why the queues do not follow, in words; None while they do. `on_clock_back`
    is called with the time before a record enters that was stored before the last one. `entered`
    gets an entry for each queue that has grown; `after_dispatch` is called after a step with some.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        grown: Signal,
        *,
        levels: DelayLevels = DELAY_LEVELS,
        index_service: IndexBuilder | None = None,
        running_flags: RunningFlags | None = None,
        reput_from_offset: int = 0,
        index_from_offset: int = 0,
        heals: bool = False,
        on_clock_back: Callable[[int], None] = lambda _: None,
        entered: list[Arrival] | None = None,
        after_dispatch: Callable[[], None] = lambda: None,
    ) -> None:
        self.reput_from_offset = reput_from_offset
        self.index_from_offset = index_from_offset
        self.stands_still: str | None = None
        self._commit_log = commit_log
        self._dispatcher = ConsumeQueueDispatcher(queues, levels)
        self._queues = queues
        self._grown = grown
        self._index_service = index_service
        self._running_flags = running_flags
        self._on_clock_back = on_clock_back
        self._entered = [] if entered is None else entered
        self._after_dispatch = after_dispatch
        self._heals = heals
        self._one_by_one = False
        self._dispatched_timestamp_ms = commit_log.last_store_timestamp_ms

    def dispatched_timestamp_ms(self) -> int:
        """Return when the last record dispatched to the queues was stored, 0 if none was."""
        return self._dispatched_timestamp_ms

    @property
    def is_behind(self) -> bool:
        """True if the log holds bytes that were not dispatched to the queues."""
        return self._bytes_from(self.reput_from_offset) > 0

    @property
    def is_index_behind(self) -> bool:
        """True if there is an index and the log holds bytes that it does not know."""
        return self._index_service is not None and self._bytes_from(self.index_from_offset) > 0

    def _bytes_from(self, offset: int) -> int:
        """Return how much of the log follows after a cursor; 0 or less if nothing does."""
        log = self._commit_log
        # An empty log may begin past both.
        return log.max_offset - max(offset, log.min_offset)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the log until cancelled.

        Raises:
            CorruptLogError: the log holds something that is no record, or a queue has a gap.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_with_queues)
            if self._index_service is not None:
                nursery.start_soon(self._follow_with_index, self._index_service)
            task_status.started()

    # -- queues ----------------------------------------------------------------------------------

    async def _follow_with_queues(self) -> None:
        is_cut = False
        while True:
            if not self.is_behind:
                await self._grown.wait()
            if not is_cut and self._bytes_from(self.reput_from_offset) < SLICE_BYTES:
                await trio.sleep(GATHER_SECONDS)
            obstacle = self._forbidden
            try:
                if obstacle is None:
                    most = SHORT_SLICE_RECORDS if is_cut else SLICE_RECORDS
                    is_cut = self.dispatch_some(records_max=most, new_queues_max=NEW_QUEUES_MAX)
            except (StoreFullError, DiskFailedError) as error:
                obstacle = str(error)
            if obstacle is not None and self.stands_still is None:
                _log.error("no message enters the consume queues: %s", obstacle)
            self.stands_still = obstacle
            await trio.sleep(RETRY_SECONDS if obstacle is not None else 0)

    @property
    def _forbidden(self) -> str | None:
        """Why the running flags forbid dispatch; None if they do not."""
        flags = self._running_flags
        refusal = None if flags is None else flags.dispatch_refusal
        return None if refusal is None else refusal.text

    def dispatch_some(
        self,
        records_max: int = SLICE_RECORDS,
        *,
        bytes_max: int = SLICE_BYTES,
        new_queues_max: int | None = None,
    ) -> bool:
        """Dispatch up to `records_max` records to the queues, those in about `bytes_max` bytes.

        Returns:
            Whether it ended before that, because `new_queues_max` queues were made.

        Raises:
            CorruptLogError: see `run`.
            StoreFullError: no room for a queue file; call again later. Everything before the
                record that needs it was dispatched.
        """
        try:
            stop = self.reput_from_offset + bytes_max
            queues_before = self._queues.count
            while records_max > 0:
                # A slave's log may begin above 0.
                offset = max(self.reput_from_offset, self._commit_log.min_offset)
                if offset >= min(stop, self._commit_log.max_offset):
                    break
                try:
                    records_max -= self._dispatch_next(
                        offset, records_max, bytes_max, new_queues_max
                    )
                except QueueGapError as error:
                    raise CorruptLogError(
                        f"{error}; restart the node: it builds the queues anew",
                        path="",
                        fault=LogFault.QUEUE_GAP,
                        offset=offset,
                    ) from error
                except StoreFullError:
                    if self._one_by_one:
                        raise
                    self._one_by_one = True
                if (
                    new_queues_max is not None
                    and self._queues.count - queues_before >= new_queues_max
                ):
                    return True
            self._one_by_one = False
            return False
        finally:
            if self._entered:
                self._after_dispatch()

    def dispatch_all(self) -> None:
        """Dispatch all of the log to the queues, holding everything up.

        Raises:
            CorruptLogError, StoreFullError: see `dispatch_some`.
        """
        while self.is_behind:
            self.dispatch_some()

    def _dispatch_next(
        self, offset: int, records_max: int, bytes_max: int, new_queues_max: int | None
    ) -> int:
        """Dispatch what is at `offset`; return how many records that was."""
        file = self._file_at(offset)
        position = offset - file.file_from_offset
        end = min(file.size, self._commit_log.max_offset - file.file_from_offset)
        first_bytes = int.from_bytes(file.buffer[position : position + 4], "big")
        count = min(records_max, (end - position) // max(1, first_bytes))
        if count <= USUAL_RECORDS_MAX and not self._one_by_one:
            until = min(end, position + bytes_max)
            found = islice(usual_records(file.buffer, position, until, offset), records_max)
            entered = self._dispatch_usual(found)
            if entered:
                return entered
        if count < PLAIN_LOOP_RECORDS_MAX or self._one_by_one:
            record = read_record(
                file.buffer, position, end, offset, check_crc=False, levels=self._dispatcher.levels
            )
            if isinstance(record, DispatchRequest):
                self._expect_clock_back(record.store_timestamp_ms)
                self._dispatcher.dispatch(record, arrivals=self._entered)
                self._dispatched(offset, record.size, record.store_timestamp_ms)
                return 1
            self.reput_from_offset = self._after_blank(record, offset, file)
            return 0
        # The bytes were checked before they were appended; the CRC is not worth a second look.
        data, columns = next_records(
            file.buffer, position, end, offset, bytes_max=bytes_max, check_crc=False
        )
        if isinstance(columns, Blank | Damage):
            self.reput_from_offset = self._after_blank(columns, offset, file)
            return 0
        columns = columns.take(slice(0, records_max))
        self._expect_clock_back(int(columns.store_timestamp_ms.min()))
        count = self._dispatcher.dispatch_columns(
            data, columns, arrivals=self._entered, new_queues_max=new_queues_max
        )
        columns = columns.take(slice(0, count))
        last = int(columns.physical_offset[-1])
        self._dispatched(last, int(columns.size[-1]), int(columns.store_timestamp_ms[-1]))
        return len(columns)

    def _dispatch_usual(self, records: Iterable[UsualRecord]) -> int:
        """Dispatch records up to the first that needs a closer look; return how many."""
        count, last = self._dispatcher.dispatch_usual(
            records, self._dispatched_timestamp_ms, arrivals=self._entered
        )
        if last is not None:
            self._dispatched(last[0], last[1], last[4])
        return count

    def _expect_clock_back(self, earliest_ms: int) -> None:
        if earliest_ms < self._dispatched_timestamp_ms:
            self._on_clock_back(earliest_ms)

    def _dispatched(self, offset: int, size: int, store_timestamp_ms: int) -> None:
        """Take note that the record at `offset`, and all before it, are in their queues."""
        self.reput_from_offset = offset + size
        self._dispatched_timestamp_ms = store_timestamp_ms
        if offset > self._commit_log.last_record_offset:
            self._commit_log.last_record_offset = offset
            self._commit_log.last_store_timestamp_ms = store_timestamp_ms

    def _file_at(self, offset: int) -> MappedFile:
        file = self._commit_log.files.find_by_offset(offset)
        assert file is not None
        return file

    def _after_blank(self, found: Blank | Damage, offset: int, file: MappedFile) -> int:
        """Return where the file after a blank starts."""
        if isinstance(found, Damage):
            path, why = file.file.path, f"no record at {offset}: {found.reason}"
            raise CorruptLogError(
                f"{path}: {why}", path=path, fault=LogFault.NO_RECORD, offset=offset
            )
        return self._commit_log.roll_next_file(offset)

    def _pass_damage(self, found: Damage, offset: int, file: MappedFile, *, waits: bool) -> bool:
        """Have the index go on after what is bad; False if it `waits`: others may have it."""
        following = record_behind([file], offset)
        after = following.offset if following else self._commit_log.roll_next_file(offset)
        self._commit_log.damage.note(offset, after, found.reason)
        if waits and self._heals and self._commit_log.damage.is_young(offset, HEALING_MS):
            return False
        _log.error(
            "%s: no record at %d: %s; messages up to %d cannot be found by key until it is healed"
            " and a scrub has seen that: restore the file from another node of the group",
            file.file.path,
            offset,
            found.reason,
            after,
        )
        self.index_from_offset = after
        return True

    # -- index -----------------------------------------------------------------------------------

    async def _follow_with_index(self, index_service: IndexBuilder) -> None:
        told = False
        while True:
            if not self.is_index_behind:
                await self._grown.wait()
            await self._gather_for_index()
            began = trio.current_time()
            obstacle = self._forbidden
            try:
                if obstacle is None and not self.index_some(waits=True):
                    await trio.sleep(RETRY_SECONDS)
            except (StoreFullError, DiskFailedError) as error:
                obstacle = str(error)
            if obstacle and not told:
                _log.error("no message enters the index: %s", obstacle)
            told = bool(obstacle)
            if obstacle:
                await trio.sleep(RETRY_SECONDS)
            else:
                await _give_way(trio.current_time() - began)

    async def _gather_for_index(self) -> None:
        """Let records gather until there is a slice, but not for long."""
        for _ in range(INDEX_LOOKS):
            gathered = self._bytes_from(self.index_from_offset)
            if gathered > 0 and gathered >= self._index_slice_bytes():
                return
            await trio.sleep(INDEX_GATHER_SECONDS / INDEX_LOOKS)

    def _index_slice_bytes(self) -> int:
        """Return about how many bytes the next slice has: its records are as large as the first."""
        offset = max(self.index_from_offset, self._commit_log.min_offset)
        file = self._file_at(offset)
        position = offset - file.file_from_offset
        first_bytes = int.from_bytes(file.buffer[position : position + 4], "big")
        return min(INDEX_SLICE_BYTES, INDEX_SLICE_RECORDS * first_bytes)

    def index_some(self, bytes_max: int = INDEX_SLICE_BYTES, *, waits: bool = False) -> bool:
        """Enter the keys of the next records, those in about `bytes_max` bytes, in the index.

        Return False if it `waits` for the log to be healed, and did nothing.

        Raises:
            CorruptLogError: see `run`.
            StoreFullError: no room for an index file; call again later.
        """
        if self._index_service is None or not self.is_index_behind:
            return True
        offset = max(self.index_from_offset, self._commit_log.min_offset)
        file = self._file_at(offset)
        position = offset - file.file_from_offset
        end = min(file.size, self._commit_log.max_offset - file.file_from_offset)
        bytes_max = min(bytes_max, self._index_slice_bytes())
        if self._index_usual(self._index_service, file, offset, min(end, position + bytes_max)):
            return True
        data, columns = next_records(
            file.buffer, position, end, offset, bytes_max=bytes_max, check_crc=False
        )
        if isinstance(columns, Damage) and file is not self._commit_log.files.last:
            return self._pass_damage(columns, offset, file, waits=waits)
        if isinstance(columns, Blank | Damage):
            self.index_from_offset = self._after_blank(columns, offset, file)
            return True
        self._index_service.dispatch_columns(data, columns)
        self.index_from_offset = int(columns.physical_offset[-1] + columns.size[-1])
        return True

    def _index_usual(
        self, index_service: IndexBuilder, file: MappedFile, offset: int, end: int
    ) -> bool:
        """Enter records from `offset` on one by one, if they are few; return False if none was."""
        position = offset - file.file_from_offset
        first_bytes = int.from_bytes(file.buffer[position : position + 4], "big")
        if end - position > INDEXED_ONE_BY_ONE_MAX * first_bytes:
            return False
        for record in usual_records(file.buffer, position, end, offset):
            place, size, _, _, stored_ms, topic, properties = record
            name = topic.decode("utf-8", "replace")
            index_service.dispatch(name, properties, place, stored_ms, 0)
            self.index_from_offset = place + size
        return self.index_from_offset > offset

    def index_the_last(self) -> None:
        """Enter the last records in the index, so that a query finds them, unless they are many.

        What keeps the service from it keeps this from it, too; the service says so.
        """
        if self._commit_log.max_offset <= self.index_from_offset:
            return
        if self._forbidden or (
            self._bytes_from(self.index_from_offset) > INDEXED_FOR_QUERY_BYTES_MAX
        ):
            return
        try:
            while self.is_index_behind:
                self.index_some()
        except (StoreFullError, DiskFailedError, CorruptLogError) as error:
            _log.debug("the last records are not in the index: %s", error)

    def index_the_rest(self) -> None:
        """Enter the last records in the index, unless there are too many to wait for.

        Raises:
            CorruptLogError, StoreFullError: see `index_some`.
        """
        if self._commit_log.max_offset - self.index_from_offset <= INDEXED_AT_STOP_BYTES_MAX:
            while self.is_index_behind:
                self.index_some()


async def _give_way(took_seconds: float) -> None:
    """Let other tasks run; for longer if there are some that want to."""
    before = trio.current_time()
    # Twice: tasks that are ready run in any order, once between two turns of ours on average only.
    for _ in range(2):
        await trio.lowlevel.checkpoint()
    others_seconds = trio.current_time() - before
    if 10 * others_seconds > took_seconds:
        await trio.sleep(max(0.0, INDEX_REST * took_seconds - others_seconds))
