"""What the consume queues of a store know about where records start.

    consumequeue/<topic>/<queue id>/<20 digits>     units of 20 bytes, zeros after the last
    unit: physical offset 8, record size 4, tags code 8

The offsets rise within a queue, and so do the first ones of its files: a search bisects the files
by their first units and then the units of one file. Which queue answers does not matter, so the
longest is asked first, and another only if that one knows nothing near. Queues may lag behind the
log or be stale; the caller checks the answer against the log.
"""

import bisect
from typing import Final

from tandem.spark.commitlog.places import is_log_file
from tandem.spark.commitlog.storage import OpenedFile, Storage
from tandem.wire.store_layout import CQ_STORE_UNIT, CQ_STORE_UNIT_SIZE

QUEUES_ASKED_MAX: Final = 8
"""The longest ones. Any start near the wanted place will do, so asking all queues gains nothing."""

_NEVER: Final = 2**63
"""As an offset: past every record. What was never written, or is no unit, sorts there."""


class QueueStarts:
    """Record starts out of the consume queues of a store; none if there are none.

    `folder` is the store's `consumequeue`, which may not exist, or "".
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        queues = [QueueUnits(storage, path) for path in queue_folders(storage, folder)]
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
    """The units of one queue, over all its files. First units are remembered once read."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        entries = [entry for entry in storage.entries(folder) if is_log_file(entry)]
        entries.sort(key=lambda entry: entry.name)
        self.paths = [f"{folder}/{entry.name}" for entry in entries]
        self.counts = [entry.size // CQ_STORE_UNIT_SIZE for entry in entries]
        self._firsts: dict[int, int] = {}
        self.unit_places = sum(self.counts)

    def neighbours(self, physical_offset: int) -> tuple[int | None, int | None]:
        """Return the last start before `physical_offset` and the first at or after it."""
        file = bisect.bisect_left(range(len(self.paths)), physical_offset, key=self._first)
        after = self._first(file) if file < len(self.paths) else _NEVER
        before = _NEVER
        if file:
            with self._storage.opened(self.paths[file - 1]) as opened:
                units = range(self.counts[file - 1])

                def offset(index: int) -> int:
                    return unit_offset(opened, index)

                at = bisect.bisect_left(units, physical_offset, key=offset)
                before = offset(at - 1) if at else _NEVER
                after = offset(at) if at < len(units) else after
        return _known(before), _known(after)

    def _first(self, file: int) -> int:
        """The offset in the first unit of a file."""
        if file not in self._firsts:
            with self._storage.opened(self.paths[file]) as opened:
                self._firsts[file] = unit_offset(opened, 0)
        return self._firsts[file]


def unit_offset(opened: OpenedFile, index: int) -> int:
    """Return the offset in a unit, one past every record if nothing was written there."""
    data = bytearray(CQ_STORE_UNIT_SIZE)
    if opened.read_into(memoryview(data), index * CQ_STORE_UNIT_SIZE) < CQ_STORE_UNIT_SIZE:
        return _NEVER  # cut meanwhile: like what was never written
    offset, size, _ = CQ_STORE_UNIT.unpack(data)
    return int(offset) if size > 0 else _NEVER


def _known(offset: int) -> int | None:
    return None if offset == _NEVER else offset
