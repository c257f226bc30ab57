"""FingerprintMaker: takes the fingerprint of the file that is being written, as it grows.

A block is taken soon after it was filled, while its bytes are still those in memory that were
acknowledged: a page that the system has taken back and read again is what the disk says. So what
was written since the store was opened is `written`; what was there before was walked by recovery,
or read.

What is not committed yet, in a pool's buffer, is not in the file, and waits.
"""

from __future__ import annotations

from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.log.damage import LogDamage
from store.log.fingerprints import Fingerprints
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of


class FingerprintMaker:
    """Follows one log. Make it when the log is recovered: what is there is not `written`."""

    def __init__(
        self, files: MappedFileQueue, damage: LogDamage, fingerprints: Fingerprints
    ) -> None:
        self._files = files
        self._damage = damage
        self._fingerprints = fingerprints
        self._opened_at = files.max_offset
        """Where the log ended then: what is before that was not written by this process."""
        last = files.last
        self._start = last.file_from_offset if last is not None else 0
        self._crcs = bytearray()
        if last is not None and last.is_full and self._start in fingerprints:
            self._start += last.size

    @property
    def is_behind(self) -> bool:
        """True if there is a block to take."""
        file = self._file()
        return file is not None and self._end(file) > self._position

    @property
    def _position(self) -> int:
        return len(self._crcs) // 4 * BLOCK_BYTES

    def step(self, bytes_max: int) -> Fingerprint | None:
        """Take about `bytes_max` bytes; return the fingerprint of a file that is closed with them.

        None also for a file that is known to be damaged: it gets one when it has been healed.
        """
        file = self._file()
        if file is None:
            return None
        start, end = self._position, self._end(file)
        end = min(end, start + max(BLOCK_BYTES, bytes_max // BLOCK_BYTES * BLOCK_BYTES))
        with memoryview(file.buffer)[start:end] as taken:
            self._crcs += crcs_of(taken)
        if end < file.size:
            return None
        era = self._fingerprints.era
        made = Fingerprint(file.file_from_offset, end, bytes(self._crcs), self._opened_at, era)
        self._crcs.clear()
        self._start = made.end
        return None if self._damage.within(made.start, made.end) is not None else made

    def _file(self) -> MappedFile | None:
        """Return the file whose turn it is; None if it has not been begun."""
        file = self._files.find_by_offset(self._start)
        if file is None and self._files.files:
            first = self._files.files[0]
            if self._start < first.file_from_offset:  # deleted meanwhile, or a log that begins late
                self._start = first.file_from_offset
                self._crcs.clear()
                return first
        return file

    @staticmethod
    def _end(file: MappedFile) -> int:
        """Return up to where whole blocks can be read; the last one of a file is whole if full."""
        end = file.read_position
        return end if end == file.size else end - end % BLOCK_BYTES
