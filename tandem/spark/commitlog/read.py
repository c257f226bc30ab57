"""Reads pieces of a commit log as Arrow batches, and says exactly what could not be read.

A split (see `plan`) owns the records that start in it. Planned cuts are at record starts, so the
walk through a split has to end exactly where the next one begins; if it does not, one of the two is
wrong and that is reported like any other damage. See `source` for what counts as torn, corrupt or
the normal end.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from tandem.spark.commitlog.internal_records import consumable
from tandem.spark.commitlog.log_files import Window, next_record, scan_windows
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plain_bodies import plain_batches
from tandem.spark.commitlog.split import LogSplit
from tandem.spark.commitlog.storage import OpenedFile, storage_at
from tandem.spark.errors import LogDamagedError
from tandem.spark.record_batches import RecordSlice, error_batch
from tandem.spark.row_filter import with_tags
from tandem.wire.log_end import CORRUPT, TORN, blank_fault
from tandem.wire.record_rule import ScanStop, record_fault
from tandem.wire.record_scan import Bools


class Damage(msgspec.Struct, frozen=True):
    """Something in the log that is not a sound record, at a physical offset of a file."""

    file: str
    physical_offset: int
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason} ({self.file})"


def read_split(
    split: LogSplit, options: ScanOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of a split in log order, with the columns called `names`.

    Raises:
        LogDamagedError: a record is torn or corrupt and `options.on_error` is `fail`.
    """
    reader = _SplitReader(split, options, names)
    if split.fault:
        yield reader.damage_row(Damage(split.file.path, split.file.offset, CORRUPT, split.fault))
        return
    with storage_at(split.address).opened(split.file.path) as opened:
        yield from reader.read(opened)


class _SplitReader:
    """The walk through one split."""

    def __init__(self, split: LogSplit, options: ScanOptions, names: Sequence[str]) -> None:
        self._split = split
        self._file = split.file
        self._options = options
        self._names = names
        pattern = options.topic_pattern
        self._topic_pattern = None if pattern is None else re.compile(pattern)

    def read(self, opened: OpenedFile) -> Iterator[pa.RecordBatch]:
        position: int | None = self._split.start
        while position is not None and position < self._split.end:
            window = None
            for window in scan_windows(opened, self._file, position, self._split.end):
                if window.scan.check.count:
                    yield from self._batches(opened, window)
            assert window is not None
            reason = self._why_not_the_end(opened, window)
            if not reason:
                return
            kind, position = self._look_after(opened, window.end + 1)
            yield self.damage_row(self._damage(window.end, kind, reason))

    def damage_row(self, damage: Damage) -> pa.RecordBatch:
        """Return the row that stands for `damage`, or raise, as the options say."""
        if self._options.on_error == "fail":
            raise LogDamagedError(damage.file, damage.physical_offset, damage.kind, damage.reason)
        offset = damage.physical_offset
        return error_batch(self._names, self._split.store, offset, str(damage))

    def _damage(self, position: int, kind: str, reason: str) -> Damage:
        return Damage(self._file.path, self._file.offset + position, kind, reason)

    def _why_not_the_end(self, opened: OpenedFile, window: Window) -> str:
        """Return "" if the log, the file or the split properly ends here, else what is wrong."""
        check = window.scan.check
        split = self._split
        reason = check.reason or "the file is shorter than when it was looked at first"
        match check.stop:
            case ScanStop.END if window.end == split.end:
                reason = ""
            case ScanStop.BLANK:
                left = self._file.size - window.end
                reason = blank_fault(check.needed_bytes, left)
                if not reason and split.end != split.log_end:
                    reason = "a blank record where more of the log was expected"
            case ScanStop.ZEROS:
                zeros = opened.only_zeros(window.end, self._file.size)
                end = split.is_last_file and zeros
                reason = "" if end else "zeros, with more of the log after them"
            case ScanStop.TORN if split.end < split.log_end:
                following = self._file.offset + split.end
                reason = f"{check.reason} before {following}, where another begins"
        return reason

    def _look_after(self, opened: OpenedFile, position: int) -> tuple[str, int | None]:
        """Return the kind of a damage before `position`, and where reading can go on."""
        resume = next_record(opened, self._file, position, self._split.log_end)
        kind = TORN if resume is None and self._split.is_last_file else CORRUPT
        return kind, resume

    def _batches(self, opened: OpenedFile, window: Window) -> Iterator[pa.RecordBatch]:
        options = self._options
        every = RecordSlice(
            window.data, window.scan.columns, self._split.store, check_crc=options.check_crc
        )
        part = every.take(self._selected(every))
        if not len(part):
            return
        if options.check_crc and not part.crc_ok.all():
            self._judge_bodies(opened, window, part)
        yield from plain_batches(part, self._file.path, options, self._names)

    def _judge_bodies(self, opened: OpenedFile, window: Window, part: RecordSlice) -> None:
        for row in np.flatnonzero(~part.crc_ok).tolist():
            start = int(part.records.start[row])
            base_offset = self._file.offset + window.position
            reason = record_fault(window.data, base_offset, start)
            assert reason is not None, "the columns say that its body is another"
            record_end = window.position + start + int(part.records.size[row])
            kind, _ = self._look_after(opened, record_end)
            damage = self._damage(window.position + start, kind, reason)
            self.damage_row(damage)
            part.errors[row] = str(damage)

    def _selected(self, part: RecordSlice) -> Bools:
        options = self._options
        records = part.records
        selected = np.ones(len(part), np.bool_)
        if options.queues is not None:
            selected &= np.isin(records.queue_id, list(options.queues))
        if options.start_ms is not None:
            selected &= records.store_timestamp_ms >= options.start_ms
        if options.end_ms is not None:
            selected &= records.store_timestamp_ms < options.end_ms
        if options.topics is not None:
            selected &= np.logical_or.reduce([part.has_topic(topic) for topic in options.topics])
        if self._topic_pattern is not None:
            matches = self._topic_pattern.fullmatch
            topics = part.topics
            wanted = [matches(topic) is not None for topic in topics.dictionary.to_pylist()]
            selected &= np.array(wanted)[topics.indices.to_numpy()]
        if not options.with_system_topics:
            selected &= consumable(part, all_topics=options.topics is None)
        return with_tags(part, selected, options.tags, batches_pass=options.decompress)
