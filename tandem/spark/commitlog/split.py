"""A piece of a log: what the driver hands to a task."""

import msgspec

from tandem.data_file import DataFile
from tandem.spark.errors import LossCause


class LogSplit(msgspec.Struct, frozen=True):
    """A piece of one file of the log of `store`: positions [start, end).

    `log_end` is the position up to which the file counts, `is_last_file` whether any later file
    holds something. `address` is what the file's storage is found by. If `fault` is set there is
    nothing to read but this.
    """

    store: str
    file: DataFile
    start: int
    end: int
    log_end: int
    is_last_file: bool
    address: str = ""
    fault: str = ""


class UnitPiece(msgspec.Struct, frozen=True):
    """`count` units of a queue file, from the byte `position` on."""

    path: str
    position: int
    count: int


class QueueRange(msgspec.Struct, frozen=True):
    """The units of one queue from the queue offset `first` on."""

    topic: str
    queue_id: int
    first: int
    pieces: tuple[UnitPiece, ...]

    @property
    def count(self) -> int:
        """How many units these are."""
        return sum(piece.count for piece in self.pieces)


class QueueSplit(msgspec.Struct, frozen=True):
    """A range of a log of which only the records are read that some queues name.

    `scans` are the same range to be read from end to end, for where the queues turn out to be
    wrong; `queues` name the records in it.
    """

    scans: tuple[LogSplit, ...]
    queues: tuple[QueueRange, ...]

    @property
    def store(self) -> str:
        """The store, as in its column."""
        return self.scans[0].store

    @property
    def start(self) -> int:
        """The first physical offset."""
        return self.scans[0].file.offset + self.scans[0].start

    @property
    def end(self) -> int:
        """The physical offset after the range."""
        return self.scans[-1].file.offset + self.scans[-1].end


class LostRange(msgspec.Struct, frozen=True):
    """What cannot be read any more, from a physical offset on, and what can be done about it."""

    store: str
    start: int
    reason: str
    remedy: str
    cause: LossCause
