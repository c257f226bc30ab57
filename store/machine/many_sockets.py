"""Many sockets with one call: what came over each is received, or each gets bytes of its own.

A call in Python for each of them costs as much again as the system takes for it. So one call in C
goes over all of them (`native_sockets.c`), and no other thread of Python has to wait for its end.

A socket is its number here, and a number may soon be another one's. So numbers are taken from what
owns the sockets (`Stream.plain_fd`, the readers of a `ReadLoop`), and are used before anything else
can happen: nothing is kept between two calls.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from tandem.wire import native
from tandem.wire.read_together import ReadTogether

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tandem.wire.native import Loops

EACH_BYTES_MAX: Final = 16 * 1024
"""Received from one socket in one call. Of more the rest comes with the next one."""

SOCKETS_MAX: Final = 256
"""Of one call that receives."""

END: Final = -1
"""In place of an errno: the peer has ended the stream."""

NO_SOCKET: Final = -1
"""In place of a socket: nothing is sent."""


class ManySockets:
    """Receives and sends on many sockets at once, and never waits."""

    def __init__(self, loops: Loops) -> None:
        """Do it with the loops in C."""
        self._receive, self._send = loops.receive_each, loops.send_each
        # What was never used takes no memory.
        self._buffer = np.empty(SOCKETS_MAX * EACH_BYTES_MAX, np.uint8)
        self._buffer_at, self._bytes = self._buffer.ctypes.data, self._buffer.data

    def receive(self, sockets: list[int]) -> tuple[ReadTogether, list[tuple[int, int]]]:
        """Receive from each; return also which are no more, and why: by errno, or END.

        From a socket that has nothing nothing is received.
        """
        count = len(sockets)
        assert count <= SOCKETS_MAX
        zeros = bytes(8 * count)
        numbers, ends, errors = array("i", sockets), array("q", zeros), array("q", zeros)
        at, errors_at = ends.buffer_info()[0], errors.buffer_info()[0]
        bad_count = self._receive(
            numbers.buffer_info()[0], count, self._buffer_at, EACH_BYTES_MAX, at, errors_at
        )
        bad = [(n, error) for n, error in enumerate(errors) if error] if bad_count else []
        return ReadTogether.up_to(bytes(self._bytes[: ends[-1]]), ends), bad

    def send(self, sockets: list[int], data: bytes, ends: Sequence[int]) -> list[int] | None:
        """Send to each what is behind the bytes of the one before it, up to its end.

        Return how many bytes each has taken; None: all of them. What is wrong with one that has
        taken less than all, the next call to send alone says.
        """
        numbers, bounds, sent = array("i", sockets), array("q", ends), array("q", ends)
        at, count = numbers.buffer_info()
        assert len(bounds) == count
        assert not count or bounds[-1] <= len(data)
        missing = self._send(at, count, data, bounds.buffer_info()[0], sent.buffer_info()[0])
        return sent.tolist() if missing else None


_many: ManySockets | None = None


def many_sockets() -> ManySockets | None:
    """Return what does it; None: nothing was compiled, and each socket is used by itself."""
    global _many  # noqa: PLW0603 -- its memory is for all
    if _many is None and native.loops is not None:
        _many = ManySockets(native.loops)
    return None if native.loops is None else _many
