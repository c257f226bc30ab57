"""Plans to read some topics through their consume queues instead of the whole log.

A queue names the records of one topic and queue id, in log order and without a gap in their queue
offsets. So the units between two that the log confirms are all the records that there are between
them, and what a scan would select can be read without the rest. It is done where that is cheaper
(`is_cheaper`) and where the queues can be relied on:

    the log           has no missing file, and at least `LOG_BYTES_MIN`; no file `abort` beside it,
                      unless a node has the store open: after a crash queues may lag in places
    a wanted queue    has files of one size without a gap, the last one begun and not full, nothing
                      past its last unit; its last unit and those around a split are confirmed by
                      the log, by topic and queue offset too
    its first units   were never deleted; if they were, the log is scanned up to the first left
    past the queues   what no queue names yet is scanned: from the end of the last record of any
                      queue on, for records are queued in log order

What this cannot show: a queue whose directory was deleted, and with it what a topic had before it
was deleted and made anew; such records are in the log, and no broker would find them.

If any of this is not so, the log is scanned. A task that reads a unit which the log contradicts
scans the rest of its split (`queue_read`).

Source: RocketMQ 5.3.3, DefaultMessageStore.ReputMessageService, ConsumeQueue.deleteExpiredFile.
"""

import bisect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from tandem.data_file import is_locked
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import StoreLog, in_window, time_bounds
from tandem.spark.commitlog.queue_starts import (
    QueueUnits,
    load_units,
    queue_folders,
    sub_directories,
)
from tandem.spark.commitlog.split import LogSplit, QueueRange, QueueSplit
from tandem.spark.commitlog.storage import Storage, is_remote
from tandem.wire.record_rule import look, record_parts
from tandem.wire.store_layout import FILLER_SIZE
from tandem.wire.system_topics import LMQ_PREFIX

Split: TypeAlias = LogSplit | QueueSplit

LOG_BYTES_MIN: Final = 64 * 1024 * 1024
"""A smaller log is scanned sooner than planned."""

# Processor seconds, fitted to benchmarks/spark_queues.py; only their proportions matter. What a
# selected record costs either way is left out.
SCANNED_RECORD_SECONDS: Final = 0.25e-6
SCANNED_BYTE_SECONDS: Final = 0.9e-9
READ_RECORD_SECONDS: Final = 2e-6
SHARE_MAX: Final = 1 / 4
"""Of the records: with more of them, a disk that has to be read does better from end to end."""


def is_cheaper(wanted_records: int, records: int, log_bytes: int) -> bool:
    """Say whether reading some records one by one is cheaper than walking through all."""
    scan = records * SCANNED_RECORD_SECONDS + log_bytes * SCANNED_BYTE_SECONDS
    is_few = wanted_records <= records * SHARE_MAX
    return is_few and wanted_records * READ_RECORD_SECONDS < scan


def plan_store(
    log: StoreLog, options: ScanOptions, first: int | None = None, last: int | None = None
) -> list[Split]:
    """Cut what `options` select of a store into splits of either kind.

    `first` and `last` bound the physical offsets where records begin, if they are given.
    """
    start, end = time_bounds(log, options)
    start = start if first is None else max(start, first)
    end = end if last is None else min(end, last)
    if start < end and _is_worth_a_look(log, options, start, end):
        splits = _through_queues(log, options, start, end)
        if splits is not None:
            return splits
    return list(in_window(log.splits(options.split_bytes, start, end), log, options))


def _is_worth_a_look(log: StoreLog, options: ScanOptions, start: int, end: int) -> bool:
    # Half and rolled back messages are in no queue.
    if options.consume_queues == "never" or options.with_system_topics or not log.place.root:
        return False
    if options.topics is None and options.topic_pattern is None and options.queues is None:
        return False
    if end - start < LOG_BYTES_MIN and options.consume_queues != "always":
        return False
    held = sum(file.size for file in log.files)
    return held == log.files[-1].end_offset - log.start and _is_settled(log)


def _is_settled(log: StoreLog) -> bool:
    """Say whether all queues are as far as the log allows: closed cleanly, or being written."""
    place = log.place
    if all(entry.name != "abort" for entry in place.storage.entries(place.root)):
        return True
    return not is_remote(place.address) and is_locked(Path(place.beside("lock")))


def _through_queues(
    log: StoreLog, options: ScanOptions, start: int, end: int
) -> list[Split] | None:
    every = StoreQueues(log)
    wanted = every.wanted(options)
    if wanted is None or not all(queue.is_sound(log, every.file_units) for queue in wanted):
        return None
    queued_end = every.queued_end()
    if queued_end is None or queued_end > log.held_end:
        return None
    first = max([start, *(queue.complete_from for queue in wanted)])
    last = min(end, queued_end)
    if first >= last:
        return None
    count = sum(queue.count(first, last) for queue in wanted)
    records = every.records(first, last)
    if options.consume_queues != "always" and not is_cheaper(count, records, last - first):
        return None
    # As many bytes of log as make a task read about `split_bytes` of them.
    share = max(count / max(records, 1), 1 / 4096)
    piece_bytes = max(int(options.split_bytes / share), options.split_bytes)
    pieces = log.splits(piece_bytes, first, last)
    splits: list[Split] = list(log.splits(options.split_bytes, start, first))
    splits += _queue_splits(log, pieces, piece_bytes, wanted)
    splits += log.splits(options.split_bytes, last, end)
    return splits


def _queue_splits(
    log: StoreLog, pieces: Sequence[LogSplit], piece_bytes: int, wanted: Sequence["WantedQueue"]
) -> Iterator[Split]:
    """Put pieces of small files together, and say which units are in each range."""
    for scans in _gathered(pieces, piece_bytes):
        start = scans[0].file.offset + scans[0].start
        end = scans[-1].file.offset + scans[-1].end
        if not all(queue.is_bounded(log, start, end) for queue in wanted):
            yield from scans
            continue
        ranges = tuple(queue.range(start, end) for queue in wanted)
        ranges = tuple(each for each in ranges if each.pieces)
        if ranges:
            yield QueueSplit(scans, ranges)


def _gathered(pieces: Sequence[LogSplit], piece_bytes: int) -> Iterator[tuple[LogSplit, ...]]:
    together: list[LogSplit] = []
    size = 0
    for piece in pieces:
        if together and size + piece.end - piece.start > piece_bytes:
            yield tuple(together)
            together, size = [], 0
        together.append(piece)
        size += piece.end - piece.start
    if together:
        yield tuple(together)


class StoreQueues:
    """All consume queues of a store."""

    def __init__(self, log: StoreLog) -> None:
        self._log = log
        self._storage = log.place.storage
        self._folder = log.place.beside("consumequeue")
        listed = self._storage.listed(self._folder) if self._folder else self._storage
        self._units = {
            path: QueueUnits(listed, path) for path in queue_folders(listed, self._folder)
        }

    @property
    def file_units(self) -> int:
        """How many units most queue files have."""
        counts = Counter(count for units in self._units.values() for count in units.counts)
        return max(counts, key=lambda count: (counts[count], count), default=0)

    def wanted(self, options: ScanOptions) -> list["WantedQueue"] | None:
        """Return the queues with what is selected; None if they would not have all of it."""
        topics = {path.split("/")[-2] for path in self._units}
        pattern = None if options.topic_pattern is None else re.compile(options.topic_pattern)

        def is_wanted(topic: str) -> bool:
            if pattern is not None:
                return pattern.fullmatch(topic) is not None
            return options.topics is None or topic in options.topics

        # Batches are in queues of another kind; a light queue names records of other topics.
        batches = sub_directories(self._storage, self._log.place.beside("batchconsumequeue"))
        if any(is_wanted(topic) for topic in batches):
            return None
        chosen = {topic for topic in topics if is_wanted(topic)}
        if any(topic.startswith(LMQ_PREFIX) for topic in chosen):
            return None
        found = []
        for path, units in self._units.items():
            topic, queue_id = path.split("/")[-2:]
            if topic in chosen and (options.queues is None or int(queue_id) in options.queues):
                found.append(WantedQueue(topic, int(queue_id), units, self._storage))
        return found

    def queued_end(self) -> int | None:
        """Return up to where in the log every record has its unit; None if the log denies it."""
        last = (0, 0)
        for units in self._units.values():
            if units.paths and units.end > units.bases[0]:
                last = max(last, units.unit(units.end - 1))
        offset, size = last
        if not size:
            return None
        return offset + size if record_in_log(self._log, offset, size) else None

    def records(self, start: int, end: int) -> int:
        """Estimate how many records [start, end) has: those of all queues, spread evenly."""
        total = sum(
            units.end - units.index_of(self._log.start)
            for units in self._units.values()
            if units.paths
        )
        return total * (end - start) // max(self._log.end - self._log.start, 1)


class WantedQueue:
    """One queue whose records are asked for."""

    def __init__(self, topic: str, queue_id: int, units: QueueUnits, storage: Storage) -> None:
        self._storage = storage
        self._topic = topic
        self._queue_id = queue_id
        self._units = units
        self._first = units.bases[0] if units.paths else 0
        if units.paths and units.unit(self._first)[1] == FILLER_SIZE:
            self._first = units.index_of(1)

    @property
    def _is_empty(self) -> bool:
        return not self._units.paths or self._units.end <= self._first

    @property
    def complete_from(self) -> int:
        """From which physical offset on the queue has every record of its own."""
        if self._is_empty or not self._first:
            return 0
        return self._units.unit(self._first)[0]

    def is_sound(self, log: StoreLog, file_units: int) -> bool:
        """Say whether the files are whole, and the log has the last record.

        An empty queue is not: its files are made for a first unit. Nor is one whose last file is
        empty or full, for then units may have been lost; nor one with a file of another length.
        """
        units = self._units
        if self._is_empty or not units.is_whole or set(units.counts) != {file_units}:
            return False
        if not units.bases[-1] < units.end < units.bases[-1] + file_units:
            return False
        if not units.ends_in_zeros():
            return False
        known = {units.end - 1, *([self._first] if self._first else [])}
        return all(self._is_confirmed(log, index) for index in known)

    def is_bounded(self, log: StoreLog, start: int, end: int) -> bool:
        """Say whether the log confirms the units around [start, end), as far as it holds them."""
        first, last = self._units.index_of(start), self._units.index_of(end)
        around = [index for index in (first - 1, last) if self._first <= index < self._units.end]
        return all(self._is_confirmed(log, index) for index in around)

    def _is_confirmed(self, log: StoreLog, index: int) -> bool:
        offset, size = self._units.unit(index)
        if offset < log.start:
            return self._rises_to(index, log.start)
        return record_in_log(log, offset, size) == (self._topic, self._queue_id, index)

    def _rises_to(self, index: int, log_start: int) -> bool:
        """Say whether all units up to `index` are of records that the log no longer holds."""
        pieces = self._units.pieces(self._first, index)
        return bool((load_units(self._storage, pieces)["offset"] < log_start).all())

    def count(self, start: int, end: int) -> int:
        """How many records of [start, end) are in the queue."""
        return max(self._units.index_of(end) - self._units.index_of(start), 0)

    def range(self, start: int, end: int) -> QueueRange:
        """Return the units of [start, end)."""
        first = max(self._units.index_of(start), self._first)
        pieces = self._units.pieces(first, self._units.index_of(end))
        return QueueRange(self._topic, self._queue_id, first, tuple(pieces))


def record_in_log(log: StoreLog, offset: int, size: int) -> tuple[str, int, int] | None:
    """Return topic, queue id and queue offset of the record at `offset`; None if none is there."""
    number = bisect.bisect_right(log.files, offset, key=lambda file: file.offset) - 1
    if number < 0 or offset + size > log.files[number].end_offset:
        return None
    file = log.files[number]
    data = bytearray(size)
    with log.place.storage.opened(file.path) as opened:
        got = opened.read_into(memoryview(data), offset - file.offset)
    if got < size or look(data, 0, size) != (None, "", size):
        return None
    parts = record_parts(data, offset, 0)
    if isinstance(parts, str):
        return None
    topic = data[parts.topic_start : parts.topic_end].decode("utf-8", "replace")
    return topic, int.from_bytes(data[12:16]), int.from_bytes(data[20:28])
