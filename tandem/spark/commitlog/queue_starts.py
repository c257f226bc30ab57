"""What the consume queues of a store know about where records start.

    consumequeue/<topic>/<queue id>/<20 digits>     units of 20 bytes, zeros after the last
    unit: physical offset 8, record size 4, tags code 8

The offsets rise within a queue, so a search takes some twenty small reads. Queues may lag behind
the log or be stale; the caller checks the answer against the log.
"""

import bisect
import os
import struct
from pathlib import Path
from typing import Final

UNIT: Final = struct.Struct(">qiq")
QUEUES_ASKED_MAX: Final = 8
"""The longest ones. Any start near the wanted place will do, so asking all queues gains nothing."""

assert UNIT.size == 20


class QueueStarts:
    """Record starts out of the consume queues next to a commit log; none if there are none."""

    def __init__(self, consume_queue_folder: Path) -> None:
        queues = [
            _Queue(queue)
            for queue in consume_queue_folder.glob("*/*")
            if queue.is_dir() and queue.name.isdecimal()
        ]
        queues.sort(key=lambda queue: -queue.unit_count)
        self._queues = queues[:QUEUES_ASKED_MAX]

    def first_at(self, physical_offset: int) -> int | None:
        """Return a known record start at or after `physical_offset`: the nearest one."""
        found = (queue.neighbours(physical_offset)[1] for queue in self._queues)
        return min((start for start in found if start is not None), default=None)

    def last_before(self, physical_offset: int) -> int | None:
        """Return a known record start before `physical_offset`: the nearest one."""
        found = (queue.neighbours(physical_offset)[0] for queue in self._queues)
        return max((start for start in found if start is not None), default=None)


class _Queue:
    """The units of one queue, over all its files."""

    def __init__(self, folder: Path) -> None:
        entries = (entry for entry in folder.iterdir() if entry.name.isdecimal())
        self._files = [
            (str(entry), entry.stat().st_size // UNIT.size)
            for entry in sorted(entries, key=lambda entry: entry.name)
        ]
        self.unit_count = sum(count for _, count in self._files)

    def neighbours(self, physical_offset: int) -> tuple[int | None, int | None]:
        """Return the last start before `physical_offset` and the first at or after it."""
        before = None
        for path, count in self._files:
            with Path(path).open("rb", buffering=0) as file:
                units = _Units(file.fileno(), count)
                written = bisect.bisect_left(units, 1, key=lambda unit: unit[1] <= 0)
                at = bisect.bisect_left(
                    units, physical_offset, 0, written, key=lambda unit: unit[0]
                )
                if at:
                    before = units[at - 1][0]
                if at < written:
                    return before, units[at][0]
        return before, None


class _Units:
    """A queue file as a sequence, for `bisect`."""

    def __init__(self, descriptor: int, count: int) -> None:
        self._descriptor = descriptor
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[int, int]:
        data = os.pread(self._descriptor, UNIT.size, index * UNIT.size)
        if len(data) < UNIT.size:  # cut meanwhile: like what was never written
            return 0, 0
        offset, size, _ = UNIT.unpack(data)
        return offset, size
