"""TimerCheckpoint: how far the timers of a store have got, as far as that is durable.

`config/timercheck`, 4,096 bytes:

    0   8  lastReadTimeMs: slots before it are done      24  8  masterTimerQueueOffset
    8   8  lastTimerLogFlushPos                          32  24 data version: state, time, counter
    16  8  lastTimerQueueOffset: messages before it are in the timer log, or were due at once
    2048   (ours) all of that once more, with a checksum: see `checkpoint_copy`

It moves only up to what is durable, in the commit log as well as in the timer log. So after a crash
some messages may be repeated, and none is missing.

Source: org.apache.rocketmq.store.timer.TimerCheckpoint of 5.3.3.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from store.delayed.timer_place import TimerPlace
from store.machine.errors import CorruptLogError
from store.machine.kept_files import ONLY_OURS, KeptFile
from tandem.wire.checkpoint_copy import COPY_AT, copy_of, settled
from tandem.wire.store_layout import CHECKPOINT_BYTES

if TYPE_CHECKING:
    from store.machine.disk import Buffer, Disk

_CHECKPOINT: Final = struct.Struct(">7q")
_NUMBER_COUNT: Final = 7

_log = logging.getLogger(__name__)


class TimerProgress(msgspec.Struct, frozen=True):
    """Progress at some moment, and how far the commit log must be durable for it to hold."""

    put_end: int
    read_time_ms: int
    queue_offset: int
    timer_log_end: int


class TimerCheckpoint:
    """The open file. The fields are what it said when it was opened."""

    def __init__(self, path: str, disk: Disk) -> None:
        """Open or create it.

        Raises:
            CorruptLogError: it has another length.
        """
        found = disk.read(path)
        if found is not None and len(found) != CHECKPOINT_BYTES:
            raise CorruptLogError(
                f"{path}: the file has {len(found)} bytes, not {CHECKPOINT_BYTES};"
                " delete it: timed messages will be delivered again",
                path=path,
            )
        self._disk = disk
        self._path = path
        self.file = disk.open(path) if found is not None else disk.create(path, CHECKPOINT_BYTES)
        self._not_durable: deque[TimerProgress] = deque()
        fields, trouble, has_copy = settled(bytes(self.file.buffer), _NUMBER_COUNT)
        self._written: tuple[int, ...] = fields if has_copy else ()
        if trouble:
            _log.error("%s: %s", path, trouble)
            self._put(fields)
        self.read_time_ms: int = fields[0]
        self.timer_log_end: int = fields[1]
        self.queue_offset: int = fields[2]
        disk.kept.keep(path, self._kept)

    def note(self, progress: TimerProgress, log_flushed: int, now_ms: int) -> bool:
        """Write what is durable of the progress so far; False if nothing is new.

        The timer log is durable as far as `progress` says, the commit log up to `log_flushed`. The
        file is still to be synced.
        """
        if not self._not_durable or self._not_durable[-1] != progress:
            self._not_durable.append(progress)
        durable: TimerProgress | None = None
        while self._not_durable and self._not_durable[0].put_end <= log_flushed:
            durable = self._not_durable.popleft()
        if durable is None:
            return False
        old = _CHECKPOINT.unpack_from(self.file.buffer)
        fields = (durable.read_time_ms, durable.timer_log_end, durable.queue_offset)
        if fields == old[:3]:
            return False
        version = (old[4], now_ms, old[6] + 1)
        self._put((*fields, fields[2], *version))
        return True

    def _put(self, numbers: tuple[int, ...]) -> None:
        _put_into(self.file.buffer, numbers)
        self._written = numbers

    def _kept(self) -> KeptFile | None:
        """Return what is in the file; None if that is nothing to go by."""
        if not self._written:
            return None
        content = bytearray(CHECKPOINT_BYTES)
        _put_into(content, self._written)
        return KeptFile(bytes(content), ONLY_OURS, self._write_anew)

    def _write_anew(self) -> None:
        """Put a new file in the place of one that has changed on the disk, or is gone."""
        content = bytearray(CHECKPOINT_BYTES)
        _put_into(content, self._written)
        self._disk.replace(self._path, bytes(content))
        before, self.file = self.file, self._disk.open(self._path)
        before.close()
        self._disk.kept.keep(self._path, self._kept)

    def close(self) -> None:
        """Close the file without syncing."""
        self._disk.kept.forget(self._path)
        self.file.close()


def _put_into(buffer: Buffer, numbers: tuple[int, ...]) -> None:
    _CHECKPOINT.pack_into(buffer, 0, *numbers)
    copy = copy_of(numbers)
    buffer[COPY_AT : COPY_AT + len(copy)] = copy


def classic_place(disk: Disk, directory: str) -> TimerPlace:
    """Return where the timers of a classic master stopped, from the files it left.

    Nothing is done if there are none.

    Raises:
        CorruptLogError: the file has another length.
    """
    path = f"{directory}/config/timercheck"
    if not disk.exists(path):
        return TimerPlace()
    checkpoint = TimerCheckpoint(path, disk)
    checkpoint.close()
    return TimerPlace(looked_at=checkpoint.queue_offset, slot_ms=checkpoint.read_time_ms)
