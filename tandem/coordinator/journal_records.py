"""The records of the embedded coordinator's journal, as bytes: framing, copies, and what is damage.

    record = { size: 4 bytes, crc32 of the payload: 4 bytes, payload }, big-endian
    file   = record, its copy, record, its copy, ..., zeros: room for more

The top bit of a copy's size is set, and all bits of its crc are the other way round. What is made
of a file in which not all is whole: see `journal.py`.

Looking for the next whole record costs one look at each byte, and checksums of `SEARCHED_BYTES_MAX`
at most: bytes that look like the heads of many long records are taken for damage.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

SEARCHED_BYTES_MAX: Final = 256 << 20
"""Read for checksums in one search: a tenth of a second's work, and 16 times the largest image."""

_HEAD: Final = struct.Struct(">II")
_COPY: Final = 1 << 31
"""In the size of a record that is the copy of the one before it."""
_CRC_BITS: Final = 0xFFFFFFFF


class Records(NamedTuple):
    """What a journal holds, from its beginning on.

    Attributes:
        payloads: Of each record, once.
        end: Where they end.
        is_damaged: Whether a record that was lost followed there; else what follows is torn, or
            nothing.
        changed: From where to where a record, or its copy, is not whole, while the other one is.
    """

    payloads: list[bytes]
    end: int
    is_damaged: bool
    changed: list[tuple[int, int]]


class _Whole(NamedTuple):
    """A record that fits its checksum, and where it is."""

    start: int
    end: int
    payload: bytes
    is_copy: bool


def twice(payload: bytes) -> bytes:
    """Return a record and its copy."""
    size, crc = len(payload), zlib.crc32(payload)
    record, copy = _HEAD.pack(size, crc), _HEAD.pack(_COPY | size, crc ^ _CRC_BITS)
    return record + payload + copy + payload


def split(data: bytes) -> Records:
    """Take a journal apart."""
    return _Splitter(data).split()


class _Splitter:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._written = len(data.rstrip(b"\0"))
        """At the end there are only zeros."""
        self._left = SEARCHED_BYTES_MAX

    def split(self) -> Records:
        payloads: list[bytes] = []
        changed: list[tuple[int, int]] = []
        end = 0
        last: _Whole | None = None
        """The record whose copy comes next; None where a record comes next."""
        while True:
            found = self._record_at(end)
            if found is None:
                found = self._next_record(end + 1)
                if found is None:
                    if last is not None and end < self._written:
                        changed.append((end, self._written))
                    is_damaged = self._left < 0
                    return Records(payloads, end, is_damaged, changed)
                if not self._fills_gap(end, last, found):
                    return Records(payloads, end, is_damaged=True, changed=changed)
                changed.append((end, found.start))
            if last is None or not found.is_copy or found.payload != last.payload:
                payloads.append(found.payload)
            last = None if found.is_copy else found
            end = found.end

    def _fills_gap(self, end: int, last: _Whole | None, found: _Whole) -> bool:
        """Whether no record is lost between `end` and the next one that is whole."""
        gap = found.start - end
        copy_size = last.end - last.start if last is not None else 0
        if found.is_copy:
            return gap == copy_size + found.end - found.start
        return last is not None and gap == copy_size and self._has_copies()

    def _has_copies(self) -> bool:
        found = self._record_at(0) or self._next_record(1)
        while found is not None and not found.is_copy:
            found = self._record_at(found.end) or self._next_record(found.end + 1)
        return found is not None

    def _record_at(self, position: int) -> _Whole | None:
        data = self._data
        if position + _HEAD.size > len(data):
            return None
        size, crc = _HEAD.unpack_from(data, position)
        start, size, is_copy = position + _HEAD.size, size & ~_COPY, size >= _COPY
        # A record is never empty; zeros, which a crash may leave, would look like one.
        if size == 0 or start + size > len(data):
            return None
        payload = data[start : start + size]
        if zlib.crc32(payload) != (crc ^ _CRC_BITS if is_copy else crc):
            self._left -= size
            return None
        return _Whole(position, start + size, payload, is_copy)

    def _next_record(self, start: int) -> _Whole | None:
        """The first whole record from `start` on."""
        for at in range(start, self._written):
            found = self._record_at(at)
            if found is not None or self._left < 0:
                return found
        return None
