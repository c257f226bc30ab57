"""TimerLog: one unit for each message that waits for its time; directory `timerlog`.

A unit has 52 bytes, big-endian; units are appended and never changed:

    0   4  52
    4   8  position of the unit before it in the same slot of the wheel, -1 if it is the first
    12  4  what to do: 1, with 2 put it back into the timer topic, with 4 it cancels another
    16  8  time of writing, ms
    24  4  how much later it is due, ms
    28  8  physical offset of the record
    36  4  size of the record
    40  4  Java's hash of the real topic
    44  8  0

A file that cannot take another unit and 16 bytes is closed by i32 bytes left, i64 0, i32 blank
magic. The first 4 bytes of a unit are written last: a process that dies in between leaves none.

Source: RocketMQ 5.3.3, org.apache.rocketmq.store.timer.TimerLog, TimerMessageStore.doEnqueue.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.machine.disk import Disk
from tandem.wire.message import BLANK_MAGIC_CODE

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_BYTES: Final = 52
BLANK: Final = struct.Struct(">iqI")
BLANK_BYTES: Final = 16

MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
_MAGIC_BITS: Final = 0xF
"""Source: TimerMessageStore.isMagicOK."""

UNITS: Final = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("written_ms", ">i8"),
        ("delay_ms", ">i4"),
        ("offset", ">i8"),
        ("bytes", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)

assert UNIT.size == UNITS.itemsize == UNIT_BYTES
assert BLANK.size == BLANK_BYTES


class TimerUnit(msgspec.Struct, frozen=True, gc=False):
    """One message that waits. `due_ms` is the time of its slot, not when it has to be there."""

    previous: int
    magic: int
    written_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def due_ms(self) -> int:
        """The time of its slot, or a little more."""
        return self.written_ms + self.delay_ms

    @property
    def is_roll(self) -> bool:
        """True if it goes back into the timer topic, for it has to wait longer."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def is_delete(self) -> bool:
        """True if it cancels another message."""
        return bool(self.magic & MAGIC_DELETE)


class RecoveredUnits(msgspec.Struct, frozen=True):
    """All units of the log, oldest first: columns of equal length."""

    positions: npt.NDArray[np.int64]
    due_ms: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    is_delete: npt.NDArray[np.bool_]
    topic_hashes: npt.NDArray[np.int64]


class TimerLog:
    """The units of one store. Its owner closes it."""

    def __init__(self, directory: str, mapped_file_size: int, disk: Disk) -> None:
        self.files = MappedFileQueue(directory, mapped_file_size, disk)
        self._units_max = max(0, (mapped_file_size - BLANK_BYTES) // UNIT_BYTES)

    @property
    def max_offset(self) -> int:
        """The position of the next unit, unless its file is full."""
        return self.files.max_offset

    def recover(self, log_end: int) -> RecoveredUnits:
        """Open the files and cut off what is no unit, or is one of a record past `log_end`.

        A power loss can keep a unit and lose its record; another message will be there then.

        Raises:
            CorruptLogError: a file has a wrong length or name.
        """
        self.files.load()
        parts = []
        end = self.files.min_offset if self.files.files else 0
        for file in self.files.files:
            units, count = self._valid_units(file, log_end)
            parts.append((file.file_from_offset, units))
            end = file.file_from_offset + count * UNIT_BYTES
            if count < self._units_max:
                break
            end = file.end_offset if self._is_closed(file) else end
        self.files.truncate_dirty_files(end)
        return _columns(parts)

    def _valid_units(self, file: MappedFile, log_end: int) -> tuple[npt.NDArray[np.void], int]:
        units = np.frombuffer(
            bytes(file.buffer[: self._units_max * UNIT_BYTES]), UNITS, self._units_max
        )
        positions = file.file_from_offset + UNIT_BYTES * np.arange(len(units), dtype=np.int64)
        valid = (
            (units["size"] == UNIT_BYTES)
            & (units["magic"] & ~_MAGIC_BITS == 0)
            & (units["previous"] >= -1)
            & (units["previous"] < positions)
            & (units["offset"] >= 0)
            & (units["bytes"] > 0)
            & (units["offset"] + units["bytes"].astype(np.int64) <= log_end)
        )
        count = len(valid) if valid.all() else int(np.argmin(valid))
        return units[:count], count

    def _is_closed(self, file: MappedFile) -> bool:
        return file is not self.files.last or BLANK.unpack_from(
            file.buffer, self._units_max * UNIT_BYTES
        ) == (file.size - self._units_max * UNIT_BYTES, 0, BLANK_MAGIC_CODE)

    def append(self, unit: TimerUnit) -> int:
        """Add a unit; return its position.

        Raises:
            StoreFullError: no room for the next file; nothing was written.
        """
        file = self.files.last_or_create(0)
        if file.size - file.wrote_position < UNIT_BYTES + BLANK_BYTES:
            following = self.files.create_next()
            left = file.size - file.wrote_position
            _write(file, BLANK.pack(left, 0, BLANK_MAGIC_CODE))
            file.wrote_position = file.size
            file = following
        position = file.file_from_offset + file.wrote_position
        _write(
            file,
            UNIT.pack(
                UNIT_BYTES,
                unit.previous,
                unit.magic,
                unit.written_ms,
                unit.delay_ms,
                unit.physical_offset,
                unit.size,
                unit.topic_hash,
                0,
            ),
        )
        return position

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at a position, None if it was deleted, or was never there."""
        file = self.files.find_by_offset(position)
        if file is None:
            return None
        at = position - file.file_from_offset
        if at % UNIT_BYTES or at + UNIT_BYTES > file.wrote_position:
            return None
        size, *fields, _ = UNIT.unpack_from(file.buffer, at)
        return TimerUnit(*fields) if size == UNIT_BYTES else None

    def delete_expired_files(self, min_physical_offset: int, now_ms: int) -> None:
        """Delete files whose messages the commit log does not hold any more; never the last."""

        def last_offset(file: MappedFile) -> int:
            last = self.unit(file.file_from_offset + (self._units_max - 1) * UNIT_BYTES)
            return last.physical_offset if last is not None else min_physical_offset

        self.files.delete_expired_file_by_offset(min_physical_offset, last_offset, now_ms=now_ms)

    def close(self) -> None:
        """Unmap the files."""
        self.files.close()


def _write(file: MappedFile, data: bytes) -> None:
    start = file.wrote_position
    file.buffer[start + 4 : start + len(data)] = data[4:]
    file.buffer[start : start + 4] = data[:4]
    file.wrote_position = start + len(data)


def _columns(parts: list[tuple[int, npt.NDArray[np.void]]]) -> RecoveredUnits:
    none = np.zeros(0, np.int64)
    positions = [start + UNIT_BYTES * np.arange(len(u), dtype=np.int64) for start, u in parts]
    due = [u["written_ms"].astype(np.int64) + u["delay_ms"] for _, u in parts]
    offsets = [u["offset"].astype(np.int64) for _, u in parts]
    deletes = [u["magic"].astype(np.int64) & MAGIC_DELETE for _, u in parts]
    hashes = [u["topic_hash"].astype(np.int64) for _, u in parts]
    return RecoveredUnits(
        np.concatenate([none, *positions]),
        np.concatenate([none, *due]),
        np.concatenate([none, *offsets]),
        np.concatenate([none, *deletes]) != 0,
        np.concatenate([none, *hashes]),
    )
