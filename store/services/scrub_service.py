"""ScrubService: reads all of the log from the disk, again and again, and says what has changed.

    small files                         what this process has in memory of them
    closed file whose name is gone      written anew from memory, where it is mapped yet
    closed file with a fingerprint      each block against it
    closed file without one             each record; if all are sound it gets one
    the records of both                 the units of their queues
    files of queues                     that they are there, and as long as they have to be
    index files                         their records

What differs is noted as damage; only an owner with other replicas can heal it. Where memory still
has the right bytes, they are written again, and nothing is damaged. A range that was noted is whole
again if its blocks are what their fingerprint says, on the disk and in memory.

A pass takes about half of `scrub_interval_hours`, in slices of 1 MiB with a rest after each, and
never more than a twentieth of the time; one that was ordered (`scrub_now`) a quarter. Where other
tasks have work, it rests longer. It goes on after a restart where it was, file by file. The file
that is being written is not read: its blocks are taken when it is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from store.config import StoreConfig
from store.files.mapped_file import MappedFile
from store.index.index_service import IndexService
from store.log.commit_log import CommitLog
from store.log.fingerprints import Fingerprints
from store.log.healing import taken_of_damage
from store.log.log_end import (
    DELAY_LEVELS,
)
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import TEMPORARY_SUFFIX, Disk
from store.machine.errors import StoreError
from store.machine.signal import Signal
from store.queue.consume_queue_store import ConsumeQueueStore
from store.services.file_look import FileLook
from store.services.index_check import IndexCheck
from store.services.queue_care import QueueCare
from store.services.small_files_check import SmallFilesCheck
from tandem.wire.delay_level import DelayLevels
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

FILE_NAME: Final = "scrub.json"
SLICE_BYTES: Final = 16 * BLOCK_BYTES
SHARE: Final = 1 / 20
ORDERED_SHARE: Final = 1 / 4
"""Of the time, at most."""

PASS_SHARE: Final = 1 / 2
"""Of the interval a pass is to take."""

BUSY_SECONDS: Final = 0.002
"""If others are at work for so long between two slices, the next one waits."""
BUSY_REST_SECONDS: Final = 0.1

HOUR_MS: Final = 3_600_000
LOOK_SECONDS: Final = 60.0


class ScrubProgress(msgspec.Struct, frozen=True):
    """How far the scrub is, and what it has found."""

    started_ms: int = 0
    """When the pass began that is under way or was the last; 0: none has."""
    ended_ms: int = 0
    """When the last whole pass ended; 0: none has."""
    offset: int = 0
    """Up to where the log has been read in this pass."""
    end: int = 0
    """Up to where it will be, as far as is known."""
    found_ranges: int = 0
    """Bad ranges that this pass has found."""
    mended_blocks: int = 0
    """Blocks that were bad on the disk, and were written again from memory."""
    rewritten_units: int = 0
    """Units of queues that were written anew."""
    rewritten_queue_files: int = 0
    """Files of queues that were gone or short, and were written anew."""
    rebuilt_index_files: int = 0
    """Index files that are built anew."""
    rewritten_files: int = 0
    """Small files that had changed on the disk, and were written anew from memory."""
    bad_files: tuple[str, ...] = ()
    """Those that could not be: why, and which."""
    queues_left: str | None = None
    """Why all queues are built anew at the next start, in words; None if they are not."""

    @property
    def is_running(self) -> bool:
        """True while a pass is under way."""
        return self.started_ms > self.ended_ms

    def in_words(self) -> str:
        """Return how far it is and what it has found, in words; "" if there was none."""
        found = (
            f"{self.found_ranges} bad ranges found, {self.mended_blocks} blocks written again"
            f" from memory, {self.rewritten_units} units and {self.rewritten_queue_files} files of"
            " queues written anew,"
            f" {self.rebuilt_index_files} index files built anew,"
            f" {self.rewritten_files} small files written anew"
        )
        found += "".join(f"; {bad}" for bad in self.bad_files)
        if self.queues_left is not None:
            found += f"; all queues are built anew at the next start: {self.queues_left}"
        if self.is_running:
            return f"has read {self.offset} of {self.end}, {found}"
        return f"has read the log up to {self.offset}, {found}" if self.ended_ms else ""


class ScrubService:
    """The scrub of one store."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        fingerprints: Fingerprints,
        disk: Disk,
        config: StoreConfig,
        *,
        wall_clock_ms: Callable[[], int],
        index_service: IndexService | None = None,
        on_index_dropped: Callable[[], None] = lambda: None,
        indexed: Callable[[], int] = lambda: 0,
        levels: DelayLevels = DELAY_LEVELS,
        dispatched: Callable[[], int] | None = None,
    ) -> None:
        self._log = log
        self._small_files = SmallFilesCheck(disk, config.directory)
        self._index_check = IndexCheck(log, index_service, on_index_dropped, indexed)
        self._fingerprints = fingerprints
        self._disk = disk
        self._path = f"{config.directory}/{FILE_NAME}"
        self._interval_ms = config.scrub_interval_hours * HOUR_MS
        self._now_ms = wall_clock_ms
        care = QueueCare(log, queues, disk, config.directory, levels, dispatched)
        self._queue_care = care
        self._ordered = Signal()
        self._is_ordered = False
        self._took_seconds = 0.0
        self._one_writes = trio.Lock()
        self.progress = self._read()

    def _read(self) -> ScrubProgress:
        try:
            found = read_checked_json(self._disk, self._path, ScrubProgress) or ScrubProgress()
        except UnreadableError as error:
            _log.warning("%s: %s; the scrub begins anew", self._path, error)
            return ScrubProgress()
        # The work left to this start is over.
        return msgspec.structs.replace(found, bad_files=(), queues_left=None)

    def scrub_now(self) -> None:
        """Read all of the log from its beginning on, at once and faster; see `progress`."""
        self._is_ordered = True
        self._began()
        self._ordered.notify()

    def _began(self) -> None:
        last = self.progress
        now_ms = max(self._now_ms(), last.ended_ms + 1, last.started_ms + 1)
        self.progress = ScrubProgress(now_ms, last.ended_ms, end=self._log.max_offset)

    async def run(self) -> None:
        """Scrub until cancelled."""
        while True:
            if not self.progress.is_running:
                due_ms = self.progress.ended_ms + self._interval_ms
                if not self._interval_ms or self._now_ms() < due_ms:
                    with trio.move_on_after(LOOK_SECONDS):
                        await self._ordered.wait()
                    continue
                self._began()
            await self.scrub_pass()

    async def scrub_pass(self) -> None:
        """Go on with the pass that is under way, to its end. One that is ordered begins again."""
        began_ms = self.progress.started_ms
        await self._look_at_small_files(began_ms)
        await self._count_units(self._queue_care.look_at_files(self._rest_in_pass(began_ms)))
        while (file := self._next_file()) is not None:
            await self._scrub_file(file)
            if self.progress.started_ms != began_ms:
                began_ms = self.progress.started_ms
                continue
            self._moved_to(file.file_from_offset + file.size)
            self._save()
            if self._next_file() is not None:
                await self._rest(self._took_seconds)
        await self._count_units(self._queue_care.mend(self._rest_in_pass(began_ms)))
        count = await self._index_check.run(self._rest_in_pass(began_ms))
        if self.progress.started_ms != began_ms:
            return
        self._change(rebuilt_index_files=self.progress.rebuilt_index_files + count)
        self._is_ordered = False
        self._change(ended_ms=max(self._now_ms(), self.progress.started_ms))
        if not self.progress.offset:  # there was no closed file
            return
        self._save()
        _log.info("scrub: it %s", self.progress.in_words())

    async def _look_at_small_files(self, began_ms: int) -> None:
        count = await self._small_files.run(self._rest_in_pass(began_ms))
        self._change(
            rewritten_files=self.progress.rewritten_files + count,
            bad_files=tuple(f"{path}: {why}" for path, why in self._small_files.bad.items()),
        )

    async def _count_units(self, care: Awaitable[None]) -> None:
        before = self._queue_care.rewritten_units, self._queue_care.rewritten_files
        await care
        self._counted(*before)

    def _counted(self, units_before: int, files_before: int) -> None:
        care, progress = self._queue_care, self.progress
        self._change(
            rewritten_units=progress.rewritten_units + care.rewritten_units - units_before,
            rewritten_queue_files=(
                progress.rewritten_queue_files + care.rewritten_files - files_before
            ),
            queues_left=care.left,
        )

    def _rest_in_pass(self, began_ms: int) -> Callable[[float], Awaitable[bool]]:
        async def rest(took_seconds: float) -> bool:
            await self._rest(took_seconds, is_paced=False)
            return self.progress.started_ms == began_ms

        return rest

    def _change(self, **values: int | str | tuple[str, ...] | None) -> None:
        self.progress = msgspec.structs.replace(self.progress, **values)

    def _moved_to(self, offset: int) -> None:
        self._change(offset=offset, end=max(offset, self._log.max_offset))

    def _save(self) -> None:
        try:
            replace_with_checked_json(self._disk, self._path, self.progress)
        except StoreError as error:
            _log.warning("%s cannot be written: %s", self._path, error)

    def _next_file(self) -> MappedFile | None:
        """Return the first closed file that is not read yet."""
        for file in self._log.files.files:
            is_left = file.file_from_offset >= self.progress.offset
            if is_left and file.is_available and file.read_position == file.size:
                return file
        return None

    # -- one file --------------------------------------------------------------------------------

    async def look_at_file(self, start: int) -> None:
        """Read one closed file at once, wherever the pass is."""
        file = self._log.files.find_by_offset(start)
        if file is not None and file.is_available and file.is_full:
            await self._scrub_file(file, is_of_pass=False)

    async def _scrub_file(self, file: MappedFile, *, is_of_pass: bool = True) -> None:
        began_ms = self.progress.started_ms
        async with self._one_writes:
            await self._write_if_gone(file)
        await self._fingerprints.look_at(file.file_from_offset)
        look = FileLook(file, self._fingerprints.of(file.file_from_offset))
        for position in range(0, file.size, SLICE_BYTES):
            began = trio.current_time()
            offset = file.file_from_offset + position
            size = min(SLICE_BYTES, file.size - position)
            try:
                data = await self._disk.read_from_disk(file.file.path, position, size)
            except OSError as error:
                data = b""
                if file.is_available:
                    self._note(offset, offset + size, f"the disk does not give it: {error}")
            is_pass_over = is_of_pass and self.progress.started_ms != began_ms
            if not file.is_available or is_pass_over:
                return
            if len(data) == size:
                await self._look_at(look, offset, data)
            else:
                look.lost()
                self._note(offset + len(data), offset + size, "the file is short")
            took_seconds = trio.current_time() - began
            if is_of_pass:
                self._moved_to(offset + size)
                self._took_seconds = took_seconds
            if position + size == file.size:
                break  # the caller that waits for this file need not wait for the rest after it
            if is_of_pass:
                await self._rest(took_seconds)
            else:
                await trio.sleep(took_seconds * (1 / ORDERED_SHARE - 1))
        if look.known is None and look.is_sound:
            await self._take_fingerprint(look)

    async def _take_fingerprint(self, look: FileLook) -> None:
        """Have one of a file whose records are all sound in memory, and the disk agree with it."""
        file = look.file
        for start, end in look.differing:
            await self._write_again(file, start, end)
        made = Fingerprint(
            *(file.file_from_offset, file.size, bytes(look.crcs)),
            written_from=file.file_from_offset + file.size,
            era=self._fingerprints.era,
        )
        await self._fingerprints.save(made)
        if self._log.damage.covers(made.start, made.end):
            self._log.damage.healed(made.start, made.end)

    async def _write_if_gone(self, file: MappedFile) -> None:
        """Give a file a name again that somebody has deleted: this process has its bytes yet.

        The file goes on in the new one, or what is healed later would go nowhere.
        """
        path, disk = file.file.path, self._disk
        if disk.exists(path) or file.is_read_only or not file.hold():
            return
        try:
            disk.remove(f"{path}{TEMPORARY_SUFFIX}")
            # Not in the background, where the next file of the log may have the same passing name.
            made = disk.create(f"{path}{TEMPORARY_SUFFIX}", file.size)
            try:
                for position in range(0, file.size, SLICE_BYTES):
                    piece = bytes(file.buffer[position : position + SLICE_BYTES])
                    made.write(position, memoryview(piece))
                    await self._rest(0.0)
                await disk.sync(made)
            finally:
                made.close()
            if not file.is_available:
                disk.remove(f"{path}{TEMPORARY_SUFFIX}")
                return
            disk.rename(f"{path}{TEMPORARY_SUFFIX}", path)
            file.go_on_in(disk.open(path))
        except (StoreError, OSError) as error:
            _log.error("%s was deleted, and cannot be written anew: %s", path, error)
            return
        finally:
            file.release()
        _log.error("%s was deleted under this process, and is written anew from memory", path)
        blocks = -(-file.size // BLOCK_BYTES)
        self._change(mended_blocks=self.progress.mended_blocks + blocks)

    async def _look_at(self, look: FileLook, offset: int, data: bytes) -> None:
        known = look.known
        if known is None:
            # Readers get what is in memory, and others hear of it; the disk has to agree.
            position = offset - look.file.file_from_offset
            in_memory = bytes(look.file.buffer[position : position + len(data)])
            if in_memory != data:
                look.differing.append((offset, offset + len(data)))
            for start, end, why in look.records(offset, in_memory, check_crc=True):
                self._note(start, end, why)
            look.crcs += crcs_of(in_memory)
        else:
            differing = known.differing(offset, data)
            for start, end in differing:
                await self._differs(look, known, start, end)
            self._are_whole(look.file, known, offset, data, differing)
            list(look.records(offset, data, check_crc=False))
        is_damaged = self._log.damage.within(offset, offset + len(data)) is not None
        for buffer, columns in look.take_columns():
            if is_damaged:
                continue
            before = self._queue_care.rewritten_units
            self._queue_care.look_at_records(buffer, columns)
            self._counted(before, self._queue_care.rewritten_files)
            self._index_check.look_at_records(buffer, columns)

    async def _differs(self, look: FileLook, known: Fingerprint, start: int, end: int) -> None:
        """See to a block that the disk has otherwise."""
        file = look.file
        position = start - known.start
        in_memory = bytes(file.buffer[position : position + end - start])
        if not known.differing(start, in_memory) and await self._write_again(file, start, end):
            return
        if known.era != self._fingerprints.era and look.is_written_anew(known, start):
            self._fingerprints.drop(known.start)
            look.forget()
        else:
            self._note(start, end, "the block differs from its fingerprint")

    async def _write_again(self, file: MappedFile, start: int, end: int) -> bool:
        """Give the disk what memory has; False if that must not be."""
        if file.is_read_only or not file.hold():
            return False
        position = start - file.file_from_offset
        in_memory = bytes(file.buffer[position : position + end - start])
        try:
            file.file.write(position, memoryview(in_memory))
            await self._disk.sync(file.file)
        finally:
            file.release()
        _log.error(
            "%s: the disk had other bytes from %d to %d than were written; memory still had"
            " them, and they are written again: look after this disk",
            *(file.file.path, start, end),
        )
        blocks = -(-(end - start) // BLOCK_BYTES)
        self._change(mended_blocks=self.progress.mended_blocks + blocks)
        return True

    def _are_whole(
        self,
        file: MappedFile,
        known: Fingerprint,
        offset: int,
        data: bytes,
        differing: list[tuple[int, int]],
    ) -> None:
        """Take what was noted of blocks for whole that are what they have to be."""
        damage = self._log.damage
        if damage.within(offset, offset + len(data)) is None:
            return
        for _, start, end in known.blocks(offset, offset + len(data)):
            position = start - known.start
            in_memory = memoryview(file.buffer)[position : position + end - start]
            if (
                (start, end) not in differing
                and not known.differing(start, in_memory)
                and not taken_of_damage(self._log, start, end)
            ):
                damage.healed(start, end)

    def _note(self, start: int, end: int, why: str) -> None:
        if self._log.damage.note(start, end, f"scrub: {why}"):
            self._change(found_ranges=self.progress.found_ranges + 1)

    async def _rest(self, took_seconds: float, *, is_paced: bool = True) -> None:
        share = ORDERED_SHARE if self._is_ordered else SHARE
        rest = took_seconds * (1 / share - 1)
        if is_paced and not self._is_ordered:
            files = self._log.files
            slices = len(files.files) * -(-files.mapped_file_size // SLICE_BYTES)
            rest = max(rest, self._interval_ms / 1000 * PASS_SHARE / max(1, slices))
        before = trio.current_time()
        await trio.lowlevel.checkpoint()
        if trio.current_time() - before > BUSY_SECONDS:
            rest += BUSY_REST_SECONDS
        with trio.move_on_after(rest):
            await self._ordered.wait()
