"""Cutting a log into pieces that can be checked apart, and handing each the units that lead there.

A piece begins where a record starts; it owns the records that start in it. Where a record starts
is found by magic, place and lengths, which bytes inside a body could imitate: the check of the
piece before sees where it really ends, and the piece is then cut again.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from tandem.data_file import DataFile
from tandem.log.files import open_file
from tandem.log.log_scan import next_record
from tandem.wire.record_scan import Int64s

PIECE_BYTES: Final = 32 << 20
"""Small enough to share out evenly, large enough that a piece costs more than its messenger."""


class LogPiece(msgspec.Struct, frozen=True):
    """Positions [start, stop) of one file."""

    file: DataFile
    start: int
    stop: int

    @property
    def offset(self) -> int:
        """The physical offset of its first byte."""
        return self.file.offset + self.start


class Segment(msgspec.Struct, frozen=True):
    """Units side by side in a file that lead into one piece of the log.

    `owner` is the number of the queue or index file, `number` that of the first unit in it.
    """

    owner: int
    path: str
    position: int
    number: int
    count: int


def cut_log(files: Sequence[DataFile], piece_bytes: int = PIECE_BYTES) -> list[LogPiece]:
    """Cut every file into pieces of about `piece_bytes`."""
    return [piece for file in files if file.size for piece in _cut_file(file, piece_bytes)]


def _cut_file(file: DataFile, piece_bytes: int) -> Iterator[LogPiece]:
    cuts = [0]
    if file.size > piece_bytes:
        with open_file(file.path) as descriptor:
            # The rest after the last cut may be half a piece longer.
            while cuts[-1] + piece_bytes * 3 // 2 < file.size:
                found = next_record(descriptor, file, cuts[-1] + piece_bytes)
                if found >= file.size:
                    break
                cuts.append(found)
    for start, stop in zip(cuts, [*cuts[1:], file.size], strict=True):
        yield LogPiece(file, start, stop)


class PieceMap:
    """Which piece a physical offset is in: -1 before the log, len(pieces) after it."""

    def __init__(self, pieces: Sequence[LogPiece]) -> None:
        self._starts = np.array([piece.offset for piece in pieces], np.int64)
        self.start = int(self._starts[0]) if pieces else 0
        self.end = max((piece.file.end_offset for piece in pieces), default=0)

    def pieces_of(self, offsets: Int64s) -> Int64s:
        """Return the number of the piece of each offset."""
        numbers = np.searchsorted(self._starts, offsets, "right") - 1
        numbers[offsets >= self.end] = len(self._starts)
        return numbers

    def segments(
        self, offsets: Int64s, owner: int, path: str, position: int, number: int, width: int
    ) -> Iterator[tuple[int, Segment]]:
        """Yield the runs of units, one offset each, that lead into the same piece."""
        if not len(offsets):
            return
        numbers = self.pieces_of(offsets)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1))
        counts = np.diff(np.append(starts, len(numbers)))
        for first, count in zip(starts.tolist(), counts.tolist(), strict=True):
            at = position + first * width
            yield int(numbers[first]), Segment(owner, path, at, number + first, count)
