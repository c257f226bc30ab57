"""TimerWheel: which messages of the timer log are due when; file `timerwheel`.

One slot of 32 bytes for each tick of the precision, 604,800 times two of them, big-endian:

    0   8  the slot's time divided by the precision
    8   8  position in the timer log of the first unit for that time
    16  8  position of the last unit
    24  4  how many messages
    28  4  unused

A time belongs to slot (time / precision) modulo the number of slots, and a slot speaks for a time
only if it says so itself. From the last unit a chain leads back to the first (see `timer_log`).

The wheel can always be built again from the timer log, and is at every start.

Source: RocketMQ 5.3.3, org.apache.rocketmq.store.timer.TimerWheel and Slot.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from store.machine.disk import Disk, DiskFile
from store.machine.errors import CorruptLogError, LogFault

SLOTS: Final = 7 * 86_400 * 2
"""Seven days of seconds, twice. Source: TimerMessageStore.TIMER_WHEEL_TTL_DAY."""

SLOT: Final = struct.Struct(">qqqii")
SLOT_BYTES: Final = 32
_TICK: Final = struct.Struct(">q")

assert SLOT.size == SLOT_BYTES


class Slot(msgspec.Struct, frozen=True, gc=False):
    """The units for one time; positions are -1 if there are none."""

    first_position: int = -1
    last_position: int = -1
    num: int = 0


class TimerWheel:
    """The wheel of one store. Its owner closes it.

    Raises:
        CorruptLogError: the file has another length.
        StoreFullError: no room for a new one.
    """

    def __init__(self, path: str, precision_ms: int, disk: Disk, *, slots: int = SLOTS) -> None:
        self._precision_ms = precision_ms
        self._slots = slots
        size = slots * SLOT_BYTES
        self._file: DiskFile = disk.open(path) if disk.exists(path) else disk.create(path, size)
        if self._file.size != size:
            found = self._file.size
            self._file.close()
            raise CorruptLogError(
                f"{path}: the timer wheel has {found} bytes, not {size};"
                " delete it: it is built again from the timer log",
                path=path,
                fault=LogFault.LENGTH,
            )

    @property
    def file(self) -> DiskFile:
        """The file, to be synced."""
        return self._file

    def slot(self, time_ms: int) -> Slot:
        """Return the slot for a time; an empty one if the slot speaks for another time."""
        tick = time_ms // self._precision_ms
        found, first, last, num, _ = SLOT.unpack_from(
            self._file.buffer, tick % self._slots * SLOT_BYTES
        )
        return Slot(first, last, num) if found == tick else Slot()

    def time_of_slot(self, time_ms: int) -> int:
        """Return the time that the slot for `time_ms` speaks for, -1 if for none."""
        tick = time_ms // self._precision_ms
        (found,) = _TICK.unpack_from(self._file.buffer, tick % self._slots * SLOT_BYTES)
        return found * self._precision_ms if found > 0 else -1

    def put_slot(self, time_ms: int, slot: Slot) -> None:
        """Let the slot speak for this time."""
        tick = time_ms // self._precision_ms
        SLOT.pack_into(
            self._file.buffer,
            tick % self._slots * SLOT_BYTES,
            tick,
            slot.first_position,
            slot.last_position,
            slot.num,
            0,
        )

    def clear(self) -> None:
        """Let no slot speak for any time."""
        # A tick of 0 is long past, so it says that a slot is unused.
        self._file.buffer[: self._file.size] = bytes(self._file.size)

    def close(self) -> None:
        """Unmap the file."""
        self._file.close()
