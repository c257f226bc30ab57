"""UnitQueue: what both kinds of consume queues are, a row of units in files.

    recover    finds the end of the units, and cuts what follows
    dispatch   meets the records of the log again; `confirm` says that it met the right ones
    ensure_room, append   adds units at the end, where the file has blocks
    correct_min_offset, delete_expired_files   let go of what has left the log

A kind adds what a unit of it holds, how records enter it and how messages are found in it:
`ConsumeQueue`, `BatchConsumeQueue`. A unit begins with the physical offset of a record and its
size; unit i of the row is at logic offset i * unit size.

Invariants: units rise by physical offset; `next_offset` is the queue offset after the last message;
`max_physic_offset` the end of the last record entered, -1 if there is none. In RocketMQ a
`BatchConsumeQueue` gives that name to the *start* of the record, and recovers from there; here all
queues mean the same by it.

Source: org.apache.rocketmq.store.queue.ConsumeQueueInterface of 5.3.3 and its two classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Final

from store.files.growing_file_queue import GrowingFileQueue
from store.files.open_files import OpenFiles
from store.queue.queue_units import (
    QUEUE_REMEDY,
    ConfirmedUnits,
    QueueEnd,
    QueueGapError,
    UnitKind,
    end_of_units,
    end_of_units_below,
    ends_in_doubt,
    units_of,
)
from store.queue.shared_by_queues import SharedByQueues
from tandem.wire.store_layout import FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.files.mapped_file import MappedFile
    from store.files.mapped_file_queue import MappedFileQueue
    from store.machine.disk import Disk, FoundFile

_FILES_RECOVERED: Final = 3
"""Older files were synced long ago (ConsumeQueue.recover, BatchConsumeQueue.recover)."""


@lru_cache(maxsize=256)
def _encoded(topic: str) -> bytes:
    return topic.encode()


class UnitQueue(ABC):
    """One queue of one topic. `ConsumeQueueStore` owns and closes it."""

    def __init__(
        self,
        directory: str,
        topic: str,
        queue_id: int,
        mapped_file_size: int,
        disk: Disk,
        kind: UnitKind,
        shared: SharedByQueues[UnitQueue] | None = None,
    ) -> None:
        # One of each for all queues of a topic, whose names come with each first message.
        self.topic = intern(topic)
        self.topic_bytes = _encoded(self.topic)
        self.queue_id = queue_id
        self.max_physic_offset = -1
        self.next_offset = 0
        self.min_offset = 0
        """The first queue offset that can be read. RocketMQ says -1 of an empty batch queue."""
        self.confirmed_from = 0
        """Units from this queue offset on are known to be right: see `confirm`."""
        self.corrected_to = 0
        """Where the log began when `min_offset` was last moved up to its first record."""
        self.trouble = ""
        """Why none of its messages can be read now, in words; see `doubt`."""
        self.ends_in_doubt = False
        """Whether more units may have been there than `recover` has found."""
        self.is_noted = False
        """Whether its ends are those of a note, and its files were not looked into: see
        `go_on_from`."""
        self._assigned_offset = 0
        self._first_record = -1
        """Where the record of the first unit is, so that nothing has to be opened to know; -1 if
        that is unknown, or the first unit is a filler."""
        self._room_end = 0
        """Up to where in the last file units may go without a look; 0 while it is asleep."""
        shared = shared or SharedByQueues(OpenFiles(disk))
        self._awake = shared.awake
        self._confirmed = ConfirmedUnits()
        self._kind = kind
        self._unit_bytes = kind.columns.itemsize
        self._files = GrowingFileQueue(
            directory, mapped_file_size, shared.open_files, remedy=QUEUE_REMEDY
        )

    @property
    def name(self) -> str:
        """Topic and queue id, for people."""
        return f"{self.topic}-{self.queue_id}"

    @property
    def files(self) -> MappedFileQueue:
        """The files of the units, for tools."""
        return self._files

    @property
    def file_queues(self) -> tuple[MappedFileQueue, ...]:
        """All files, in the order of their syncs."""
        return (self._files,)

    @property
    def assigned_offset(self) -> int:
        """The queue offset of the next message put.

        It is ahead of `next_offset` where units are entered later than their messages are put.
        Source: QueueOffsetOperator.
        """
        return max(self._assigned_offset, self.next_offset)

    def assign(self, count: int) -> None:
        """Give the next `count` queue offsets away: their messages are in the log."""
        self._assigned_offset = self.assigned_offset + count

    # -- what a kind adds ------------------------------------------------------------------------

    @abstractmethod
    def _end_at(self, index: int) -> None:
        """Set what the queue knows of its last message: the units end before this one."""

    @abstractmethod
    def _queue_offset_at(self, index: int) -> int:
        """Return the queue offset of the first message of a unit; `next_offset` at the end."""

    # -- opening ---------------------------------------------------------------------------------

    def load(self, found: Sequence[FoundFile] | None = None) -> int:
        """Open the files. See `GrowingFileQueue.load_found`."""
        return self._files.load_found(found)

    def load_end(self) -> None:
        """Open what is whole at the end of a queue that is to be built anew: its numbers go on."""
        for files in self.file_queues:
            files.load_end()

    def recover(self) -> None:
        """Find the end: the first place, from the third file from the end on, without a unit.

        Unlike in RocketMQ, there is no unit where one does not follow the one before it: a power
        loss can leave the second half of a unit without its first. And a last file without a unit
        is deleted; if all three have none, the end is in an older one.

        Source: ConsumeQueue.recover, BatchConsumeQueue.recover.
        """
        files = self._files.files
        if self.is_noted:
            files[-1].set_positions(files[-1].size)
            self.is_noted = False
        start = max(0, len(files) - _FILES_RECOVERED)
        end = end_of_units(files[start:], self._kind)
        while start > 0 and end == files[start].file_from_offset:
            start -= 1
            end = end_of_units(files[start : start + 1], self._kind)
        self.ends_in_doubt = ends_in_doubt(files, end)
        self._truncate(end)
        if self._first_index < self._end_index:
            offset, size, *_ = self._unit_at(self._first_index)
            self._first_record = -1 if size == FILLER_SIZE else offset
        self._confirmed = ConfirmedUnits(self._files.max_offset)
        self.confirmed_from = self.next_offset

    def end_to_note(self, modified_ms: int) -> QueueEnd:
        """Return what `go_on_from` takes; its last file was written to then. It has one."""
        return QueueEnd(
            *(self.queue_id, self._files.files[0].file_from_offset, self._files.max_offset),
            *(self.max_physic_offset, self.min_offset, self._first_record, self.corrected_to),
            modified_ms,
        )

    def go_on_from(self, noted: QueueEnd) -> None:
        """Take its ends from a note instead of its files, which are loaded and stay closed.

        Its units count as unknown: each is compared with its record before it is read.
        """
        last = self._files.files[-1]
        last.set_positions(noted.end - last.file_from_offset)
        self.next_offset = self.confirmed_from = noted.end // self._unit_bytes
        self.max_physic_offset, self.min_offset = noted.max_physic_offset, noted.min_offset
        self._first_record, self.corrected_to = noted.first_record, noted.corrected_to
        self.is_noted = True

    def confirm(self, start: int, end: int) -> None:
        """Expect that `dispatch` has met the records of all units between two physical offsets.

        It was shown all of the log between them since `recover`. Of one that is noted nothing is
        expected.

        Raises:
            QueueGapError: there is a unit too many, or one that names the wrong place.
        """
        if self.is_noted:
            return
        first, last = (self._end_below(offset) for offset in (start, end))
        self._confirmed.confirm(self.name, first, last, self._unit_bytes)
        self.confirmed_from = self._queue_offset_at(first // self._unit_bytes)

    def doubt(self, reason: str) -> None:
        """Let nobody read it until `trouble` is cleared: its units are not what they were.

        From then on each of them is compared with its record before it is read.
        """
        self.trouble = reason
        self.confirmed_from = self.next_offset

    @property
    def first_unit(self) -> tuple[int, int] | None:
        """Return place and number of the first unit of a row whose first file is not there.

        None if the row begins with number 0, or with fillers: nothing was ever before it. None also
        if its first file is the noted one.
        """
        index = self._first_index
        if self.is_noted or not 0 < index < self._end_index:
            return None
        offset, size, *_ = self._unit_at(index)
        return None if size == FILLER_SIZE else (offset, self._queue_offset_at(index))

    def units_below(self, physical_offset: int) -> Iterator[tuple[int, int, int]]:
        """Yield the units of records below, the last one first: place, size, first queue offset."""
        end = self._end_below(physical_offset) // self._unit_bytes
        for index in range(end - 1, self._first_index - 1, -1):
            offset, size, *_ = self._unit_at(index)
            if size == FILLER_SIZE:
                return
            yield offset, size, self._queue_offset_at(index)

    # -- cutting the end -------------------------------------------------------------------------

    def truncate_dirty_logic_files(self, physical_offset: int) -> None:
        """Drop the units of records at or after `physical_offset`.

        Source: ConsumeQueue.truncateDirtyLogicFiles, BatchConsumeQueue.truncateDirtyLogicFiles.
        """
        end = self._end_below(physical_offset)
        is_cut = end < self._files.max_offset or end <= self._files.min_offset
        # Units may have been entered anew: extensions that none of them names any more go.
        if not is_cut and self.file_queues == (self._files,):
            self._assigned_offset = 0
        else:
            self._truncate(end)

    def _truncate(self, end: int) -> None:
        self._files.truncate_dirty_files(end)
        self.drop_empty_file()
        self._first_record = -1
        self.wake()
        self._assigned_offset = 0
        self._end_at(self._end_index)

    def drop_empty_file(self) -> None:
        """Delete files without a unit, which RocketMQ would take for one with units."""
        self._files.discard_next_file()
        last = self._files.last
        if last is not None and last.wrote_position == 0:
            self._files.drop_last()
            self._room_end = 0

    # -- entering --------------------------------------------------------------------------------

    def ensure_room(self, count: int = 1) -> None:
        """Make sure that the next `count` units, at most a file full, can be written.

        Raises:
            StoreFullError: no room for them.
        """
        files, size = self._files.files, count * self._unit_bytes
        if not files or files[-1].wrote_position + size > self._room_end:
            self._make_room(size)

    def _make_room(self, size: int) -> None:
        last = self._files.last
        if last is None or last.wrote_position == last.size:
            last = self._files.last_or_create(self._next_logic_offset)
        last.use()
        end = last.wrote_position + size
        last.allocate(min(end, last.size))
        if end > last.size:
            self._files.next_file.reserve(end - last.size)
        self._room_end = last.allocated_position
        self._awake.woke(self, self.next_offset)

    def wake(self) -> None:
        """Have the next flush look at it: units have changed in their places."""
        self._room_end = 0
        self._awake.woke(self, self.next_offset)

    def sleep(self) -> None:
        """All of it is on the disk: it is not looked at any more until it changes."""
        self._room_end = 0
        self._awake.slept(self)

    @property
    def _next_logic_offset(self) -> int:
        """Where the next unit goes."""
        return self._files.max_offset

    def _gap(self, queue_offset: int, offset: int) -> QueueGapError:
        return QueueGapError(
            f"{self.name}: the record at {offset} is number {queue_offset}, the queue ends at"
            f" {self.next_offset}",
            queue_offset=queue_offset,
            next_offset=self.next_offset,
        )

    # -- units by index --------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """The index of the first unit that is there."""
        return self._first_index

    @property
    def end_index(self) -> int:
        """The index of the next unit."""
        return self._end_index

    def unit_at(self, index: int) -> tuple[int, ...]:
        """Return all fields of a unit that is there."""
        return self._unit_at(index)

    @property
    def _first_index(self) -> int:
        return max(0, self._files.min_offset) // self._unit_bytes

    @property
    def _end_index(self) -> int:
        return self._files.max_offset // self._unit_bytes

    def _end_below(self, physical_offset: int) -> int:
        # Without a look at the units where these are on one side, as those of most queues are.
        if self.max_physic_offset <= physical_offset:
            return self._files.max_offset
        if 0 <= physical_offset <= self._first_record:
            return max(0, self._files.min_offset)
        return end_of_units_below(self._files.files, self._kind.columns, physical_offset)

    def _place_of(self, index: int) -> tuple[MappedFile, int]:
        logic_offset = index * self._unit_bytes
        file = self._files.find_by_offset(logic_offset)
        assert file is not None
        return file, logic_offset - file.file_from_offset

    def _unit_at(self, index: int) -> tuple[int, ...]:
        file, position = self._place_of(index)
        return self._kind.layout.unpack_from(file.buffer, position)

    def rewrite_unit(self, index: int, *unit: int) -> None:
        """Write a unit again, in its old place."""
        file, position = self._place_of(index)
        self._kind.layout.pack_into(file.buffer, position, *unit)
        file.flushed_position = min(file.flushed_position, position)
        self.wake()

    # -- deleting --------------------------------------------------------------------------------

    def delete_expired_files(
        self, min_physical_offset: int, *, now_ms: int = 0, interval_forcibly_ms: int = 60_000
    ) -> int:
        """Delete the oldest files all of whose messages have left the log; return how many.

        Never the last one. Call `correct_min_offset` after it.

        Source: ConsumeQueue.deleteExpiredFile, BatchConsumeQueue.deleteExpiredFile.
        """
        deleted = self._files.delete_expired_file_by_offset(
            min_physical_offset,
            lambda file: int(units_of(file, self._kind.columns)["offset"][-1]),
            now_ms=now_ms,
            interval_forcibly_ms=interval_forcibly_ms,
        )
        if deleted:
            self._first_record = -1
        return len(deleted)

    def destroy(self) -> None:
        """Delete all files and start at nothing."""
        self.is_noted = False
        self._files.destroy()
        self._truncate(0)
        self.min_offset = self.confirmed_from = 0
        self._confirmed = ConfirmedUnits()

    def close(self) -> None:
        """Unmap the files."""
        self._awake.gone(self)
        for files in self.file_queues:
            files.close()
