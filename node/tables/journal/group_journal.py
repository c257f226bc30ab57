"""The journal of a fenced group: what has to survive a change of master and is no message.

Topics, consumer offsets and the progress of delayed delivery are records of a system topic,
`rmq_sys_TANDEM_JOURNAL`, queue 0. So they travel, are acknowledged and are cut like messages, and
one rule holds for all: what a majority of the group was told, no change of master takes back.

    master     change --put--> log --confirmed--> applied --> whoever waits for it is answered
    others                     log --confirmed--> applied

Everybody, the master too, applies only what is confirmed, in the order of the queue: an offset that
a consumer can ask for was confirmed, so it never goes back. One exception: a master's own table of
topics shows a change at once, for the record of a topic lies before its first message in the log.

`config/groupJournal.json` holds position and tables as one file, replaced as a whole: position and
tables cannot disagree. A master writes all tables into the journal when it opens and from time to
time after that, so that a log whose beginning was deleted still tells everything.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import trio

from node.errors import RequestError
from node.tables.journal.journal_records import (
    ConsumerOffsets,
    DelayProgress,
    GroupTables,
    JournalFormatError,
    JournalRecord,
    OffsetsCommitted,
    SnapshotPart,
    TopicsChanged,
    decode_journal_record,
    encode_journal_record,
    split_commits,
)
from store import PutMessage, PutMessageStatus, StoreError
from store.machine.signal import Signal
from store.machine.waiting_row import WaitingRow
from store.results import GetMessageStatus
from tandem.wire.message import decode_messages
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import JOURNAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from store import MessageStore
    from store.machine.disk import Disk

_log = logging.getLogger(__name__)

COMMIT_DELAY_SECONDS: Final = 0.1
"""Commits nobody waits for are gathered for so long."""

DELAY_PROGRESS_SECONDS: Final = 0.5
"""Between two looks at the delayed delivery: a new master delivers again what came after."""

SNAPSHOT_SECONDS: Final = 3600.0

SAVE_SECONDS: Final = 5.0
"""Between two writes of the state file; what is missing in it is read from the log again."""

RECORD_BYTES_MAX: Final = 768 * 1024
READ_COUNT: Final = 32


class JournalState(msgspec.Struct, frozen=True):
    """The state file. `position` is the queue offset of the first record not applied."""

    position: int
    topics: list[TopicConfig]
    offsets: ConsumerOffsets
    delay: dict[int, int]


class JournalFile:
    """`config/groupJournal.json` of one node."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/config/groupJournal.json"

    def load(self) -> JournalState | None:
        """Return what was saved last, None on a node that never saved anything.

        Raises:
            JournalFormatError: the file is damaged.
        """
        data = self._disk.read(self._path)
        if not data:
            return None
        try:
            return msgspec.json.decode(data, type=JournalState)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise JournalFormatError(
                f"{self._path} cannot be read ({error}); remove it: the node then reads the"
                " journal in its log from the beginning"
            ) from error

    def save(self, state: JournalState) -> None:
        """Replace the file, synced.

        Raises:
            StoreError: no room, or the disk failed; the old file still stands.
        """
        self._disk.replace(self._path, msgspec.json.encode(state))


class JournalListener(Protocol):
    """The node's own tables: they show what is confirmed. `None` stands for all there is."""

    def show_topics(self, topics: list[TopicConfig] | None) -> None:
        """Others changed these topics."""

    def show_offsets(self, offsets: ConsumerOffsets | None) -> None:
        """These offsets were committed."""

    def take_up_delay(self) -> None:
        """This node is about to deliver delayed messages, from where the journal says."""

    def delay_progress(self) -> dict[int, int]:
        """Return how far this node's delivery is, by delay level."""


class GroupJournal:
    """The journal of one node, for as long as its store is open.

    Attributes:
        tables: What is confirmed.
    """

    def __init__(
        self,
        store: MessageStore,
        file: JournalFile,
        tables: GroupTables,
        position: int,
        *,
        listener: JournalListener,
        born_host: bytes,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.tables = tables
        self._listener = listener
        self.is_master = False
        self._store = store
        self._record_bytes_max = min(RECORD_BYTES_MAX, store.config.max_message_size_bytes // 2)
        self._file = file
        self._born_host = born_host
        self._wall_clock_ms = wall_clock_ms
        # A log that lost its end, or was cut, comes again: so do the records of that end.
        self.position = min(position, self._queue_end)
        self._safe_position = self.position
        self._saved_position = -1
        self._own_from = 0
        self._own_topics: list[TopicConfig] = []
        self._pending: deque[tuple[int, JournalRecord]] = deque()
        self._latest: ConsumerOffsets = {}
        self._batch: ConsumerOffsets = {}
        self._batch_deadline = math.inf
        self._wanted_now = False
        self._asked: list[tuple[float, Callable[[str], None]]] = []
        self._waiting: WaitingRow[Callable[[str], None]] = WaitingRow()
        self._snapshot_at = 0
        self._snapshot_deadline = math.inf
        self._wake = Signal()

    @property
    def _queue_end(self) -> int:
        """The number of the next record in the log, confirmed or not."""
        queue = self._store.queues.find(JOURNAL_TOPIC, 0)
        return queue.next_offset if queue is not None else 0

    # -- every node ------------------------------------------------------------------------------

    def arrived(self) -> None:
        """A record can be read."""
        self._wake.notify()

    def catch_up(self) -> None:
        """Apply every record that is confirmed, and answer whoever waited for it.

        Raises:
            JournalFormatError: a record of another version.
        """
        while True:
            result = self._store.get_message(JOURNAL_TOPIC, 0, self.position, READ_COUNT)
            if result.status is GetMessageStatus.OFFSET_TOO_SMALL:
                _log.info(
                    "the journal's records %d to %d are not held any more; a later snapshot has"
                    " what they said",
                    self.position,
                    result.min_offset - 1,
                )
                self.position = result.min_offset
                continue
            if result.status is GetMessageStatus.MESSAGE_WAS_REMOVING:
                self._pass_over(result.next_begin_offset)
                continue
            if result.status is not GetMessageStatus.FOUND:
                break
            for message in decode_messages(b"".join(result.body)):
                self._apply(message.queue_offset, decode_journal_record(message.body))
        self._answer()

    def _pass_over(self, end: int) -> None:
        """Go on behind records that cannot be read; those that are our own are known all the same.

        A later snapshot has what the others said.
        """
        _log.error("the journal's records %d to %d cannot be read", self.position, end - 1)
        for queue_offset, record in [each for each in self._pending if each[0] < end]:
            self._apply(queue_offset, record)
        self.position = end
        if not self.tables.is_inside_snapshot:
            self._safe_position = end

    def _apply(self, queue_offset: int, record: JournalRecord) -> None:
        was_inside = self.tables.is_inside_snapshot
        complete = self.tables.apply(record)
        self.position = queue_offset + 1
        if not self.tables.is_inside_snapshot:
            self._safe_position = self.position
        elif not was_inside:
            self._safe_position = queue_offset
        while self._pending and self._pending[0][0] < self.position:
            self._pending.popleft()
        is_own = self.is_master and queue_offset >= self._own_from
        if complete:
            self._listener.show_offsets(None)
            if not is_own:
                self._listener.show_topics(None)
        elif isinstance(record, TopicsChanged) and not is_own:
            self._listener.show_topics(record.topics)
        elif isinstance(record, OffsetsCommitted):
            self._listener.show_offsets(record.offsets)

    def save(self) -> None:
        """Write the state file if anything was applied since the last time.

        Raises:
            StoreError: no room, or the disk failed.
        """
        if self._safe_position == self._saved_position or self.tables.is_inside_snapshot:
            return
        tables = self.tables
        topics = list(tables.topics.values())
        state = JournalState(self._safe_position, topics, tables.offsets, tables.delay)
        self._file.save(state)
        self._saved_position = self._safe_position

    async def run(self, end_round: Callable[[], None]) -> None:
        """Apply, gather commits, save; until cancelled.

        `end_round` is called when somebody may have been answered and when it is time to write: it
        calls the method of this name, and sends what that brought about.

        Raises:
            JournalFormatError: see `catch_up`.
        """
        save_at = trio.current_time() + SAVE_SECONDS
        progress_at = trio.current_time() + DELAY_PROGRESS_SECONDS
        while True:
            now = trio.current_time()
            self.catch_up()
            self._expire(now)
            if now >= self._batch_deadline:
                self._wanted_now = True
            if now >= progress_at:
                progress_at = now + DELAY_PROGRESS_SECONDS
                self._write_regularly(now)
            if now >= save_at:
                save_at = now + SAVE_SECONDS
                self._try_to_save()
            end_round()
            first_deadline = self._waiting.next_deadline
            wake_at = math.inf if first_deadline is None else first_deadline
            with trio.move_on_at(min(save_at, progress_at, self._batch_deadline, wake_at)):
                await self._wake.wait()
            await trio.lowlevel.checkpoint()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except StoreError as error:
            _log.warning("the state of the journal could not be saved: %s", error)

    # -- the master ------------------------------------------------------------------------------

    def open(self, topics: list[TopicConfig]) -> None:
        """Become the one that writes: the log is confirmed up to where this master began.

        Args:
            topics: Those that the master creates for itself.

        Raises:
            JournalFormatError: see `catch_up`.
        """
        self.catch_up()
        assert self.position == self._queue_end, "a master opens once its log is confirmed"
        self._listener.take_up_delay()
        self.is_master = True
        self._own_from = self.position
        self._latest = self.tables.copy().offsets
        self._own_topics = topics
        missing = self._missing_topics()
        if missing:
            self._listener.show_topics(missing)
        self._snapshot_deadline = trio.current_time()
        self._write_regularly(trio.current_time())

    def _missing_topics(self) -> list[TopicConfig]:
        topics = self._as_written().topics
        return [each for each in self._own_topics if each.topic_name not in topics]

    def write(self, record: JournalRecord) -> None:
        """Put one record. It is confirmed later.

        Raises:
            RequestError: the store does not take it; nothing was written.
        """
        result = self._store.put_message(
            PutMessage(
                JOURNAL_TOPIC,
                0,
                encode_journal_record(record),
                b"",
                self._wall_clock_ms(),
                self._born_host,
            ),
            hooks=False,
        )
        if result.status is not PutMessageStatus.PUT_OK:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the change was not stored: {result.reason}",
            )
        if isinstance(record, SnapshotPart) and record.part == 0:
            self._snapshot_at = result.wrote_offset
        self._pending.append((result.queue_offset, record))

    def write_snapshot(self) -> None:
        """Put all tables as they will be when everything written so far is confirmed.

        Raises:
            RequestError: see `write`.
        """
        missing = self._missing_topics()
        if missing:
            self.write(TopicsChanged(missing))
        for part in self._as_written().snapshot(self._record_bytes_max):
            self.write(part)
        self._snapshot_deadline = trio.current_time() + SNAPSHOT_SECONDS

    def change_topics(self, configs: list[TopicConfig]) -> None:
        """Put changed topics, before the table shows them.

        Raises:
            RequestError: this node is not the master, or see `write`.
        """
        if not self.is_master:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "only the group's master changes topics"
            )
        self.write(TopicsChanged(configs))

    def commit(self, key: str, queue_id: int, offset: int) -> None:
        """Take in a consumer's offset; it is written soon, together with others.

        Args:
            key: `topic@group`.
            queue_id: The queue.
            offset: The next one to consume; a negative one says nothing.
        """
        queues = self._latest.setdefault(key, {})
        if offset < 0 or queues.get(queue_id) == offset:
            return
        queues[queue_id] = offset
        self._batch.setdefault(key, {})[queue_id] = offset
        if self._batch_deadline == math.inf:
            self._batch_deadline = trio.current_time() + COMMIT_DELAY_SECONDS
            self._wake.notify()

    def when_confirmed(self, deadline: float, done: Callable[[str], None]) -> None:
        """Call `done` once everything that was given to the journal by now is confirmed.

        That is at the end of this round at the earliest. The text is empty, or says why it is not
        known whether the change will stand.
        """
        self._asked.append((deadline, done))

    def end_round(self) -> None:
        """Write gathered commits if it is time; the caller announces the log's growth."""
        if not self._asked and not self._wanted_now:
            return
        refusal = self._flush_now()
        asked, self._asked = self._asked, []
        for deadline, done in asked:
            if refusal or self.position >= self._queue_end:
                done(refusal)
            else:
                self._waiting.add(self._queue_end, deadline, done)
        self._wake.notify()

    def close(self, reason: str) -> None:
        """Answer everybody who waits: this node writes no more."""
        self.is_master = False
        self._batch, self._batch_deadline = {}, math.inf
        waiting = [*self._waiting.take_all(), *(done for _, done in self._asked)]
        self._asked.clear()
        for done in waiting:
            done(f"{reason}; the change may or may not stand")

    def _flush_now(self) -> str:
        """Write the gathered commits; return why that was not possible, "" if it was."""
        self._wanted_now = False
        if not self._batch:
            return ""
        batch, self._batch = self._batch, {}
        self._batch_deadline = math.inf
        try:
            for record in split_commits(batch, self._record_bytes_max):
                self.write(record)
        except RequestError as error:
            _log.warning("consumer offsets were not committed: %s", error.remark)
            self._latest = self._as_written().offsets
            return error.remark
        return ""

    def _as_written(self) -> GroupTables:
        """Return the tables as they will be when everything written so far is confirmed."""
        tables = self.tables.copy()
        for _, record in self._pending:
            tables.apply(record)
        return tables

    def _write_regularly(self, now: float) -> None:
        if not self.is_master or self._store.refusal:
            return
        try:
            progress = self._listener.delay_progress()
            known = dict(self.tables.delay)
            for _, record in self._pending:
                if isinstance(record, DelayProgress):
                    known.update(record.offsets)
            changed = {level: at for level, at in progress.items() if known.get(level, 0) != at}
            if changed:
                self.write(DelayProgress(changed))
            if now >= self._snapshot_deadline or self._snapshot_is_old:
                self.write_snapshot()
        except RequestError as error:
            _log.warning("the journal falls behind: %s", error.remark)

    @property
    def _snapshot_is_old(self) -> bool:
        """Whether the last snapshot is in the older half of a log of several files."""
        start, end = self._store.min_physical_offset, self._store.max_physical_offset
        file_bytes = self._store.config.mapped_file_size_commit_log_bytes
        behind_bytes = end - self._snapshot_at
        return behind_bytes > file_bytes and behind_bytes * 2 > end - start

    def _answer(self) -> None:
        for done in self._waiting.take_reached(self.position):
            done("")

    def _expire(self, now: float) -> None:
        for _, done in self._waiting.take_expired(now):
            done("too few replicas confirmed the change in time; it may or may not stand")
