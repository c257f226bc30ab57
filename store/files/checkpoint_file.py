"""CheckpointFile: the file of a checkpoint, with the second copy of its numbers.

Both checkpoints of a store are one: `checkpoint` and `config/timercheck`. What the numbers mean,
and when they move, is in `StoreCheckpoint` and `TimerCheckpoint`; what two copies that differ mean,
in `checkpoint_copy`.
"""

from __future__ import annotations

import logging

from store.machine.disk import Buffer, Disk, DiskFile
from store.machine.errors import CorruptLogError, LogFault
from store.machine.kept_files import ONLY_OURS, KeptFile
from tandem.wire.checkpoint_copy import pieces_of, settled
from tandem.wire.store_layout import CHECKPOINT_BYTES

_log = logging.getLogger(__name__)


class CheckpointFile:
    """One open file.

    Attributes:
        numbers: What it said when it was opened.
        trouble: What was wrong with it then, in words; empty if nothing was.
    """

    def __init__(self, path: str, disk: Disk, count: int, *, without_it: str, own: int = 0) -> None:
        """Open or create the file of `count` numbers, the last `own` of which are not RocketMQ's.

        Raises:
            CorruptLogError: it has another length; `without_it` says what the next start does then.
        """
        found = disk.read(path)
        if found is not None and len(found) != CHECKPOINT_BYTES:
            raise CorruptLogError(
                f"{path}: the checkpoint has {len(found)} bytes, not {CHECKPOINT_BYTES};"
                f" delete it: {without_it}",
                path=path,
                fault=LogFault.LENGTH,
            )
        self._disk = disk
        self._path = path
        self._own = own
        self.file: DiskFile = (
            disk.open(path) if found is not None else disk.create(path, CHECKPOINT_BYTES)
        )
        self.numbers, self.trouble, has_copy = settled(bytes(self.file.buffer), count, own)
        if self.trouble:
            _log.error("%s: %s", path, self.trouble)
        is_ours = not self.trouble and (has_copy or not any(self.numbers))
        self._written: tuple[int, ...] = self.numbers if is_ours else ()
        disk.kept.keep(path, self._kept)

    def write(self, numbers: tuple[int, ...]) -> bool:
        """Put the numbers there, to be synced; False if they are there already."""
        if numbers == self._written:
            return False
        self._put_into(self.file.buffer, numbers)
        self._written = numbers
        return True

    def _kept(self) -> KeptFile | None:
        """Return what is in the file; None if that is not known. A new one has no copy yet."""
        if not any(self._written):
            return None
        return KeptFile(self._content(), ONLY_OURS, self._write_anew)

    def _content(self) -> bytes:
        content = bytearray(CHECKPOINT_BYTES)
        self._put_into(content, self._written)
        return bytes(content)

    def _put_into(self, buffer: Buffer, numbers: tuple[int, ...]) -> None:
        for at, piece in pieces_of(numbers, self._own):
            buffer[at : at + len(piece)] = piece

    def _write_anew(self) -> None:
        """Put a new file in the place of one that has changed on the disk, or is gone."""
        self._disk.replace(self._path, self._content())
        before, self.file = self.file, self._disk.open(self._path)
        before.close()
        self._disk.kept.keep(self._path, self._kept)

    def close(self) -> None:
        """Close it without syncing."""
        self._disk.kept.forget(self._path)
        self.file.close()
