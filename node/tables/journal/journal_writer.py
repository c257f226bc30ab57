"""Writes the journal of a group: what its master does, from the moment it opens.

Most changes are written at once, some are gathered for a moment. From time to time all tables are
written as a snapshot, so that a log whose beginning was deleted still has everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from node.errors import RequestError
from node.tables.journal.journal_applier import JournalApplier
from node.tables.journal.journal_records import SnapshotPart, encode_journal_record
from node.tables.node_table import Gathering, NodeTables
from node.tables.replicated_level import LevelPart, level_raised
from node.tables.table_part import P, Written
from store import MessageStore, PutMessage, PutMessageStatus
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from tandem.wire.feature_level import LEVEL_MIN, level_of_journal
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import JOURNAL_TOPIC

_log = logging.getLogger(__name__)

SNAPSHOT_SECONDS: Final = 3600.0

RECORD_BYTES_MAX: Final = 768 * 1024


def check_level(record: msgspec.Struct, level: int) -> None:
    """Look whether all members of a group of this feature level can read a record.

    Raises:
        RequestError: they cannot; the group's level has to be raised first.
    """
    needed = level_of_journal(getattr(record, "version", 0))
    if needed > level:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"this needs feature level {needed}, and the group is at {level}, for members of older"
            " versions: upgrade all of them, then run `tandem ha raise-features`",
        )


class JournalWriter:
    """The writing of one mastership. Its records are confirmed later.

    Attributes:
        record_bytes_max: The largest body of a record.
    """

    def __init__(
        self,
        store: MessageStore,
        applier: JournalApplier,
        shown: NodeTables,
        *,
        opening: Callable[[Written], list[msgspec.Struct]],
        wake: Signal,
        born_host: bytes,
        wall_clock_ms: Callable[[], int],
        level: Callable[[], int],
    ) -> None:
        """Begin where `applier` is: at the end of the log, all of it confirmed.

        Args:
            store: Takes the records.
            applier: Knows what is written and what is confirmed.
            shown: The node's tables, which may gather changes, or have progress to write.
            opening: Records that the group does not have yet, of what a master creates itself.
            wake: Notified when the first change is gathered.
            born_host: Of the records, packed.
            wall_clock_ms: For their times.
            level: The feature level of the group at the moment.
        """
        self._store = store
        self._applier = applier
        self._tables = list(shown.by_kind.values())
        self._opening = opening
        self._wake = wake
        self._born_host = born_host
        self._wall_clock_ms = wall_clock_ms
        self._level = level
        self.record_bytes_max = min(RECORD_BYTES_MAX, store.config.max_message_size_bytes // 2)
        applier.own_from = applier.position
        self._snapshot_at = 0
        self._told: TellOnce[str] = TellOnce()
        self._snapshot_deadline = trio.current_time()
        self._refusal: RequestError | None = None
        """Of something gathered, while the rest of it is looked at."""
        self._gathered: list[Gathering] = []
        self._gathered += [table.gather(self) for table in self._tables]

    @property
    def batch_deadline(self) -> float:
        """When the first gathered change is due, in trio's time; infinity without any."""
        return min(each.deadline for each in self._gathered)

    def written(self, kind: type[P]) -> P:
        """Return a table as it will be when everything written so far is confirmed."""
        return self._applier.written_of(kind)

    def wake(self) -> None:
        """Look at the deadline of what is gathered."""
        self._wake.notify()

    def opening_records(self) -> list[msgspec.Struct]:
        """What the group does not have yet of what a master creates itself."""
        return [*self._opening(self.written), *self._level_records()]

    def _level_records(self) -> list[msgspec.Struct]:
        """What the journal does not say yet of the group's level."""
        level = self._level()
        if level == LEVEL_MIN or self.written(LevelPart).level >= level:
            return []
        return [level_raised(level)]

    def write(self, record: msgspec.Struct) -> None:
        """Put one record.

        Raises:
            RequestError: the store does not take it, or members of the group's feature level could
                not read it; nothing was written.
        """
        if self._refusal is not None:
            raise self._refusal
        check_level(record, self._level())
        result = self._store.puts.put_message(
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
        for gathering in self._gathered:
            gathering.wrote(record)

    def write_snapshot(self) -> None:
        """Put all tables as they will be when everything written so far is confirmed.

        What is gathered is put first: what a master could not write is missed after a record of its
        table, and in a snapshot all tables are.

        Raises:
            RequestError: see `write`.
        """
        self.write_gathered()
        for record in self.opening_records():
            self.write(record)
        for part in self._applier.as_written().snapshot(self.record_bytes_max):
            self.write(part)
        self._snapshot_deadline = trio.current_time() + SNAPSHOT_SECONDS

    def write_gathered(self) -> None:
        """Put what is gathered.

        Raises:
            RequestError: see `write`. The rest of it is forgotten: who waits for any of it is told
                that it was not written.
        """
        try:
            for gathering in self._gathered:
                try:
                    gathering.write()
                except RequestError as error:
                    self._refusal = self._refusal or error
            if self._refusal is not None:
                raise self._refusal
        finally:
            self._refusal = None

    def close(self, trouble: str) -> None:
        """Answer the callers that wait for what is gathered: it is not written any more."""
        for gathering in self._gathered:
            gathering.close(trouble)

    def write_regularly(self, now: float) -> None:
        """Put the progress of deliveries, and a snapshot if it is time."""
        if self._store.refusal is not None:
            return
        try:
            for table in self._tables:
                record = table.progress(self.written, self._store.max_physical_offset)
                if record is not None:
                    self.write(record)
            for record in self._level_records():
                self.write(record)
            if now >= self._snapshot_deadline or self._snapshot_is_old:
                self.write_snapshot()
        except RequestError as error:
            if self._told.is_news(error.remark):
                _log.warning("the journal cannot be written for now: %s", error.remark)
        else:
            self._told.over()

    @property
    def _snapshot_is_old(self) -> bool:
        """Whether the last snapshot is in the older half of a log of several files."""
        start, end = self._store.min_physical_offset, self._store.max_physical_offset
        file_bytes = self._store.config.mapped_file_size_commit_log_bytes
        since_bytes = end - self._snapshot_at
        return since_bytes > file_bytes and since_bytes * 2 > end - start
