"""The units of queues, read in bulk: consume queues and batch consume queues.

A queue ends at the first place without a unit; its files are read from the first one on. Fillers at
the head of a queue whose history starts late are units that lead nowhere.
"""

import bisect
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.data_file import DataFile, is_hole, read_at
from tandem.log.files import open_file
from tandem.log.store_directory import QueueFiles
from tandem.wire.record_scan import Bools
from tandem.wire.store_layout import (
    CQ_STORE_UNIT_SIZE,
    FILLER_SIZE,
)
from tandem.wire.unit_types import BATCH_CQ_UNIT_TYPE, CQ_UNIT_TYPE

UNITS_READ: Final = 1 << 16
"""How many units are read at a time."""

Units = NDArray[np.void]


class UnitRun(msgspec.Struct, frozen=True, eq=False):
    """Units side by side in one file from `position` on.

    `number` counts the units of the queue's files from the offset in the first file's name; of a
    consume queue it is the queue offset.
    """

    file: DataFile
    position: int
    number: int
    units: Units


def are_units(units: Units) -> Bools:
    """Say which are units at all. Source: ConsumeQueue.recover, BatchConsumeQueue.recover."""
    valid: Bools = (units["offset"] >= 0) & (units["size"] > 0)
    if units.dtype == BATCH_CQ_UNIT_TYPE:
        valid &= (units["base_offset"] >= 0) & (units["batch_size"] > 0)
    return valid


def are_fillers(units: Units) -> Bools:
    """Say which units only fill the head of a queue (pre-blank)."""
    fillers: Bools = (units["size"] == FILLER_SIZE) & (units["offset"] == 0)
    return fillers


class QueueReader:
    """Reads one queue. Files are opened for as long as they are read."""

    def __init__(self, queue: QueueFiles) -> None:
        self._queue = queue
        self._dtype = BATCH_CQ_UNIT_TYPE if queue.is_batch else CQ_UNIT_TYPE

    def runs(self) -> Iterator[UnitRun]:
        """Yield what the files hold, the units that are none at the end included.

        Holes of the size of a run are left out: files are made at full size and filled later.
        """
        width = self._dtype.itemsize
        for file in self._queue.files:
            with open_file(file.path) as descriptor:
                for position in range(0, file.size - width + 1, UNITS_READ * width):
                    size = min(UNITS_READ * width, file.size - position)
                    if is_hole(descriptor, position, size):
                        continue
                    data = read_at(descriptor, position, size)
                    units = np.frombuffer(data, self._dtype, len(data) // width)
                    number = (file.offset + position) // width
                    yield UnitRun(file, position, number, units)

    def offset_range(self) -> tuple[int, int]:
        """Return the first queue offset and the next one, without reading all units.

        Looks at the first file for fillers and at the last ones for the end; (0, 0) if empty.
        """
        low = self._first()
        for file in reversed(self._queue.files):
            with open_file(file.path) as descriptor:
                used = self._used(descriptor, file)
                if used:
                    return low, self._queue_offset_behind(descriptor, file, used)
        return 0, 0

    def _first(self) -> int:
        for file in self._queue.files[:1]:
            with open_file(file.path) as descriptor:
                if self._queue.is_batch:
                    unit = self._unit(descriptor, 0)
                    return int(unit["base_offset"][0]) if len(unit) else 0
                count = self._used(descriptor, file)
                skipped = _first_without(count, lambda n: self._is_filler(descriptor, n))
                return file.offset // CQ_STORE_UNIT_SIZE + skipped
        return 0

    def _queue_offset_behind(self, descriptor: int, file: DataFile, used: int) -> int:
        if not self._queue.is_batch:
            return file.offset // CQ_STORE_UNIT_SIZE + used
        last = self._unit(descriptor, used - 1)
        return int((last["base_offset"] + last["batch_size"]).sum())

    def _used(self, descriptor: int, file: DataFile) -> int:
        """How many units of a file are units: they come first."""
        count = file.size // self._dtype.itemsize
        return _first_without(count, lambda number: self._is_unit(descriptor, number))

    def _is_unit(self, descriptor: int, number: int) -> bool:
        return bool(are_units(self._unit(descriptor, number)).any())

    def _is_filler(self, descriptor: int, number: int) -> bool:
        return bool(are_fillers(self._unit(descriptor, number)).any())

    def _unit(self, descriptor: int, number: int) -> Units:
        """Return one unit as an array of it, an empty one if the file is shorter."""
        width = self._dtype.itemsize
        data = read_at(descriptor, number * width, width)
        return np.frombuffer(data, self._dtype, len(data) // width)


def _first_without(count: int, has: Callable[[int], bool]) -> int:
    """Return the first of `count` numbers that `has` denies: those it affirms come first."""
    return bisect.bisect_left(range(count), 1, key=lambda number: not has(number))
