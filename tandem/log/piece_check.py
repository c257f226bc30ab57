"""One piece of a log against everything that leads into it.

Every record of the piece is read: lengths, place, CRCs. What queues and index have to hold of it is
computed and compared with the units that lead here, all as columns. A worker does this with nothing
but files and what `PieceTask` and `StoreFacts` say; the verdict on the end of the log is left to
`log_end`, which sees all pieces.
"""

import os
from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np

from tandem.log.break_table import BreakTable
from tandem.log.files import open_file
from tandem.log.findings import FINDINGS_KEPT_MAX, Finding, FindingList
from tandem.log.index_match import IndexFacts, match_index
from tandem.log.log_scan import FileScan, LogBreak
from tandem.log.pieces import LogPiece, Segment
from tandem.log.queue_match import QueueFacts, match_units
from tandem.log.record_facts import QueueNumbers, RecordFacts, facts_of, join_facts
from tandem.wire.delay_level import DelayLevels
from tandem.wire.record_keys import hash_tags
from tandem.wire.record_rule import ScanStop
from tandem.wire.record_scan import Bools, Int64s


class StoreFacts(msgspec.Struct, frozen=True):
    """What every worker has to know of a store. `queues` and `index` are those of its checks.

    Up to `safe_ms` the checkpoint vouches for log and queues. `topics` are those that
    config/topics.json knows, None if there is no such file.
    """

    path: str
    is_settled: bool
    topics: frozenset[str] | None
    safe_ms: int
    queues: list[QueueFacts]
    index: IndexFacts | None
    message_delay_level: str


class PieceTask(msgspec.Struct, frozen=True):
    """A piece, and the units of queues and index files that lead into it."""

    piece: LogPiece
    queue_segments: list[Segment]
    index_segments: list[Segment]


class Sound(msgspec.Struct, frozen=True):
    """A sound record, and whether a queue unit leads to it."""

    offset: int
    store_timestamp_ms: int
    has_unit: bool


class BreakFacts(msgspec.Struct, frozen=True):
    """A place without a sound record.

    `last_offset` is where the last sound record before it in the piece starts, -1 for none;
    `after` is the first one after it.

    `kind` is that of the finding it becomes if it is damage; `unit_count` says how many queue units
    lead there, `entry_count` how many index entries.
    """

    kind: str
    path: str
    position: int
    offset: int
    stop: ScanStop
    reason: str
    last_offset: int
    after: Sound | None
    unit_count: int = 0
    entry_count: int = 0


class PieceCheck(msgspec.Struct, frozen=True):
    """What was found in one piece. `end` is the position where the walk through it stopped.

    `unsafe_offset` is the first record newer than `StoreFacts.safe_ms`, -1 if there is none.
    """

    end: int
    record_count: int
    unit_count: int
    index_count: int
    first: Sound | None
    last_offset: int
    newest_ms: int
    unsafe_offset: int
    breaks: list[BreakFacts]
    findings: list[Finding]


class PieceChecker:
    """Checks pieces of one store, one after the other."""

    def __init__(self, facts: StoreFacts) -> None:
        self._facts = facts
        self._numbers = QueueNumbers([(os.fsencode(q.topic), q.queue_id) for q in facts.queues])
        self._levels = DelayLevels(facts.message_delay_level)

    def check(self, task: PieceTask) -> PieceCheck:
        """Check one piece.

        Raises:
            UnreadableFileError: a file cannot be read, or was removed meanwhile.
        """
        found = FindingList()
        with open_file(task.piece.file.path) as descriptor:
            scan = FileScan(descriptor, task.piece.file, task.piece.start, task.piece.stop)
            records, breaks = self._read(scan)
        damaged = records.offset[list(records.crc_faults)]
        unit_breaks, entry_breaks = BreakTable(breaks, damaged), BreakTable(breaks, damaged)
        segments = task.queue_segments
        units = match_units(records, unit_breaks, self._facts.queues, segments, found)
        if self._facts.queues:
            self._missing_units(records, units.covered, found)
        index_count = 0
        if self._facts.index is not None:
            segments = task.index_segments
            path = task.piece.file.path
            index_count = match_index(
                *(records, entry_breaks, self._facts.index, segments, path, found),
                partial(_hashed_tags, task.piece),
            )
        sound = np.flatnonzero(records.is_sound)
        last = int(sound[-1]) if len(sound) else -1
        unsafe = np.flatnonzero(records.store_timestamp_ms > self._facts.safe_ms)
        places = sorted([*_damaged(records), *breaks], key=lambda place: place.offset)
        return PieceCheck(
            end=scan.end,
            record_count=len(records),
            unit_count=units.unit_count,
            index_count=index_count,
            first=_sound(records, units.covered, int(sound[0])) if len(sound) else None,
            last_offset=int(records.offset[last]) if len(sound) else -1,
            newest_ms=int(records.store_timestamp_ms[sound].max()) if len(sound) else 0,
            unsafe_offset=int(records.offset[unsafe[0]]) if len(unsafe) else -1,
            breaks=[
                msgspec.structs.replace(
                    place,
                    unit_count=unit_breaks.counts.get(place.offset, 0),
                    entry_count=entry_breaks.counts.get(place.offset, 0),
                )
                for place in _break_facts(places, records, units.covered)
            ],
            findings=found.all(),
        )

    def _read(self, scan: FileScan) -> tuple[RecordFacts, list[LogBreak]]:
        parts = []
        breaks: list[LogBreak] = []
        for window in scan.windows():
            breaks += window.breaks
            if len(window.columns):
                parts.append(facts_of(window, self._numbers, self._levels))
        return join_facts(parts), breaks

    def _missing_units(self, records: RecordFacts, covered: Bools, found: FindingList) -> None:
        missing = np.flatnonzero(records.is_queued & ~covered)
        for owner in np.unique(records.owner[missing]).tolist():
            rows = missing[records.owner[missing] == owner]
            if owner < 0:
                self._missing_queues(records, rows.tolist(), found)
                continue
            queue = self._facts.queues[owner]
            numbers = records.queue_offset[rows]
            is_earlier = (records.offset[rows] < queue.first_physical_offset) & (
                numbers >= queue.first_offset
            )
            is_late = ~is_earlier & (numbers >= queue.next_offset)
            late = "unit-missing" if self._facts.is_settled else "dispatch-behind"
            for kind, some in (
                ("earlier-life", rows[is_earlier]),
                (late, rows[is_late]),
                ("unit-missing", rows[~is_earlier & ~is_late]),
            ):
                _add_rows(found, kind, queue.path, some.tolist(), records)

    def _missing_queues(self, records: RecordFacts, rows: list[int], found: FindingList) -> None:
        by_queue: dict[str, list[int]] = {}
        for row in rows:
            by_queue.setdefault(records.queue_names[row], []).append(row)
        topics = self._facts.topics or frozenset()
        for name, some in by_queue.items():
            kind = "queue-missing" if name.rpartition("/")[0] in topics else "queue-unknown"
            kind = kind if self._facts.is_settled else "dispatch-behind"
            path = f"{self._facts.path}/consumequeue/{name}"
            what = f"{len(some)} messages from offset {records.offset[some[0]]} on have no queue"
            found.add(kind, path, -1, what, int(records.offset[some[0]]))


def _add_rows(
    found: FindingList, kind: str, path: str, rows: list[int], records: RecordFacts
) -> None:
    for row in rows[:FINDINGS_KEPT_MAX]:
        offset = int(records.offset[row])
        what = f"message {records.queue_offset[row]} (offset {offset}) has no unit"
        found.add(kind, path, -1, what, offset)
    if len(rows) > FINDINGS_KEPT_MAX:
        found.add_count(kind, path, len(rows) - FINDINGS_KEPT_MAX)


def _hashed_tags(piece: LogPiece) -> tuple[Int64s, Int64s]:
    """Return where the messages with tags are, and what an index has for the tags."""
    offsets, hashes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    with open_file(piece.file.path) as descriptor:
        for window in FileScan(descriptor, piece.file, piece.start, piece.stop).windows():
            tags = hash_tags(window.data, window.columns)
            offsets.append(window.columns.physical_offset[tags.row])
            hashes.append(tags.key_hash)
    return np.concatenate(offsets), np.concatenate(hashes)


def _sound(records: RecordFacts, covered: Bools, row: int) -> Sound:
    stored_ms = int(records.store_timestamp_ms[row])
    return Sound(int(records.offset[row]), stored_ms, bool(covered[row]))


def _damaged(records: RecordFacts) -> Iterator[LogBreak]:
    """The records whose CRC is wrong, as places without a sound record."""
    for row, reason in records.crc_faults.items():
        file = records.file
        assert file is not None
        position = int(records.offset[row]) - file.offset
        end = position + int(records.size[row])
        yield LogBreak(file, position, end, ScanStop.CORRUPT, reason)


def _break_facts(
    places: list[LogBreak], records: RecordFacts, covered: Bools
) -> Iterator[BreakFacts]:
    sound = np.flatnonzero(records.is_sound)
    following = np.searchsorted(records.offset[sound], [place.offset for place in places], "right")
    by_crc = {int(records.offset[row]) for row in records.crc_faults}
    for place, at in zip(places, following.tolist(), strict=True):
        yield BreakFacts(
            kind=_kind(place, by_crc, records),
            path=place.file.path,
            position=place.position,
            offset=place.offset,
            stop=place.stop,
            reason=place.reason,
            last_offset=int(records.offset[sound[at - 1]]) if at else -1,
            after=_sound(records, covered, int(sound[at])) if at < len(sound) else None,
        )


def _kind(place: LogBreak, by_crc: set[int], records: RecordFacts) -> str:
    if place.offset not in by_crc:
        return "record-corrupt"
    row = int(np.searchsorted(records.offset, place.offset))
    return "record-crc" if not records.body_agrees[row] else "record-property-crc"
