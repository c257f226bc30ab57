"""The fingerprint of a closed file of the log: the CRC-32 of each of its blocks of 64 KiB.

A store keeps them in files of its own (`store.log.fingerprints`), where tools that do not open the
store read them as well.
"""

from __future__ import annotations

from array import array
from sys import byteorder
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.wire.crc import raw_crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES: Final = 64 << 10
DIRECTORY: Final = "fingerprints"
"""Of the store; a file in it has the name of the file of the log that it is of."""


class Fingerprint(msgspec.Struct, frozen=True):
    """Of the file of the log that begins at `start`."""

    start: int
    size: int
    crcs: bytes
    """The CRC-32 of one block after the other, 4 bytes each, the highest first."""
    written_from: int
    """Blocks that begin here or later (physical offset) were taken from memory right after they had
    been written: they are what was acknowledged. Those before were read from the disk at some time,
    and were sound records then."""
    era: int

    @property
    def end(self) -> int:
        """The first physical offset after the file."""
        return self.start + self.size

    @property
    def count(self) -> int:
        """How many blocks there are; the last one may be shorter."""
        return -(-self.size // BLOCK_BYTES)

    def crc(self, block: int) -> int:
        """Return the CRC-32 that the block of this number has to have."""
        return int.from_bytes(self.crcs[4 * block : 4 * block + 4], "big")

    def is_written(self, offset: int) -> bool:
        """True if the block at `offset` was taken from memory, where it had just been written."""
        return self.start + (offset - self.start) // BLOCK_BYTES * BLOCK_BYTES >= self.written_from

    def blocks(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (number, start, end) of each block with a byte from `start` up to `end`."""
        first = (max(start, self.start) - self.start) // BLOCK_BYTES
        last = -(-(min(end, self.end) - self.start) // BLOCK_BYTES)
        for number in range(first, last):
            begin = self.start + number * BLOCK_BYTES
            yield number, begin, min(begin + BLOCK_BYTES, self.end)

    def differing(self, offset: int, data: bytes | memoryview) -> list[tuple[int, int]]:
        """Return from where to where each block is that `data` says otherwise of.

        `data` is what is at `offset`, where a block begins, and ends with one.
        """
        found = crcs_of(data)
        at = 4 * ((offset - self.start) // BLOCK_BYTES)
        if found == self.crcs[at : at + len(found)]:
            return []
        return [
            (start, end)
            for number, start, end in self.blocks(offset, offset + len(data))
            if raw_crc32(data[start - offset : end - offset]) != self.crc(number)
        ]

    @property
    def is_consistent(self) -> bool:
        """True if the numbers in it can belong together."""
        return self.start >= 0 < self.size and len(self.crcs) == 4 * self.count


def crcs_of(data: bytes | memoryview, block_bytes: int = BLOCK_BYTES) -> bytes:
    """Return the CRC-32 of each block of `data`, as `Fingerprint.crcs` has them."""
    found = array(
        "I", [raw_crc32(data[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]
    )
    if byteorder == "little":
        found.byteswap()
    return found.tobytes()
