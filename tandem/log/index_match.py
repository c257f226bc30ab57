"""The index entries that lead into a piece of the log, against the keys of the records there."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from tandem.data_file import read_at
from tandem.log.break_table import BreakTable
from tandem.log.files import open_file
from tandem.log.findings import FindingList
from tandem.log.index_file import Units
from tandem.log.pieces import Segment
from tandem.log.record_facts import RecordFacts
from tandem.wire.record_scan import Bools, Int64s
from tandem.wire.unit_types import INDEX_UNIT_TYPE

SECONDS_MAX: Final = 2**31 - 1
_HASH_BITS: Final = 31


class IndexFileFacts(msgspec.Struct, frozen=True):
    """What the header of one index file says, and the end time of the file before; -1: unknown."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    last_unit: int
    end_before_ms: int


class IndexFacts(msgspec.Struct, frozen=True):
    """What index files cover together: entries for offsets from `begin` up to and with `end`."""

    begin: int
    end: int
    files: list[IndexFileFacts]


def match_index(
    records: RecordFacts,
    breaks: BreakTable,
    index: IndexFacts,
    segments: Sequence[Segment],
    log_path: str,
    found: FindingList,
    hashed_tags: Callable[[], tuple[Int64s, Int64s]],
) -> int:
    """Compare every entry with the keys of the record that it leads to, and the other way round.

    The tags of a message may have an entry, as they have with RocketMQ 5.4 and later, and need not:
    `hashed_tags` says where the messages are that have some, and the hashes. It is asked for when
    an entry is of no key. Returns the number of entries.
    """
    tags: Int64s | None = None
    base = int(records.offset[0]) if len(records) else 0
    keyed = records.is_indexed[records.key_row]
    rows = records.key_row[keyed]
    keys = _pairs(records.offset[rows], records.key_hash[keyed], base)
    wanted = np.sort(keys, kind="stable")
    entered = [np.empty(0, np.int64)]
    count = 0
    for segment in segments:
        units = _read_units(segment)
        count += len(units)
        pairs = _pairs(
            units["physical_offset"].astype(np.int64), units["key_hash"].astype(np.int64), base
        )
        entered.append(pairs)
        known = _are_among(pairs, wanted)
        outside = ~breaks.contain(units["physical_offset"].astype(np.int64))
        if (outside & ~known).any():
            tags = np.sort(_pairs(*hashed_tags(), base), kind="stable") if tags is None else tags
            known |= _are_among(pairs, tags)
        strange = outside & ~known
        what = "no message with such a key is there"
        _add(found, "index-entry", segment, units, np.flatnonzero(strange), what)
        _check_times(records, index.files[segment.owner], segment, units, known, found)
    missing = ~_are_among(keys, np.sort(np.concatenate(entered), kind="stable"))
    _report_missing(records, rows[missing], index, log_path, found)
    return count


def _pairs(offsets: Int64s, hashes: Int64s, base: int) -> Int64s:
    """One number for offset and hash; files of a log are never as long as would make two alike."""
    return (offsets - base << _HASH_BITS) | hashes


def _are_among(values: Int64s, in_order: Int64s) -> Bools:
    """Say which values are among others. Both rise nearly everywhere, which makes this quick."""
    if not len(in_order):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(in_order, values), len(in_order) - 1)
    found: Bools = in_order[at] == values
    return found


def _read_units(segment: Segment) -> Units:
    with open_file(segment.path) as descriptor:
        data = read_at(descriptor, segment.position, segment.count * INDEX_UNIT_TYPE.itemsize)
    return np.frombuffer(data, INDEX_UNIT_TYPE, len(data) // INDEX_UNIT_TYPE.itemsize)


def _check_times(
    records: RecordFacts,
    file: IndexFileFacts,
    segment: Segment,
    units: Units,
    known: Bools,
    found: FindingList,
) -> None:
    """Compare the time of each entry, and those of the header, with the times of the messages."""
    rows = np.flatnonzero(known)
    at = np.searchsorted(records.offset, units["physical_offset"][rows].astype(np.int64))
    stored_ms = records.store_timestamp_ms[at]
    numbers = segment.number + rows
    seconds = units["seconds"][rows]
    wrong = seconds != _seconds_behind(stored_ms, file.begin_timestamp_ms)
    # The first entry is made while the header still holds the end of the file before.
    first = numbers == 1
    before = _seconds_behind(stored_ms, file.end_before_ms)
    wrong[first] = (seconds[first] != before[first]) & (seconds[first] != 0)
    if file.end_before_ms < 0:
        wrong[first] = False
    _add(found, "index-time", segment, units, rows[wrong], "its time is not that of the message")
    wrong = first & (stored_ms != file.begin_timestamp_ms)
    wrong |= (numbers == file.last_unit) & (stored_ms != file.end_timestamp_ms)
    what = "the header has another time for the message"
    _add(found, "index-header", segment, units, rows[wrong], what)


def _seconds_behind(stored_ms: Int64s, begin_ms: int) -> Int64s:
    """Source: IndexFile.putKey."""
    if begin_ms <= 0:
        return np.zeros(len(stored_ms), np.int64)
    return np.minimum(np.clip(stored_ms - begin_ms, 0, None) // 1000, SECONDS_MAX)


def _report_missing(
    records: RecordFacts, rows: Int64s, index: IndexFacts, log_path: str, found: FindingList
) -> None:
    """Keys of the first message may be in a file that was deleted, of the last in none yet."""
    offsets = records.offset[rows]
    for kind, chosen in (
        ("index-key-missing", (offsets > index.begin) & (offsets < index.end)),
        ("index-behind", offsets >= max(index.end, index.begin + 1)),
    ):
        for offset in offsets[chosen].tolist():
            if found.is_full(kind, log_path):
                found.add_count(kind, log_path, 1)
                continue
            what = f"a key of the message at offset {offset} is in no index file"
            found.add(kind, log_path, -1, what, offset)


def _add(
    found: FindingList, kind: str, segment: Segment, units: Units, rows: Int64s, what: str
) -> None:
    for row in rows.tolist():
        if found.is_full(kind, segment.path):
            found.add_count(kind, segment.path, 1)
            continue
        offset = int(units["physical_offset"][row])
        at = segment.position + row * INDEX_UNIT_TYPE.itemsize
        number = segment.number + row
        found.add(kind, segment.path, at, f"unit {number} leads to offset {offset}: {what}", offset)
