"""The loops that a message costs most, in C, where they were compiled (`native*.c`).

    scan           records found and checked           record_scan, record_check
    tags_codes, distinct_values                        column_values
    hash_keys      what index files keep of keys       record_keys
    index_put      keys entered in an index file       store.index.index_file
    split_batch    a batch as records                  store.log.message_encoder
    find_sends, find_sends_of, share_sends,            send_run
    write_sends, good_seals
    receive_each, send_each                            store.machine.many_sockets
    find_pulls, answer_pulls                           pull_run
    header_table, read_headers                         node.grpc.header_blocks

Those modules do all of it in Python too, with the same result to the byte. They ask `loops`, which
is None where nothing was compiled, or TANDEM_NATIVE is `off`. What C does not take, because it is
not as usual, they do in Python: C decides nothing.

Compiled is at installation, if there is a C compiler (scripts/build_hook.py). A library that does
not come from the sources beside it is left alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tandem.wire.record_rule import LogBytes

SOURCES: Final = (
    "native.c",
    "native.h",
    "native_demands.h",
    "native_headers.c",
    "native_headers.h",
    "native_hpack.c",
    "native_pulls.c",
    "native_seals.c",
    "native_send_headers.c",
    "native_sends.c",
    "native_sends.h",
    "native_sockets.c",
)
LIBRARY: Final = Path(__file__).with_name("libtandem.so")

SCANNED_COLUMNS: Final = 20
"""The fields of RecordColumns but `sound`, in their order."""

_RECORD_BYTES_MIN: Final = 91
_ROWS_MIN: Final = 16
_KEYS_A_ROW: Final = 3
_ANY_NUMBER: Final = 2**63 - 1
_HEADER_TEXT_BYTES: Final = 32 * 1024
_NO_REQUEST: Final = -2

_LONG = ctypes.c_int64
_AT = ctypes.c_void_p


class Scanned(NamedTuple):
    """Sound records: their columns, how many, where the last one starts (-1) and where it ends."""

    columns: NDArray[np.int64]
    records: int
    last_start: int
    end: int


class BatchParts(NamedTuple):
    """What all records of a batch share, as `MessageEncoder.encode_batch` has it."""

    shared: bytes
    middle: bytes
    topic: bytes
    magic: int
    queue_id: int
    queue_offset: int
    offset: int


class _Batch(ctypes.Structure):
    _fields_ = (
        ("body", ctypes.c_char_p),
        ("body_bytes", _LONG),
        ("shared", ctypes.c_char_p),
        ("shared_bytes", _LONG),
        ("middle", ctypes.c_char_p),
        ("middle_bytes", _LONG),
        ("topic", ctypes.c_char_p),
        ("topic_bytes", _LONG),
        ("magic", _LONG),
        ("queue_id", _LONG),
        ("queue_offset", _LONG),
        ("offset", _LONG),
    )


class Loops:
    """The compiled loops of one library.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it is another one.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        # These take microseconds. Between giving up the interpreter lock and having it back a
        # thread of the disk may take it, and may lose the processor with it: then a put waits.
        brief = ctypes.PyDLL(str(path))
        self.source_crc32 = ctypes.c_uint32.in_dll(library, "tandem_source_crc32").value
        self._scan = library.tandem_scan
        self._scan.argtypes = [_AT, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _AT, _AT]
        self._tags_codes = library.tandem_tags_codes
        self._tags_codes.argtypes = [_AT, _LONG, _AT, _AT, _LONG, _AT]
        self._distinct_values = library.tandem_distinct_values
        self._distinct_values.argtypes = [_AT, _LONG, _AT, _AT, _LONG, _LONG, _AT, _AT]
        self._hash_keys = library.tandem_hash_keys
        self._hash_keys.argtypes = [_AT, _LONG, *[_AT] * 4, _LONG, _LONG, _AT, _AT, _AT]
        self._index_put = brief.tandem_index_put
        self._index_put.argtypes = [_AT, _LONG, _LONG, _LONG, _AT, _AT, _AT, _LONG]
        self._batch_size = brief.tandem_batch_size
        self._batch_size.argtypes = [_AT, _AT]
        self._split_batch = brief.tandem_split_batch
        self._split_batch.argtypes = [_AT, _AT, _AT]
        for function in (
            self._scan,
            self._tags_codes,
            self._distinct_values,
            self._hash_keys,
            self._index_put,
            self._batch_size,
        ):
            function.restype = _LONG
        self._split_batch.restype = ctypes.c_int
        self._declare_sends(brief)
        self.find_pulls = brief.tandem_find_pulls
        self.find_pulls.argtypes = [ctypes.c_char_p, _LONG, _LONG, _AT]
        self.find_pulls.restype = _LONG
        self.answer_pulls = brief.tandem_answer_pulls
        self.answer_pulls.argtypes = [_AT, _AT]
        self.answer_pulls.restype = _LONG
        self._read_headers = brief.tandem_read_headers
        self._read_headers.argtypes = [_AT, ctypes.c_char_p, _LONG, _AT]
        self._read_headers.restype = _LONG
        self._hpack_bytes = brief.tandem_hpack_bytes
        self._hpack_bytes.restype = _LONG
        self._header_text = bytearray(_HEADER_TEXT_BYTES)
        self._header_text_at = _address(_bytes_of(self._header_text))
        self._declare_sockets(library)
        self.crc32 = library.tandem_crc32
        self.crc32.argtypes = [ctypes.c_char_p, _LONG]
        self.crc32.restype = ctypes.c_uint32

    def _declare_sends(self, library: ctypes.CDLL) -> None:
        self.find_sends = library.tandem_find_sends
        self.find_sends.argtypes = [ctypes.c_char_p, _LONG, _LONG, _AT]
        self.find_sends.restype = _LONG
        self.find_sends_of = library.tandem_find_sends_of
        self.find_sends_of.argtypes = [ctypes.c_char_p, _AT, _AT, _LONG, _AT]
        self.find_sends_of.restype = _LONG
        self.share_sends = library.tandem_share_sends
        self.share_sends.argtypes = [_AT, _LONG, _LONG, _AT, _AT]
        self.share_sends.restype = None
        self.good_seals = library.tandem_good_seals
        self.good_seals.argtypes = [ctypes.c_char_p, _AT, _LONG, ctypes.c_char_p]
        self.good_seals.restype = _LONG
        self.write_sends = library.tandem_write_sends
        self.write_sends.argtypes = [ctypes.c_char_p, _AT, _AT]
        self.write_sends.restype = _LONG

    def _declare_sockets(self, library: ctypes.CDLL) -> None:
        self.receive_each = library.tandem_receive_each
        self.receive_each.argtypes = [_AT, _LONG, _AT, _LONG, _AT, _AT]
        self.receive_each.restype = _LONG
        self.send_each = library.tandem_send_each
        self.send_each.argtypes = [_AT, _LONG, ctypes.c_char_p, _AT, _AT]
        self.send_each.restype = _LONG

    def check(
        self,
        buffer: LogBytes,
        base_offset: int,
        start: int,
        end: int,
        *,
        check_crc: bool,
        size_max: int,
    ) -> tuple[int, int, int]:
        """Return count, last start (-1) and end of the sound records from `start` on."""
        if end - start < _RECORD_BYTES_MIN:
            return 0, -1, start
        data = _bytes_of(buffer)
        assert 0 <= start <= end <= len(data)
        where = (_LONG * 2)()
        count = self._scan(
            _address(data),
            start,
            end,
            base_offset,
            check_crc,
            size_max,
            _ANY_NUMBER,
            None,
            ctypes.addressof(where),
        )
        return count, where[0], where[1]

    def scan(
        self,
        buffer: LogBytes,
        base_offset: int,
        start: int,
        end: int,
        *,
        check_crc: bool,
        size_max: int,
    ) -> Scanned:
        """Return the columns of the sound records from `start` on."""
        if end - start < _RECORD_BYTES_MIN:
            return Scanned(np.empty((SCANNED_COLUMNS, 0), np.int64), 0, -1, start)
        data = _bytes_of(buffer)
        assert 0 <= start <= end <= len(data)
        at = _address(data)
        where = (_LONG * 2)()
        parts: list[NDArray[np.int64]] = []
        position, last_start = start, -1
        first_bytes = max(int.from_bytes(data[start : start + 4].tobytes(), "big"), 1)
        while True:
            # As many as there are if all are as large as the first; then what is left at most.
            left = end - position
            room = _ROWS_MIN + left // (_RECORD_BYTES_MIN if parts else first_bytes)
            columns = np.empty((SCANNED_COLUMNS, room), np.int64)
            count = self._scan(
                at,
                position,
                end,
                base_offset,
                check_crc,
                size_max,
                room,
                columns.ctypes.data,
                ctypes.addressof(where),
            )
            parts.append(columns[:, :count])
            position = where[1]
            if count:
                last_start = where[0]
            if count < room:
                break
        found = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
        return Scanned(found, found.shape[1], last_start, position)

    def tags_codes(
        self, buffer: LogBytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], int]:
        """Return the tags codes of these property strings, and how many come before a strange one.

        The content of the rows after those means nothing.
        """
        count = len(starts)
        codes = np.zeros(count, np.int64)
        data = _bytes_of(buffer)
        starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
        done = self._tags_codes(
            _address(data),
            len(data),
            starts.ctypes.data,
            sizes.ctypes.data,
            count,
            codes.ctypes.data,
        )
        return codes, done

    def distinct_values(
        self,
        buffer: LogBytes,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        values_max: int,
    ) -> tuple[list[int], NDArray[np.int64]] | None:
        """Return where each value is first, and the number of each row's; None if they are many."""
        count = len(starts)
        firsts, numbers = np.empty(values_max, np.int64), np.empty(count, np.int64)
        data = _bytes_of(buffer)
        starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
        values = self._distinct_values(
            _address(data),
            len(data),
            starts.ctypes.data,
            sizes.ctypes.data,
            count,
            values_max,
            firsts.ctypes.data,
            numbers.ctypes.data,
        )
        return None if values < 0 else (firsts[:values].tolist(), numbers)

    def hash_keys(
        self, buffer: LogBytes, places: tuple[NDArray[np.int64], ...]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return row and hash of each key, and of how many rows these are all keys.

        `places` are start and size of the topics, then of the property strings.
        """
        count = len(places[0])
        room = _ROWS_MIN + _KEYS_A_ROW * count
        rows, hashes = np.empty(room, np.int64), np.empty(room, np.int64)
        data = _bytes_of(buffer)
        columns = [np.ascontiguousarray(column) for column in places]
        keys = _LONG()
        done = self._hash_keys(
            _address(data),
            len(data),
            *(column.ctypes.data for column in columns),
            count,
            room,
            rows.ctypes.data,
            hashes.ctypes.data,
            ctypes.addressof(keys),
        )
        return rows[: keys.value], hashes[: keys.value], done

    def index_put(
        self,
        buffer: LogBytes,
        hash_slot_num: int,
        index_count: int,
        begin_timestamp_ms: int,
        keys: tuple[NDArray[np.int64], ...],
    ) -> int:
        """Enter keys in an index file that has room for them; return how many slots were empty.

        `keys` are hashes, physical offsets and store times.
        """
        data = _bytes_of(buffer)
        columns = [np.ascontiguousarray(column) for column in keys]
        taken: int = self._index_put(
            _address(data),
            hash_slot_num,
            index_count,
            begin_timestamp_ms,
            *(column.ctypes.data for column in columns),
            len(columns[0]),
        )
        return taken

    def split_batch(self, body: bytes, parts: BatchParts) -> tuple[bytearray, list[int]] | None:
        """Return the records of a batch and their units; None if an entry is not as usual."""
        shared, middle, topic, *numbers = parts
        batch = _Batch(
            body, len(body), shared, len(shared), middle, len(middle), topic, len(topic), *numbers
        )
        size = _LONG()
        at = ctypes.addressof(batch)
        count = self._batch_size(at, ctypes.addressof(size))
        if count < 0:
            return None
        records = bytearray(size.value)
        units = np.empty(3 * count, np.int64)
        out = ctypes.addressof(ctypes.c_char.from_buffer(records)) if count else None
        if not self._split_batch(at, out, units.ctypes.data):
            return None
        return records, units.tolist()

    def header_table(self, bytes_max: int) -> HeaderTable:
        """Return the table of headers of a new connection."""
        return HeaderTable(self._hpack_bytes(), bytes_max)

    def read_headers(self, table: HeaderTable, block: bytes) -> dict[str, str] | None:
        """Return the fields of a request; None: it was read, but is none as it should be.

        Raises:
            ValueError: the block cannot be read; the table means nothing any more.
        """
        size = self._read_headers(table.at, block, len(block), self._header_text_at)
        if size < 0:
            if size == _NO_REQUEST:
                return None
            raise ValueError("a block of headers that cannot be read, or is too much")
        parts = str(memoryview(self._header_text)[:size], "latin-1").split("\0")
        return dict(zip(parts[:-1:2], parts[1::2], strict=True))


class HeaderTable:
    """The table of headers of one connection, as C keeps it.

    Attributes:
        at: Its address.
    """

    __slots__ = ("_bytes", "at")

    def __init__(self, size: int, bytes_max: int) -> None:
        self._bytes = ctypes.create_string_buffer(bytes_max.to_bytes(4, "little"), size)
        self.at = ctypes.addressof(self._bytes)


def _bytes_of(buffer: LogBytes) -> NDArray[np.uint8]:
    return np.frombuffer(memoryview(buffer), np.uint8)


def _address(data: NDArray[np.uint8]) -> int:
    address: int = data.__array_interface__["data"][0]
    return address


def _read(source: str) -> bytes:
    return LIBRARY.with_name(source).read_bytes()


def load() -> Loops | str:
    """Return the loops, or why there are none that fit, in words."""
    if os.environ.get("TANDEM_NATIVE") == "off":
        return "TANDEM_NATIVE is off"
    if sys.byteorder != "little":
        return "this machine is not little-endian"
    if not LIBRARY.exists():
        return (
            "nothing was compiled at installation: with a C compiler there, install TandemMQ again"
        )
    try:
        found = Loops(LIBRARY)
        is_ours = found.source_crc32 == zlib.crc32(b"".join(map(_read, SOURCES)))
    except (OSError, AttributeError, ValueError) as error:
        return f"{LIBRARY.name} cannot be used ({error}): install TandemMQ again"
    return found if is_ours else f"{LIBRARY.name} is of other sources: install TandemMQ again"


_loaded = load()
loops = None if isinstance(_loaded, str) else _loaded
"""None: all is done in Python."""
why_not_native: Final = _loaded if isinstance(_loaded, str) else None
"""Why all is done in Python, in words; None if it is not."""
