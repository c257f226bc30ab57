"""A checksum as the last line of a small text file, so that a changed byte is noticed.

    {"incarnation":"4f...","promised":7}
    {"crc32":"9a3b01ff"}

The CRC-32 is that of the name of the file, a line break, and all text before the last line: a file
that has the content of another one does not fit either. Both lines are JSON, for people and `jq`.

Text without such a line was written by an earlier version, and is taken as it is: a reader that
decodes all of it as one JSON value finds what is left of a damaged line.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from tandem.wire.crc import raw_crc32
from tandem.wire.untrusted import UnreadableError, decode_json

T = TypeVar("T")

_LINE: Final = re.compile(rb'(?s)(.*\n)\{"crc32":"([0-9a-f]{8})"\}\n')


class ChecksumError(UnreadableError):
    """A file does not fit its checksum: something has changed a byte of it."""


def checksum_of(name: str, text: bytes) -> int:
    """Return the CRC-32 of a file of that name with this text, all 32 bits of it."""
    return raw_crc32(b"%b\n%b" % (name.encode(), text))


def with_checksum(name: str, text: bytes) -> bytes:
    """Return the content of the file `name`; a line break is added to text that ends in none."""
    if not text.endswith(b"\n"):
        text += b"\n"
    return text + checksum_line(checksum_of(name, text))


def checksum_line(checksum: int) -> bytes:
    """Return the last line of a file, for text whose checksum was taken in pieces.

    That is `raw_crc32` of one piece after the other, with what the one before gave; the first is
    that of no text, `checksum_of(name, b"")`.
    """
    return b'{"crc32":"%08x"}\n' % checksum


def without_checksum(name: str, data: bytes) -> tuple[bytes, bool]:
    """Return the text of the file `name`, and whether it has a checksum, which fits then.

    Raises:
        ChecksumError: it does not fit.
    """
    match = _LINE.fullmatch(data)
    if match is None:
        return data, False
    text, crc = match.groups()
    if int(crc, 16) != checksum_of(name, text):
        raise ChecksumError("it does not fit its checksum: a byte of it has changed")
    return text, True


def encode_checked_json(name: str, value: object) -> bytes:
    """Return the content of the file `name` that holds `value` as JSON."""
    return with_checksum(name, msgspec.json.encode(value))


def decode_checked_json(name: str, data: bytes, kind: type[T]) -> T:
    """Read the content of the file `name` as JSON of a `kind`, with its checksum if it has one.

    Raises:
        UnreadableError: it does not fit its checksum, or is no such JSON.
    """
    text, _ = without_checksum(name, data)
    return decode_json(text, kind)
