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
from collections import OrderedDict
from typing import Final

import trio

from store.machine.disk import Disk
from store.machine.errors import NameTakenError, StoreError
from tandem.wire.checksum_line import decode_checked_json, encode_checked_json
from tandem.wire.fingerprint import DIRECTORY, Fingerprint
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

KEPT_MAX: Final = 4
"""How many are kept in memory: 16,384 blocks of a file of 1 GiB are 64 KiB."""


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
            data = self._disk.read(path)
        except OSError:
            data = None
        found = self._decoded(start, data)
        if found is None:
            _log.warning("%s cannot be read; it will be made anew", path)
            self.drop(start)
            return None
        self._keep(found)
        return found

    def _decoded(self, start: int, data: bytes | None) -> Fingerprint | None:
        """Return what a file says, None if that is not to be believed."""
        try:
            name = self._path(start).rpartition("/")[2]
            found = decode_checked_json(name, data or b"", Fingerprint)
        except UnreadableError:
            return None
        return found if found.start == start and found.is_consistent else None

    async def look_at(self, start: int) -> None:
        """Read that of one file from the disk. A damaged one is written anew, or else dropped.

        What is kept in memory is right.
        """
        async with self._saving:
            if start not in self._starts:
                return
            path = self._path(start)
            try:
                size = len(self._disk.read(path) or b"")
                data = await self._disk.read_from_disk(path, 0, size + 1)
            except OSError:
                data = b""
            if start not in self._starts or self._decoded(start, data) is not None:
                return
            kept = self._kept.get(start)
            self.drop(start)
        _log.error("%s has changed on the disk; it is made anew: look after this disk", path)
        if kept is not None:
            await self.save(kept)

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
            raise NameTakenError(f"{path} is there already", path=path)
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
