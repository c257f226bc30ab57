"""Fingerprints: what the bytes of a closed file of the log were when they were known to be right.

    commitlog/00000000000067108864       a file that is full: nobody writes to it any more
    fingerprints/00000000000067108864    the CRC-32 of each of its blocks of 64 KiB

RocketMQ's records have a CRC of the body only. Here all bytes have one: headers, topics and
properties, blanks, and what is between records.

A file of the log that other programs had cut and filled again would not fit, though its bytes are
good. Our own cuts drop the fingerprints of what they cut. RocketMQ and earlier versions know of
none, so each fingerprint says in which *era* of the store it was made; a new one begins when
somebody else had the store open (see `log_start.py`). Only one of an earlier era may be out of
date, and it is where everything from the first block that differs up to the end of the records is
different, and made of sound records. A byte that has changed by itself is not like that: it changes
one block.

RocketMQ leaves the directory alone.
"""

from __future__ import annotations

import logging
from array import array
from collections import OrderedDict
from sys import byteorder
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from store.machine.checked_file import read_checked_json
from store.machine.errors import StoreError
from tandem.wire.checksum_line import encode_checked_json
from tandem.wire.crc import raw_crc32
from tandem.wire.untrusted import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.machine.disk import Disk

_log = logging.getLogger(__name__)

BLOCK_BYTES: Final = 64 << 10
DIRECTORY: Final = "fingerprints"
KEPT_MAX: Final = 4
"""So many are kept in memory: 16,384 blocks of a file of 1 GiB are 64 KiB."""


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


def crcs_of(data: bytes | memoryview) -> bytes:
    """Return the CRC-32 of each block of `data`, as `Fingerprint.crcs` has them."""
    found = array(
        "I", [raw_crc32(data[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
    )
    if byteorder == "little":
        found.byteswap()
    return found.tobytes()


class Fingerprints:
    """Those of one store, in `<directory>/fingerprints/`.

    `era` is the one that is now; see the head of this module.
    """

    def __init__(self, disk: Disk, directory: str, *, era: int = 0) -> None:
        self._disk = disk
        self._directory = f"{directory}/{DIRECTORY}"
        self.era = era
        self._starts = {
            int(name) for name, _ in disk.list_files(self._directory) if name.isdecimal()
        }
        self._kept: OrderedDict[int, Fingerprint] = OrderedDict()
        self._saving = trio.Lock()

    def __contains__(self, start: int) -> bool:
        return start in self._starts

    @property
    def starts(self) -> list[int]:
        """Where the files begin that have a fingerprint."""
        return sorted(self._starts)

    def of(self, start: int) -> Fingerprint | None:
        """Return that of the file that begins at `start`, None if there is none to go by.

        One that is damaged is deleted: the next scrub makes it anew.
        """
        if start in self._kept:
            self._kept.move_to_end(start)
            return self._kept[start]
        if start not in self._starts:
            return None
        path = self._path(start)
        try:
            found = read_checked_json(self._disk, path, Fingerprint)
        except UnreadableError as error:
            _log.warning("%s: %s; it will be made anew", path, error)
            found = None
        if found is None or found.start != start or not found.is_consistent:
            self.drop(start)
            return None
        self._keep(found)
        return found

    def _keep(self, fingerprint: Fingerprint) -> None:
        self._kept[fingerprint.start] = fingerprint
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    async def save(self, fingerprint: Fingerprint) -> bool:
        """Write it, without stopping other tasks. Return whether it is there.

        It is only a help: where the disk refuses, that is logged, and the next scrub tries again.
        A crash in between leaves a file that does not fit its checksum, which counts as none.
        """
        path = self._path(fingerprint.start)
        content = encode_checked_json(path.rpartition("/")[2], fingerprint)
        # One after the other: until it has its name, a file may have one that others would take.
        async with self._saving:
            try:
                self.drop(fingerprint.start)
                await self._write(path, content)
            except (StoreError, OSError) as error:
                _log.warning("%s cannot be written: %s; the next scrub tries again", path, error)
                return False
            self._starts.add(fingerprint.start)
            self._keep(fingerprint)
        return True

    async def _write(self, path: str, content: bytes) -> None:
        file = await self._disk.create_in_background(path, len(content))
        if file is None:
            raise StoreError(f"{path} is there already")
        try:
            file.write(0, memoryview(content))
            await self._disk.sync(file)
        finally:
            file.close()

    def drop(self, start: int) -> None:
        """Forget that of one file; harmless if there is none.

        Raises:
            OSError: the disk refuses.
        """
        self._kept.pop(start, None)
        self._starts.discard(start)
        self._disk.remove(self._path(start))

    def drop_before(self, start: int) -> None:
        """Forget those of files before `start`, which retention deletes.

        Raises:
            OSError: the disk refuses.
        """
        for begin in [begin for begin in self._starts if begin < start]:
            self.drop(begin)

    def keep_within(self, start: int, end: int, file_size: int) -> None:
        """Forget those of files that are not whole between `start` and `end` of the log.

        What a start cuts off goes so, before anything else can be written there.

        Raises:
            OSError: the disk refuses.
        """
        for begin in self.starts:
            if begin < start or begin + file_size > end:
                self.drop(begin)

    def _path(self, start: int) -> str:
        return f"{self._directory}/{start:020d}"
