"""One queue by itself: is it whole, in order, and where does it end?

Whether its units lead to the right records is seen where the records are: each unit is handed on
to the piece of the log that it leads into.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from tandem.log.findings import FINDINGS_KEPT_MAX, Finding, FindingList
from tandem.log.pieces import PieceMap, Segment
from tandem.log.queue_units import QueueReader, UnitRun, Units, are_fillers, are_units
from tandem.log.store_directory import QueueFiles
from tandem.wire.record_scan import Bools, Int64s


class QueueCheck(msgspec.Struct, frozen=True):
    """What the files of one queue say.

    `first_offset` and `next_offset` are queue offsets, `first_physical_offset` and
    `last_physical_offset` are what the first and the last unit lead to (-1: there are none).
    `removed_count` counts units of records before the log, `ahead_count` of records after
    its files. `segments` are (piece, units).
    """

    first_offset: int
    next_offset: int
    first_physical_offset: int
    last_physical_offset: int
    unit_count: int
    removed_count: int
    ahead_count: int
    segments: list[tuple[int, Segment]]
    findings: list[Finding]


def check_queue(queue: QueueFiles, number: int, pieces: PieceMap, file_bytes: int) -> QueueCheck:
    """Read all units of queue `number`; `file_bytes` is how long its files should be."""
    return _QueueChecker(queue, number, pieces).check(file_bytes)


class _QueueChecker:
    def __init__(self, queue: QueueFiles, number: int, pieces: PieceMap) -> None:
        self._queue = queue
        self._number = number
        self._pieces = pieces
        self._found = FindingList()
        self._segments: list[tuple[int, Segment]] = []
        self._first = self._next = self._first_physical = self._last_physical = -1
        self._behind = 0
        self._end = -1
        self._seen_end = queue.files[0].offset // queue.unit_bytes if queue.files else 0
        self._unit_count = self._removed = self._ahead = 0

    def check(self, file_bytes: int) -> QueueCheck:
        self._check_files(file_bytes)
        for run in QueueReader(self._queue).runs():
            self._check_run(run)
        return QueueCheck(
            first_offset=max(self._first, 0),
            next_offset=max(self._next, 0),
            first_physical_offset=self._first_physical,
            last_physical_offset=self._last_physical,
            unit_count=self._unit_count,
            removed_count=self._removed,
            ahead_count=self._ahead,
            segments=self._segments,
            findings=self._found.all(),
        )

    def _check_files(self, file_bytes: int) -> None:
        files = self._queue.files
        for at, file in enumerate(files):
            is_empty_last = not file.size and at == len(files) - 1
            if file.size != file_bytes and not is_empty_last:
                what = f"has {file.size} bytes, others have {file_bytes}"
                self._found.add("queue-file-length", file.path, -1, what)
            if file.offset % self._queue.unit_bytes:
                what = f"its name is not a multiple of {self._queue.unit_bytes}"
                self._found.add("queue-file-length", file.path, -1, what)
            if at and files[at - 1].end_offset != file.offset:
                what = f"follows a file that ends at {files[at - 1].end_offset}"
                self._found.add("queue-file-missing", file.path, -1, what)

    def _check_run(self, run: UnitRun) -> None:
        units = run.units
        valid = are_units(units)
        fillers = are_fillers(units)
        used = np.flatnonzero(valid)
        if self._end < 0 and self._seen_end < run.number:
            self._end = self._seen_end  # what was not read is zeros
        self._seen_end = run.number + len(units)
        if len(used) and self._end >= 0:
            what = f"{len(used)} units past its end"
            self._add_all("queue-gap", run, used[:1], lambda _: what)
        if len(used) < len(units):
            self._check_rest(run, valid, int(used[-1]) + 1 if len(used) else 0)
        real = np.flatnonzero(valid & ~fillers)
        misplaced = np.flatnonzero(fillers & (np.arange(len(units)) >= _from(real, self._first)))
        self._add_all("filler-misplaced", run, misplaced, lambda _: "a filler after real units")
        if len(real):
            self._check_order(run, real)
            self._hand_on(run, real)

    def _check_rest(self, run: UnitRun, valid: Bools, end: int) -> None:
        """Look at what is no unit: the end, if nothing but zeros follows."""
        gaps = np.flatnonzero(~valid[:end])
        if len(gaps) and self._end < 0:
            what = f"{len(gaps)} places without a unit before others"
            behind_gap = int(gaps[0]) + int(np.argmax(valid[int(gaps[0]) :]))
            offset = int(run.units["offset"][behind_gap])
            self._add("queue-gap", run, int(gaps[0]), what, offset)
        rest = run.units[end:]
        if len(rest) and self._end < 0:
            self._end = run.number + end
        raw = np.frombuffer(rest.tobytes(), np.uint8)
        if raw.any():
            at = int(np.flatnonzero(raw)[0]) // self._queue.unit_bytes
            self._add("queue-leftover", run, end + at, "bytes after the last unit")

    def _check_order(self, run: UnitRun, real: Int64s) -> None:
        units = run.units[real]
        offsets = units["offset"].astype(np.int64)
        ends = offsets + units["size"]
        before = np.concatenate(([self._behind], ends[:-1]))
        self._add_all(
            "unit-order",
            run,
            real[offsets < before],
            lambda row: f"leads to {run.units['offset'][row]}, into the record of the unit before",
        )
        self._behind = int(ends[-1])
        self._last_physical = int(offsets[-1])
        first, following = self._queue_offsets(run, units, real)
        if self._queue.is_batch:
            expected = np.concatenate(
                ([self._next if self._next >= 0 else first[0]], following[:-1])
            )
            self._add_all(
                "unit-order",
                run,
                real[first != expected],
                lambda row: f"queue offset {run.units['base_offset'][row]} does not follow",
            )
        if self._first < 0:
            self._first = int(first[0])
            self._first_physical = int(offsets[0])
        self._next = int(following[-1])

    def _queue_offsets(self, run: UnitRun, units: Units, real: Int64s) -> tuple[Int64s, Int64s]:
        if self._queue.is_batch:
            first = units["base_offset"].astype(np.int64)
            return first, first + units["batch_size"]
        return run.number + real, run.number + real + 1

    def _hand_on(self, run: UnitRun, real: Int64s) -> None:
        width = self._queue.unit_bytes
        # Runs without a hole in them, so that a place gives the number.
        for rows in np.split(real, np.flatnonzero(np.diff(real) != 1) + 1):
            offsets = run.units["offset"][rows].astype(np.int64)
            first = int(rows[0])
            at = run.position + first * width
            self._unit_count += len(rows)
            self._removed += int((offsets < self._pieces.start).sum())
            self._ahead += int((offsets >= self._pieces.end).sum())
            self._segments += self._pieces.segments(
                offsets, self._number, run.file.path, at, run.number + first, width
            )

    def _add_all(self, kind: str, run: UnitRun, rows: Int64s, what: Callable[[int], str]) -> None:
        """Note a finding for each row: some in words, the rest as a number."""
        for row in rows[:FINDINGS_KEPT_MAX].tolist():
            self._add(kind, run, row, what(row), int(run.units["offset"][row]))
        if len(rows) > FINDINGS_KEPT_MAX:
            self._found.add_count(kind, run.file.path, len(rows) - FINDINGS_KEPT_MAX)

    def _add(self, kind: str, run: UnitRun, row: int, what: str, offset: int = -1) -> None:
        position = run.position + row * self._queue.unit_bytes
        self._found.add(kind, run.file.path, position, what, offset)


def _from(real: Int64s, first: int) -> int:
    """The row after which a filler has no place: that of the first real unit."""
    if first >= 0:
        return 0
    return int(real[0]) if len(real) else 2**62
