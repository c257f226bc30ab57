"""What the consume queues of a store know about where records start.

    consumequeue/<topic>/<queue id>/<20 digits>     units of 20 bytes, zeros after the last
    unit: physical offset 8, record size 4, tags code 8

The offsets rise within a queue, and so do the first ones of its files: a search bisects the files
by their first units and then the units of one file. Which queue answers does not matter, so the
longest is asked first, and another only if that one knows nothing near. Queues may lag behind the
log or be stale; the caller checks the answer against the log.
"""

import bisect
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandem.data_file import data_files
from tandem.spark.commitlog.split import UnitPiece
from tandem.spark.commitlog.storage import Storage
from tandem.wire.store_layout import CQ_STORE_UNIT, CQ_STORE_UNIT_SIZE
from tandem.wire.unit_types import CQ_UNIT_TYPE

QUEUES_ASKED_MAX: Final = 8
"""The longest ones. Any start near the wanted place will do, so asking all queues gains nothing."""

_BLOCKS_MAX: Final = 64
_NEVER: Final = 2**63
"""As an offset: past every record. What was never written, or is no unit, sorts there."""


class QueueStarts:
    """Record starts out of the consume queues of a store; none if there are none.

    `folder` is the store's `consumequeue`, which may not exist, or "".
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        listed = storage.listed(folder) if folder else storage
        queues = [QueueUnits(listed, path) for path in queue_folders(listed, folder)]
        queues.sort(key=lambda queue: -queue.unit_places)
        self._queues = queues[:QUEUES_ASKED_MAX]

    def first_at(self, physical_offset: int, near_bytes: int = 0) -> int | None:
        """Return a known record start at or after `physical_offset`.

        The nearest one that is known, or one that is not further away than `near_bytes`.
        """
        best: int | None = None
        for queue in self._queues:
            start = queue.neighbours(physical_offset)[1]
            if start is not None and (best is None or start < best):
                best = start
            if best is not None and best - physical_offset <= near_bytes:
                break
        return best

    def last_before(self, physical_offset: int) -> int | None:
        """Return a known record start before `physical_offset`: the nearest one."""
        found = (queue.neighbours(physical_offset)[0] for queue in self._queues)
        return max((start for start in found if start is not None), default=None)


def queue_folders(storage: Storage, folder: str) -> list[str]:
    """Return the directories of all queues below `folder`, a `consumequeue`."""
    return [
        f"{folder}/{topic}/{queue_id}"
        for topic in sub_directories(storage, folder)
        for queue_id in sub_directories(storage, f"{folder}/{topic}")
        if queue_id.isascii() and queue_id.isdecimal()
    ]


def sub_directories(storage: Storage, folder: str) -> list[str]:
    """Return the names of the directories in `folder`, in order; none if it is not there."""
    if not folder:
        return []
    try:
        entries = storage.entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(entry.name for entry in entries if entry.is_directory)


class QueueUnits:
    """The units of one queue, over all its files. Units that were read are remembered.

    A unit's index is its queue offset: the name of its file says how many came before.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        files = data_files(folder, storage.entries(folder))
        self.paths = [file.path for file in files]
        self.counts = [file.size // CQ_STORE_UNIT_SIZE for file in files]
        self.bases = [file.offset // CQ_STORE_UNIT_SIZE for file in files]
        ends = [file.end_offset for file in files]
        starts = [file.offset for file in files]
        self.is_whole = ends[:-1] == starts[1:] and not any(at % CQ_STORE_UNIT_SIZE for at in ends)
        """Whether the files follow one another without a gap."""
        self._firsts: dict[int, int] = {}
        self._blocks: dict[tuple[int, int], bytearray] = {}
        self.unit_places = sum(self.counts)

    def neighbours(self, physical_offset: int) -> tuple[int | None, int | None]:
        """Return the last start before `physical_offset` and the first at or after it."""
        _, before, after = self._search(physical_offset)
        return _known(before), _known(after)

    def index_of(self, physical_offset: int) -> int:
        """Return the index of the first unit at or after `physical_offset`; `end` if none is."""
        return self._search(physical_offset)[0]

    @cached_property
    def end(self) -> int:
        """The index after the last unit that was written."""
        return self._search(_NEVER)[0]

    def unit(self, index: int) -> tuple[int, int]:
        """Return offset and size in the unit `index`, which has a place in one of the files."""
        file = bisect.bisect_right(self.bases, index) - 1
        return self._read(file, index - self.bases[file])

    def pieces(self, first: int, end: int) -> list[UnitPiece]:
        """Return where the units [first, end) are."""
        found = []
        for path, base, count in zip(self.paths, self.bases, self.counts, strict=True):
            start, stop = max(first, base), min(end, base + count)
            if start < stop:
                found.append(UnitPiece(path, (start - base) * CQ_STORE_UNIT_SIZE, stop - start))
        return found

    def ends_in_zeros(self) -> bool:
        """Say whether nothing is past the last unit. A hole in the middle would look like it."""
        for piece in self.pieces(self.end, _NEVER):
            with self._storage.opened(piece.path) as opened:
                size = piece.count * CQ_STORE_UNIT_SIZE
                if not opened.only_zeros(piece.position, piece.position + size):
                    return False
        return True

    def _search(self, physical_offset: int) -> tuple[int, int, int]:
        """Return the index of the first unit at or after an offset, and the offsets around it."""
        if not self.paths:
            return 0, _NEVER, _NEVER
        file = bisect.bisect_left(range(len(self.paths)), physical_offset, key=self._first)
        after = self._first(file) if file < len(self.paths) else _NEVER
        if not file:
            return self.bases[0], _NEVER, after
        units = range(self.counts[file - 1])

        def offset(index: int) -> int:
            return self._offset(file - 1, index)

        at = bisect.bisect_left(units, physical_offset, key=offset)
        before = offset(at - 1) if at else _NEVER
        after = offset(at) if at < len(units) else after
        return self.bases[file - 1] + at, before, after

    def _first(self, file: int) -> int:
        """The offset in the first unit of a file."""
        if file not in self._firsts:
            self._firsts[file] = self._offset(file, 0)
        return self._firsts[file]

    def _offset(self, file: int, at: int) -> int:
        """The offset in a unit, one past every record if nothing was written there."""
        offset, size = self._read(file, at)
        return offset if size > 0 else _NEVER

    def _read(self, file: int, at: int) -> tuple[int, int]:
        """Offset and size in a unit of a file; (0, 0) if the file ends before."""
        block_units = self._storage.block_bytes // CQ_STORE_UNIT_SIZE
        number, within = divmod(at, block_units)
        block = self._blocks.get((file, number))
        if block is None:
            block = self._read_block(file, number * block_units, block_units)
            if len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.clear()
            self._blocks[file, number] = block
        if (within + 1) * CQ_STORE_UNIT_SIZE > len(block):
            return 0, 0  # cut meanwhile: like what was never written
        offset, size, _ = CQ_STORE_UNIT.unpack_from(block, within * CQ_STORE_UNIT_SIZE)
        return offset, size

    def _read_block(self, file: int, first: int, units: int) -> bytearray:
        block = bytearray(units * CQ_STORE_UNIT_SIZE)
        with self._storage.opened(self.paths[file]) as opened:
            size = opened.read_into(memoryview(block), first * CQ_STORE_UNIT_SIZE)
        del block[size:]
        return block


def load_units(storage: Storage, pieces: Sequence[UnitPiece]) -> NDArray[np.void]:
    """Return units with the fields `offset` and `size`; what a file lacks is zero."""
    data = bytearray(sum(piece.count for piece in pieces) * CQ_STORE_UNIT_SIZE)
    at = 0
    with memoryview(data) as view:
        for piece in pieces:
            size = piece.count * CQ_STORE_UNIT_SIZE
            with storage.opened(piece.path) as opened:
                opened.read_into(view[at : at + size], piece.position)
            at += size
    return np.frombuffer(data, CQ_UNIT_TYPE)


def _known(offset: int) -> int | None:
    return None if offset == _NEVER else offset
