"""Where the log on a node's disk ends, read from the bytes and not from the node's own words."""

import struct
from typing import Final

from node.simulated.disk import SimulatedDisk
from tandem.wire.message import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from tests.sim.engine.history import Extent
from tests.sim.engine.whole_disk import WholeDisk

_HEAD: Final = struct.Struct(">II")
_PHYSICAL_OFFSET: Final = struct.Struct(">q")
_PHYSICAL_OFFSET_AT: Final = 28


class LogTail:
    """Follows the commit log in `directory` of one disk, record by record.

    With `is_durable` it reads what a power loss leaves, not the page cache. It goes forward, and
    begins again when the last record it saw is there no more: the log was cut.
    """

    def __init__(
        self, disk: SimulatedDisk | WholeDisk, directory: str, *, is_durable: bool = False
    ) -> None:
        self._disk = disk
        self._directory = f"{directory}/commitlog"
        self._is_durable = is_durable
        self._end = 0
        self._last = 0
        self._paths: dict[int, tuple[str, int]] = {}

    def end(self) -> int:
        """Return the offset behind the last whole record."""
        if self._end and self._record_bytes(self._last) != self._end - self._last:
            self._end = 0
            self._paths.clear()
        while (size := self._record_bytes(self._end)) > 0:
            self._last = self._end
            self._end += size
        return self._end

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of a range that has been walked over."""
        parts = []
        while start < end:
            found = self._find(start)
            assert found is not None, f"offset {start} is not on the disk"
            path, base, size = found
            stop = min(end, base + size)
            parts.append(bytes(self._disk.open(path).buffer[start - base : stop - base]))
            start = stop
        return b"".join(parts)

    def record_at(self, offset: int) -> bytes:
        """Return the record that begins at `offset`; empty if none does."""
        return self.read(offset, offset + self._record_bytes(offset))

    def _record_bytes(self, offset: int) -> int:
        """Return the size of the record at `offset`, 0 if there is none."""
        found = self._find(offset)
        if found is None:
            return 0
        path, base, file_size = found
        if not self._disk.exists(path):
            return 0
        file = self._disk.open(path)
        buffer = file.durable if self._is_durable else file.buffer
        position = offset - base
        if file_size - position < _HEAD.size:
            return 0
        size, magic = _HEAD.unpack_from(buffer, position)
        if magic == BLANK_MAGIC_CODE:
            return file_size - position if size == file_size - position else 0
        fits = 28 + _PHYSICAL_OFFSET.size <= size <= file_size - position  # torn ones may not
        if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) or not fits:
            return 0
        (at,) = _PHYSICAL_OFFSET.unpack_from(buffer, position + 28)
        return int(size) if at == offset else 0

    def _find(self, offset: int) -> tuple[str, int, int] | None:
        """Return path, start and size of the file that holds `offset`."""
        for again in (False, True):
            for base, (path, size) in self._paths.items():
                if base <= offset < base + size:
                    return path, base, size
            if not again:
                self._paths = {
                    int(name): (f"{self._directory}/{name}", size)
                    for name, size in self._disk.list_files(self._directory)
                    if name.isdigit()
                }
        return None


class DiskTails:
    """Where the log on one disk ends: in the page cache, and in what is durable."""

    def __init__(self, disk: SimulatedDisk | WholeDisk, directory: str) -> None:
        self.disk = disk
        self.written = LogTail(disk, directory)
        self.flushed = LogTail(disk, directory, is_durable=True)

    def extent(self, *, is_certain: bool = True) -> Extent:
        """Return both, in bytes."""
        return Extent(self.written.end(), self.flushed.end(), is_certain)
