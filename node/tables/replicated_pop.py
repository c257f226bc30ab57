"""Which messages are with which consumers that receive by POP, as a replicated table.

A master changes its own state at once and writes the changes together: those of a round of
requests when an answer waits for them, acknowledgements within `ACK_DELAY_SECONDS`. They are
answered when they are confirmed. In a classic group the state is in a file, like offsets.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import trio

from node.errors import RequestError
from node.pop.changes import Acked, Change, Popped, QueueKey, Revived, offsets_of, runs_of
from node.pop.deliveries import Deliveries, QueueRow
from node.pop.due_times import DueTimes
from node.tables.deleted import Deleted
from node.tables.node_table import Gathering, NodeTable, RecordWriter, TableFiles
from node.tables.table_part import Content, Field, FieldKind, TablePart
from store.machine.tell_once import TellOnce

_log = logging.getLogger(__name__)

POP_VERSION: Final = 5
"""Of the journal's format: nodes of older versions do not read a journal with POP."""

ACK_DELAY_SECONDS: Final = 0.002
"""Acknowledgements are gathered for this long."""

RETRY_SECONDS: Final = 0.5
"""Until what has to be written, and could not be, is tried again."""

_CHANGE_BYTES: Final = 700
_ENTRY_BYTES: Final = 32
"""At most, of a change with the longest names, and of each number of its runs."""


class DeliveriesChanged(msgspec.Struct, frozen=True, tag="pop"):
    """What was handed out and what is done, in this order."""

    changes: list[Change]
    version: int = POP_VERSION


class DeliveriesPart(TablePart):
    """The state of POP."""

    record = DeliveriesChanged
    also = (Deleted,)
    fields: ClassVar = (Field("deliveries", list[QueueRow], FieldKind.ROWS),)
    version = POP_VERSION
    has_places_in_log = True

    def __init__(self, deliveries: Deliveries | None = None) -> None:
        self.deliveries = deliveries or Deliveries()

    def apply(self, record: DeliveriesChanged | Deleted) -> None:
        """See `TablePart`."""
        apply_record(self.deliveries, record)

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        for row in content["deliveries"]:
            self.deliveries.add(row)

    def content(self) -> Content:
        """See `TablePart`."""
        return {"deliveries": self.deliveries.rows()}

    def content_in_steps(self) -> Generator[None, None, Content]:
        """See `TablePart`."""
        rows: list[QueueRow] = []
        for some in self.deliveries.rows_in_steps():
            rows += some
            yield
        return {"deliveries": rows}

    def copy(self) -> DeliveriesPart:
        """See `TablePart`."""
        return DeliveriesPart(self.deliveries.copy())


def apply_record(deliveries: Deliveries, record: DeliveriesChanged | Deleted) -> None:
    """Take in a record of the journal."""
    if isinstance(record, Deleted):
        deliveries.forget(record.topics, record.groups + record.offsets_of_groups)
        return
    for change in record.changes:
        deliveries.apply(change)


class _File(msgspec.Struct, frozen=True):
    deliveries: list[QueueRow] = []


class DeliveriesTable(NodeTable[DeliveriesPart]):
    """A node's own state: of a master, with what is not confirmed yet.

    Attributes:
        live: The state. Changed through `change` and `ack` alone.
        due_times: When what is with consumers is to come again.
        gathered: What a master of a fenced group has not written yet; else None.
        may_save: Whether a file may say what the state says: what it calls done may be a message
            that is not on the disk where it was put again.
    """

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        self.due_times = DueTimes()
        self.gathered: GatheredChanges | None = None
        self.may_save = True
        self.live = Deliveries(keeps_fresh=True)
        self._is_copy = files.is_copy
        self._is_saved = True
        self._file = files.file(f"{DeliveriesPart.tag()}.json")
        saved = None if files.is_copy else self._file.load(_File)
        for row in saved.deliveries if saved is not None else ():
            self.live.add(row)

    def as_part(self) -> DeliveriesPart:
        """See `NodeTable`."""
        return DeliveriesPart(self.live.copy())

    def show(self, confirmed: DeliveriesPart, records: Sequence[Any] | None) -> None:
        """See `NodeTable`."""
        if records is None:
            self.replace(confirmed.deliveries)
            return
        for record in records:
            apply_record(self.live, record)
        self.note_times()

    def replace(self, deliveries: Deliveries, then: Sequence[Change] = ()) -> None:
        """Have another state, with these changes. What was known before keeps its time."""
        earlier, self.live = self.live, deliveries.copy(keeps_fresh=True)
        for change in then:
            self.live.apply(change)
        for key, queue in list(self.live.queues.items()):
            known = earlier.of(key)
            if known is not None and queue.invisible:
                own = self.live.own(key)
                assert own is not None, "it is there"
                own.keep_handouts(known)
        self.due_times.drop_done(self.live)
        known_handouts = {handout for _, handout in earlier.handouts()}
        new = [each for each in self.live.handouts() if each[1] not in known_handouts]
        if new:
            self.due_times.note(new, trio.current_time(), self.live)

    def take(self, record: DeliveriesChanged | Deleted) -> None:
        """See `NodeTable`. What a master writes itself was applied before."""
        if isinstance(record, Deleted) or self.gathered is None:
            apply_record(self.live, record)
            self._changed()

    def change(self, change: Change) -> None:
        """Change the state at once; a master of a fenced group writes it with others, soon."""
        self.live.apply(change)
        if self.gathered is not None:
            self.gathered.add(change)
        self._changed()

    def ack(self, key: QueueKey, pop_time_ms: int, offset: int) -> None:
        """A message is done, whose handle is good: the same, a little cheaper."""
        self.live.done(key, offset)
        if self.gathered is not None:
            self.gathered.ack(key, pop_time_ms, offset)
        self._is_saved = False

    def _changed(self) -> None:
        self._is_saved = False
        self.note_times()

    def note_times(self) -> None:
        """Count from now on for what is new."""
        if fresh := self.live.take_fresh():
            self.due_times.note(fresh, trio.current_time(), self.live)

    def take_up(self, confirmed: DeliveriesPart) -> None:
        """See `NodeTable`. What was read from a file counts from now on."""
        self.note_times()

    def gather(self, writer: RecordWriter) -> GatheredChanges:
        """See `NodeTable`."""
        self.gathered = GatheredChanges(writer, self)
        return self.gathered

    def save_in_steps(self) -> Iterator[None]:
        """See `NodeTable`. In a fenced group the journal's own file has it."""
        if self._is_copy or self._is_saved or not self.may_save:
            return
        self._is_saved = True
        state, rows = self.live.copy(), []
        try:
            for some in state.rows_in_steps():
                rows += msgspec.to_builtins(some)
                yield
            yield from self._file.save_in_steps({"deliveries": rows})
        except BaseException:
            self._is_saved = False
            raise


class GatheredChanges(Gathering):
    """The changes of one mastership that are applied here and not written yet."""

    def __init__(self, writer: RecordWriter, table: DeliveriesTable) -> None:
        self._writer = writer
        self._table = table
        self._pending: list[Change] = []
        self._acks: dict[QueueKey, dict[int, list[int]]] = {}
        """What is done since the last of them: by queue and pop time."""
        self._bytes = 0
        self._then: list[Callable[[str | None], None]] = []
        self._told: TellOnce[str] = TellOnce()
        self.deadline = math.inf

    def add(self, change: Change) -> None:
        """Take in a change. It is after everything that was taken in before."""
        self._close_acks()
        self._take_in(change)
        self._hurry(ACK_DELAY_SECONDS)

    def _take_in(self, change: Change) -> None:
        self._pending.append(change)
        self._bytes += _CHANGE_BYTES + _ENTRY_BYTES * _numbers_of(change)

    def ack(self, key: QueueKey, pop_time_ms: int, offset: int) -> None:
        """Take in that a message is done."""
        self._acks.setdefault(key, {}).setdefault(pop_time_ms, []).append(offset)
        self._hurry(ACK_DELAY_SECONDS)

    def when_written(self, then: Callable[[str | None], None]) -> None:
        """Call this when what was taken in by now is written, or with why it could not be."""
        self._then.append(then)
        self._hurry(ACK_DELAY_SECONDS)

    def _hurry(self, seconds: float) -> None:
        due = trio.current_time() + seconds
        if due < self.deadline:
            self.deadline = due
            self._writer.wake()

    def _close_acks(self) -> None:
        if not self._acks:
            return
        acks, self._acks = self._acks, {}
        for key, done in acks.items():
            runs = [(pop_time_ms, runs_of(sorted(each))) for pop_time_ms, each in done.items()]
            self._take_in(Acked(*key, runs))

    def write(self) -> None:
        """See `Gathering`. If it fails, the state is again what is in the log.

        So messages that were put again stay done. What says so is kept, and is the first of what is
        written next: a later master looks for such messages after the last record only.
        """
        self._close_acks()
        then, self._then = self._then, []
        pending, self._pending = self._pending, []
        size_bytes, self._bytes = self._bytes, 0
        self.deadline = math.inf
        trouble: str | None = None
        try:
            for changes in _pieces(pending, size_bytes, self._writer.record_bytes_max):
                self._writer.write(DeliveriesChanged(changes))
        except RequestError as error:
            trouble = error.remark
            if self._told.is_news(trouble):
                _log.warning("what is with consumers could not be written: %s", trouble)
            written = self._writer.written(DeliveriesPart).deliveries
            put_again = [_as_in(written, each) for each in pending if isinstance(each, Revived)]
            self._table.replace(written, put_again)
            for each in put_again:
                self._take_in(each)
                self._hurry(RETRY_SECONDS)
            raise
        else:
            if pending:
                self._told.over()
        finally:
            for done in then:
                done(trouble)

    def close(self, trouble: str) -> None:
        """See `Gathering`."""
        then, self._then = self._then, []
        for done in then:
            done(trouble)

    def wrote(self, record: msgspec.Struct) -> None:
        """Changes that were gathered before a deletion do not bring back what is deleted."""
        if not isinstance(record, Deleted):
            return
        self._close_acks()
        groups = record.groups + record.offsets_of_groups
        self._pending = [
            each
            for each in self._pending
            if each.topic not in record.topics and each.group not in groups
        ]


def _as_in(deliveries: Deliveries, change: Revived) -> Revived:
    """Return it by the pop times that messages have there: the moves since may not be written."""
    key = QueueKey(change.group, change.topic, change.queue_id)
    queue = deliveries.of(key)
    done: dict[int, list[int]] = {}
    for pop_time_ms, runs in change.done:
        for offset in offsets_of(runs):
            handout = None if queue is None else queue.invisible.get(offset)
            known_ms = pop_time_ms if handout is None else handout.pop_time_ms
            done.setdefault(known_ms, []).append(offset)
    return Revived(*key, [(known_ms, runs_of(sorted(each))) for known_ms, each in done.items()])


def _numbers_of(change: Change) -> int:
    if isinstance(change, Popped):
        return len(change.runs)
    if isinstance(change, Acked | Revived):
        return sum(1 + len(runs) for _, runs in change.done)
    return 0


def _pieces(changes: list[Change], size_bytes: int, bytes_max: int) -> Iterator[list[Change]]:
    """Cut changes into lists that fit into a record each."""
    if size_bytes <= bytes_max:
        if changes:
            yield changes
        return
    piece: list[Change] = []
    piece_bytes = 0
    for change in changes:
        change_bytes = _CHANGE_BYTES + _ENTRY_BYTES * _numbers_of(change)
        if piece and piece_bytes + change_bytes > bytes_max:
            yield piece
            piece, piece_bytes = [], 0
        piece.append(change)
        piece_bytes += change_bytes
    yield piece
