"""Sockets of an attacker: many bytes out, all answers read and dropped, never waiting for long."""

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Final

ANSWER_SECONDS_MAX: Final = 3.0
"""After this a peer that does not answer is left alone; the canary judges whether it lives."""

_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Line:
    """One connection, opened when it is needed and anew after each end."""

    def __init__(self, target: tuple[str, int] | str, source: str = "") -> None:
        """`target`: an address and a port, or the path of a Unix socket."""
        self._target = target
        self._source = source
        self._socket: socket.socket | None = None
        self.tail = b""
        """The last bytes that came."""

    @property
    def is_open(self) -> bool:
        """Whether the next bytes go to the same connection as the last."""
        return self._socket is not None

    def open(self) -> socket.socket:
        """Connect, if it is not."""
        if self._socket is None:
            if isinstance(self._target, str):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            else:
                self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._source:
                    self._socket.bind((self._source, 0))
            self._socket.settimeout(ANSWER_SECONDS_MAX)
            self._socket.connect(self._target)
            self._socket.settimeout(0)
            self.tail = b""
        return self._socket

    def close(self, *, reset: bool = False) -> None:
        """End the connection, with a reset if wanted."""
        if self._socket is not None:
            if reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._socket.close()
            self._socket = None

    def exchange(
        self, data: bytes, *, until: Callable[[bytes], bool] | None, ends: bool = False
    ) -> bool:
        """Send everything and read until `until` says that the last bytes are an answer.

        `ends`: say that there will be no more, and read to the end. Returns False if the other
        side ended the connection before; it is closed then.
        """
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        try:
            connection = self.open()
            rest = memoryview(data)
            is_ended = False
            while time.monotonic() < deadline:
                if not rest and ends and not is_ended:
                    connection.shutdown(socket.SHUT_WR)
                    is_ended = True
                if not rest and until is None and not ends:
                    return True
                readable, writable, _ = select.select(
                    [connection], [connection] if rest else [], [], 0.2
                )
                if writable:
                    rest = rest[connection.send(rest) :]
                if readable:
                    received = connection.recv(1 << 18)
                    if not received:
                        break
                    self.tail = (self.tail + received)[-4096:]
                    if until is not None and until(self.tail):
                        return True
        except OSError:
            pass
        self.close()
        return False
