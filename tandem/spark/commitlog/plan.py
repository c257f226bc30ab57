"""Cuts the logs of stores into pieces, on the driver: where each begins, where each log ends.

A split owns the records that start in it. Cuts are at record starts (`log_files.cut_file`).
"""

import bisect
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from tandem.data_file import DataFile
from tandem.spark.commitlog.confirmed import confirmed_end
from tandem.spark.commitlog.log_files import (
    LogTail,
    cut_file,
    files_with_data,
    is_record,
    log_tail,
    next_record,
    scan_windows,
)
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.places import StorePlace, find_places
from tandem.spark.commitlog.queue_starts import QueueStarts
from tandem.spark.commitlog.split import LogSplit
from tandem.spark.commitlog.time_window import TimeWindow, time_of_record


def plan_splits(options: ScanOptions) -> list[LogSplit]:
    """Look at the stores and cut their logs into pieces that are read from end to end.

    Raises:
        NotAStoreError: a path is something else.
    """
    return [split for log in open_logs(options) for split in scan_splits(log, options)]


def open_logs(options: ScanOptions) -> "list[StoreLog]":
    """Look at the stores that `options` name.

    Raises:
        NotAStoreError: a path is something else.
    """
    places = find_places(options.paths, options.commit_log_directories)
    return [StoreLog(place, with_unconfirmed=options.with_unconfirmed) for place in places]


def scan_splits(log: "StoreLog", options: ScanOptions) -> list[LogSplit]:
    """Cut what may hold records of the window of time that `options` name."""
    start, end = time_bounds(log, options)
    return in_window(log.splits(options.split_bytes, start, end), log, options)


def time_bounds(log: "StoreLog", options: ScanOptions) -> tuple[int, int]:
    """Return from where to where files may hold records of the window of time."""
    window = TimeWindow(options.start_ms, options.end_ms, options.margin_ms)
    if not window:
        return log.start, log.end
    files, storage = log.files, log.place.storage
    chosen = window.places(len(files), lambda number: time_of_record(storage, files[number], 0))
    if not chosen:
        return log.start, log.start
    end = log.end if chosen.stop == len(files) else min(files[chosen.stop].offset, log.end)
    return files[chosen.start].offset, end


def in_window(splits: list[LogSplit], log: "StoreLog", options: ScanOptions) -> list[LogSplit]:
    """Return those of consecutive splits that may hold records of the window of time."""
    window = TimeWindow(options.start_ms, options.end_ms, options.margin_ms)
    if not window:
        return splits

    def first_time(number: int) -> int | None:
        split = splits[number]
        if split.fault:
            return None
        return time_of_record(log.place.storage, split.file, split.start)

    chosen = window.places(len(splits), first_time)
    return splits[chosen.start : chosen.stop]


class StoreLog:
    """The log of one store as it is now: its files, its end, and splits of any range of it.

    That of a node of a fenced group ends, for us, where it is confirmed (`confirmed`), unless it is
    wanted `with_unconfirmed`. `files` are all that hold something.
    """

    def __init__(self, place: StorePlace, *, with_unconfirmed: bool = False) -> None:
        self.place = place
        # In this order: see `confirmed`.
        self._bound = None if with_unconfirmed else confirmed_end(place)
        self.files: Sequence[DataFile] = files_with_data(place)
        self.proven: int | None = None
        """A physical offset where a record ends for certain; shortens the walk to the end."""

    @cached_property
    def starts(self) -> QueueStarts:
        """Where records are known to start."""
        return QueueStarts(self.place.storage, self.place.beside("consumequeue"))

    @property
    def start(self) -> int:
        """The first physical offset that is held; 0 in an empty log."""
        return self.files[0].offset if self.files else 0

    def was_confirmed(self, offset: int) -> None:
        """Count on the log up to `offset`, where it was confirmed once, whatever is known now."""
        if self._bound is not None and offset > self._bound:
            self._bound = offset
            for name in ("_last", "_tail", "end", "sound_end"):
                self.__dict__.pop(name, None)

    @property
    def is_bounded(self) -> bool:
        """Whether the node holds more than what is known to be confirmed."""
        return self._bound is not None and self._bound < self.held_end

    @cached_property
    def _last(self) -> DataFile | None:
        """The last file that counts."""
        if self._bound is None:
            return self.files[-1] if self.files else None
        number = bisect.bisect_left(self.files, self._bound, key=lambda file: file.offset)
        return self.files[number - 1] if number else None

    @cached_property
    def _tail(self) -> LogTail:
        assert self._last is not None
        return self._tail_of(self._last, self._limit(self._last))

    def _tail_of(self, file: DataFile, limit: int) -> LogTail:
        start = self._known_start(file, file.offset + limit)
        return log_tail(file, start, self.place.storage, limit)

    def _limit(self, file: DataFile) -> int:
        """The position up to which a file counts."""
        return file.size if self._bound is None else min(file.size, self._bound - file.offset)

    @cached_property
    def end(self) -> int:
        """The physical offset after the last record, or of the last file if its tail is unclean."""
        file = self._last
        if file is None:
            return self.start
        return file.offset + (self._tail.end if self._tail.clean else self._limit(file))

    @cached_property
    def held_end(self) -> int:
        """The same of all that the node holds, confirmed or not."""
        if self._bound is None or not self.files:
            return self.end
        file = self.files[-1]
        tail = self._tail_of(file, file.size)
        return file.offset + (tail.end if tail.clean else file.size)

    @cached_property
    def sound_end(self) -> int:
        """The physical offset after the last sound record. A half-written one after it waits.

        Damage with a sound record after it does not wait: reading has to meet it.
        """
        file = self._last
        if file is None:
            return self.start
        limit, tail = self._limit(file), self._tail
        end = tail.end
        while not tail.clean:
            with self.place.storage.opened(file.path) as opened:
                again = next_record(opened, file, end + 1, limit)
            if again is None:
                break
            tail = log_tail(file, again, self.place.storage, limit)
            end = tail.end
        return file.offset + end

    def boundary_at(self, offset: int) -> int:
        """Return the first place at or after `offset` where a record ends or begins.

        Not past `sound_end`. Found by walking from a known start, so that no bytes inside a body
        can pass for one; only after damage by what looks like a record.
        """
        if offset >= self.sound_end:
            return self.sound_end
        number = bisect.bisect_right(self.files, offset, key=lambda file: file.offset) - 1
        if number < 0:
            return self.start
        file = self.files[number]
        position = offset - file.offset
        if position >= file.size:  # between two files: one is missing
            return self.files[number + 1].offset
        at: int | None = self._known_start(file, offset + 1)
        end = min(file.size, self.sound_end - file.offset)
        with self.place.storage.opened(file.path) as opened:
            while at is not None and at < position:
                for window in scan_windows(opened, file, at, end):
                    starts = window.scan.columns.start + window.position
                    after = int(np.searchsorted(starts, position))
                    at = int(starts[after]) if after < len(starts) else window.end
                    if at >= position:
                        break
                else:
                    at = next_record(opened, file, at + 1, end)
        return file.offset + (end if at is None else at)

    def splits(
        self, split_bytes: int, start: int | None = None, end: int | None = None
    ) -> list[LogSplit]:
        """Cut the records that start in [start, end) into pieces; None: all there are.

        Both have to be places where a record starts, or could: the bounds of files, the end of
        the log. A file that is missing between two others becomes a split with a fault.
        """
        start = self.start if start is None else start
        return list(self._splits(split_bytes, start, self.end if end is None else end))

    def _splits(self, split_bytes: int, start: int, end: int) -> Iterator[LogSplit]:
        for number, file in enumerate(self.files):
            if file.end_offset <= start:
                continue
            if file.offset >= end:
                break
            if number and start < file.offset != self.files[number - 1].end_offset:
                yield self._missing_file(self.files[number - 1], file)
            is_last = file is self._last
            log_end = self.end - file.offset if is_last else file.size
            first = max(start - file.offset, 0)
            stop = min(end - file.offset, log_end)
            if first >= stop:
                continue
            cuts = cut_file(self.place.storage, file, first, stop, split_bytes, self.starts)
            for cut, following in zip(cuts, [*cuts[1:], stop], strict=True):
                yield LogSplit(
                    self.place.name, file, cut, following, log_end, is_last, self.place.address
                )

    def _missing_file(self, before: DataFile, after: DataFile) -> LogSplit:
        fault = (
            f"the log goes on at {after.offset}: the file between is missing. If this log is spread"
            " over several directories, name them all with the option commitLogDirectories"
        )
        hole = DataFile(before.path, before.end_offset, 0)
        return LogSplit(self.place.name, hole, 0, 0, 0, is_last_file=False, fault=fault)

    def _known_start(self, file: DataFile, before: int) -> int:
        """A record start in the file, near the offset `before` if one is known, else 0."""
        if self.proven is not None and file.offset < self.proven < before:
            return self.proven - file.offset
        known = self.starts.last_before(before)
        start = max((known or 0) - file.offset, 0)
        if start:
            with self.place.storage.opened(file.path) as opened:
                start = start if is_record(opened, file, start) else 0
        return start
