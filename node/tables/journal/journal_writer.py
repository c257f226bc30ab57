"""Writes the journal of a group: what its master does, from the moment it opens.

Changes of topics are written at once, offsets are gathered for a moment. From time to time all
tables are written as a snapshot, so that a log whose beginning was deleted still has everything.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from node.errors import RequestError
from node.tables.journal.journal_records import (
    ConsumerOffsets,
    DelayProgress,
    Deleted,
    JournalRecord,
    SnapshotPart,
    TimerProgress,
    TopicsChanged,
    encode_journal_record,
    split_commits,
)
from node.tables.offset_room import OffsetRoom
from store import PutMessage, PutMessageStatus
from store.delayed.timer_place import TimerPlace
from store.machine.tell_once import TellOnce
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import JOURNAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.tables.journal.journal_applier import JournalApplier
    from store import MessageStore
    from store.machine.signal import Signal
    from tandem.wire.request_headers import TopicConfig

_log = logging.getLogger(__name__)

COMMIT_DELAY_SECONDS: Final = 0.1
"""Commits without a waiting client are gathered for so long."""

SNAPSHOT_SECONDS: Final = 3600.0

RECORD_BYTES_MAX: Final = 768 * 1024


class JournalWriter:
    """The writing of one mastership. Its records are confirmed later.

    Attributes:
        record_bytes_max: The largest body of a record.
        batch_deadline: When the gathered commits are due, in trio's time; infinity without any.
    """

    def __init__(
        self,
        store: MessageStore,
        applier: JournalApplier,
        own_topics: list[TopicConfig],
        *,
        delay_progress: Callable[[], dict[int, int]],
        timer_place: Callable[[], TimerPlace | None],
        wake: Signal,
        born_host: bytes,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """Begin where `applier` is: at the end of the log, all of it confirmed.

        Args:
            store: Takes the records.
            applier: Knows what is written and what is confirmed.
            own_topics: Those that a master creates for itself.
            delay_progress: How far this node's delayed delivery is, by delay level.
            timer_place: How far its timers are, None if nothing is known of them.
            wake: Notified when the first commit is gathered.
            born_host: Of the records, packed.
            wall_clock_ms: For their times.
        """
        self._store = store
        self._applier = applier
        self._own_topics = own_topics
        self._delay_progress = delay_progress
        self._timer_place = timer_place
        self._wake = wake
        self._born_host = born_host
        self._wall_clock_ms = wall_clock_ms
        self.record_bytes_max = min(RECORD_BYTES_MAX, store.config.max_message_size_bytes // 2)
        applier.own_from = applier.position
        self._latest = applier.tables.copy().offsets
        self._room = OffsetRoom(self._latest)
        self._batch: ConsumerOffsets = {}
        self.batch_deadline = math.inf
        self._snapshot_at = 0
        self._told: TellOnce[str] = TellOnce()
        self._snapshot_deadline = trio.current_time()

    def missing_topics(self) -> list[TopicConfig]:
        """Return those of the own topics that the group does not have yet."""
        topics = self._applier.as_written().topics
        return [each for each in self._own_topics if each.topic_name not in topics]

    def write(self, record: JournalRecord) -> None:
        """Put one record.

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
        self._applier.written.append((result.queue_offset, record))

    def write_snapshot(self) -> None:
        """Put all tables as they will be when everything written so far is confirmed.

        Raises:
            RequestError: see `write`.
        """
        missing = self.missing_topics()
        if missing:
            self.write(TopicsChanged(missing))
        for part in self._applier.as_written().snapshot(self.record_bytes_max):
            self.write(part)
        self._snapshot_deadline = trio.current_time() + SNAPSHOT_SECONDS

    def delete(self, record: Deleted) -> None:
        """Put what is no more. Commits that were gathered before do not bring it back.

        Raises:
            RequestError: see `write`.
        """
        self.write(record)
        self._batch = {key: each for key, each in self._batch.items() if not record.is_gone(key)}
        self._latest = {key: each for key, each in self._latest.items() if not record.is_gone(key)}
        self._room = OffsetRoom(self._latest)

    def commit(self, key: str, queue_id: int, offset: int) -> None:
        """Take in a consumer's offset; it is written soon, together with others.

        Args:
            key: `topic@group`.
            queue_id: The queue.
            offset: The next one to consume; a negative one says nothing.

        Raises:
            RequestError: the group keeps no more offsets; nothing is changed.
        """
        queues = self._latest.get(key, {})
        known = queues.get(queue_id)
        if offset < 0 or known == offset:
            return
        if known is None:
            self._room.take(key, is_new_key=key not in self._latest)
            self._latest[key] = queues
        queues[queue_id] = offset
        self._batch.setdefault(key, {})[queue_id] = offset
        if self.batch_deadline == math.inf:
            self.batch_deadline = trio.current_time() + COMMIT_DELAY_SECONDS
            self._wake.notify()

    def write_commits(self) -> None:
        """Put the gathered commits.

        Raises:
            RequestError: see `write`. What is left of them is forgotten.
        """
        if not self._batch:
            return
        batch, self._batch = self._batch, {}
        self.batch_deadline = math.inf
        try:
            for record in split_commits(batch, self.record_bytes_max):
                self.write(record)
        except RequestError as error:
            _log.warning("consumer offsets were not committed: %s", error.remark)
            self._latest = self._applier.as_written().offsets
            self._room = OffsetRoom(self._latest)
            raise

    def write_regularly(self, now: float) -> None:
        """Put the progress of delayed delivery, and a snapshot if it is time."""
        if self._store.refusal is not None:
            return
        try:
            changed = self._changed_progress()
            if changed:
                self.write(DelayProgress(changed, at=self._store.max_physical_offset))
            place = self._timer_place()
            if place is not None and place != self._place_written():
                self.write(TimerProgress(place, at=self._store.max_physical_offset))
            if now >= self._snapshot_deadline or self._snapshot_is_old:
                self.write_snapshot()
        except RequestError as error:
            if self._told.is_news(error.remark):
                _log.warning("the journal cannot be written for now: %s", error.remark)
        else:
            self._told.over()

    def _changed_progress(self) -> dict[int, int]:
        known = dict(self._applier.tables.delay)
        for _, record in self._applier.written:
            if isinstance(record, DelayProgress):
                known.update(record.offsets)
        progress = self._delay_progress()
        return {level: at for level, at in progress.items() if known.get(level, 0) != at}

    def _place_written(self) -> TimerPlace:
        for _, record in reversed(self._applier.written):
            if isinstance(record, TimerProgress):
                return record.place
        return self._applier.tables.timers or TimerPlace()

    @property
    def _snapshot_is_old(self) -> bool:
        """Whether the last snapshot is in the older half of a log of several files."""
        start, end = self._store.min_physical_offset, self._store.max_physical_offset
        file_bytes = self._store.config.mapped_file_size_commit_log_bytes
        since_bytes = end - self._snapshot_at
        return since_bytes > file_bytes and since_bytes * 2 > end - start
