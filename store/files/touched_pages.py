"""TouchedPages: has the pages of a log in memory before somebody writes to them.

    last file    0 ...... wrote_position ...... touched ............... in memory .... | next file
                               |<- LEAD_BYTES ->|                           |
                               |<------ what the busiest second wrote ----->|

The first touch of a fresh page costs more than the record that is written to it, so no put is to do
it. Two things in it are dear: finding memory, and making the page one that is written to.

- The system reads pages around one that is asked for, and of a fresh file it makes zeros of them:
  8 MiB at once on some disks, 20 ms in which nobody else has that core. So it is told not to in the
  part that is written to, unless the log is so busy that it needs them; and to do it again behind
  the writer: that part may be read from the disk.
- A few pages are touched as a write does it: then a put finds all done. They are dirty, and are
  written to the disk as zeros if nobody comes.
- As many as a busy second of this log needs are only brought into memory, filled with zeros. That
  is where most of the time goes, and it costs the disk nothing: they are clean, and the system can
  take them back. This is done after a burst, for the next one: while the log grows, others need the
  processor more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from store.files.mapped_file import MappedFile
from store.machine.disk import Disk
from tandem.wire.store_layout import PAGE_BYTES

STEP_BYTES: Final = 8 << 20
"""Touched at a time at most: some 20 ms of work for another core, while the log grows by 250 MB a
second. In a slower log that work is taken from others who have time to be waited for: see
`TouchedPages.step_bytes`."""

STEP_BYTES_MIN: Final = 512 << 10
"""Touched at a time at least: 0.1 to 2 ms, and a thread's wake-up is little to that."""

STEPS_A_SECOND: Final = 32
"""Of a busy log."""

LEAD_BYTES: Final = 8 << 20
"""Touched ahead at least: at 250 MB a second, which is full speed, 30 ms."""

IN_MEMORY_BYTES_MAX: Final = 512 << 20
"""Brought into memory ahead at most, however busy the log is."""

READ_AROUND_BYTES_MIN: Final = 32 << 20
"""A log that writes so much in a busy second needs all of it soon: many pages at once cost it less
than each by itself, a tenth of what it takes."""

READ_STEP_BYTES: Final = 32 << 20
"""So much of the last file at a time is read around again once the writer has passed it."""

RATE_SECONDS: Final = 0.25
"""How long a log has to be busy to count as that, or calm."""

CALMED_SECONDS: Final = 10.0
"""In this time half of a busy second is forgotten."""


class TouchedPages:
    """How far the last file is touched, and how far pages are in memory.

    Args:
        files: the row, as its owner keeps it.
        disk: where the files are.
    """

    def __init__(self, files: Sequence[MappedFile], disk: Disk) -> None:
        self._files = files
        self._disk = disk
        self._file: MappedFile | None = None
        self._end = 0
        self._reads_around = False
        """Whether the system does so ahead of the writer."""
        self._passed = 0
        """Up to where pages of the last file are read around again."""
        self._in_memory: dict[int, int] = {}
        """By where a file begins: up to which position its pages have been brought in."""
        self._looked_at = 0.0
        self._looked_end = -1
        self._seen_end = -1
        self._grew_at = 0.0
        self._busy_second_bytes = 0.0

    @property
    def are_wanted(self) -> bool:
        """True if the writer comes near to pages of the last file that are not touched."""
        if not self._files:
            return False
        last = self._files[-1]
        return last is not self._file or (
            last.wrote_position + LEAD_BYTES > self._end and self._end < last.size
        )

    @property
    def lead_bytes(self) -> int:
        """How far ahead of the writer pages are to be in memory."""
        return max(LEAD_BYTES, min(int(self._busy_second_bytes), IN_MEMORY_BYTES_MAX))

    @property
    def step_bytes(self) -> int:
        """How much is touched at a time: a small part of what the log needs in a second.

        While a thread touches pages it takes a core, and whoever maps or unmaps memory waits for
        it. So it is done often and briefly, unless the log grows so fast that it would be too late.
        """
        step = int(self._busy_second_bytes) // STEPS_A_SECOND // PAGE_BYTES * PAGE_BYTES
        return max(STEP_BYTES_MIN, min(step, STEP_BYTES))

    def look(self, now: float) -> bool:
        """See how fast the log grows; return whether it is calm. `now` is in seconds, on any clock.

        Only of use if it is called again and again.
        """
        if not self._files:
            return True
        end = self._files[-1].end_offset
        seconds = now - self._looked_at
        if end != self._seen_end:
            self._seen_end, self._grew_at = end, now
        if self._looked_end < 0 or end < self._looked_end:
            self._looked_at, self._looked_end = now, end
        elif seconds >= RATE_SECONDS:
            remembered = self._busy_second_bytes * 0.5 ** (seconds / CALMED_SECONDS)
            self._busy_second_bytes = max((end - self._looked_end) / seconds, remembered)
            self._looked_at, self._looked_end = now, end
        return now >= self._grew_at + RATE_SECONDS

    async def touch_some(self) -> None:
        """Touch another step of the last file, from the page on that is written to now.

        A step that was touched already, as the first one of a prepared file was, is next to no
        work. Harmless while there is no file, when the last one is full, and when it is deleted
        meanwhile.
        """
        if not self._files:
            return
        last = self._files[-1]
        touched = self._end if last is self._file else 0
        start = max(touched, _page_of(last))
        end = min(start + self.step_bytes, last.size)
        # Before the wait: a disk that cannot touch pages is not asked for the same ones again.
        is_new, passed = last is not self._file, _page_of(last) // READ_STEP_BYTES * READ_STEP_BYTES
        self._file, self._end = last, end
        wanted = self._busy_second_bytes >= READ_AROUND_BYTES_MIN
        if is_new or wanted != self._reads_around:
            last.file.read_around(start, last.size, wanted=wanted)
            self._reads_around = wanted
        if is_new:
            self._passed = 0
        if passed > self._passed:
            last.file.read_around(self._passed, passed, wanted=True)
            self._passed = passed
        if start < end:
            await self._disk.touch(last.file, start, end - start)

    def absent_step(self, following: MappedFile | None) -> tuple[MappedFile, int, int] | None:
        """Return which part of which file is to be brought into memory next; None: there is none.

        `following` is the file after the last one, if it is there.
        """
        left = self.lead_bytes
        if not self._files or left <= LEAD_BYTES:
            return None
        last = self._files[-1]
        for file in (last, following):
            if file is None:
                continue
            start = max(self._in_memory.get(file.file_from_offset, 0), _page_of(file))
            if file is self._file:
                start = max(start, self._end)
            end = min(start + self.step_bytes, file.size)
            if start < end <= file.wrote_position + left:
                return file, start, end
            left -= file.size - file.wrote_position
        return None

    async def bring_in(self, file: MappedFile, start: int, end: int) -> None:
        """Bring such a step into memory. Harmless when the file is deleted meanwhile."""
        first = self._files[-1].file_from_offset if self._files else 0
        self._in_memory = {begun: to for begun, to in self._in_memory.items() if begun >= first}
        self._in_memory[file.file_from_offset] = end
        await self._disk.touch(file.file, start, end - start, clean=True)


def _page_of(file: MappedFile) -> int:
    return file.wrote_position // PAGE_BYTES * PAGE_BYTES
