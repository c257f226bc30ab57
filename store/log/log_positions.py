"""LogPositions: where the log of an open store begins and ends, and its bytes. For replication."""

from __future__ import annotations

from store.log.commit_log import CommitLog
from store.log.log_end import count_records


class LogPositions:
    """What a `MessageStore` says of its log."""

    commit_log: CommitLog

    @property
    def min_physical_offset(self) -> int:
        """The first byte of the log that is held."""
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """The end of the log: the first byte not written yet."""
        return self.commit_log.files.committed_where

    @property
    def flushed_where(self) -> int:
        """The offset below which the log is durable."""
        return self.commit_log.files.flushed_where

    @property
    def last_record_offset(self) -> int:
        """Where the last record known to be whole starts, -1 if there is none."""
        return self.commit_log.last_record_offset

    def count_records(self, start: int, end: int) -> int:
        """Return how many records are between two places of the log, for people.

        `start` is where a record starts, or is before the log. An inner batch is one record.
        """
        return count_records(self.commit_log.files.files, start, min(end, self.max_physical_offset))

    def read_log(self, offset: int, bytes_max: int) -> memoryview:
        """Return raw bytes of one file from `offset` on, up to what is known to be bad.

        See `CommitLog.read`, which gives that, too.
        """
        damage = self.commit_log.damage
        if damage.ranges and (bad := damage.within(offset, offset + bytes_max)) is not None:
            bytes_max = max(0, bad.start - offset)
        return self.commit_log.read(offset, bytes_max)
