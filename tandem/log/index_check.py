"""One index file by itself: header, slots and chains.

Whether its entries lead to messages with such keys is seen where the messages are: each entry is
handed on to the piece of the log that it leads into.

Units are read in blocks, in order, with a table of the last unit of each slot beside them: that
table is what the slots of the file have to be, and each unit has to point to what the table held
before it.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.data_file import DataFile
from tandem.log.files import open_file
from tandem.log.findings import Finding, FindingList
from tandem.log.index_file import IndexFile, IndexHeader, IndexSettings, Units, read_header
from tandem.log.pieces import PieceMap, Segment
from tandem.wire.record_scan import Int64s
from tandem.wire.store_layout import INDEX_HEADER_BYTES, INDEX_SLOT_BYTES, INDEX_UNIT_BYTES

BLOCK_UNITS: Final = 1 << 18

Int32s = NDArray[np.int32]


class IndexCheck(msgspec.Struct, frozen=True):
    """What one index file says. `header` is None if it cannot be used at all."""

    header: IndexHeader | None
    unit_count: int
    ahead_count: int
    segments: list[tuple[int, Segment]]
    findings: list[Finding]


def check_index(
    file: DataFile, number: int, settings: IndexSettings, pieces: PieceMap
) -> IndexCheck:
    """Read index file `number` through."""
    return _IndexChecker(file, number, settings, pieces).check()


class _IndexChecker:
    def __init__(
        self, file: DataFile, number: int, settings: IndexSettings, pieces: PieceMap
    ) -> None:
        self._file = file
        self._number = number
        self._settings = settings
        self._pieces = pieces
        self._found = FindingList()
        self._segments: list[tuple[int, Segment]] = []
        self._ahead = 0

    def check(self) -> IndexCheck:
        header = self._checked_header()
        count = 0
        if header is not None and header.index_count > 1:
            with open_file(self._file.path) as descriptor:
                index = IndexFile(descriptor, self._settings, header)
                count = index.unit_count - 1
                self._check_units(index)
        return IndexCheck(header, count, self._ahead, self._segments, self._found.all())

    def _checked_header(self) -> IndexHeader | None:
        path = self._file.path
        with open_file(path) as descriptor:
            header = read_header(descriptor)
        if self._file.size != self._settings.file_bytes or header is None:
            what = f"has {self._file.size} bytes, expected {self._settings.file_bytes}"
            self._found.add("index-file-length", path, -1, what)
            return None
        if not 0 <= header.index_count <= self._settings.index_num:
            what = f"counts {header.index_count} units of {self._settings.index_num}"
            self._found.add("index-header", path, 36, what)
        return header

    def _check_units(self, index: IndexFile) -> None:
        last_of_slot = np.zeros(self._settings.hash_slot_num, np.int32)
        last = None
        for first in range(1, index.unit_count, BLOCK_UNITS):
            units = index.units(first, min(BLOCK_UNITS, index.unit_count - first))
            if not len(units):
                break
            if first == 1:
                self._check_end(16, "begin", index.header.begin_physical_offset, units[:1])
            self._check_chains(units, first, last_of_slot)
            self._hand_on(units, first)
            last = units[-1:]
        if last is not None:
            self._check_end(24, "end", index.header.end_physical_offset, last)
        self._check_slots(index, last_of_slot)

    def _check_end(self, position: int, which: str, said: int, unit: Units) -> None:
        offset = int(unit["physical_offset"][0])
        if said != offset:
            what = f"{which} physical offset is {said}, that unit leads to {offset}"
            self._found.add("index-header", self._file.path, position, what)

    def _check_chains(self, units: Units, first: int, last_of_slot: Int32s) -> None:
        """Compare each unit's `previous` with the last unit of its slot before it."""
        hashes = units["key_hash"].astype(np.int64)
        self._add_rows("index-chain", first, np.flatnonzero(hashes < 0), "its hash is negative")
        slots = np.abs(hashes) % self._settings.hash_slot_num
        numbers = np.arange(first, first + len(units))
        order = np.argsort(slots, kind="stable")
        in_order = slots[order]
        continues = np.concatenate(([False], in_order[1:] == in_order[:-1]))
        expected = np.empty(len(units), np.int64)
        expected[order] = np.where(continues, np.roll(numbers[order], 1), last_of_slot[in_order])
        wrong = np.flatnonzero(units["before"] != expected)
        self._add_rows("index-chain", first, wrong, "does not point to the unit before it")
        last_of_slot[in_order] = numbers[order]  # of equals the last one stays

    def _check_slots(self, index: IndexFile, last_of_slot: Int32s) -> None:
        used = 0
        for first in range(0, len(last_of_slot), BLOCK_UNITS):
            slots = index.slots(first, min(BLOCK_UNITS, len(last_of_slot) - first))
            expected = last_of_slot[first : first + len(slots)]
            used += int(np.count_nonzero(expected))
            for row in np.flatnonzero(slots != expected).tolist():
                if self._found.is_full("index-chain", self._file.path):
                    break
                at = INDEX_HEADER_BYTES + (first + row) * INDEX_SLOT_BYTES
                what = f"slot {first + row} holds {slots[row]}, its last unit is {expected[row]}"
                self._found.add("index-chain", self._file.path, at, what)
        if used != index.header.hash_slot_count:
            what = f"counts {index.header.hash_slot_count} slots, {used} are used"
            self._found.add("index-header", self._file.path, 32, what)

    def _hand_on(self, units: Units, first: int) -> None:
        offsets = units["physical_offset"].astype(np.int64)
        self._ahead += int((offsets >= self._pieces.end).sum())
        at = self._settings.units_at + first * INDEX_UNIT_BYTES
        self._segments += self._pieces.segments(
            offsets, self._number, self._file.path, at, first, INDEX_UNIT_BYTES
        )

    def _add_rows(self, kind: str, first: int, rows: Int64s, what: str) -> None:
        for row in rows.tolist():
            if self._found.is_full(kind, self._file.path):
                self._found.add_count(kind, self._file.path, 1)
                continue
            number = first + row
            at = self._settings.units_at + number * INDEX_UNIT_BYTES
            self._found.add(kind, self._file.path, at, f"unit {number} {what}")
