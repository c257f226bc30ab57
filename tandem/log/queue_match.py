"""The queue units that lead into a piece of the log, against the records there."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from tandem.data_file import DataFile, read_at
from tandem.log.break_table import BreakTable
from tandem.log.files import open_file
from tandem.log.findings import FindingList
from tandem.log.pieces import Segment
from tandem.log.queue_units import Units
from tandem.log.record_facts import RecordFacts
from tandem.wire.record_scan import Bools, Int64s
from tandem.wire.store_layout import (
    EXT_ADDRESS_MAX,
    EXT_UNIT_BYTES_MIN,
    EXT_UNIT_HEAD,
    ext_offset,
)
from tandem.wire.system_topics import LMQ_PREFIX
from tandem.wire.unit_types import BATCH_CQ_UNIT_TYPE, CQ_UNIT_TYPE


class QueueFacts(msgspec.Struct, frozen=True):
    """One queue as its own check found it."""

    topic: str
    queue_id: int
    is_batch: bool
    path: str
    ext_files: tuple[DataFile, ...]
    first_offset: int
    next_offset: int
    first_physical_offset: int


class UnitMatch(msgspec.Struct, frozen=True, eq=False):
    """Which records have their unit, and how many units there are."""

    covered: Bools
    unit_count: int


class _UnitRows(msgspec.Struct, frozen=True, eq=False):
    """Units of one segment and the rows of the records that they lead to; -1 for none."""

    segment: Segment
    queue: QueueFacts
    units: Units
    rows: Int64s


def match_units(
    records: RecordFacts,
    breaks: BreakTable,
    queues: Sequence[QueueFacts],
    segments: Sequence[Segment],
    found: FindingList,
) -> UnitMatch:
    """Compare every unit with the record that it leads to."""
    covered = np.zeros(len(records), np.bool_)
    count = 0
    for segment in segments:
        queue = queues[segment.owner]
        units = _read_units(segment, queue)
        count += len(units)
        rows = _rows_of(records, units)
        _check(records, _UnitRows(segment, queue, units, rows), found)
        led = rows >= 0
        own = rows[led][records.owner[rows[led]] == segment.owner]
        covered[own] = True
        inside = breaks.contain(units["offset"].astype(np.int64))
        lost = np.flatnonzero(~led & ~inside)
        _add(found, "unit-without-record", segment, queue, units, lost, "no record starts there")
    return UnitMatch(covered, count)


def _read_units(segment: Segment, queue: QueueFacts) -> Units:
    kind = BATCH_CQ_UNIT_TYPE if queue.is_batch else CQ_UNIT_TYPE
    with open_file(segment.path) as descriptor:
        data = read_at(descriptor, segment.position, segment.count * kind.itemsize)
    return np.frombuffer(data, kind, len(data) // kind.itemsize)


def _rows_of(records: RecordFacts, units: Units) -> Int64s:
    """Return the row of the record at each unit's offset, -1 where none starts."""
    if not len(records):
        return np.full(len(units), -1, np.int64)
    offsets = units["offset"].astype(np.int64)
    rows = np.minimum(np.searchsorted(records.offset, offsets), len(records) - 1)
    return np.where(records.offset[rows] == offsets, rows, -1)


def _check(records: RecordFacts, led: _UnitRows, found: FindingList) -> None:
    """Compare the units that lead to records with them."""
    here = np.flatnonzero(led.rows >= 0)
    rows = led.rows[here]
    units = led.units[here]
    if not led.queue.topic.startswith(LMQ_PREFIX):
        strange = ~records.is_queued[rows] | (records.owner[rows] != led.segment.owner)
        what = "a record of another queue, or one that belongs in none, is there"
        _report(found, "unit-without-record", led, here[strange], what)
        _check_queue_offsets(records, led, here[~strange], found)
    else:
        strange = np.zeros(len(rows), np.bool_)
    wrong_size = ~strange & (units["size"] != records.size[rows])
    _report(found, "unit-wrong", led, here[wrong_size], "its size is not that of the record")
    codes = units["tags_code"].astype(np.int64)
    is_address = codes <= EXT_ADDRESS_MAX
    wrong_code = ~strange & ~is_address & (codes != records.tags_code[rows])
    what = "its tags code is not that of the record"
    _report(found, "unit-wrong", led, here[wrong_code], what)
    _check_ext(records, led, here[~strange & is_address], found)


def _check_queue_offsets(
    records: RecordFacts, led: _UnitRows, here: Int64s, found: FindingList
) -> None:
    rows = led.rows[here]
    units = led.units[here]
    if led.queue.is_batch:
        wrong = units["base_offset"] != records.queue_offset[rows]
        wrong |= units["batch_size"] != records.message_count[rows]
        wrong |= units["store_timestamp_ms"] != records.store_timestamp_ms[rows]
        what = "first queue offset, message count or time are not those of the record"
    else:
        wrong = led.segment.number + here != records.queue_offset[rows]
        what = "the record there has another queue offset"
    _report(found, "unit-wrong", led, here[wrong], what)


def _check_ext(records: RecordFacts, led: _UnitRows, here: Int64s, found: FindingList) -> None:
    wrong = [
        row
        for row, ext in zip(here.tolist(), _ext_units(led, here), strict=True)
        if ext is None
        or ext[1] != records.tags_code[led.rows[row]]
        or ext[2] != records.store_timestamp_ms[led.rows[row]]
    ]
    what = "the ext unit at its address is missing, or that of another message"
    _report(found, "ext-unit", led, np.array(wrong, np.int64), what)


def _ext_units(led: _UnitRows, here: Int64s) -> Iterator[tuple[int, int, int, int] | None]:
    """Yield size, tags code, store time and bit map size at the address of each unit."""
    for address in led.units["tags_code"][here].tolist():
        offset = ext_offset(address)
        files = (f for f in led.queue.ext_files if f.offset <= offset < f.end_offset)
        file = next(files, None)
        data = b""
        if file is not None:
            with open_file(file.path) as descriptor:
                data = read_at(descriptor, offset - file.offset, EXT_UNIT_BYTES_MIN)
        unit = EXT_UNIT_HEAD.unpack(data) if len(data) == EXT_UNIT_BYTES_MIN else None
        yield unit if unit is not None and unit[0] >= EXT_UNIT_BYTES_MIN else None


def _report(found: FindingList, kind: str, led: _UnitRows, rows: Int64s, what: str) -> None:
    _add(found, kind, led.segment, led.queue, led.units, rows, what)


def _add(
    found: FindingList,
    kind: str,
    segment: Segment,
    queue: QueueFacts,
    units: Units,
    rows: Int64s,
    what: str,
) -> None:
    for row in rows.tolist():
        if found.is_full(kind, segment.path):
            found.add_count(kind, segment.path, 1)
            continue
        offset = int(units["offset"][row])
        at = segment.position + row * units.dtype.itemsize
        number = "" if queue.is_batch else f" {segment.number + row}"
        found.add(kind, segment.path, at, f"unit{number} leads to offset {offset}: {what}", offset)
