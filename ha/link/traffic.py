"""What went over a link, and when: for heartbeats, for silence, and for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import trio

from ha.link.byte_rate import ByteRate
from store.machine.errors import ConnectionLost
from store.machine.network import Stream


class LinkTraffic:
    """The traffic of one end of a link.

    Attributes:
        since: When it began. All times are trio's.
        last_read: When something came last, or when it began.
        last_write: When a frame or report was given to the stream last, or when it began.
        rate: The log's bytes: those sent by a master, those received by the others.
    """

    def __init__(self) -> None:
        self.since = self.last_read = self.last_write = trio.current_time()
        self.rate = ByteRate()

    def wrote_nothing_for(self, seconds: float) -> bool:
        """True if a heartbeat is due, with `seconds` between two of them."""
        return trio.current_time() >= self.last_write + seconds

    async def receive(self, stream: Stream, bytes_max: int, peer: str) -> bytes:
        """Wait for the next bytes. `peer` names the other end in an error.

        Raises:
            ConnectionLost: it closed the connection, or the wire broke.
        """
        data = await stream.receive_some(bytes_max)
        if not data:
            raise ConnectionLost(f"{peer} closed the connection")
        self.last_read = trio.current_time()
        return data

    async def receive_until_silent(
        self,
        stream: Stream,
        bytes_max: int,
        peer: str,
        *,
        silence_seconds: float,
        silence: str,
        take: Callable[[bytes], object],
    ) -> NoReturn:
        """Give `take` whatever comes. `silence` says in an error what did not come any more.

        `take` is called as `Stream.receive_while` does it. The time limit is a scope around the
        whole loop, moved on when it fires: a read costs no timer of its own.

        Raises:
            ConnectionLost: nothing has come for `silence_seconds`; or see `receive`.
        """

        def took(data: bytes) -> bool:
            self.last_read = trio.current_time()
            take(data)
            return True

        while True:
            with trio.CancelScope(deadline=self.last_read + silence_seconds):
                await stream.receive_while(bytes_max, took)
                raise ConnectionLost(f"{peer} closed the connection")
            if trio.current_time() >= self.last_read + silence_seconds:
                raise ConnectionLost(f"{silence} for {silence_seconds:g} seconds")
