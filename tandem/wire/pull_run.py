"""Pulls that came together, found and answered as one run, in C.

    find    usual pulls from here on, of one group, topic and subscription: how many, which queues
    answer  each with its records, up to the first one that has to be looked at

`native_pulls.c` says what "usual" is: a header in JSON or MSGPACK, and messages that are there and
known to be sound. All others, and all of them where nothing was compiled, are handled one by
one, by `node.handlers.pull_message`, with the same result to the byte. So there is no second way in
Python here.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tandem.wire.request_headers import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tandem.wire.native import Loops
    from tandem.wire.record_rule import LogBytes

PULL_HEADS: Final = (b'{"code":11,', b'{"code":361,', b"\x97\x0b", b"\x97\xcd\x01\x69")
"""How headers of pulls begin, if they are usual."""

PULLS_MAX: Final = 64
"""Of one run."""

PLACES_MAX: Final = 16
"""Queues of one run. One pull more of yet another queue ends it."""

ANSWERS_BYTES_MAX: Final = 1 << 20
"""Of one run. Room for two answers of the largest size that a client may ask for, and more."""

_ROW: Final = struct.Struct("6q")
"""End, opaque, queue id, queue offset, offset to be committed, place."""
_PLACE: Final = struct.Struct("12q")
_PLACE_HEAD: Final = struct.Struct("2q")
"""Queue id, first offset: what is found. Then comes what may be read; then what was answered."""
_UNITS: Final = struct.Struct("6q")
_FILE: Final = struct.Struct("3q")
_FILES_MAX: Final = 8
_PARTS: Final = 5

_LONG = ctypes.c_int64
_AT = ctypes.c_void_p


class _Part(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("bytes", _LONG))


class _Pulls(ctypes.Structure):
    _fields_ = (
        ("rows", _AT),
        ("places", _AT),
        ("rows_max", _LONG),
        ("places_max", _LONG),
        ("place_count", _LONG),
        ("kind", _LONG * 13),
    )


class _Reads(ctypes.Structure):
    _fields_ = (
        ("done", _LONG),
        ("count", _LONG),
        ("min_physical", _LONG),
        ("bytes_max", _LONG),
        ("tags", _AT),
        ("tags_count", _LONG),
        ("files", _AT),
        ("files_count", _LONG),
        ("needed", _LONG),
        ("is_full", _LONG),
        ("in_json", _Part * _PARTS),
        ("packed", _Part * _PARTS),
        ("parts_bytes", _LONG),
        ("out", _AT),
        ("out_bytes", _LONG),
        ("out_room", _LONG),
    )


class PullPlace(NamedTuple):
    """A queue from which some of a run read, and where the first of them begins."""

    queue_id: int
    first_offset: int


class QueueUnits(NamedTuple):
    """What a run may read of a queue.

    Attributes:
        units: Of one file.
        first: The number of the first of them.
        end: The number after the last.
        lowest: From this number on they are known to be sound.
        min_offset: Of the queue.
        max_offset: Of the queue, as its readers may know it.
    """

    units: LogBytes
    first: int
    end: int
    lowest: int
    min_offset: int
    max_offset: int


NO_UNITS: Final = QueueUnits(b"\0", 0, 0, 0, 0, 0)
"""A queue of which nothing may be read."""


class LogPiece(NamedTuple):
    """Readable bytes of the log, from physical offset `first` on."""

    data: LogBytes
    first: int
    end: int


class Answered(NamedTuple):
    """What was answered from one queue."""

    queue_id: int
    pulls: int
    messages: int
    body_bytes: int
    next_offset: int


class PullRuns:
    """Finds and answers the pulls of one broker, a run at a time.

    Args:
        loops: The compiled ones.
        answers: An answer's header in JSON before, between and after the next offset, the least
            offset, the largest offset and the opaque; and its bytes in MSGPACK before, between and
            after the opaque and those three.

    Attributes:
        count: How many pulls the run has; after `answer`, how many were answered.
        is_full: Whether it has ended for want of room; the next one is not in doubt.
    """

    def __init__(self, loops: Loops, *, answers: tuple[Sequence[bytes], Sequence[bytes]]) -> None:
        self._find, self._answer = loops.find_pulls, loops.answer_pulls
        self._rows = bytearray(PULLS_MAX * _ROW.size)
        self._places = bytearray(PLACES_MAX * _PLACE.size)
        self._files = bytearray(_FILES_MAX * _FILE.size)
        self._out = memoryview(bytearray(ANSWERS_BYTES_MAX))
        self._pulls = _Pulls(_held(self._rows)[0], _held(self._places)[0], PULLS_MAX, PLACES_MAX)
        in_json, packed = (
            (_Part * _PARTS)(*(_Part(part, len(part)) for part in parts)) for parts in answers
        )
        self._reads = _Reads(
            files=_held(self._files)[0],
            in_json=in_json,
            packed=packed,
            parts_bytes=max(sum(map(len, parts)) for parts in answers),
            out=_held(self._out)[0],
            out_room=ANSWERS_BYTES_MAX,
        )
        self._pulls_at = ctypes.addressof(self._pulls)
        self._reads_at = ctypes.addressof(self._reads)
        self.count = 0
        self.is_full = False
        self._data = b""

    def find(self, data: bytes, start: int) -> bool:
        """Look for usual pulls from `data[start]` on; return whether there is one."""
        self._data = data
        self.count = self._find(data, start, len(data), self._pulls_at)
        return self.count > 0

    def header(self) -> PullMessageRequestHeader:
        """Return the header of the first one, as far as it counts where messages are found.

        The others have another queue, another offset and another one to commit, and no more.
        """
        _, _, sys_flag, max_msg_nums, sub_version, *texts = self._pulls.kind
        group_at, group_bytes, topic_at, topic_bytes, wanted_at, wanted_bytes, *kind = texts
        _, _, queue_id, queue_offset, commit_offset, _ = _ROW.unpack_from(self._rows)
        return PullMessageRequestHeader(
            self._text(group_at, group_bytes),
            self._text(topic_at, topic_bytes),
            queue_id,
            queue_offset,
            max_msg_nums,
            sys_flag,
            commit_offset,
            0,
            sub_version,
            self._text(wanted_at, wanted_bytes) if wanted_bytes >= 0 else None,
            self._text(*kind) if kind[1] >= 0 else None,
        )

    def _text(self, at: int, size: int) -> str:
        return self._data[at : at + size].decode("ascii", "replace")

    @property
    def end(self) -> int:
        """Where the last one ends."""
        end: int = _PLACE_HEAD.unpack_from(self._rows, (self.count - 1) * _ROW.size)[0]
        return end

    def places(self) -> list[PullPlace]:
        """Return the queues, in the order of their first pulls."""
        ends = range(0, self._pulls.place_count * _PLACE.size, _PLACE.size)
        return [PullPlace(*_PLACE_HEAD.unpack_from(self._places, at)) for at in ends]

    def commits(self) -> list[tuple[int, int]]:
        """Return queue id and offset to be committed of each."""
        rows = memoryview(self._rows)[: self.count * _ROW.size]
        return [(queue_id, offset) for _, _, queue_id, _, offset, _ in _ROW.iter_unpack(rows)]

    def answer(
        self,
        queues: Iterable[QueueUnits],
        piece_of: Callable[[int], LogPiece | None],
        *,
        tags_codes: Iterable[int] | None,
        min_physical_offset: int,
        bytes_max: int,
    ) -> memoryview:
        """Return the answers, up to the first pull that has to be looked at.

        `queues` are those of the places. The view is good up to the next call.

        Args:
            queues: What may be read of each place.
            piece_of: Returns what the log holds around a physical offset; None: nothing.
            tags_codes: What is wanted; None: everything.
            min_physical_offset: Where the log begins.
            bytes_max: Of the records of one answer, if there are several.
        """
        at = _PLACE_HEAD.size
        held: list[object] = []
        for queue in queues:
            address, keeper = _held(queue[0])
            _UNITS.pack_into(self._places, at, address, *queue[1:])
            held.append(keeper)
            at += _PLACE.size
        reads = self._reads
        tags = None if tags_codes is None else np.array(list(tags_codes), np.int64)
        reads.tags = None if tags is None else tags.ctypes.data
        reads.tags_count = 0 if tags is None else len(tags)
        reads.done = reads.out_bytes = reads.files_count = 0
        reads.count = self.count
        reads.min_physical, reads.bytes_max = min_physical_offset, bytes_max
        files = 0
        while True:
            self.count = self._answer(self._pulls_at, self._reads_at)
            self.is_full = bool(reads.is_full) or files == _FILES_MAX
            if reads.needed < 0 or self.is_full:
                break
            piece = piece_of(reads.needed)
            if piece is None:
                break
            address, keeper = _held(piece.data)
            _FILE.pack_into(self._files, files * _FILE.size, address, piece.first, piece.end)
            held.append(keeper)
            files += 1
            reads.files_count = files
        return self._out[: reads.out_bytes]

    def answered(self) -> list[Answered]:
        """Return what was answered, by queue."""
        places = memoryview(self._places)[: self._pulls.place_count * _PLACE.size]
        return [
            Answered(queue_id, *answered)
            for queue_id, _, _, _, _, _, _, _, *answered in _PLACE.iter_unpack(places)
            if answered[0]
        ]


def _held(data: LogBytes) -> tuple[int, object]:
    """Return the address of bytes, and what has to be kept as long as it is used."""
    try:
        kept = ctypes.c_char.from_buffer(data)
    except TypeError:  # they cannot be written
        array = np.frombuffer(memoryview(data), np.uint8)
        return array.ctypes.data, array
    return ctypes.addressof(kept), kept
