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

import struct
from collections import deque
from typing import Final

import msgspec

from store.delayed.timer_place import TimerPlace
from store.files.checkpoint_file import CheckpointFile
from store.machine.disk import Disk, DiskFile

_CHECKPOINT: Final = struct.Struct(">7q")
_NUMBER_COUNT: Final = 7


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
        then = "timed messages will be delivered again"
        self._file = CheckpointFile(path, disk, _NUMBER_COUNT, without_it=then)
        self._not_durable: deque[TimerProgress] = deque()
        numbers = self._file.numbers
        if self._file.trouble:
            self._file.write(numbers)
        self.read_time_ms: int = numbers[0]
        self.timer_log_end: int = numbers[1]
        self.queue_offset: int = numbers[2]

    @property
    def file(self) -> DiskFile:
        """What is to be synced."""
        return self._file.file

    @property
    def data(self) -> bytes:
        """What the file says, as a slave is told it."""
        return bytes(self.file.buffer[: _CHECKPOINT.size])

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
        self._file.write((*fields, fields[2], *version))
        return True

    def close(self) -> None:
        """Close the file without syncing."""
        self._file.close()


def checkpoint_of(place: TimerPlace) -> bytes:
    """Return what the file would say of timers that are kept in a journal.

    They have no timer log; nothing counts the changes.
    """
    looked_at = place.looked_at
    return _CHECKPOINT.pack(max(0, place.slot_ms), 0, looked_at, looked_at, 0, 0, 0)


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
