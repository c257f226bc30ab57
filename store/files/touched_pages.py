"""TouchedPages: touches the pages of a log's last file ahead of who writes to it.

    last file    0 .......... wrote_position .......... touched ................... size
                                    |<- LEAD_BYTES, else ->|<- STEP_BYTES more ->|

The first touch of a fresh page costs more than the record that is written to it, so no put is to do
it. The file as a whole would be too much: pages that nobody comes to write are dirty all the same,
hold memory, and are written to the disk as zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.files.mapped_file import MappedFile
    from store.machine.disk import Disk

STEP_BYTES: Final = 8 << 20
"""Touched at a time: some 20 ms of work for another core, a thread's wake-up is nothing to that."""

LEAD_BYTES: Final = 8 << 20
"""Touched ahead at least: at 250 MB a second, which is full speed, 30 ms."""

_PAGE_BYTES: Final = 4096


class TouchedPages:
    """How far the last file is touched.

    Args:
        files: the row, as its owner keeps it.
        disk: where the files are.
    """

    def __init__(self, files: Sequence[MappedFile], disk: Disk) -> None:
        self._files = files
        self._disk = disk
        self._file: MappedFile | None = None
        self._end = 0

    @property
    def are_wanted(self) -> bool:
        """True if the writer comes near to pages of the last file that are not touched."""
        if not self._files:
            return False
        last = self._files[-1]
        return last is not self._file or (
            last.wrote_position + LEAD_BYTES > self._end and self._end < last.size
        )

    async def touch_some(self) -> None:
        """Touch another step of the last file, from the page on that is written to now.

        A step that was touched already, as the first one of a prepared file was, is next to no
        work. Harmless while there is no file, and when the file is deleted meanwhile.
        """
        if not self._files:
            return
        last = self._files[-1]
        touched = self._end if last is self._file else 0
        start = max(touched, last.wrote_position // _PAGE_BYTES * _PAGE_BYTES)
        end = min(start + STEP_BYTES, last.size)
        # Before the wait: whoever cannot touch pages is not asked for the same ones again.
        self._file, self._end = last, end
        await self._disk.touch(last.file, start, end - start)
