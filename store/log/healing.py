"""LogHealing: puts the right bytes where a range of the log is bad.

    fit?          0   the fingerprint of each block says so; where there is none, its records do
    noted         1   in damage.json, durable: a reader that finds half of it knows that it is bad
    kept          2   what was there goes to damaged/<20 digits>-<bytes>, unless it is all zeros
    written       3   through the file, in place
    synced        4
    healed        5   the note goes

A file is not copied for it, also not in a store that is closed: the note already makes it safe to
be interrupted anywhere, as a second copy would, and a file may be as large as 1 GiB.

Where the bytes come from, and who vouches for them, is the caller's business. That they fit is
looked at here all the same, so that a mistake there cannot make things worse.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from store.files.mapped_file import MappedFile
from store.log.commit_log import CommitLog
from store.log.fingerprints import Fingerprints
from store.log.log_end import CHUNK_BYTES, Blank, Damage, next_records, read_record
from store.machine.disk import Disk
from store.machine.errors import Unfit, UnfitBytesError
from tandem.wire.fingerprint import Fingerprint
from tandem.wire.message import RECORD_BYTES_MIN

_log = logging.getLogger(__name__)

DIRECTORY: Final = "damaged"
LOOK_AHEAD_BYTES: Final = 5 << 20
"""A record that begins within the range and ends after it is seldom longer."""


class _Part(NamedTuple):
    """What goes into one file."""

    file: MappedFile
    start: int
    data: memoryview

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def position(self) -> int:
        """Where in the file it begins."""
        return self.start - self.file.file_from_offset


class LogHealing:
    """The healing of one log, whose store is in `directory`."""

    def __init__(
        self, log: CommitLog, fingerprints: Fingerprints, disk: Disk, directory: str
    ) -> None:
        self._log = log
        self._fingerprints = fingerprints
        self._disk = disk
        self._directory = f"{directory}/{DIRECTORY}"

    async def heal(self, start: int, data: bytes | memoryview) -> None:
        """Put `data` in the place of what is at `start` of the log; it counts as whole then.

        Where the file has a fingerprint, each block that this changes has to be whole afterwards.
        Where it has none, so has each record, and the range begins and ends with one.

        Raises:
            UnfitBytesError: they do not fit there; nothing was changed.
            StoreFullError: no room to keep what was there; nothing was changed.
            OSError: the disk failed; the range is still known to be bad.
        """
        for part in self._fitting(start, data):
            self._write(part)
            if part.file.hold():
                try:
                    await self._disk.sync(part.file.file)
                finally:
                    part.file.release()
            self._finish(part)

    def heal_blocking(self, start: int, data: bytes | memoryview) -> None:
        """Do the same while nothing else runs, as before a store is opened."""
        for part in self._fitting(start, data):
            self._write(part)
            part.file.file.sync()
            self._finish(part)

    # -- do they fit? ----------------------------------------------------------------------------

    def _fitting(self, start: int, data: bytes | memoryview) -> list[_Part]:
        parts = list(self._parts(start, memoryview(data)))
        for part in parts:
            known = self._fingerprints.of(part.file.file_from_offset)
            if known is not None:
                cause, why = Unfit.OTHER_BLOCK, _block_fault(part, known)
            else:
                cause, why = Unfit.OTHER_RECORD, self._record_fault(part)
            if why is not None:
                raise self._unfit(start, len(data), cause, why)
        return parts

    def _parts(self, start: int, data: memoryview) -> Iterator[_Part]:
        offset, size = start, len(data)
        while data:
            file = self._log.files.find_by_offset(offset)
            position = 0 if file is None else offset - file.file_from_offset
            if file is None or not file.is_available or position >= file.read_position:
                raise self._unfit(start, size, Unfit.OUTSIDE, f"{offset} is not in the log")
            if file.is_read_only:
                why = f"{file.file.path} may only be read"
                raise self._unfit(start, size, Unfit.READ_ONLY, why)
            taken = min(len(data), file.size - position)
            if position + taken > file.read_position:
                why = f"the log ends at {self._log.max_offset}"
                raise self._unfit(start, size, Unfit.OUTSIDE, why)
            yield _Part(file, offset, data[:taken])
            offset += taken
            data = data[taken:]

    def _unfit(self, start: int, size: int, cause: Unfit, why: str) -> UnfitBytesError:
        return UnfitBytesError(
            f"{self._directory}: {size} bytes for the log at {start} do not fit there: {why};"
            " nothing was changed",
            cause=cause,
            start=start,
            end=start + size,
        )

    def _record_fault(self, part: _Part) -> str | None:
        """Return why the records that are changed would not be sound, None if they would be."""
        file, base = part.file, part.file.file_from_offset
        fault: str | None = None
        goes_on = self._log.damage.within(part.end, part.end + 1) is not None
        near = min(file.read_position, part.end - base + LOOK_AHEAD_BYTES)
        # Other damage before it may hide which record the range begins in; perhaps none.
        for at in (_record_start(part), part.position):
            for limit in (near, file.read_position):
                fault = _walk(_with_part(part, at, limit), base + at, part.end, goes_on)
                if fault is None:
                    return None
        return fault

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, part: _Part) -> None:
        self._log.damage.note(part.start, part.end, "being healed")
        before = bytes(part.file.buffer[part.position : part.position + len(part.data)])
        if any(before):
            self._keep(part.start, before)
        part.file.file.write(part.position, part.data)

    def _keep(self, start: int, before: bytes) -> None:
        first = path = f"{self._directory}/{start:020d}-{len(before)}"
        number = 1
        while (kept := self._disk.read(path)) is not None:
            if kept == before:
                return
            number += 1
            path = f"{first}.{number}"
        self._disk.replace(path, before)

    def _finish(self, part: _Part) -> None:
        self._log.damage.healed(part.start, part.end)
        _log.warning(
            "%s is healed from %d to %d; what was there is kept in %s",
            part.file.file.path,
            part.start,
            part.end,
            self._directory,
        )


def unsound_record(file: MappedFile, start: int, end: int) -> str | None:
    """Return why a record in a range of a closed file is not sound; None if all are.

    By its own checksum: what no checksum of RocketMQ's covers may have changed all the same.
    """
    part = _Part(file, start, memoryview(b""))
    at = _record_start(part)
    with memoryview(file.buffer) as view:
        return _walk(view[at:], file.file_from_offset + at, end, goes_on=False)


def taken_of_damage(log: CommitLog, start: int, end: int) -> bool:
    """Whether the fingerprint of a block that fits it was taken of bytes that had changed already.

    Then a record in it is none, which is why a part of the block was noted as damage. Where all of
    it is, it is so by its fingerprint, or because all of the log is in doubt: no record was looked
    at then, and to find those of each block of a large file would take for ever.
    """
    if log.damage.within(start, end) is None or log.damage.covers(start, end):
        return False
    file = log.files.find_by_offset(start)
    return file is not None and unsound_record(file, start, end) is not None


def _with_part(part: _Part, start: int, end: int) -> memoryview:
    """Return what would be in the file from position `start` up to `end`, which are around it."""
    after = part.position + len(part.data)
    buffer = part.file.buffer
    return memoryview(buffer[start : part.position] + bytes(part.data) + buffer[after:end])


def _block_fault(part: _Part, known: Fingerprint) -> str | None:
    """Return why the blocks that are changed would not be whole, None if they would be."""
    blocks = list(known.blocks(part.start, part.end))
    start, end = blocks[0][1], blocks[-1][2]
    data = _with_part(part, start - known.start, end - known.start)
    wrong = known.differing(start, data)
    return (
        f"the block from {wrong[0][0]} to {wrong[0][1]} has another fingerprint" if wrong else None
    )


def _record_start(part: _Part) -> int:
    """Return the position of the last record that begins before the range, or with it.

    As far as that can be seen: where there is damage before it, that is where it is.
    """
    file, at = part.file, 0
    while at < part.position:
        _, columns = next_records(
            file.buffer,
            at,
            file.read_position,
            file.file_from_offset + at,
            bytes_max=CHUNK_BYTES,
            check_crc=False,
        )
        if isinstance(columns, Blank | Damage):
            return at
        starts = columns.physical_offset - file.file_from_offset
        at = int(starts[-1] + columns.size[-1])
        if at > part.position:
            return int(starts[starts <= part.position][-1])
    return part.position


def _walk(data: memoryview, offset: int, end: int, goes_on: bool) -> str | None:  # noqa: FBT001
    """Return why there are no sound records from `offset` up to `end`, None if there are.

    If the bad range `goes_on` at `end`, the last of them may end there: who heals the rest looks at
    it as a whole.
    """
    at = 0
    while offset + at < end:
        found = read_record(data, at, len(data), offset + at)
        if isinstance(found, Damage):
            left = end - offset - at
            size = int.from_bytes(data[at : at + 4], "big")
            if goes_on and (left < RECORD_BYTES_MIN or size > left):
                return None
            return f"no record at {offset + at}: {found.reason}"
        if isinstance(found, Blank):
            return None
        at += found.size
    return None
