"""IndexCheck: does the index say what the log does? What does not is built anew.

    header                       is possible, and on the disk as in memory
    slot -> unit -> unit ...     each of the same slot, and earlier; each is named once; as many
                                 slots and first units as the header says
    unit                         the record it names has a key of this hash, and this time; its
                                 tags are one if RocketMQ 5.4 or later entered them. Such units
                                 count as well below, so that as many keys may lack unseen
    record of the log            has as many units as keys; looked at with the closed files of the
                                 log. Keys are missing where the index was built while a part of the
                                 log was bad that has been healed since

In the last file, which is being written, units are looked at that were there when the look began:
none of them changes any more. Their chains are built once more beside them, and have to be those
that are there; a slot may name a later unit meanwhile.

An index has no holes, so a file that contradicts the log goes with all later ones, and the index
goes on from where it ends then.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import trio
from numpy.typing import NDArray

from store.index.index_file import IndexFile
from store.index.index_service import IndexService
from store.log.commit_log import CommitLog
from tandem.wire.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from tandem.wire.record_keys import hash_keys, key_hash, key_values, record_texts, tag_key
from tandem.wire.record_rule import store_timestamp_ms
from tandem.wire.record_scan import RecordColumns

_log = logging.getLogger(__name__)

SLICE_UNITS: Final = 200
SLICE_SLOTS: Final = 1 << 18
DROP_TRIES: Final = 50
DROP_PAUSE_SECONDS: Final = 0.01
_INT_MAX: Final = (1 << 31) - 1


class _Slice(NamedTuple):
    fault: str | None
    some: int = 0
    named: int = 0
    """The sum of the numbers of the units that are named."""


class IndexCheck:
    """Compares the index of one store with its log. `on_dropped` has the rest built anew."""

    def __init__(
        self,
        log: CommitLog,
        index: IndexService | None,
        on_dropped: Callable[[], None],
        indexed: Callable[[], int] = lambda: 0,
    ) -> None:
        """`indexed` says up to where in the log the index has been built."""
        self._log = log
        self._index = index
        self._on_dropped = on_dropped
        self._indexed = indexed
        self._lacking: tuple[IndexFile, str] | None = None
        """The first file that was seen to lack keys, and how many."""

    async def run(self, rest: Callable[[float], Awaitable[bool]]) -> int:
        """Look at all files; return how many are built anew.

        `rest` is called after each slice with the seconds it took, and says whether to go on.
        """
        index = self._index
        if index is None:
            return 0
        lacking, self._lacking = self._lacking, None
        for file in list(index.files):
            _mend_header(file)
            faults = self._faults(file) if file.is_full else self._faults_so_far(file)
            while file in index.files:  # retention may delete it meanwhile
                began = trio.current_time()
                try:
                    fault = next(faults)
                except StopIteration:
                    break
                if fault is not None:
                    return await self._drop_when_clean(index, file, fault, rest)
                if not await rest(trio.current_time() - began):
                    return 0
        # Last: a unit that has changed is one too few as well, and is in one file surely.
        if lacking is not None and lacking[0] in index.files:
            return await self._drop_when_clean(index, *lacking, rest)
        return 0

    def look_at_records(self, buffer: bytes | memoryview, columns: RecordColumns) -> None:
        """Look whether all keys of sound records of a closed file are there; `run` sees to it."""
        index = self._index
        if self._lacking is not None or index is None or not index.files or not len(columns):
            return
        # Older messages were deleted from the index, or never entered.
        first = max(int(columns.physical_offset[0]), index.files[0].begin_physical_offset + 1)
        last = int(columns.physical_offset[-1])
        if last >= self._indexed():
            return
        kind = columns.sys_flag & TRANSACTION_MASK
        wanted = columns.sound & (kind != TRANSACTION_ROLLBACK_TYPE)
        wanted &= columns.physical_offset >= first
        keys = len(hash_keys(buffer, columns.take(wanted)))
        units = sum(_units_within(file, first, last) for file in index.files)
        if units < keys:
            file = next((f for f in index.files if first <= f.end_physical_offset), index.files[-1])
            fault = f"it lacks {keys - units} of {keys} keys of messages from {first} to {last}"
            self._lacking = file, fault

    async def _drop_when_clean(
        self,
        index: IndexService,
        file: IndexFile,
        fault: str,
        rest: Callable[[float], Awaitable[bool]],
    ) -> int:
        """Have a file and all later ones built anew, in a moment in which none is being synced."""
        path, count = file.file.path, len(index.files) - index.files.index(file)
        for _ in range(DROP_TRIES):
            if file not in index.files:
                return 0
            count = len(index.files) - index.files.index(file)
            if index.drop_from(file):
                break
            if not await rest(DROP_PAUSE_SECONDS):
                return 0
        else:
            _log.error("%s: %s; it is built anew after the next scrub", path, fault)
            return 0
        _log.error(
            "%s: %s; this index file and all later ones, %d in all, are built anew from the log",
            *(path, fault, count),
        )
        self._on_dropped()
        return count

    def _faults(self, file: IndexFile) -> Iterator[str | None]:
        """Yield for each slice of work what is wrong in it, None if nothing is."""
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

    def _faults_so_far(self, file: IndexFile) -> Iterator[str | None]:
        """Do the same for a file that is being written, as far as it is written now."""
        yield file.fault
        end, slots, firsts = file.index_count, file.hash_slot_count, 0
        newest = np.zeros(file.hash_slot_num, np.int32)
        for start in range(1, end, SLICE_UNITS):
            look = self._look_at_chains(file, start, min(start + SLICE_UNITS, end), newest)
            firsts += look.some
            yield look.fault
        if firsts != slots:
            yield f"{firsts} first units, and not {slots}"
        for start in range(0, file.hash_slot_num, SLICE_SLOTS):
            yield _slot_fault(file, start, newest, end)

    def _look_at_chains(
        self, file: IndexFile, start: int, stop: int, newest: NDArray[np.int32]
    ) -> _Slice:
        """Look at some units; `newest` has the one before them in each slot, and then the last."""
        firsts = 0
        for number, unit in zip(range(start, stop), file.units()[start:stop].tolist(), strict=True):
            slot, before = unit[0] % file.hash_slot_num, unit[3]
            if before != newest[slot]:
                return _Slice(f"unit {number} names {before} and not the one before it in its slot")
            firsts += not before
            newest[slot] = number
            fault = self._unit_fault(file, number, unit)
            if fault is not None:
                return _Slice(f"unit {number}: {fault}")
        return _Slice(None, firsts)

    def _look_at_units(self, file: IndexFile, start: int) -> _Slice:
        """Look at some units; count those that are the first of their slot."""
        units = file.units()
        numbers = np.arange(start, min(start + SLICE_UNITS, len(units)))
        own = units[numbers]
        before = own["before"].astype(np.int64)
        if ((before < 0) | (before >= numbers)).any():
            return _Slice("a unit names another that is not an earlier one")
        others = units["key_hash"][before] % file.hash_slot_num
        if ((before > 0) & (others != own["key_hash"] % file.hash_slot_num)).any():
            return _Slice("a unit names one of another slot")
        for number, unit in zip(numbers.tolist(), own.tolist(), strict=True):
            fault = self._unit_fault(file, number, unit)
            if fault is not None:
                return _Slice(f"unit {number}: {fault}")
        return _Slice(None, int(np.count_nonzero(before == 0)), int(before.sum()))

    def _unit_fault(
        self, file: IndexFile, number: int, unit: tuple[int, int, int, int]
    ) -> str | None:
        wanted, offset, seconds, _ = unit
        if not file.begin_physical_offset <= offset <= file.end_physical_offset:
            return f"{offset} is not between the first and the last one"
        log = self._log
        record = log.record_at(offset)
        end = offset + (len(record) if record is not None else 1)
        if offset < log.min_offset or log.damage.within(offset, end) is not None:
            return None
        if record is None:
            # One that is there and not sound is the log's fault.
            return None if log.seems_record(offset) else f"no record is at {offset}"
        return _contradiction(file, number, record, wanted, seconds)


def _units_within(file: IndexFile, first: int, last: int) -> int:
    """Return how many units are of records from offset `first` to `last`; they are in order."""
    offsets = file.units()["physical_offset"][1:]
    return int(np.searchsorted(offsets, last, "right") - np.searchsorted(offsets, first, "left"))


def _contradiction(
    file: IndexFile, number: int, record: bytes, wanted: int, seconds: int
) -> str | None:
    topic, properties = record_texts(record)
    name = topic.decode("utf-8", "replace")
    keys = [*key_values(properties), tag_key(properties) or b""]
    if wanted not in {key_hash(name, key) for key in keys if key}:
        return "its record has no key of this hash"
    begin_ms, stored_ms = file.begin_timestamp_ms, store_timestamp_ms(record, 0)
    is_late = 0 < begin_ms < stored_ms
    expected = min((stored_ms - begin_ms) // 1000, _INT_MAX) if is_late else 0
    # The first one counts from the end of the file before.
    return "its time is not that of its record" if number > 1 and seconds != expected else None


def _mend_header(file: IndexFile) -> None:
    """Write a header again that has changed: memory has it right, and the next start goes by it."""
    if not file.header_has_changed:
        return
    file.write_header()
    file.flushed_position = 0
    _log.error("%s: its header had changed; written anew from memory", file.file.path)


def _slot_fault(file: IndexFile, start: int, newest: NDArray[np.int32], end: int) -> str | None:
    """Return what is wrong with some slots; units from `end` on have come since `newest` was made.

    They are of their slot; what they name, the next look finds out.
    """
    units = file.units()
    numbers = file.slots()[start : start + SLICE_SLOTS].astype(np.int64)
    later = np.flatnonzero(numbers >= end)
    if (numbers[later] >= len(units)).any():
        return "a slot names no unit"
    if (units["key_hash"][numbers[later]] % file.hash_slot_num != start + later).any():
        return "a slot names a unit of another slot"
    is_other = numbers != newest[start : start + SLICE_SLOTS]
    is_other[later] = False
    return "a slot does not name its last unit" if is_other.any() else None


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
    return _Slice(None, len(used), int(numbers.sum()))
