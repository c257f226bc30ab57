"""IndexCheck: does the index say what the log does? What does not is built anew.

    header                       is possible
    slot -> unit -> unit ...     each of the same slot, and earlier; each is named once; as many
                                 slots and first units as the header says
    unit                         the record it names has a key of this hash, and this time

Only files that are full are looked at: nobody writes to them. An index has no holes, so a file that
contradicts the log goes with all later ones, and the index goes on from where it ends then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import trio

from tandem.wire.record_keys import key_hash, key_values, record_texts
from tandem.wire.record_rule import store_timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from store.index.index_file import IndexFile
    from store.index.index_service import IndexService
    from store.log.commit_log import CommitLog

_log = logging.getLogger(__name__)

SLICE_UNITS: Final = 200
SLICE_SLOTS: Final = 1 << 18
_INT_MAX: Final = (1 << 31) - 1


class _Slice(NamedTuple):
    fault: str
    some: int = 0
    named: int = 0
    """The sum of the numbers of the units that are named."""


class IndexCheck:
    """Compares the index of one store with its log. `on_dropped` has the rest built anew."""

    def __init__(
        self, log: CommitLog, index: IndexService | None, on_dropped: Callable[[], None]
    ) -> None:
        self._log = log
        self._index = index
        self._on_dropped = on_dropped

    async def run(self, rest: Callable[[float], Awaitable[bool]]) -> int:
        """Look at all files; return how many are built anew.

        `rest` is told after each slice how many seconds it took, and says whether to go on.
        """
        index = self._index
        for file in [file for file in index.files if file.is_full] if index is not None else []:
            assert index is not None
            faults = self._faults(file)
            while file in index.files:  # retention may delete it meanwhile
                began = trio.current_time()
                fault = next(faults, None)
                if fault:
                    return self._drop(index, file, fault)
                if fault is None:
                    break
                if not await rest(trio.current_time() - began):
                    return 0
        return 0

    def _drop(self, index: IndexService, file: IndexFile, fault: str) -> int:
        path, count = file.file.path, len(index.files) - index.files.index(file)
        if not index.drop_from(file):
            _log.error("%s: %s; it is built anew after the next scrub", path, fault)
            return 0
        _log.error(
            "%s: %s; this index file and all later ones, %d in all, are built anew from the log",
            *(path, fault, count),
        )
        self._on_dropped()
        return count

    def _faults(self, file: IndexFile) -> Iterator[str]:
        """Yield for each slice of work what is wrong in it, "" if nothing is."""
        # No view of the file lives from one slice to the next: it could not be closed.
        yield file.fault
        slots = firsts = named = 0
        for start in range(0, file.hash_slot_num, SLICE_SLOTS):
            look = _look_at_slots(file, start)
            slots += look.some
            named += look.named
            yield look.fault
        for start in range(1, file.index_count, SLICE_UNITS):
            look = self._look_at_units(file, start)
            firsts += look.some
            named += look.named
            yield look.fault
        if not slots == firsts == file.hash_slot_count:
            yield f"{slots} slots with {firsts} first units, and not {file.hash_slot_count}"
        if named != file.index_count * (file.index_count - 1) // 2:
            yield "a unit is named twice, or not at all"

    def _look_at_units(self, file: IndexFile, start: int) -> _Slice:
        """Look at some units; count those that are the first of their slot."""
        units = file.units()
        numbers = np.arange(start, min(start + SLICE_UNITS, len(units)))
        own = units[numbers]
        before = own["before"].astype(np.int64)
        if ((before < 0) | (before >= numbers)).any():
            return _Slice("a unit names one that is no earlier one")
        others = units["key_hash"][before] % file.hash_slot_num
        if ((before > 0) & (others != own["key_hash"] % file.hash_slot_num)).any():
            return _Slice("a unit names one of another slot")
        for number, unit in zip(numbers.tolist(), own.tolist(), strict=True):
            fault = self._unit_fault(file, number, unit)
            if fault:
                return _Slice(f"unit {number}: {fault}")
        return _Slice("", int(np.count_nonzero(before == 0)), int(before.sum()))

    def _unit_fault(self, file: IndexFile, number: int, unit: tuple[int, int, int, int]) -> str:
        wanted, offset, seconds, _ = unit
        if not file.begin_physical_offset <= offset <= file.end_physical_offset:
            return f"{offset} is not between the first and the last one"
        log = self._log
        record = log.record_at(offset)
        end = offset + (len(record) if record is not None else 1)
        if offset < log.min_offset or log.damage.within(offset, end) is not None:
            return ""
        if record is None:
            # One that is there and not sound is the log's fault.
            return "" if log.seems_record(offset) else f"no record is at {offset}"
        return _contradiction(file, number, record, wanted, seconds)


def _contradiction(file: IndexFile, number: int, record: bytes, wanted: int, seconds: int) -> str:
    topic, properties = record_texts(record)
    name = topic.decode("utf-8", "replace")
    if wanted not in {key_hash(name, key) for key in key_values(properties)}:
        return "its record has no key of this hash"
    begin_ms, stored_ms = file.begin_timestamp_ms, store_timestamp_ms(record, 0)
    is_late = 0 < begin_ms < stored_ms
    expected = min((stored_ms - begin_ms) // 1000, _INT_MAX) if is_late else 0
    # The first one counts from the end of the file before.
    return "its time is not that of its record" if number > 1 and seconds != expected else ""


def _look_at_slots(file: IndexFile, start: int) -> _Slice:
    """Look at some slots; count those that name a unit."""
    units = file.units()
    numbers = file.slots()[start : start + SLICE_SLOTS].astype(np.int64)
    used = np.flatnonzero(numbers)
    numbers = numbers[used]
    if ((numbers < 0) | (numbers >= len(units))).any():
        return _Slice("a slot names no unit")
    if (units["key_hash"][numbers] % file.hash_slot_num != start + used).any():
        return _Slice("a slot names a unit of another slot")
    return _Slice("", len(used), int(numbers.sum()))
