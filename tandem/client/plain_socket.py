"""What plain code needs of a socket."""

import socket
from collections.abc import Callable
from typing import Protocol


class PlainSocket(Protocol):
    """What the client needs of a socket. A `socket.socket` is one."""

    def settimeout(self, seconds: float, /) -> None:
        """How long the next call may wait; 0.0: not at all."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of `data`."""

    def recv(self, bytes_max: int, flags: int = 0, /) -> bytes:
        """Return 1 to `bytes_max` bytes, or nothing at the end."""

    def close(self) -> None:
        """Close."""


SocketOpener = Callable[[str, int, float], PlainSocket]
"""Opens a connection to host and port within this many seconds; raises `OSError`."""


def open_socket(host: str, port: int, timeout_seconds: float) -> PlainSocket:
    """Open a TCP connection without Nagle's delay."""
    opened = socket.create_connection((host, port), timeout_seconds)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened
