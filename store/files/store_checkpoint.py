"""StoreCheckpoint: up to when each part of the store is known to be on disk.

    offset  8 bytes each, big-endian; the file has 4,096 bytes
    0       physicMsgTimestamp     store time of the last message synced in the commit log
    8       logicsMsgTimestamp     up to this store time every message is in a synced queue
    16      indexMsgTimestamp      up to this store time index files are full and synced; 0: none
    24      masterFlushedOffset    the master's flushed offset known to a slave
    32      confirmPhyOffset       below this offset the commit log is on disk
    40                             of RocketMQ 5.5: up to where in the log its queues are synced; we
                                   write 0, which is "not known" there, and do not read it
    1024    (ours)                 fenced groups: every replica that counts has the log below this
                                   offset. Written when the others are; it may lag, and be ahead of
                                   a log that has lost its end: never use it beyond that
    2048                   (ours)  all of that once more, with a checksum: see `checkpoint_copy`

Unlike RocketMQ they move only after a sync has succeeded, never at the put: what they say must hold
after a power loss. RocketMQ's confirm offset is where the last record found by its last recovery
starts, so in a store of its own it says less, but nothing else.

Source: org.apache.rocketmq.store.StoreCheckpoint of 5.3.3 and 5.5.0.
"""

from __future__ import annotations

from typing import Final

from store.files.checkpoint_file import CheckpointFile
from store.machine.disk import Disk
from tandem.wire.store_layout import SAFETY_MARGIN_MS

_NUMBER_COUNT: Final = 6
OWN_COUNT: Final = 1
"""Of them: those that RocketMQ has not."""


class StoreCheckpoint:
    """The checkpoint file of one store. Its store closes it."""

    def __init__(self, path: str, disk: Disk) -> None:
        """Open or create it.

        Raises:
            CorruptLogError: it has another length.
        """
        then = "the next start then checks the whole log"
        self._disk = disk
        self._file = CheckpointFile(path, disk, _NUMBER_COUNT, without_it=then, own=OWN_COUNT)
        numbers = self._file.numbers
        self.physic_msg_timestamp_ms: int = numbers[0]
        self.logics_msg_timestamp_ms: int = numbers[1]
        self.index_msg_timestamp_ms: int = numbers[2]
        self.master_flushed_offset: int = numbers[3]
        self.confirm_physical_offset: int = numbers[4]
        self.replicated_offset: int = numbers[5]

    @property
    def min_timestamp_ms(self) -> int:
        """The store time up to which log and queues are safe, with a margin; 0 if unknown."""
        safe_ms = min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms)
        return max(0, safe_ms - SAFETY_MARGIN_MS)

    def clock_went_back(self, now_ms: int) -> None:
        """Vouch for nothing stored at `now_ms` or later any more: such records are still to come.

        Durable when it returns. Call it before the first of them is written.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        self.physic_msg_timestamp_ms = min(self.physic_msg_timestamp_ms, now_ms - 1)
        self.logics_msg_timestamp_ms = min(self.logics_msg_timestamp_ms, now_ms - 1)
        self.flush_blocking()

    def cut_at(self, offset: int, safe_timestamp_ms: int) -> None:
        """Vouch for nothing at or after `offset`, nor stored after `safe_timestamp_ms`.

        Durable when it returns. Call it before anything after `offset` is taken away.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        self.physic_msg_timestamp_ms = min(self.physic_msg_timestamp_ms, safe_timestamp_ms)
        self.logics_msg_timestamp_ms = min(self.logics_msg_timestamp_ms, safe_timestamp_ms)
        self.confirm_physical_offset = min(self.confirm_physical_offset, offset)
        self.replicated_offset = min(self.replicated_offset, offset)
        self.flush_blocking()

    def _write(self) -> bool:
        """Put the fields into the file; return False if they are there already."""
        numbers = (
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            self.replicated_offset,
        )
        return self._file.write(numbers)

    async def flush(self) -> None:
        """Write and sync the fields if they changed."""
        if self._write():
            await self._disk.sync(self._file.file)

    def flush_blocking(self) -> None:
        """Write and sync the fields, holding everything up: for recovery and close."""
        self._write()
        self._file.file.sync()

    def close(self) -> None:
        """Close the file without writing."""
        self._file.close()
