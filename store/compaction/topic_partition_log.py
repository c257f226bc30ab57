"""TopicPartitionLog: the files of one queue of a compaction topic, in pairs of one name.

    compactionLog/<topic>/<queueId>/<20 digits>    records, each with its place here as its
                                                   PHYSICALOFFSET; else as in the commit log
    compactionCq/<topic>/<queueId>/<20 digits>     units of 46 bytes as those of a batch queue, one
                                                   a record: base is its queue offset, for 1 message

A pair is named by the first offset of its log. Only the last one is written to. It is closed when
the next record does not fit, or its units have room for one more only: with a blank in the log, and
a unit of place -1 and size 0 for units. Numbers have gaps, and so have names: what was compacted
takes fewer files.

    names   0   S   2S              7S
            |compacted, full |      | written to |

Source: RocketMQ 5.3.3, CompactionLog.TopicPartitionLog, CompactionAppendMessageCallback,
SparseConsumeQueue.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from store.files.mapped_file import MappedFile
from store.machine.disk import Disk, DiskFile
from store.machine.errors import BrokenRowError, CorruptLogError, LogFault
from tandem.wire.message import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_LENGTH
from tandem.wire.record_rule import RecordParts, look, record_fault, record_parts
from tandem.wire.store_layout import (
    BATCH_CQ_COMPACTED_OFFSET,
    BATCH_CQ_STORE_UNIT,
    BATCH_CQ_STORE_UNIT_SIZE,
    CompactionFileSizes,
    offset_named,
)
from tandem.wire.unit_types import BATCH_CQ_UNIT_TYPE

COMPACTING: Final = "compacting"
"""The directory, within that of a queue, in which its new files are made."""

_BLANK: Final = struct.Struct(">iI")
_END_UNIT: Final = (-1, 0, 0, 0, 0, 0, BATCH_CQ_COMPACTED_OFFSET, 0)
"""After the last unit of a pair that is closed."""
_QUEUE_OFFSET_AT: Final = 20
_PHYSICAL_OFFSET_AT: Final = 28
_LONG: Final = struct.Struct(">q")


class CompactedUnit(NamedTuple):
    """One record: its place in the log of its queue, and its number."""

    offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    queue_offset: int


class FilePair:
    """A file of records and the file of their units."""

    __slots__ = ("cq", "log", "units_count")

    def __init__(self, log: MappedFile, cq: MappedFile, units_count: int = 0) -> None:
        self.log = log
        self.cq = cq
        self.units_count = units_count

    @property
    def name(self) -> str:
        """The name of both files."""
        return f"{self.log.file_from_offset:020d}"

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes into one of them."""
        return self.log.is_full or self.cq.is_full

    def unit(self, index: int) -> CompactedUnit:
        """Return the unit with this number in the file."""
        at = index * BATCH_CQ_STORE_UNIT_SIZE
        return CompactedUnit(*BATCH_CQ_STORE_UNIT.unpack_from(self.cq.buffer, at)[:5])

    @property
    def last_queue_offset(self) -> int:
        """The number of its last record, -1 if it has none."""
        return self.unit(self.units_count - 1).queue_offset if self.units_count else -1

    def index_of(self, queue_offset: int) -> int:
        """Return the first unit with this queue offset or a later one; how many, if none has."""
        return bisect_left(
            range(self.units_count), queue_offset, key=lambda index: self.unit(index).queue_offset
        )

    def units(self, index: int) -> Iterator[CompactedUnit]:
        """Yield the units from one on."""
        return map(self.unit, range(index, self.units_count))

    def record(self, unit: CompactedUnit) -> memoryview | None:
        """Return the record of a unit; None if it cannot be here."""
        return self.log.select(unit.offset - self.log.file_from_offset, unit.size)

    def fault(self, unit: CompactedUnit) -> str | None:
        """Return what is wrong with the record of a unit, None if nothing is."""
        record = self.record(unit)
        if record is None:
            return f"{unit.size} bytes at {unit.offset} are not in its file"
        stop, reason, size = look(record, 0, len(record))
        if stop is not None or size != unit.size:
            return f"no record of {unit.size} bytes begins at {unit.offset}: {reason}"
        (queue_offset,) = _LONG.unpack_from(record, _QUEUE_OFFSET_AT)
        if queue_offset != unit.queue_offset:
            return f"the record at {unit.offset} is number {queue_offset}"
        return record_fault(record, unit.offset, 0)

    def is_closed_at(self, end: int) -> bool:
        """Whether log and units say that there is nothing more after a place."""
        position, size = end - self.log.file_from_offset, self.log.size
        at = self.units_count * BATCH_CQ_STORE_UNIT_SIZE
        if position + END_FILE_MIN_BLANK_LENGTH > size or at >= self.cq.size:
            return False
        has_blank = _BLANK.unpack_from(self.log.buffer, position) == (
            size - position,
            BLANK_MAGIC_CODE,
        )
        return has_blank and BATCH_CQ_STORE_UNIT.unpack_from(self.cq.buffer, at) == _END_UNIT

    def parts(self, unit: CompactedUnit, record: memoryview) -> RecordParts | None:
        """Return where body, topic and properties of a record are; None if it is damaged."""
        parts = record_parts(record, unit.offset, 0)
        return None if isinstance(parts, str) else parts

    def destroy(self, disk: Disk) -> None:
        """Delete both files. What was read of them stays readable."""
        for file in (self.cq, self.log):
            file.destroy(disk, 0, 0)

    def close(self) -> None:
        """Unmap both files."""
        for file in (self.log, self.cq):
            file.shutdown(0, 0)


def units_in(cq: MappedFile) -> int:
    """Return how many units a file begins with, up to the first that is none."""
    end = cq.allocated_position // BATCH_CQ_STORE_UNIT_SIZE * BATCH_CQ_STORE_UNIT_SIZE
    units = np.frombuffer(bytes(cq.buffer[:end]), BATCH_CQ_UNIT_TYPE)
    good = (units["offset"] >= 0) & (units["size"] > 0)
    good &= (units["base_offset"] >= 0) & (units["batch_size"] > 0)
    bad = np.flatnonzero(~good)
    return int(bad[0]) if bad.size else len(units)


class TopicPartitionLog:
    """The pairs of one queue, or those that are being made for it."""

    def __init__(
        self, log_directory: str, cq_directory: str, sizes: CompactionFileSizes, disk: Disk
    ) -> None:
        self.log_directory = log_directory
        self.cq_directory = cq_directory
        self.sizes = sizes
        self.pairs: list[FilePair] = []
        self._disk = disk

    def load(self) -> None:
        """Open what is there, and find the end.

        Raises:
            BrokenRowError: a file has another length.
            CorruptLogError: a file has another name, or lacks the other one of its pair.

        Source: CompactionLog.TopicPartitionLog.init, SparseConsumeQueue.recover.
        """
        logs = self._files_in(self.log_directory, self.sizes.log)
        units = self._files_in(self.cq_directory, self.sizes.cq)
        self._drop_half_of_last(logs, units)
        for name in sorted(logs | units):
            for names, directory in ((logs, self.log_directory), (units, self.cq_directory)):
                if name not in names:
                    path = f"{directory}/{name}"
                    raise CorruptLogError(
                        f"{path}: missing, and its other half is there; copy this store anew from"
                        " another node, or move both directories of this queue away: it is then"
                        " compacted anew from what the commit log still has",
                        path=path,
                        fault=LogFault.MISSING_FILE,
                    )
            self.pairs.append(self.opened(name))
        if self.pairs:
            self._end_last()

    def _files_in(self, directory: str, size: int) -> set[str]:
        names = set()
        found = self._disk.list_files(directory)
        for name, length in found:
            path = f"{directory}/{name}"
            offset = offset_named(name)
            if offset is None or offset % self.sizes.log:
                raise CorruptLogError(
                    f"{path}: not a file of a compaction topic (its name must be 20 digits, a"
                    f" multiple of {self.sizes.log}); move it out of this directory, or start with"
                    " the compaction_mapped_file_size it was written with",
                    path=path,
                    fault=LogFault.NAME,
                )
            if not length and name == found[-1][0]:
                self._disk.remove(path)
                continue
            if length != size:
                raise BrokenRowError(
                    f"{path}: the file has {length} bytes, but must have {size}; start with the"
                    " compaction_mapped_file_size and compaction_cq_mapped_file_size it was written"
                    " with",
                    path=path,
                    fault=LogFault.LENGTH,
                )
            names.add(name)
        return names

    def _drop_half_of_last(self, logs: set[str], units: set[str]) -> None:
        """Delete the half of a last pair that a stop while it was made has left."""
        last = max(logs | units, default="")
        for own, other, directory in (
            (logs, units, self.log_directory),
            (units, logs, self.cq_directory),
        ):
            if last in own and last not in other:
                self._disk.remove(f"{directory}/{last}")
                own.remove(last)

    def opened(self, name: str) -> FilePair:
        """Open a pair that is there, taken as full."""
        log, cq = (
            MappedFile(self._disk.open(f"{directory}/{name}", grows=True), int(name))
            for directory in (self.log_directory, self.cq_directory)
        )
        log.set_positions(log.size)
        cq.set_positions(cq.size)
        return FilePair(log, cq, units_in(cq))

    def _end_last(self) -> None:
        """Let the last pair end after its last unit: it is written to."""
        last = self.pairs[-1]
        end = 0
        if last.units_count:
            unit = last.unit(last.units_count - 1)
            end = min(unit.offset + unit.size - last.log.file_from_offset, last.log.size)
        for file, position in (
            (last.log, max(0, end)),
            (last.cq, last.units_count * BATCH_CQ_STORE_UNIT_SIZE),
        ):
            file.set_positions(position)
            if file.zero_from(position):
                file.file.sync()

    # -- positions -------------------------------------------------------------------------------

    @property
    def first_queue_offset(self) -> int:
        """The number of the first record, -1 if there is none."""
        return next((pair.unit(0).queue_offset for pair in self.pairs if pair.units_count), -1)

    @property
    def next_queue_offset(self) -> int:
        """The number after the last record, 0 if there is none."""
        return 1 + next((p.last_queue_offset for p in reversed(self.pairs) if p.units_count), -1)

    def pair_for(self, queue_offset: int) -> FilePair | None:
        """Return the pair with the first record of this number or a later one.

        Source: SparseConsumeQueue.searchOffsetFromFilesOrRight.
        """
        return next((p for p in self.pairs if p.last_queue_offset >= queue_offset), None)

    # -- appending -------------------------------------------------------------------------------

    def append(
        self, record: memoryview, queue_offset: int, tags_code: int, store_timestamp_ms: int
    ) -> None:
        """Add a record, which is later than all that are here.

        Raises:
            StoreFullError: no room; call again with the same record.
            ValueError: it is larger than a file.

        Source: CompactionLog.asyncPutMessage, CompactionAppendMessageCallback.doAppend.
        """
        size = len(record)
        if size + END_FILE_MIN_BLANK_LENGTH > self.sizes.log:
            raise ValueError(
                f"{self.log_directory}: a record of {size} bytes is larger than a file"
            )
        if not self.pairs or self.pairs[-1].is_full:
            self._roll()
        pair = self.pairs[-1]
        units_end = pair.cq.wrote_position + BATCH_CQ_STORE_UNIT_SIZE
        if (
            units_end >= pair.cq.size
            or size + END_FILE_MIN_BLANK_LENGTH > pair.log.size - pair.log.wrote_position
        ):
            self._close_last(pair)
            self._roll()
            pair = self.pairs[-1]
            units_end = BATCH_CQ_STORE_UNIT_SIZE
        position = pair.log.wrote_position
        pair.log.allocate(position + size)
        pair.cq.allocate(units_end)
        offset = pair.log.file_from_offset + position
        buffer = pair.log.buffer
        buffer[position : position + size] = record
        _LONG.pack_into(buffer, position + _PHYSICAL_OFFSET_AT, offset)
        pair.log.wrote_position = position + size
        self._add_unit(pair, offset, size, tags_code, store_timestamp_ms, queue_offset, 1)
        pair.units_count += 1

    def _add_unit(self, pair: FilePair, *unit: int) -> None:
        at = pair.cq.wrote_position
        BATCH_CQ_STORE_UNIT.pack_into(pair.cq.buffer, at, *unit, BATCH_CQ_COMPACTED_OFFSET, 0)
        pair.cq.wrote_position = at + BATCH_CQ_STORE_UNIT_SIZE

    def _close_last(self, pair: FilePair) -> None:
        """Source: SparseConsumeQueue.putEndPositionInfo."""
        log, cq = pair.log, pair.cq
        log.allocate(log.wrote_position + END_FILE_MIN_BLANK_LENGTH)
        if not cq.is_full:
            cq.allocate(cq.wrote_position + BATCH_CQ_STORE_UNIT_SIZE)
            self._add_unit(pair, *_END_UNIT[:6])
        _BLANK.pack_into(
            log.buffer, log.wrote_position, log.size - log.wrote_position, BLANK_MAGIC_CODE
        )
        log.wrote_position = log.size

    def _roll(self) -> None:
        base = self.pairs[-1].log.file_from_offset + self.sizes.log if self.pairs else 0
        name = f"{base:020d}"
        log = self._made(f"{self.log_directory}/{name}", self.sizes.log)
        try:
            cq = self._made(f"{self.cq_directory}/{name}", self.sizes.cq)
        except BaseException:
            log.close()
            self._disk.remove(log.path)
            raise
        self.pairs.append(FilePair(MappedFile(log, base), MappedFile(cq, base)))

    def _made(self, path: str, size: int) -> DiskFile:
        """Make a file whose name is durable: the start takes half a pair for a lost file."""
        file = self._disk.create(path, size, grows=True)
        try:
            file.sync()
        except BaseException:
            file.close()
            self._disk.remove(path)
            raise
        return file

    def _ways(self) -> list[str]:
        """Return the directories with the names of the pairs, and of these, outermost first."""
        parts = (self.log_directory.split("/"), self.cq_directory.split("/"))
        ways = ("/".join(each[: len(each) - up]) for up in (3, 2, 1, 0) for each in parts)
        return list(dict.fromkeys(ways))

    # -- cutting ---------------------------------------------------------------------------------

    def cut(self, queue_offset: int) -> bool:
        """Drop the records with this number and later ones; return whether there were any."""
        if self.next_queue_offset <= queue_offset:
            return False
        while self.pairs and (
            not self.pairs[-1].units_count or self.pairs[-1].unit(0).queue_offset >= queue_offset
        ):
            self.pairs.pop().destroy(self._disk)
        if self.pairs:
            last = self.pairs[-1]
            last.units_count = last.index_of(queue_offset)
            self._end_last()
        return True

    def first_fault(self, after: int) -> tuple[int, str] | None:
        """Return from which number on something is damaged or missing, and what; None if nothing.

        Pairs all of whose records are up to `after` were compacted, and are on the disk.
        """
        number = 0
        for pair in self.pairs:
            path = pair.log.file.path
            if pair.units_count and pair.last_queue_offset <= after:
                number = pair.last_queue_offset + 1
                continue
            end = pair.log.file_from_offset
            for unit in pair.units(0):
                fault = (
                    pair.fault(unit) if unit.offset == end else f"nothing names what is at {end}"
                )
                if fault is not None:
                    return number, f"{path}: {fault}"
                number = unit.queue_offset + 1
                end += unit.size
            if pair is not self.pairs[-1] and not pair.is_closed_at(end):
                return number, f"{path}: it does not end at {end}"
        return None

    # -- files -----------------------------------------------------------------------------------

    def files(self) -> list[MappedFile]:
        """Return all files: of each pair the records before the units."""
        return [file for pair in self.pairs for file in (pair.log, pair.cq)]

    def sync_all(self) -> None:
        """Block until all of it is durable.

        Raises:
            OSError: the disk failed.
        """
        for file in self.files():
            if file.is_able_to_flush(0):
                file.file.sync()
                file.flushed_position = file.wrote_position

    def sync_what_was_there(self) -> None:
        """Block until all of it is durable, names as well: a killed process may have synced none.

        Raises:
            OSError: the disk failed.
        """
        self._disk.sync_names(self._ways())
        for file in self.files():
            file.file.sync()

    def destroy(self) -> None:
        """Delete all files."""
        while self.pairs:
            self.pairs.pop().destroy(self._disk)

    def close(self) -> None:
        """Unmap all files without syncing."""
        while self.pairs:
            self.pairs.pop().close()
