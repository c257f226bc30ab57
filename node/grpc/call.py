"""One call of a client, and the messages in its bytes.

    compressed 1 | length 4 | message

Source: gRPC over HTTP/2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from node.grpc.errors import GRPC_INTERNAL, GRPC_OK, GRPC_RESOURCE_EXHAUSTED, GRPC_UNIMPLEMENTED
from node.grpc.header_blocks import BEGIN, end_block, only_end_block
from node.grpc.http2 import Http2
from node.grpc.protocol import messages as pb
from tandem.wire.call_signature import CallSignature
from tandem.wire.untrusted import UnreadableError, whole_number

MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of what a client sends in one message; a body is 4 MiB at most."""

_PREFIX: Final = struct.Struct(">BI")
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT_DIGITS_MAX: Final = 8

CLIENT_ID_HEADER: Final = "x-mq-client-id"


class MalformedCallError(Exception):
    """A call that cannot be read; it ends with this status of gRPC."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


def prefixed(message: bytes) -> bytes:
    """Return a message as it is sent."""
    return _PREFIX.pack(0, len(message)) + message


def timeout_seconds(text: str) -> float | None:
    """Return what `grpc-timeout` says; None: nothing that can be read, so there is no end."""
    digits, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None or not digits or len(digits) > _TIMEOUT_DIGITS_MAX:
        return None
    try:
        return whole_number(digits) * unit
    except UnreadableError:
        return None


class Call:
    """One call.

    Attributes:
        method: What is called, without the service.
        client_id: Whose call it is, as they say; None if they do not.
        signature: What is there of a signature.
        deadline: When its client waits no more, in the seconds of the given clock; None: never.
        began: When it came, in the same seconds.
        status: The status of gRPC that it ended with; None: it is not over, or was given up.
        code: What the status of its answer says.
        is_over: Whether it has been answered as a whole, or given up by its client.
        stream_id: Its stream.
    """

    def __init__(
        self, http2: Http2, stream_id: int, method: str, headers: Mapping[str, str], now: float
    ) -> None:
        self.method = method
        self.client_id = headers.get(CLIENT_ID_HEADER, "").strip() or None
        self.signature = CallSignature(
            headers.get("authorization", ""), headers.get("x-mq-date-time", "")
        )
        seconds = timeout_seconds(headers.get("grpc-timeout", ""))
        self.deadline = None if seconds is None else now + seconds
        self.began = now
        self.status: int | None = None
        self.code: int = pb.OK
        self.is_over = False
        self._http2 = http2
        self.stream_id = stream_id
        self._buffer = bytearray()
        self._has_begun = False
        self._when_over: list[Callable[[], None]] = []

    @property
    def header_bytes(self) -> int:
        """Of what is kept of the headers."""
        signature = self.signature
        return len(self.client_id or "") + len(signature.authorization) + len(signature.date_time)

    @property
    def buffered_bytes(self) -> int:
        """Of messages that are not whole, or not taken."""
        return len(self._buffer)

    def receive_data(self, data: memoryview) -> None:
        """Take in what came."""
        self._buffer += data

    def next_message(self) -> bytes | None:
        """Return the next message; None: it is not whole yet.

        Raises:
            MalformedCallError: it is larger than it may be, or compressed.
        """
        if len(self._buffer) < _PREFIX.size:
            return None
        is_compressed, size = _PREFIX.unpack_from(self._buffer)
        if is_compressed:
            raise MalformedCallError(GRPC_UNIMPLEMENTED, "send messages that are not compressed")
        if size > MESSAGE_BYTES_MAX:
            raise MalformedCallError(
                GRPC_RESOURCE_EXHAUSTED,
                f"a message of {size} bytes; the most allowed are {MESSAGE_BYTES_MAX}",
            )
        end = _PREFIX.size + size
        if len(self._buffer) < end:
            return None
        message = bytes(memoryview(self._buffer)[_PREFIX.size : end])
        del self._buffer[:end]
        return message

    def only_message(self) -> bytes:
        """Return the message of a call that has one.

        Raises:
            MalformedCallError: it has none, or more.
        """
        message = self.next_message()
        if message is None or self._buffer:
            raise MalformedCallError(GRPC_INTERNAL, "one message is expected, as a whole")
        return message

    def send(self, message: bytes) -> None:
        """Send a message. Nothing if the call is over."""
        if self.is_over:
            return
        self.begin()
        self._http2.send_data(self.stream_id, prefixed(message))

    def begin(self) -> None:
        """Send the headers of the answer, if they are not sent yet."""
        if not self._has_begun and not self.is_over:
            self._has_begun = True
            self._http2.send_headers(self.stream_id, BEGIN)

    def end(self, status: int = GRPC_OK, said: str = "") -> None:
        """End the call, with a status of gRPC. Nothing if it is over."""
        if self.is_over:
            return
        block = end_block(status, said) if self._has_begun else only_end_block(status, said)
        self._http2.send_headers(self.stream_id, block, is_end=True)
        self.status = status
        self.gone()

    def answer(self, message: bytes) -> None:
        """Send the only message, and end the call."""
        self.send(message)
        self.end()

    def when_over(self, do: Callable[[], None]) -> None:
        """Have something done once it is over, however that comes."""
        self._when_over.append(do)

    def gone(self) -> None:
        """Nothing more can be sent."""
        if not self.is_over:
            self.is_over = True
            self._buffer.clear()
            doing, self._when_over = self._when_over, []
            for do in doing:
                do()
