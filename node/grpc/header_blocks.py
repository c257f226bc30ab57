"""Header blocks: those of a client are read in C or by `hpack`, ours are bytes made beforehand.

A block is read as a whole or not at all: after an error the two ends no longer agree about the
table of headers, and the connection is over.

Source: RFC 7541; RFC 9113, 8.2 and 8.3; gRPC over HTTP/2.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import quote

from hpack import Decoder
from hpack.exceptions import HPACKError

from tandem.wire import native

HEADER_LIST_BYTES_MAX: Final = 16 * 1024
"""Names and values of one request, with 32 bytes for each pair, as RFC 9113 counts."""

TABLE_BYTES_MAX: Final = 4_096

MESSAGE_CHARACTERS_MAX: Final = 1_024
"""Of what `grpc-message` says, before it is escaped."""

WHY_CHARACTERS_MAX: Final = 256
"""Of what `hpack` says of a block: it may show all of it, which is for the log and for GOAWAY."""

_NEVER: Final = frozenset(b"\0\r\n")
"""In names and values. Source: RFC 9113, 8.2.1."""

_REQUEST_PSEUDO: Final = frozenset({b":method", b":path", b":scheme", b":authority"})


class HeaderBlockError(ValueError):
    """A block that cannot be read, or is too much."""


def _literal(name: bytes, value: bytes) -> bytes:
    """A pair that is in no table. Source: RFC 7541, 6.2.2."""
    return b"\0" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    head, size = bytearray([127]), size - 127
    while size >= 128:
        head.append(size % 128 + 128)
        size //= 128
    head.append(size)
    return bytes(head) + text


_STATUS_200: Final = b"\x88"
_CONTENT_TYPE: Final = _literal(b"content-type", b"application/grpc")

BEGIN: Final = _STATUS_200 + _CONTENT_TYPE
"""Headers of an answer."""

_END_WELL: Final = _literal(b"grpc-status", b"0")


def end_block(status: int = 0, message: str = "") -> bytes:
    """Return the trailers: a status of gRPC, and what it says."""
    if not status:
        return _END_WELL
    said = quote(message[:MESSAGE_CHARACTERS_MAX], safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~")
    return _literal(b"grpc-status", str(status).encode()) + _literal(
        b"grpc-message", said.encode("ascii")
    )


def only_end_block(status: int, message: str) -> bytes:
    """Return the headers of an answer that has nothing but its end."""
    return BEGIN + end_block(status, message)


class HeaderBlocks:
    """Reads the blocks of one connection, in their order."""

    def __init__(self) -> None:
        loops = native.loops
        if loops is None:
            self._read = _InPython().read
        else:
            self._read = partial(loops.read_headers, loops.header_table(TABLE_BYTES_MAX))

    def read(self, block: bytes) -> dict[str, str] | None:
        """Return names and values; None: it was read, but is no request as it should be.

        Raises:
            HeaderBlockError: the connection is over.
        """
        try:
            return self._read(block)
        except (HPACKError, IndexError, ValueError) as error:
            raise HeaderBlockError(
                f"{type(error).__name__}: {error}"[:WHY_CHARACTERS_MAX]
            ) from error


class _InPython:
    """The same as `native_hpack.c`."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=HEADER_LIST_BYTES_MAX)
        self._decoder.max_allowed_table_size = TABLE_BYTES_MAX

    def read(self, block: bytes) -> dict[str, str] | None:
        headers: dict[str, str] = {}
        is_regular, is_request = False, True
        for name, value in self._decoder.decode(block, raw=True):
            key = str(name, "latin-1")
            if name[:1] != b":":
                is_regular = True
            elif is_regular or name not in _REQUEST_PSEUDO or key in headers:
                is_request = False
            if name != name.lower() or not _NEVER.isdisjoint(name + value):
                is_request = False
            headers[key] = str(value, "latin-1")
        return headers if is_request else None
