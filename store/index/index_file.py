"""IndexFile: from the hash of a message key to physical offsets, in one file of fixed size.

    header | slots, 4 bytes each | units, 20 bytes each

A slot (hash % number of slots) holds the number of the unit written to it last, a unit the number
of the one before it in the same slot; 0 ends the chain, and unit 0 is never used. So one file takes
one key less than it has units. Numbers in a chain fall, which RocketMQ does not insist on: damaged
bytes cannot make a walk go round in circles.

Invariants: 1 <= index_count <= index_num; everything below `wrote_position` and every slot belongs
to keys entered. Units and slots are written before the header that counts them.

It follows from the format, here as in RocketMQ, that times of keys are kept in whole seconds after
the first record's; a record stored before the first one counts as stored with it.

Source: org.apache.rocketmq.store.index.IndexFile and IndexHeader of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.machine.disk import DiskFile
from tandem.wire import native
from tandem.wire.record_scan import Int64s
from tandem.wire.store_layout import (
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
    INDEX_UNIT,
    INDEX_UNIT_BYTES,
    index_file_bytes,
)
from tandem.wire.unit_types import INDEX_UNIT_TYPE

_INT_MAX: Final = 2**31 - 1
_ROUND_BITS: Final = 18
"""At most 2**18 keys are entered at once."""

LINKS_FOLLOWED_MAX: Final = 2048
"""After this many links of a chain its units are looked for in all units: a key that most messages
have makes chains of millions, and numpy passes 100 units while Python follows one link."""

_UNITS_SCANNED: Final = 1 << 16

assert INDEX_UNIT_TYPE.itemsize == INDEX_UNIT_BYTES


class IndexFile:
    """One index file. Its `IndexService` owns and closes it.

    `wrote_position` and `flushed_position` are those of a `MappedFile`, with one difference: slots
    before them change with every key. So a file is on disk only when it was synced after its
    last key.
    """

    def __init__(self, file: DiskFile, hash_slot_num: int, index_num: int) -> None:
        assert file.size == index_file_bytes(hash_slot_num, index_num)
        self.file = file
        self.hash_slot_num = hash_slot_num
        self.index_num = index_num
        self.flushed_position = 0
        self._units_at = INDEX_HEADER_BYTES + hash_slot_num * INDEX_SLOT_BYTES
        header: tuple[int, ...] = INDEX_HEADER.unpack_from(file.buffer, 0)
        self.begin_timestamp_ms, self.end_timestamp_ms = header[:2]
        self.begin_physical_offset, self.end_physical_offset = header[2:4]
        self.hash_slot_count = header[4]
        # A file without keys says 0 on disk until it is flushed.
        self.index_count = max(1, header[5])

    def __repr__(self) -> str:
        return f"<IndexFile {self.file.path} unit {self.index_count} of {self.index_num}>"

    def continue_from(self, before: IndexFile) -> None:
        """Start where the file before this one ends. The first key moves the beginning."""
        if before.end_physical_offset > 0:
            self.begin_physical_offset = self.end_physical_offset = before.end_physical_offset
        if before.end_timestamp_ms > 0:
            self.begin_timestamp_ms = self.end_timestamp_ms = before.end_timestamp_ms
        fields = (self.begin_timestamp_ms, self.end_timestamp_ms)
        offsets = (self.begin_physical_offset, self.end_physical_offset)
        INDEX_HEADER.pack_into(self.file.buffer, 0, *fields, *offsets, 0, 0)

    @property
    def fault(self) -> str | None:
        """What cannot be true of the header, None if it can."""
        if self.index_count > self.index_num:
            return f"unit {self.index_count} is said to be next, there are {self.index_num}"
        if not 0 <= self.hash_slot_count <= min(self.hash_slot_num, self.index_count - 1):
            return f"{self.hash_slot_count} slots are said to hold {self.index_count - 1} keys"
        if not 0 <= self.begin_physical_offset <= self.end_physical_offset:
            return f"offsets {self.begin_physical_offset} to {self.end_physical_offset}"
        return None

    @property
    def is_full(self) -> bool:
        """True when not one key more fits."""
        return self.index_count >= self.index_num

    @property
    def has_keys(self) -> bool:
        """True if at least one key was entered."""
        return self.index_count > 1

    @property
    def wrote_position(self) -> int:
        """The position after the last unit."""
        return self._units_at + self.index_count * INDEX_UNIT_BYTES

    @property
    def is_flushed(self) -> bool:
        """True if everything in the file is on disk."""
        return self.flushed_position == self.wrote_position

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """True if a key may have been stored between these times, both included.

        Source: IndexFile.isTimeMatched.
        """
        return begin_ms <= self.end_timestamp_ms and self.begin_timestamp_ms <= end_ms

    # -- entering --------------------------------------------------------------------------------

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Enter one key; return False if the file is full.

        Source: IndexFile.putKey.
        """
        number = self.index_count
        if number >= self.index_num:
            return False
        buffer = self.file.buffer
        slot_at = INDEX_HEADER_BYTES + key_hash % self.hash_slot_num * INDEX_SLOT_BYTES
        (before,) = INDEX_SLOT.unpack_from(buffer, slot_at)
        if not 0 < before <= number:
            before = 0
        seconds = 0
        if 0 < self.begin_timestamp_ms < store_timestamp_ms:
            seconds = min((store_timestamp_ms - self.begin_timestamp_ms) // 1000, _INT_MAX)
        unit_at = self._units_at + number * INDEX_UNIT_BYTES
        INDEX_UNIT.pack_into(buffer, unit_at, key_hash, physical_offset, seconds, before)
        INDEX_SLOT.pack_into(buffer, slot_at, number)
        if number == 1:
            self._begin(physical_offset, store_timestamp_ms)
        self.hash_slot_count = min(self.hash_slot_count + (not before), self.hash_slot_num)
        self._end(number + 1, physical_offset, store_timestamp_ms)
        return True

    def put_many(
        self, key_hashes: Int64s, physical_offsets: Int64s, store_timestamps_ms: Int64s
    ) -> int:
        """Enter as many of these keys as fit, with the same bytes as one by one; return how many.

        At most 2**18 at once.
        """
        count = min(len(key_hashes), self.index_num - self.index_count, 1 << _ROUND_BITS)
        if count <= 0:
            return 0
        number = self.index_count
        offsets, times_ms = physical_offsets[:count], store_timestamps_ms[:count]
        if native.loops is None:
            slots_taken = self._put_columns(key_hashes[:count], offsets, times_ms)
        else:
            keys = key_hashes[:count], offsets, times_ms
            slots_taken = native.loops.index_put(
                self.file.buffer, self.hash_slot_num, number, self.begin_timestamp_ms, keys
            )
        if number == 1:
            self._begin(int(offsets[0]), int(times_ms[0]))
        self.hash_slot_count = min(self.hash_slot_count + slots_taken, self.hash_slot_num)
        self._end(number + count, int(offsets[-1]), int(times_ms[-1]))
        return count

    def _put_columns(self, key_hashes: Int64s, offsets: Int64s, times_ms: Int64s) -> int:
        """Write units and slots; return how many slots were empty."""
        count, number = len(key_hashes), self.index_count
        seconds = self._seconds(times_ms)
        slots = key_hashes % self.hash_slot_num
        order = np.sort((slots << _ROUND_BITS) | np.arange(count))
        slots, at = order >> _ROUND_BITS, order & ((1 << _ROUND_BITS) - 1)
        before = self._before(slots, at)
        units = np.ndarray(
            (count,), INDEX_UNIT_TYPE, self.file.buffer, self._units_at + number * INDEX_UNIT_BYTES
        )
        units["key_hash"] = key_hashes
        units["physical_offset"] = offsets
        units["seconds"] = seconds
        units["before"][at] = before
        last = np.append(slots[1:] != slots[:-1], True)
        self.slots()[slots[last]] = number + at[last]
        return count - int(np.count_nonzero(before))

    def _before(self, slots: Int64s, at: Int64s) -> Int64s:
        """Return the unit before each new one in its slot; `slots` rise, and `at` in each slot."""
        before: Int64s = self.slots()[slots].astype(np.int64)
        before[(before < 0) | (before > self.index_count + at)] = 0
        again = np.flatnonzero(slots[1:] == slots[:-1])
        before[again + 1] = self.index_count + at[again]
        return before

    def _seconds(self, times_ms: Int64s) -> Int64s:
        """Return the seconds after the beginning; those of the first key as RocketMQ has them.

        They are counted from the end of the file before, which the file still has for its beginning
        then.
        """
        begin_ms = self.begin_timestamp_ms
        begins_ms = np.full(len(times_ms), begin_ms if self.has_keys else times_ms[0])
        begins_ms[0] = begin_ms
        late = (begins_ms > 0) & (times_ms > begins_ms)
        # Times that are not late are left out before the subtraction, which could overflow.
        spans_ms = np.where(late, times_ms, 0) - np.where(late, begins_ms, 0)
        seconds: Int64s = np.minimum(spans_ms // 1000, _INT_MAX)
        return seconds

    def slots(self) -> NDArray[np.int32]:
        """Return the number of the newest unit of each slot, 0 where there is none."""
        return np.ndarray(
            (self.hash_slot_num,), np.dtype(">i4"), self.file.buffer, INDEX_HEADER_BYTES
        )

    def units(self) -> NDArray[np.void]:
        """Return all units by number: key_hash, physical_offset, seconds, before. 0 is none."""
        return np.ndarray((self.index_count,), INDEX_UNIT_TYPE, self.file.buffer, self._units_at)

    def _begin(self, physical_offset: int, store_timestamp_ms: int) -> None:
        self.begin_physical_offset = physical_offset
        self.begin_timestamp_ms = store_timestamp_ms

    def _end(self, index_count: int, physical_offset: int, store_timestamp_ms: int) -> None:
        self.index_count = index_count
        self.end_physical_offset = physical_offset
        self.end_timestamp_ms = store_timestamp_ms
        self.write_header()

    def write_header(self) -> None:
        """Put all fields into the header, as RocketMQ does before it flushes the file.

        Source: IndexHeader.updateByteBuffer.
        """
        INDEX_HEADER.pack_into(
            self.file.buffer,
            0,
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        )

    @property
    def header_has_changed(self) -> bool:
        """True if the file says otherwise of itself than what was put there."""
        fields: tuple[int, ...] = INDEX_HEADER.unpack_from(self.file.buffer, 0)
        times = (self.begin_timestamp_ms, self.end_timestamp_ms)
        offsets = (self.begin_physical_offset, self.end_physical_offset)
        counts = (self.hash_slot_count, self.index_count)
        return (*fields[:5], max(1, fields[5])) != (*times, *offsets, *counts)

    # -- finding ---------------------------------------------------------------------------------

    def offsets(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the physical offsets of keys with this hash, the newest first.

        Those stored from `begin_ms` to `end_ms` as far as the file knows: a key counts as stored up
        to a second before it was. The walk ends at the first unit that is older than `begin_ms`.

        Source: IndexFile.selectPhyOffset.
        """
        slot_at = INDEX_HEADER_BYTES + key_hash % self.hash_slot_num * INDEX_SLOT_BYTES
        (number,) = INDEX_SLOT.unpack_from(self.file.buffer, slot_at)
        if not 0 < number < self.index_count:
            return
        for _ in range(LINKS_FOLLOWED_MAX):
            found, offset, seconds, before = INDEX_UNIT.unpack_from(
                self.file.buffer, self._units_at + number * INDEX_UNIT_BYTES
            )
            if seconds < 0:
                return
            # The time of the first unit counts from the end of the file before this one.
            time_ms = self.begin_timestamp_ms + (seconds * 1000 if number > 1 else 0)
            if found == key_hash and begin_ms <= time_ms <= end_ms:
                yield offset
            if not 0 < before < number or time_ms < begin_ms:
                return
            number = before
        yield from self._scan(number, key_hash, begin_ms, end_ms)

    def _scan(self, number: int, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield what the rest of a chain, from unit `number` down, would: go through all units."""
        stop = number + 1
        while stop > 1:
            start = max(1, stop - _UNITS_SCANNED)
            units = np.ndarray(
                (stop - start,),
                INDEX_UNIT_TYPE,
                self.file.buffer,
                self._units_at + start * INDEX_UNIT_BYTES,
            )
            found = units[units["key_hash"] == key_hash][::-1]
            times_ms = self.begin_timestamp_ms + found["seconds"].astype(np.int64) * 1000
            if start == 1 and len(found) and units[0]["key_hash"] == key_hash:
                times_ms[-1] = self.begin_timestamp_ms
            wanted = (times_ms >= begin_ms) & (times_ms <= end_ms) & (found["seconds"] >= 0)
            yield from found["physical_offset"][wanted].tolist()
            oldest_ms = self.begin_timestamp_ms + int(units[0]["seconds"]) * 1000
            if oldest_ms < begin_ms or (times_ms < begin_ms).any():
                return
            stop = start
