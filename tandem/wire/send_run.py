"""Requests to send that came together, found, stored and answered as one run, in C.

    find     usual requests from here on, up to the first unusual one: how many, to which queues
    find_of  the same in what several connections have sent, each up to its first unusual one
    share    whose they are
    keep     only some of them
    write    their records, what their queues get, and their answers

`native_sends.c` says what "usual" is: one message with a header in JSON or MSGPACK, to be
stored as it comes. All others, and all of them where nothing was compiled, are handled one by one,
by `node.handlers.send_message`, with the same result to the byte. So there is no second way in
Python here: a run is the same put as before, without the steps between.
"""

from __future__ import annotations

import ctypes
from array import array
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tandem.wire.frame_seal import AHEAD_MAX, SEAL_BYTES
from tandem.wire.message import BORNHOST_V6_FLAG, MESSAGE_MAGIC_CODE, STOREHOSTADDRESS_V6_FLAG
from tandem.wire.read_together import ReadTogether

if TYPE_CHECKING:
    from collections.abc import Collection

    from tandem.wire.acl_signature import AclKey
    from tandem.wire.frame_seal import FrameSeal
    from tandem.wire.message import Host
    from tandem.wire.native import Loops

SENDS_MAX: Final = 512
"""Of one run."""

PLACES_MAX: Final = 64
"""Queues of one run. One request more to yet another queue ends it."""

PARTS_MAX: Final = 512
"""Connections of one run."""

_SEND_COLUMNS: Final = 22
_END, _OPAQUE, _PLACE, _BODY, _RECORD_BYTES, _ACCESS, _SIGNED = 0, 1, 5, 6, 14, 16, 18
_CONNECTION: Final = 21
SIGNATURE_BYTES: Final = 28
CONTENTS_BYTES_MAX: Final = 1 << 20
"""Of what is signed in a run, without the bodies."""

_PLACE_COLUMNS: Final = 7
_COUNT, _QUEUE_OFFSET = 4, 5
_KEY_BYTES_MAX: Final = 64
HOST_V4_BYTES: Final = 8
_NUMBERS_BYTES: Final = 8 + 16 + 11 + 20 + 11
"""Of an answer: its frame's head, the log offset, queue id, queue offset, opaque."""

_LONG = ctypes.c_int64


class _Part(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("bytes", _LONG))


class _Sends(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("texts", ctypes.c_void_p),
        ("suffix", ctypes.c_char_p),
        ("suffix_bytes", _LONG),
        ("rows_max", _LONG),
        ("places_max", _LONG),
        ("body_bytes_max", _LONG),
        ("text_bytes_max", _LONG),
        ("place_count", _LONG),
        ("is_waiting", _LONG),
        ("contents", ctypes.c_void_p),
        ("contents_used", _LONG),
        ("contents_room", _LONG),
    )


class _Run(ctypes.Structure):
    _fields_ = (
        ("count", _LONG),
        ("offset", _LONG),
        ("store_ms", _LONG),
        ("magic", _LONG),
        ("sys_flag", _LONG),
        ("born_host", _Part),
        ("store_host", _Part),
        ("born_hosts", ctypes.c_char_p),
        ("answer", _Part * 6),
        ("packed", _Part * 4),
        ("records", ctypes.c_void_p),
        ("answers", ctypes.c_void_p),
        ("units", ctypes.c_void_p),
        ("record_ends", ctypes.c_void_p),
        ("answer_ends", ctypes.c_void_p),
    )


class SendPlace(NamedTuple):
    """A queue to which some of a run go: the number of the first of them, and how many."""

    topic: str
    queue_id: int
    first: int
    sends: int


class WrittenRun(NamedTuple):
    """A run as bytes. Views are good up to the next `write`.

    Attributes:
        records: One after the other.
        units: Of each place in turn, physical offset, size and tags code of each message.
        answers: The frames of the answers, one after the other.
        record_ends: Physical offsets.
        answer_ends: In `answers`.
    """

    records: memoryview
    units: list[int]
    answers: bytes
    record_ends: memoryview[int]
    answer_ends: memoryview[int]


class SendRuns:
    """Finds and writes the runs of one broker, one at a time.

    Args:
        loops: The compiled ones.
        suffix: What is added to the properties of every message.
        answers: An answer's text in JSON before, between and after the log offset, the queue id,
            the queue offset, the unique key and the opaque; and its bytes in MSGPACK before the
            opaque, the log offset, the queue id and the queue offset.
        store_host: The broker's.
        body_bytes_max: A larger body is not usual.
        text_bytes_max: Longer properties, with the suffix, are not usual.
        are_signed: Whether usual requests are signed, as RocketMQ's clients sign them, or sealed,
            all of a run by one sender; else none is signed, and seals are not looked at.

    Attributes:
        count: How many requests the run has.
        end: Where the last one ends.
        is_waiting: Whether their producer waits for disk and slaves: all of them, or none.
    """

    def __init__(
        self,
        loops: Loops,
        *,
        suffix: bytes,
        answers: tuple[tuple[bytes, ...], tuple[bytes, ...]],
        store_host: Host,
        body_bytes_max: int,
        text_bytes_max: int,
        are_signed: bool = False,
    ) -> None:
        self._contents = np.zeros(CONTENTS_BYTES_MAX if are_signed else 0, np.uint8)
        self._find, self._find_of = loops.find_sends, loops.find_sends_of
        self._write, self._share = loops.write_sends, loops.share_sends
        self._good_seals = loops.good_seals
        self._rows = np.zeros((SENDS_MAX, _SEND_COLUMNS), np.int64)
        self._places = np.zeros((PLACES_MAX, _PLACE_COLUMNS), np.int64)
        self._texts = np.zeros(SENDS_MAX * text_bytes_max, np.uint8)
        self._units = np.zeros(3 * SENDS_MAX, np.int64)
        self._ends = np.zeros((2, SENDS_MAX), np.int64)
        self._counts = np.zeros(PARTS_MAX, np.int64)
        in_json, packed = ([_Part(part, len(part)) for part in parts] for parts in answers)
        parts_bytes = max(sum(map(len, parts)) for parts in answers)
        answer_bytes_max = parts_bytes + _NUMBERS_BYTES + _KEY_BYTES_MAX
        self._answers = np.zeros(SENDS_MAX * answer_bytes_max, np.uint8)
        self._records = np.zeros(0, np.uint8)
        # A run has few requests at times: then numpy's own ways would cost more than all else.
        self._row_values = self._rows.ravel().data
        self._place_values = self._places.ravel().data
        self._unit_values, self._answer_bytes = self._units.data, self._answers.data
        self._record_ends, self._answer_ends = self._ends[0].data, self._ends[1].data
        self._count_values, self._counts_at = self._counts.data, self._counts.ctypes.data
        self._came, self._born_host, self._data, self.count = ReadTogether.of([]), b"", b"", 0
        self._host_bytes = len(host := store_host.packed)
        self._store_flag = STOREHOSTADDRESS_V6_FLAG * store_host.is_v6
        self._sends = _Sends(
            self._rows.ctypes.data,
            self._places.ctypes.data,
            self._texts.ctypes.data,
            suffix,
            len(suffix),
            SENDS_MAX,
            PLACES_MAX,
            body_bytes_max,
            text_bytes_max,
            contents=self._contents.ctypes.data,
            contents_room=len(self._contents),
        )
        self._run = _Run(
            magic=MESSAGE_MAGIC_CODE,
            store_host=_Part(host, len(host)),
            answer=(_Part * 6)(*in_json),
            packed=(_Part * 4)(*packed),
            answers=self._answers.ctypes.data,
            units=self._units.ctypes.data,
            record_ends=self._ends[0].ctypes.data,
            answer_ends=self._ends[1].ctypes.data,
        )
        self._sends_at = ctypes.addressof(self._sends)
        self._run_at = ctypes.addressof(self._run)

    def find(self, data: bytes, start: int) -> bool:
        """Look for usual requests from `data[start]` on; return whether there is one."""
        self._data = data
        self._run.born_hosts = None
        self.count = self._find(data, start, len(data), self._sends_at)
        return self.count > 0

    def find_of(
        self, came: ReadTogether, born_hosts: bytes, *, but: Collection[int] = frozenset()
    ) -> bool:
        """Look for usual requests in what several connections have sent; return whether there are.

        That of each is looked at up to its first unusual request, of those in `but` not at all.
        `born_hosts` are of one size.
        """
        self._data, self._came = came.data, came
        starts, ends = came.starts, came.ends
        if but:
            starts = array("q", starts)
            for number in but:
                starts[number] = ends[number]
        at, count = ends.buffer_info()
        assert count <= PARTS_MAX
        self._run.born_hosts = born_hosts
        self.count = self._find_of(came.data, starts.buffer_info()[0], at, count, self._sends_at)
        return self.count > 0

    def share(self) -> list[int]:
        """Take the run out of what `find_of` was given; return how many requests are of whom."""
        at, connections = self._came.starts.buffer_info()
        self._share(self._sends_at, self.count, connections, at, self._counts_at)
        counts: list[int] = self._count_values[:connections].tolist()
        return counts

    def parts_with(self, places: Collection[int]) -> set[int]:
        """Return which connections have requests for any of these places, after `find_of`."""
        columns = self._rows[: self.count, [_PLACE, _CONNECTION]].tolist()
        return {connection for place, connection in columns if place in places}

    @property
    def is_full(self) -> bool:
        """Whether the run has ended because there is no room for more."""
        return self.count >= SENDS_MAX or bool(self._sends.place_count >= PLACES_MAX)

    @property
    def access_key(self) -> str:
        """Who says to have signed the run; "": it is sealed, by who has signed in."""
        at, size = self._row_values[_ACCESS : _ACCESS + 2].tolist()
        return self._data[at : at + size].decode("ascii", "replace")

    def signed_count(self, key: AclKey) -> int:
        """Return how many of the run, from the first on, have a signature by this key."""
        columns = self._rows[: self.count, [_BODY, _BODY + 1, _SIGNED, _SIGNED + 1, _SIGNED + 2]]
        data, contents, signature = memoryview(self._data), self._contents.data, key.signature
        for number, row in enumerate(columns.tolist()):
            body_at, body_bytes, given_at, content_at, content_bytes = row
            given = data[given_at : given_at + SIGNATURE_BYTES]
            content = contents[content_at : content_at + content_bytes]
            right = signature(content, data[body_at : body_at + body_bytes])
            if not compare_digest(given, right):
                return number
        return self.count

    def sealed_count(self, seal: FrameSeal) -> int:
        """Return how many of the run, from the first on, have a good seal.

        Their numbers are not taken yet, for the run may become shorter: see `seal_taken`.
        """
        if (numbers := self._numbers(seal)) and (key := seal.key_of(*numbers)):
            good: int = self._good_seals(self._data, self._sends.rows, self.count, key)
            if good >= 0:
                return good
        columns = self._rows[: self.count, [_OPAQUE, _SIGNED, _SIGNED + 1]].tolist()
        data, last = memoryview(self._data), seal.last
        try:
            for row, (opaque, seal_at, start) in enumerate(columns):
                number = seal.number_of(opaque)
                if number is None or not seal.is_good(
                    number, data[start:seal_at], data[seal_at : seal_at + SEAL_BYTES]
                ):
                    return row
                seal.last = number
        finally:
            seal.last = last
        return self.count

    def seal_taken(self, seal: FrameSeal) -> None:
        """Take the numbers of the run, whose seals are good."""
        if numbers := self._numbers(seal):
            seal.last = numbers[1]
            return
        for opaque in self._opaques():
            number = seal.number_of(opaque)
            assert number is not None, "it was when the seals were looked at"
            seal.last = number

    def _opaques(self) -> list[int]:
        return self._row_values[_OPAQUE : self.count * _SEND_COLUMNS : _SEND_COLUMNS].tolist()

    def _numbers(self, seal: FrameSeal) -> tuple[int, int] | None:
        """Return the first and the last number, if all are in order and not far from each other."""
        opaques = self._opaques()
        first, span = seal.number_of(opaques[0]), opaques[-1] - opaques[0]
        if first is None or span > AHEAD_MAX or opaques != sorted(set(opaques)):
            return None
        return first, first + span

    def body_sizes(self) -> list[int]:
        """Return how many bytes each body has."""
        sizes: list[int] = self._rows[: self.count, _BODY + 1].tolist()
        return sizes

    def keep(self, count: int) -> None:
        """Let the run be its first `count` requests."""
        self.count = count
        counts = np.bincount(self._rows[:count, _PLACE], minlength=PLACES_MAX)
        self._places[:, _COUNT] = counts
        self._sends.place_count = int(np.count_nonzero(counts))

    @property
    def is_waiting(self) -> bool:
        """See above."""
        return bool(self._sends.is_waiting)

    @property
    def end(self) -> int:
        """See above."""
        end: int = self._row_values[(self.count - 1) * _SEND_COLUMNS + _END]
        return end

    def places(self) -> list[SendPlace]:
        """Return the queues, in the order of their first messages."""
        data, values = self._data, self._place_values
        places: list[SendPlace] = []
        for number in range(self._sends.place_count):
            row = number * _PLACE_COLUMNS
            at, size, queue_id, first, sends = values[row : row + _QUEUE_OFFSET].tolist()
            topic = data[at : at + size].decode("ascii", "replace")
            places.append(SendPlace(topic, queue_id, first, sends))
        return places

    def record_bytes(self, born_host: bytes) -> int:
        """Return how many bytes the records take."""
        count = self.count
        plain: int = self._row_values[(count - 1) * _SEND_COLUMNS + _RECORD_BYTES]
        return plain + count * (len(born_host) + self._host_bytes)

    def write(
        self, born_host: bytes, queue_offsets: list[int], offset: int, store_timestamp_ms: int
    ) -> WrittenRun:
        """Return the run as it is stored from physical `offset` on, and its answers.

        `queue_offsets` are those of the first message of each place. `born_host` is one of those
        that were given, if the run is of several connections.
        """
        size = self.record_bytes(born_host)
        if size > len(self._records):
            self._records = np.zeros(2 * size, np.uint8)
            self._run.records = self._records.ctypes.data
        for number, queue_offset in enumerate(queue_offsets):
            self._place_values[number * _PLACE_COLUMNS + _QUEUE_OFFSET] = queue_offset
        run, count = self._run, self.count
        run.count, run.offset, run.store_ms = count, offset, store_timestamp_ms
        if born_host != self._born_host:
            self._born_host = born_host
            run.born_host = _Part(born_host, len(born_host))
            run.sys_flag = self._store_flag | BORNHOST_V6_FLAG * (len(born_host) > HOST_V4_BYTES)
        answer_bytes = self._write(self._data, self._sends_at, self._run_at)
        return WrittenRun(
            self._records.data[:size],
            self._unit_values[: 3 * count].tolist(),
            bytes(self._answer_bytes[:answer_bytes]),
            self._record_ends[:count],
            self._answer_ends[:count],
        )
