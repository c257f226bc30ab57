"""What a replica can ask of its peers' logs: an interface, so that nobody here knows the wire."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ha.fenced.history import history_of
from tandem.wire.peer_log import BYTES_MAX, EpochPart, PeerLogPart


class PeerLogSession(Protocol):
    """One peer, as long as it answers. All raise PeerSilentError."""

    async def part(self, start: int, end: int) -> PeerLogPart:
        """Return what it knows of a part of its log, of one file."""

    async def data(self, start: int, end: int, history: str = "") -> bytes:
        """Return these bytes of its log: all of them, `tandem.wire.peer_log.BYTES_MAX` at most.

        With the `history` of our own log there also what is not confirmed, if it has the same.
        """

    async def doubt(self, start: int, end: int) -> None:
        """Have it look at a part of its log, which we got from it and found to be bad."""


class PeerLogs(Protocol):
    """All peers."""

    def session(self, peer: str) -> AbstractAsyncContextManager[PeerLogSession]:
        """Talk to the node of this name. Nothing is sent before the first question."""


async def all_of(
    session: PeerLogSession, start: int, end: int, epochs: Sequence[EpochPart] = ()
) -> bytes:
    """Return a part of a peer's log of any size, of one file; `epochs` are those of our own log.

    Raises:
        PeerSilentError: it does not give all of it.
    """
    data = bytearray()
    for at in range(start, end, BYTES_MAX):
        stop = min(at + BYTES_MAX, end)
        data += await session.data(at, stop, history_of(epochs, at, stop))
    return bytes(data)
