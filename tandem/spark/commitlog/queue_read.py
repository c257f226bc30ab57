"""Reads the records that consume queues name, and nothing between them.

Every unit is checked against the log: a record of that size, with that queue id, queue offset and
topic, is where the unit says. So what is read is what a scan selects, in the same order. At the
first unit that the log contradicts, and at the first body whose CRC is wrong, the rest of the split
is scanned: a scan knows what to say about damage. Damage between the records is not seen.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandem.spark.commitlog.data_loss import read_scan
from tandem.spark.commitlog.internal_records import consumable
from tandem.spark.commitlog.log_files import WINDOW_BYTES
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plain_bodies import plain_batches
from tandem.spark.commitlog.queue_starts import load_units
from tandem.spark.commitlog.split import LogSplit, QueueSplit
from tandem.spark.commitlog.storage import OpenedFile, storage_at
from tandem.spark.record_batches import RecordSlice
from tandem.spark.row_filter import with_tags
from tandem.wire.message import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, RECORD_BYTES_MIN
from tandem.wire.record_scan import Bools, Int64s, RecordColumns, read_columns

_SIZE_MAGIC: Final = np.dtype([("size", ">i4"), ("magic", ">u4")])


def read_queue_split(
    split: QueueSplit, options: ScanOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of a split in log order, with the columns called `names`.

    Raises:
        LogDamagedError: a record is torn or corrupt and `options.on_error` is `fail`.
        DataLossError: a file of the log is gone and `failOnDataLoss` is true.
    """
    reader = _QueueReader(split, options, names)
    yield from reader.read()
    for rest in _after(split.scans, reader.position):
        yield from read_scan(rest, options, names)


def _after(scans: Sequence[LogSplit], position: int | None) -> Iterator[LogSplit]:
    """What is left of the scans from a physical offset on; nothing if it is None."""
    if position is None:
        return
    for scan in scans:
        start = max(scan.start, position - scan.file.offset)
        if start < scan.end:
            yield msgspec.structs.replace(scan, start=start)


class _Units(msgspec.Struct, frozen=True, eq=False):
    """The units of all queues of a split in log order: what the log has to say at each."""

    offset: Int64s
    size: Int64s
    queue: Int64s
    """Which of the split's queues."""
    queue_offset: Int64s

    def __len__(self) -> int:
        return len(self.offset)

    def part(self, first: int, end: int) -> "_Units":
        chosen = slice(first, end)
        return _Units(*(getattr(self, name)[chosen] for name in self.__struct_fields__))

    def are_plausible(self, start: int, end: int) -> bool:
        """Say whether these can be records of [start, end) that do not overlap."""
        ends = self.offset + self.size
        apart: Bools = self.offset[1:] >= ends[:-1]
        return bool(
            apart.all()
            and (self.size >= RECORD_BYTES_MIN).all()
            and (self.offset >= start).all()
            and (ends <= end).all()
        )


def _units_of(split: QueueSplit) -> _Units:
    storage = storage_at(split.scans[0].address)
    loaded = [load_units(storage, queue.pieces) for queue in split.queues]
    offsets = np.concatenate([units["offset"] for units in loaded]).astype(np.int64)
    order = np.argsort(offsets, kind="stable")
    sizes = np.concatenate([units["size"] for units in loaded]).astype(np.int64)
    queues = np.repeat(np.arange(len(loaded)), [len(units) for units in loaded])
    numbers = np.concatenate(
        [
            queue.first + np.arange(len(units))
            for queue, units in zip(split.queues, loaded, strict=True)
        ]
    )
    return _Units(offsets[order], sizes[order], queues[order], numbers[order])


class _QueueReader:
    """The reading of one split. `position` is from where on a scan has to go on, None if not."""

    def __init__(self, split: QueueSplit, options: ScanOptions, names: Sequence[str]) -> None:
        self._split = split
        self._options = options
        self._names = names
        self._queue_ids = np.array([queue.queue_id for queue in split.queues], np.int64)
        self._topics = pa.array([queue.topic for queue in split.queues], pa.string())
        self.position: int | None = split.start
        self._is_contradicted = False

    def read(self) -> Iterator[pa.RecordBatch]:
        try:
            units = _units_of(self._split)
        except FileNotFoundError:  # the queue's file was deleted: the log may still be there
            return
        if not units.are_plausible(self._split.start, self._split.end):
            return
        for scan in self._split.scans:
            base = scan.file.offset
            first, end = np.searchsorted(units.offset, [base + scan.start, base + scan.end])
            if first < end:
                try:
                    yield from self._read_file(scan, units.part(first, end))
                except FileNotFoundError:  # the scan says what that means
                    return
                if self._is_contradicted:
                    return
        self.position = None

    def _read_file(self, scan: LogSplit, units: _Units) -> Iterator[pa.RecordBatch]:
        storage = storage_at(scan.address)
        with storage.opened(scan.file.path) as opened:
            for first, end in _windows(units, storage.gap_bytes):
                part = units.part(first, end)
                records, sound = self._records(opened, scan, part, storage.gap_bytes)
                if len(records):
                    yield from plain_batches(records, scan.file.path, self._options, self._names)
                if sound:
                    self.position = int(part.offset[sound - 1] + part.size[sound - 1])
                if sound < len(part):
                    self._is_contradicted = True
                    return

    def _records(
        self, opened: OpenedFile, scan: LogSplit, units: _Units, gap_bytes: int
    ) -> tuple[RecordSlice, int]:
        """Return the selected records of some units, and how many units the log confirms."""
        data, starts = _read_runs(opened, units, scan.file.offset, gap_bytes)
        seen = _first_false(_are_heads(data, starts, units.size))
        columns = read_columns(data, starts[:seen])
        known = units.part(0, seen)
        fits = (
            columns.sound
            & (columns.physical_offset == known.offset)
            & (columns.queue_offset == known.queue_offset)
            & (columns.queue_id == self._queue_ids[known.queue])
        )
        seen = _first_false(fits)
        records = self._slice(data, columns.take(slice(0, seen)))
        seen = _first_false(self._have_topics(records, known.queue[:seen]))
        records = self._slice(data, columns.take(slice(0, seen)))
        chosen = self._selected(records)
        selected = records.take(chosen)
        if self._options.check_crc and not selected.crc_ok.all():
            seen = int(np.flatnonzero(chosen)[np.argmin(selected.crc_ok)])
            records = self._slice(data, columns.take(slice(0, seen)))
            selected = records.take(chosen[:seen])
        return selected, seen

    def _slice(self, data: bytearray, columns: RecordColumns) -> RecordSlice:
        return RecordSlice(data, columns, self._split.store, check_crc=self._options.check_crc)

    def _have_topics(self, records: RecordSlice, queues: Int64s) -> Bools:
        """Say which records are of the topic whose queue names them."""
        if not len(records):
            return np.empty(0, np.bool_)
        named = self._topics.take(pa.array(queues))
        has: Bools = pc.equal(records.topics, named).to_numpy(zero_copy_only=False)
        return has

    def _selected(self, records: RecordSlice) -> Bools:
        options = self._options
        chosen = np.ones(len(records), np.bool_)
        if options.start_ms is not None:
            chosen &= records.records.store_timestamp_ms >= options.start_ms
        if options.end_ms is not None:
            chosen &= records.records.store_timestamp_ms < options.end_ms
        if not options.with_system_topics:
            chosen &= consumable(records, all_topics=options.topics is None)
        return with_tags(records, chosen, options.tags, batches_pass=options.decompress)


def _windows(units: _Units, gap_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut units into parts whose bytes, with the gaps that are read, fill about a window."""
    ends = units.offset + units.size
    gaps = np.zeros(len(units), np.int64)
    gaps[1:] = units.offset[1:] - ends[:-1]
    gaps[gaps > gap_bytes] = 0
    filled = np.cumsum(units.size + gaps)
    first = 0
    while first < len(units):
        before = int(filled[first - 1]) if first else 0
        end = max(int(np.searchsorted(filled, before + WINDOW_BYTES, side="right")), first + 1)
        yield first, end
        first = end


def _read_runs(
    opened: OpenedFile, units: _Units, base_offset: int, gap_bytes: int
) -> tuple[bytearray, Int64s]:
    """Read records, near ones together; return the bytes, and where in them each record is."""
    ends = units.offset + units.size
    firsts = np.append(0, np.flatnonzero(units.offset[1:] - ends[:-1] > gap_bytes) + 1)
    run_starts = units.offset[firsts]
    run_sizes = ends[np.append(firsts[1:], len(units)) - 1] - run_starts
    places = np.append(0, np.cumsum(run_sizes))
    data = bytearray(int(places[-1]))
    read_into = opened.read_into
    with memoryview(data) as view:
        for position, place, end in zip(
            (run_starts - base_offset).tolist(), places.tolist(), places[1:].tolist(), strict=False
        ):
            read_into(view[place:end], position)
    runs = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(units))))
    return data, units.offset - run_starts[runs] + places[runs]


def _are_heads(data: bytearray, starts: Int64s, sizes: Int64s) -> Bools:
    """Say where a record of the right size begins. Bytes that were not there are zeros."""
    heads = np.ndarray((len(data) - _SIZE_MAGIC.itemsize + 1,), _SIZE_MAGIC, data, strides=(1,))
    found = heads[starts]
    magic = found["magic"]
    is_magic = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    good: Bools = is_magic & (found["size"] == sizes)
    return good


def _first_false(good: Bools) -> int:
    """Return how many are true before the first that is not."""
    return len(good) if good.all() else int(np.argmin(good))
