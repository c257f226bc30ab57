"""Checks a whole store: every record, queue unit and index entry, each against the others.

    queues, index files     each by itself; every unit handed on to the piece of log it leads into
    pieces of the log       every record, and all units that lead there
    the end of the log      what all pieces together say about it, and the checkpoint

The three steps run in as many processes as wanted. A piece needs memory for its records' columns
and the units that lead there, a queue or index file for a block of units, so the size of a store
does not matter.

Where does the log end? At the first place without a sound record after which nothing has to be
kept. A sound record after such a place has to be kept if the checkpoint says that it was on disk
before the last stop, or, after a clean stop, if a queue knows it: then the place is damage. That
is the rule by which a store recovers (`store.log.log_end`), and after a clean stop a stricter one.
"""

import bisect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tandem.data_file import DataFile, data_end
from tandem.log.block_check import check_closed_files
from tandem.log.cluster_files import check_cluster_files
from tandem.log.compaction_check import check_compaction
from tandem.log.files import open_file
from tandem.log.findings import Finding, FindingList, FindingReport
from tandem.log.index_check import IndexCheck, check_index
from tandem.log.index_file import IndexSettings, find_settings, read_header
from tandem.log.index_match import IndexFacts, IndexFileFacts
from tandem.log.log_end import LogEnd, find_log_end
from tandem.log.piece_check import PieceCheck, PieceChecker, PieceTask, StoreFacts
from tandem.log.pieces import PieceMap, Segment, cut_log
from tandem.log.queue_check import QueueCheck, check_queue
from tandem.log.queue_match import QueueFacts
from tandem.log.record_filter import time_text
from tandem.log.small_files import check_small_files, noted_start
from tandem.log.store_directory import QueueFiles, StoreDirectory
from tandem.log.workers import Workers
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL
from tandem.wire.store_layout import (
    CHECKPOINT_BYTES,
    INDEX_HEADER_BYTES,
    INDEX_UNIT_BYTES,
    QUEUE_KINDS,
    SAFETY_MARGIN_MS,
)

LOG_FILE_BYTES_MAX: Final = 1 << 31
"""Of a setting of ours; RocketMQ's lengths are Java's `int`, one byte less."""

BATCHES_A_JOB: Final = 32
"""Enough to share out evenly and to show progress."""

ALONE_BYTES_MAX: Final = 48 << 20
"""A smaller store is done before a second process has started."""

UNITS_ALONE_BYTES_MAX: Final = 256 << 20
"""How many bytes of units are checked here while the other processes start."""


AHEAD_BYTES_MAX: Final = 1 << 40
"""No log that was cut off was longer; a unit that leads further is damaged itself."""

Progress = Callable[[int, int], None]


class VerifyReport(FindingReport, frozen=True, kw_only=True):
    """What was checked, and what was found. Offsets are physical; `log_end` is not included."""

    path: str
    is_live: bool
    has_abort: bool
    log_start: int
    log_end: int
    record_count: int
    queue_count: int
    unit_count: int
    index_file_count: int
    index_count: int
    bytes_read: int


def verify_store(
    store: StoreDirectory,
    *,
    jobs: int = 1,
    index_settings: IndexSettings | None = None,
    message_delay_level: str = MESSAGE_DELAY_LEVEL,
    on_progress: Progress = lambda done, total: None,
) -> VerifyReport:
    """Check everything in `store`; `on_progress` gets bytes done and bytes in all.

    Raises:
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
        BadRequestError: `index_settings` do not fit the index files.
        WorkerError: a worker process died.
        ValueError: `message_delay_level` cannot be read.
    """
    verifier = _Verifier(store, index_settings, message_delay_level, on_progress)
    small = verifier.total_bytes <= ALONE_BYTES_MAX
    with Workers(1 if small else jobs) as workers:
        return verifier.run(workers)


class _QueueTask(msgspec.Struct, frozen=True):
    number: int
    queue: QueueFiles
    pieces: PieceMap
    file_bytes: int


class _IndexTask(msgspec.Struct, frozen=True):
    number: int
    file: DataFile
    settings: IndexSettings
    pieces: PieceMap


class _Batch(msgspec.Struct, frozen=True):
    facts: StoreFacts
    tasks: list[PieceTask]


def _check_queue(task: _QueueTask) -> QueueCheck:
    return check_queue(task.queue, task.number, task.pieces, task.file_bytes)


def _check_index(task: _IndexTask) -> IndexCheck:
    return check_index(task.file, task.number, task.settings, task.pieces)


def _check_batch(batch: _Batch) -> list[PieceCheck]:
    checker = PieceChecker(batch.facts)
    return [checker.check(task) for task in batch.tasks]


class _Verifier:
    def __init__(
        self,
        store: StoreDirectory,
        index_settings: IndexSettings | None,
        message_delay_level: str,
        on_progress: Progress,
    ) -> None:
        self._store = store
        self._levels = message_delay_level
        self._on_progress = on_progress
        self._done_bytes = 0
        self._found = FindingList()
        self._pieces = cut_log(store.commit_log)
        self._map = PieceMap(self._pieces)
        self._settings = find_settings(store.index_files, index_settings)
        checkpoint = store.checkpoint
        self._safe_ms = 0
        if checkpoint is not None:
            known = min(checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms)
            self._safe_ms = max(0, known - SAFETY_MARGIN_MS)
        self._index_bytes = [_index_bytes(file) for file in store.index_files]
        self.total_bytes = (
            sum(file.size for file in store.commit_log)
            + sum(file.size for queue in store.queues for file in queue.files)
            + sum(self._index_bytes)
        )

    def run(self, workers: Workers) -> VerifyReport:
        self._check_directory()
        check_closed_files(self._store, self._found, workers)
        root = Path(self._store.path)
        check_cluster_files(root.resolve().parent, self._found)
        if not self._store.is_live:
            check_small_files(root, self._found)
            check_compaction(root, self._found)
            start, first = noted_start(root), self._store.log_start
            if 0 <= start < first:
                what = f"the log begins at {first}, and has to begin at {start}"
                self._found.add("log-start", f"{root}/commitlog", -1, what, start)
        queues = self._check_queues(workers)
        indexes = self._check_indexes(workers)
        checks = self._check_pieces(workers, queues, indexes)
        ahead = sum(check.ahead_count for check in queues)
        end = find_log_end(self._store, checks, ahead)
        by_check = [check.findings for check in queues]
        by_check += [check.findings for check in indexes]
        by_check += [check.findings for check in checks]
        found = [finding for findings in by_check for finding in findings]
        unsafe = [check.unsafe_offset for check in checks if check.unsafe_offset >= 0]
        lost = self._add_before(end, self._settled(found, min(unsafe, default=end.offset), indexes))
        self._judge_end(end, queues, lost)
        index_ahead = end.entries_past + sum(check.ahead_count for check in indexes)
        self._judge_index_end(end, index_ahead + lost.get("index-entry", 0))
        self._judge_checkpoint(end)
        return VerifyReport(
            path=self._store.path,
            is_live=self._store.is_live,
            has_abort=self._store.has_abort,
            log_start=self._store.log_start,
            log_end=end.offset,
            record_count=sum(check.record_count for check in checks),
            queue_count=len(queues),
            unit_count=sum(check.unit_count for check in queues),
            index_file_count=len(indexes),
            index_count=sum(check.unit_count for check in indexes),
            bytes_read=self.total_bytes,
            findings=self._found.in_order(),
        )

    def _advance(self, count: int) -> None:
        self._done_bytes += count
        self._on_progress(self._done_bytes, self.total_bytes)

    def _check_directory(self) -> None:
        store = self._store
        for stray in store.strays:
            self._found.add("stray-file", stray.path, -1, stray.reason)
        usual = store.log_file_bytes
        for at, file in enumerate(store.commit_log):
            is_empty_last = not file.size and at == len(store.commit_log) - 1
            if file.size != usual and not is_empty_last:
                what = f"has {file.size} bytes, others have {usual}"
                self._found.add("log-file-length", file.path, -1, what)
            if file.size > LOG_FILE_BYTES_MAX:
                what = f"has {file.size} bytes, the most are {LOG_FILE_BYTES_MAX}"
                self._found.add("log-file-too-long", file.path, -1, what)
            before = store.commit_log[at - 1].end_offset if at else file.offset
            if before != file.offset:
                what = f"begins at {file.offset}, the file before it ends at {before}"
                self._found.add("log-file-missing", file.path, -1, what, before)
        if store.checkpoint is None and store.checkpoint_bytes >= 0:
            what = f"has {store.checkpoint_bytes} bytes, expected {CHECKPOINT_BYTES}"
            self._found.add("checkpoint-length", store.checkpoint_path, -1, what)
        if not store.queues and store.commit_log:
            what = "no directories of queues"
            self._found.add("queues-absent", f"{store.path}/consumequeue", -1, what)
        if not store.index_files and store.commit_log:
            self._found.add("index-absent", f"{store.path}/index", -1, "no index files")

    def _check_queues(self, workers: Workers) -> list[QueueCheck]:
        sizes = {kind: self._store.queue_file_bytes(kind) for kind in QUEUE_KINDS}
        tasks = [
            _QueueTask(number, queue, self._map, sizes[queue.kind])
            for number, queue in enumerate(self._store.queues)
        ]

        def on_done(task: _QueueTask) -> None:
            self._advance(sum(file.size for file in task.queue.files))

        size = sum(file.size for queue in self._store.queues for file in queue.files)
        return workers.map(_check_queue, tasks, on_done, alone=size <= UNITS_ALONE_BYTES_MAX)

    def _check_indexes(self, workers: Workers) -> list[IndexCheck]:
        files = self._store.index_files
        if self._settings is None:
            for file, used in zip(files, self._index_bytes, strict=True):
                self._advance(used)
                if used > INDEX_HEADER_BYTES:
                    what = "its slots and entries cannot be told apart"
                    self._found.add("index-settings", file.path, -1, what)
            return []
        tasks = [_IndexTask(n, file, self._settings, self._map) for n, file in enumerate(files)]
        alone = sum(self._index_bytes) <= UNITS_ALONE_BYTES_MAX

        def on_done(task: _IndexTask) -> None:
            self._advance(self._index_bytes[task.number])

        return workers.map(_check_index, tasks, on_done, alone=alone)

    def _check_pieces(
        self, workers: Workers, queues: Sequence[QueueCheck], indexes: Sequence[IndexCheck]
    ) -> list[PieceCheck]:
        facts = self._facts(queues, indexes)
        into_queues = _by_piece(queues, len(self._pieces))
        into_index = _by_piece(indexes, len(self._pieces))
        tasks = [
            PieceTask(piece, into_queues[n], into_index[n]) for n, piece in enumerate(self._pieces)
        ]
        size = max(1, -(-len(tasks) // (workers.jobs * BATCHES_A_JOB)))
        batches = [_Batch(facts, tasks[at : at + size]) for at in range(0, len(tasks), size)]

        def on_done(batch: _Batch) -> None:
            self._advance(sum(task.piece.stop - task.piece.start for task in batch.tasks))

        done = workers.map(_check_batch, batches, on_done)
        checks = [check for batch in done for check in batch]
        self._check_seams(PieceChecker(facts), tasks, checks)
        return checks

    def _facts(self, queues: Sequence[QueueCheck], indexes: Sequence[IndexCheck]) -> StoreFacts:
        headers = [c.header for c in indexes if c.header and c.unit_count]
        return StoreFacts(
            path=self._store.path,
            is_settled=self._store.is_settled,
            topics=self._store.topics,
            safe_ms=self._safe_ms,
            queues=[
                QueueFacts(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    is_batch=queue.is_batch,
                    path=queue.path,
                    ext_files=queue.ext_files,
                    first_offset=check.first_offset,
                    next_offset=check.next_offset,
                    first_physical_offset=check.first_physical_offset,
                )
                for queue, check in zip(self._store.queues, queues, strict=True)
            ],
            index=IndexFacts(
                begin=min(header.begin_physical_offset for header in headers),
                end=max(header.end_physical_offset for header in headers),
                files=list(_index_file_facts(indexes)),
            )
            if headers
            else None,
            message_delay_level=self._levels,
        )

    def _check_seams(
        self, checker: PieceChecker, tasks: list[PieceTask], checks: list[PieceCheck]
    ) -> None:
        """Check a piece again that does not begin where the one before it ended."""
        for number in range(1, len(checks)):
            piece, end = tasks[number].piece, checks[number - 1].end
            if tasks[number - 1].piece.file == piece.file and end != piece.start:
                moved = msgspec.structs.replace(piece, start=min(end, piece.stop))
                again = msgspec.structs.replace(tasks[number], piece=moved)
                checks[number] = msgspec.structs.replace(
                    checker.check(again), end=max(end, piece.stop)
                )

    # -- the verdict -----------------------------------------------------------------------------

    def _add_before(self, end: LogEnd, findings: Sequence[Finding]) -> dict[str, int]:
        """Take over the findings that count; return how many are past the log's end, by kind."""
        past: dict[str, int] = {}
        for place in end.damages:
            what = f"offset {place.offset}: {place.reason}"
            self._found.add(place.kind, place.path, place.position, what, place.offset)
        for finding in findings:
            if finding.offset >= end.offset and finding.kind not in _OF_FILES:
                past[finding.kind] = past.get(finding.kind, 0) + finding.count
            else:
                self._found.extend([finding])
        return past

    def _settled(
        self, findings: Sequence[Finding], unsafe_offset: int, indexes: Sequence[IndexCheck]
    ) -> list[Finding]:
        """Without a clean stop, excuse what the checkpoint does not vouch for.

        Of an index that is a file that ends past its time: RocketMQ and we build it again.
        """
        if self._store.is_settled:
            return list(findings)
        vouched_ms = self._store.checkpoint.index_msg_timestamp_ms if self._store.checkpoint else 0
        doubtful = {
            file.path
            for file, check in zip(self._store.index_files, indexes, strict=False)
            if check.header is None or check.header.end_timestamp_ms > vouched_ms
        }
        return [
            msgspec.structs.replace(finding, kind="unsynced")
            if (finding.kind in _OF_UNITS and finding.offset >= unsafe_offset)
            or finding.file in doubtful
            or (finding.kind == "index-key-missing" and doubtful)
            else finding
            for finding in findings
        ]

    def _judge_end(self, end: LogEnd, queues: Sequence[QueueCheck], lost: dict[str, int]) -> None:
        store = self._store
        units = end.units_past + lost.get("unit-without-record", 0)
        # One bad unit may lead anywhere; a queue that ends past the log has known more of it.
        limit = end.offset + AHEAD_BYTES_MAX
        has_units = any(end.offset <= check.last_physical_offset < limit for check in queues)
        path, position = self._place_of(end)
        confirmed = store.checkpoint.confirm_physical_offset if store.checkpoint else 0
        tail = self._tail_words(end)
        if store.is_live:
            if tail:
                self._found.add("being-written", path, position, tail, end.offset)
            return
        # RocketMQ's confirm offset is where the last record that a recovery found starts.
        cut_here = end.last_offset == confirmed > 0
        if confirmed > end.offset or (store.is_settled and has_units and not cut_here):
            known = f"{max(units, 1)} queue units" if has_units else f"the checkpoint ({confirmed})"
            what = f"the log ends at {end.offset}, but {known} know more of it"
            self._found.add("log-end-damaged", path, position, what, end.offset)
            return
        if tail:
            kind = "leftover" if store.is_settled else "torn-tail"
            self._found.add(kind, path, position, tail, end.offset)
        if units:
            kind = "unit-without-record" if store.is_settled and not cut_here else "queues-ahead"
            what = f"{units} queue units lead past the end of the log, {end.offset}"
            self._found.add(kind, path, position, what, end.offset)

    def _place_of(self, end: LogEnd) -> tuple[str, int]:
        if end.tail is not None:
            return end.tail.path, end.tail.position
        files = self._store.commit_log
        return (files[-1].path, files[-1].size) if files else (f"{self._store.path}/commitlog", -1)

    def _tail_words(self, end: LogEnd) -> str:
        """Say what is past the end, "" if nothing is."""
        if end.tail is None or end.is_bare:
            return ""
        at = bisect.bisect_right([f.offset for f in self._store.commit_log], end.offset) - 1
        last = [self._store.commit_log[at]] if at >= 0 else []
        count = 0
        for file in (*last, *self._store.commit_log[at + 1 :]):
            start = max(0, end.offset - file.offset)
            with open_file(file.path) as descriptor:
                count += data_end(descriptor, start, file.size) - start
        reason = end.tail.reason
        return f"the log ends at {end.offset}: {reason}; {count} bytes follow" if count else ""

    def _judge_index_end(self, end: LogEnd, count: int) -> None:
        if count and not self._store.is_live:
            what = f"{count} entries lead past the end of the log, {end.offset}"
            self._found.add("index-ahead", self._store.index_files[-1].path, -1, what, end.offset)

    def _judge_checkpoint(self, end: LogEnd) -> None:
        checkpoint = self._store.checkpoint
        if checkpoint is None or self._store.is_live:
            return
        if self._store.checkpoint_bytes != CHECKPOINT_BYTES:
            what = f"has {self._store.checkpoint_bytes} bytes, expected {CHECKPOINT_BYTES}"
            self._found.add("checkpoint-length", self._store.checkpoint_path, -1, what)
        known = max(checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms)
        if end.newest_ms and known > end.newest_ms:
            what = f"knows messages up to {time_text(known)}, the log to {time_text(end.newest_ms)}"
            self._found.add("checkpoint-ahead", self._store.checkpoint_path, 0, what)


_OF_FILES: Final = frozenset({"queue-leftover", "queue-gap", "filler-misplaced"})
_OF_UNITS: Final = frozenset(
    {
        "unit-missing",
        "unit-wrong",
        "unit-without-record",
        "unit-order",
        "queue-gap",
        "filler-misplaced",
        "ext-unit",
    }
)


def _index_bytes(file: DataFile) -> int:
    """How much of an index file is in use, about: the rest is a hole."""
    with open_file(file.path) as descriptor:
        header = read_header(descriptor)
    used = max(0, header.index_count) * INDEX_UNIT_BYTES if header else 0
    return min(file.size, INDEX_HEADER_BYTES + used) if used > INDEX_UNIT_BYTES else 0


def _index_file_facts(checks: Sequence[IndexCheck]) -> Iterator[IndexFileFacts]:
    end_before_ms = -1
    for check in checks:
        header = check.header
        yield IndexFileFacts(
            begin_timestamp_ms=header.begin_timestamp_ms if header else 0,
            end_timestamp_ms=header.end_timestamp_ms if header else 0,
            last_unit=check.unit_count,
            end_before_ms=end_before_ms,
        )
        end_before_ms = header.end_timestamp_ms if header else -1


def _by_piece(
    checks: Sequence[QueueCheck] | Sequence[IndexCheck], count: int
) -> list[list[Segment]]:
    """Return the segments of all checks for each piece; those outside the log go nowhere."""
    pieces: list[list[Segment]] = [[] for _ in range(count)]
    for check in checks:
        for number, segment in check.segments:
            if 0 <= number < count:
                pieces[number].append(segment)
    return pieces
