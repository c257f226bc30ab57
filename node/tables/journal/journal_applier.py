"""Applies the records of the journal that are confirmed, in the order of their queue.

Every node does so, the master too: an offset that a consumer can ask for was confirmed, so it never
goes back. Only the topics that a master changes itself are shown before, by the master.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import Final

import msgspec

from node.tables.journal.journal_records import GroupTables
from node.tables.node_table import NodeTables
from node.tables.table_part import P, TablePart
from store import MessageStore
from store.machine.errors import RecordDamagedError
from store.results import GetMessageStatus
from tandem.wire.crc import crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.system_topics import JOURNAL_TOPIC

_log = logging.getLogger(__name__)

READ_COUNT: Final = 32

BYTES_PER_PIECE: Final = 64 * 1024
"""Of records that are applied and shown before others have their turn: some milliseconds, with
tables of any size. One record may be larger."""


class _Due:
    """What the node's tables are to show after some records, by table: None is all there is."""

    def __init__(self) -> None:
        self.records: dict[type[TablePart], list[msgspec.Struct] | None] = {}

    def note(self, kind: type[TablePart], record: msgspec.Struct) -> None:
        """A record was applied. One of another table says no more than that there was a change."""
        if type(record) is not kind.record:
            self.records[kind] = None
            return
        records = self.records.setdefault(kind, [])
        if records is not None:
            records.append(record)


class JournalApplier:
    """What a node knows of the journal.

    Attributes:
        tables: What is confirmed.
        position: The queue offset of the first record that is not applied.
        safe_position: The same, and not in the middle of a snapshot: the state file may say it.
        written: Queue offset and content of the records that this node wrote and that are not
            applied yet.
        own_from: The queue offset from which on this node writes as the master; none before.
        damaged: Why it goes no further, if the record at `position` is damaged and not this
            node's: until it is healed, what the node knows is older than what is confirmed.
    """

    def __init__(
        self, store: MessageStore, tables: GroupTables, position: int, shown: NodeTables
    ) -> None:
        self.tables = tables
        self._store = store
        self._shown = shown
        self._due = _Due()
        # A log that lost its end, or was cut, comes again: so do the records of that end.
        self.position = min(position, self.queue_end)
        self.safe_position = self.position
        self.written: deque[tuple[int, msgspec.Struct]] = deque()
        self.own_from: float = math.inf
        self.damaged: RecordDamagedError | None = None

    @property
    def queue_end(self) -> int:
        """The queue offset of the next record in the log, confirmed or not."""
        queue = self._store.queues.find(JOURNAL_TOPIC, 0)
        return queue.next_offset if queue is not None else 0

    def as_written(self) -> GroupTables:
        """Return the tables as they will be when everything written so far is confirmed."""
        tables = self.tables.copy()
        for _, record in self.written:
            tables.apply(record)
        return tables

    def written_of(self, kind: type[P]) -> P:
        """Return one of them; it is a copy."""
        part = self.tables.of(kind).copy()
        for _, record in self.written:
            if type(record) in kind.records():
                part.apply(record)
        return part

    def catch_up(self) -> None:
        """Apply every record that is confirmed, up to one that is damaged.

        Raises:
            JournalFormatError: a record of another version.
        """
        while self.catch_up_some(math.inf):
            pass

    def catch_up_some(self, bytes_max: float = BYTES_PER_PIECE) -> bool:
        """Do the same with records of about `bytes_max`; return whether there may be more.

        Raises:
            JournalFormatError: as above.
        """
        try:
            return self._apply_confirmed(bytes_max)
        finally:
            self._show()

    def _apply_confirmed(self, bytes_max: float) -> bool:
        while True:
            result = self._store.reads.get_message(JOURNAL_TOPIC, 0, self.position, READ_COUNT)
            self._note_damage(result.damaged)
            if result.status is GetMessageStatus.OFFSET_TOO_SMALL:
                _log.info(
                    "the journal's records %d to %d are not held any more; a later snapshot has"
                    " what they said",
                    self.position,
                    result.min_offset - 1,
                )
                self.tables.interrupt_snapshot()
                self.position = self.safe_position = result.min_offset
            elif result.status is GetMessageStatus.MESSAGE_WAS_REMOVING:
                self._pass_over(result.next_begin_offset)
            elif result.status is GetMessageStatus.FOUND:
                bytes_max -= self._apply_found(b"".join(result.body), bytes_max)
                if bytes_max <= 0:
                    return True
            elif result.damaged is not None and self._is_own_next:
                self._apply(*self.written[0])
            else:
                return False

    def _apply_found(self, data: bytes, bytes_max: float) -> int:
        """Apply records that were read, up to one that is damaged or to `bytes_max` of them.

        Returns how many bytes were applied.
        """
        at = applied_bytes = 0
        while at < len(data) and applied_bytes < bytes_max:
            try:
                message, at = decode_message(data, at)
            except MalformedMessageError as error:
                self._note_malformed(str(error))
                break
            if message.queue_offset > self.position:
                self._pass_over(message.queue_offset)
            if self._is_damaged(message):
                break
            self._apply(message.queue_offset, self.tables.form.decode_record(message.body))
            applied_bytes += len(message.body)
        return applied_bytes

    def _note_malformed(self, reason: str) -> None:
        """What the queue names next is no record: it is known to be bad from now on."""
        queue = self._store.queues.find(JOURNAL_TOPIC, 0)
        assert queue is not None
        start, size, _ = queue.unit(self.position)
        self._store.commit_log.damage.note(
            start, start + size, f"no record of the group's journal is there: {reason}"
        )

    def _is_damaged(self, message: MessageExt) -> bool:
        """True if its bytes are not those that were put: they are known to be bad from now on.

        Reading a message says so only of what a recovery passed by: consumers look for themselves.
        """
        if crc32(message.body) == message.body_crc:
            return False
        start = message.physical_offset
        self._store.commit_log.damage.note(
            start, start + message.store_size, "a record of the group's journal has another body"
        )
        return True

    @property
    def _is_own_next(self) -> bool:
        """Whether this node knows the next record, for it has written it."""
        return bool(self.written) and self.written[0][0] == self.position

    def _note_damage(self, damaged: RecordDamagedError | None) -> None:
        if self._is_own_next:
            damaged = None
        if damaged is not None and self.damaged is None:
            _log.error(
                "topics, groups and offsets of this node stay as they are until record %d of the"
                " journal is healed",
                damaged.queue_offset,
            )
        self.damaged = damaged

    def _pass_over(self, end: int) -> None:
        """Go on after records that are passed over; this node's own are known all the same.

        A later snapshot has what the others said.
        """
        _log.error("the journal's records %d to %d are passed over", self.position, end - 1)
        self.tables.interrupt_snapshot()
        for queue_offset, record in [each for each in self.written if each[0] < end]:
            self._apply(queue_offset, record)
        self.position = end
        if not self.tables.is_inside_snapshot:
            self.safe_position = end

    def _apply(self, queue_offset: int, record: msgspec.Struct) -> None:
        complete = self.tables.apply(record)
        self.position = queue_offset + 1
        if not self.tables.is_inside_snapshot:
            self.safe_position = self.position
        while self.written and self.written[0][0] < self.position:
            self.written.popleft()
        form = self.tables.form
        is_own = queue_offset >= self.own_from
        for kind in form.parts if complete else form.parts_of(record):
            # A master has shown its own changes when it wrote them.
            if not (is_own and self._shown.by_kind[kind].shows_own_at_once):
                self._due.note(kind, record)

    def _show(self) -> None:
        """Show what was noted: once for many records, for tables are copied and registered."""
        due, self._due = self._due, _Due()
        for kind, records in due.records.items():
            self._shown.by_kind[kind].show(self.tables.of(kind), records)
