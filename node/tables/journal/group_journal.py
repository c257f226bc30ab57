"""The journal of a fenced group: what has to survive a change of master and is no message.

Topics, groups, their offsets and every other table of `node/tables/replicated_tables.py` are
records of a system topic, `rmq_sys_TANDEM_JOURNAL`, queue 0. So they travel, are acknowledged and
are cut like messages, and one rule holds for all: what a majority of the group has, no change of
master takes back.

    master     change --put--> log --confirmed--> applied --> waiting callers are answered
    others                     log --confirmed--> applied

Three parts: `JournalApplier` applies what is confirmed, on every node; `JournalWriter` is there
while this node is the master; `GroupJournal` has the clients that wait until a change is confirmed.
A master's own table of topics shows a change at once, for the record of a topic is before its first
message in the log.

`config/groupJournal.json` holds position and tables as one file, replaced as a whole: position and
tables cannot disagree. A master writes all tables into the journal when it opens and from time to
time after that, so that a log whose beginning was deleted still tells everything.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import trio

from node.errors import RequestError
from node.tables.journal.journal_applier import JournalApplier
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import GroupTables
from node.tables.journal.journal_writer import JournalWriter
from node.tables.node_table import NodeTables
from node.tables.table_part import Written, split_change
from store import MessageStore, StoreError
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from store.machine.waiting_row import WaitingRow
from tandem.wire.feature_level import LEVEL_MIN
from tandem.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

DELAY_PROGRESS_SECONDS: Final = 0.5
"""Between two looks at the delayed delivery: a new master looks for what came after in the log."""

SAVE_SECONDS: Final = 5.0
"""Between two writes of the state file; what is missing in it is read from the log again."""


class GroupJournal:
    """The journal of one node, for as long as its store is open.

    Attributes:
        applier: What this node knows of the journal.
        writer: What it writes as the master; None on every other node.
    """

    def __init__(
        self,
        store: MessageStore,
        file: JournalFile,
        tables: GroupTables,
        position: int,
        *,
        shown: NodeTables,
        born_host: bytes,
        wall_clock_ms: Callable[[], int],
        level: Callable[[], int] = lambda: LEVEL_MIN,
    ) -> None:
        """`level` is the feature level of the group at the moment."""
        self._level = level
        self.applier = JournalApplier(store, tables, position, shown)
        self.writer: JournalWriter | None = None
        self._store = store
        self._file = file
        self._shown = shown
        self._born_host = born_host
        self._wall_clock_ms = wall_clock_ms
        self._saved_position = -1
        self._saving: Iterator[None] | None = None
        """The rest of a save in steps, if there is one."""
        self._is_due = False
        self._asked: list[tuple[float, Callable[[str | None], None]]] = []
        self._waiting: WaitingRow[Callable[[str | None], None]] = WaitingRow()
        self._wake = Signal()
        self._told: TellOnce[str] = TellOnce()

    def open(
        self,
        opening: Callable[[Written], list[msgspec.Struct]],
        before_snapshot: Callable[[], None] | None = None,
    ) -> None:
        """Become the one that writes: the log is confirmed up to where this master began.

        Args:
            opening: Returns records of what a master creates itself and the group does not have.
            before_snapshot: Writes what an earlier master had no time to write. A log that is cut
                behind the snapshot has it.

        Raises:
            JournalFormatError: see `catch_up`.
            RecordDamagedError: a record of the journal has to be healed first. A master that does
                not know all of it would write what is older.
        """
        self.catch_up()
        applier = self.applier
        if applier.damaged is not None:
            raise applier.damaged
        assert applier.position == applier.queue_end, "a master opens once its log is confirmed"
        for kind, table in self._shown.by_kind.items():
            table.take_up(applier.tables.of(kind))
        self.writer = JournalWriter(
            self._store,
            applier,
            self._shown,
            opening=opening,
            wake=self._wake,
            born_host=self._born_host,
            wall_clock_ms=self._wall_clock_ms,
            level=self._level,
        )
        for record in self.writer.opening_records():
            self._take(record)
        if before_snapshot is not None:
            before_snapshot()
        self.writer.write_regularly(trio.current_time())

    def change(self, change: msgspec.Struct) -> None:
        """Put a change of tables, which is confirmed later; the node shows what is in the log.

        It is one record, unless it is too large for one.

        Raises:
            RequestError: this node is not the master, or the store does not take a record.
        """
        writer = self._own_writer
        kind = self.applier.tables.form.parts_of(change)[0]
        for record in split_change(kind, change, writer.record_bytes_max):
            writer.write(record)
            self._take(record)

    def _take(self, record: msgspec.Struct) -> None:
        for _, table in self._shown.changed_by(record):
            table.take(record)

    def write(self, record: msgspec.Struct) -> None:
        """Put one record, which is confirmed later.

        Raises:
            RequestError: this node is not the master, or the store does not take the record.
        """
        self._own_writer.write(record)

    @property
    def _own_writer(self) -> JournalWriter:
        if self.writer is None:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "only the group's master changes tables"
            )
        return self.writer

    def arrived(self) -> None:
        """A record can be read."""
        self._wake.notify()

    def catch_up(self) -> None:
        """Apply every record that is confirmed, and answer the callers that waited for it.

        Raises:
            JournalFormatError: a record of another version.
        """
        self.applier.catch_up()
        self._answer_reached()

    def _answer_reached(self) -> None:
        for done in self._waiting.take_reached(self.applier.position):
            done(None)

    def when_confirmed(self, deadline: float, done: Callable[[str | None], None]) -> None:
        """Call `done` once everything that was given to the journal by now is confirmed.

        That is at the end of this round at the earliest. The argument is None, or the reason why it
        is not known whether the change will last.
        """
        self._asked.append((deadline, done))

    def end_round(self) -> None:
        """Write what is gathered if it is time; the caller announces the log's growth."""
        if not self._asked and not self._is_due:
            return
        self._is_due = False
        refusal = self._write_gathered()
        asked, self._asked = self._asked, []
        for deadline, done in asked:
            if refusal is not None or self.applier.position >= self.applier.queue_end:
                done(refusal)
            else:
                self._waiting.add(self.applier.queue_end, deadline, done)
        self._wake.notify()

    def close(self, reason: str) -> None:
        """Answer all who wait: this node writes no more."""
        trouble = f"{reason}; the change may or may not stand"
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.close(trouble)
        waiting = [*self._waiting.take_all(), *(done for _, done in self._asked)]
        self._asked.clear()
        for done in waiting:
            done(trouble)

    def save(self) -> None:
        """Write the state file if anything was applied since the last time.

        Inside a snapshot the tables are those from before it, and so is the position.

        Raises:
            StoreError: no room, or the disk failed.
        """
        self._saving = None
        position = self.applier.safe_position
        if position == self._saved_position:
            return
        self._file.save(position, self.applier.tables)
        self._saved_position = position

    def _save_in_steps(self) -> Iterator[None]:
        """Do the same in steps, of the tables as they are now.

        Raises:
            StoreError: as above.
        """
        position = self.applier.safe_position
        if position != self._saved_position:
            tables = self.applier.tables.copy()
            yield
            yield from self._file.save_in_steps(position, tables)
            self._saved_position = position

    async def run(self, end_round: Callable[[], None]) -> None:
        """Apply, write what is gathered, save; until cancelled.

        `end_round` is called when somebody may have been answered and when it is time to write: it
        calls the method of this name, and sends what that brought about.

        Raises:
            JournalFormatError: see `catch_up`.
        """
        save_at = trio.current_time() + SAVE_SECONDS
        progress_at = trio.current_time() + DELAY_PROGRESS_SECONDS
        while True:
            now = trio.current_time()
            may_have_more = self.applier.catch_up_some()
            self._answer_reached()
            for _, done in self._waiting.take_expired(now):
                done("too few replicas confirmed the change in time; it may or may not stand")
            self._is_due = now >= self._batch_deadline
            if now >= progress_at:
                progress_at = now + DELAY_PROGRESS_SECONDS
                if self.writer is not None:
                    self.writer.write_regularly(now)
            if now >= save_at:
                save_at = now + SAVE_SECONDS
                self._saving = self._saving or self._save_in_steps()
            may_have_more = self._go_on_saving() or may_have_more
            end_round()
            if self._saving is not None:
                await self._file.write_ahead()
            first_deadline = self._waiting.next_deadline
            wake_at = math.inf if first_deadline is None else first_deadline
            if not may_have_more:
                with trio.move_on_at(min(save_at, progress_at, self._batch_deadline, wake_at)):
                    await self._wake.wait()
            await trio.lowlevel.checkpoint()

    @property
    def _batch_deadline(self) -> float:
        return math.inf if self.writer is None else self.writer.batch_deadline

    def _write_gathered(self) -> str | None:
        """Write what is gathered; return why that was not possible, None if it was."""
        try:
            if self.writer is not None:
                self.writer.write_gathered()
        except RequestError as error:
            return error.remark
        return None

    def _go_on_saving(self) -> bool:
        """Do the next step of a save; return whether there is another one."""
        if self._saving is None:
            return False
        try:
            next(self._saving)
        except StopIteration:
            self._told.over()
        except StoreError as error:
            if self._told.is_news(str(error)):
                _log.warning("the state of the journal could not be saved: %s", error)
        else:
            return True
        self._saving = None
        return False
