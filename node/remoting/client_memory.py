"""What a server keeps in memory for its clients, and which of them gives way when that is too much.

Kept are the bytes of frames that are not whole yet, and answers that a peer does not take. Both are
counted as they are there, not as somebody has announced them. Over the bound the connection is
closed on which nothing has moved for the longest time: of the address that has too much, or of all.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final, Protocol

from tandem.wire.message import Host

_log = logging.getLogger(__name__)

KEPT_BYTES_MAX: Final = 256 * 1024 * 1024
"""For all clients of one server. An ordinary one leaves nothing behind between two rounds."""

KEPT_BYTES_PER_ADDRESS_MAX: Final = KEPT_BYTES_MAX // 2
"""For one machine, so that others have room whatever it does."""

SMALL_BYTES: Final = 64 * 1024
"""Less than that is not counted for a connection: the number of connections is bounded too."""


class Keeping(Protocol):
    """A connection, as far as this goes."""

    peer: Host
    last_active: float

    def close(self) -> None:
        """End it; it then keeps nothing."""


class ClientMemory:
    """The bytes kept for the connections of one server."""

    def __init__(self) -> None:
        self._kept: dict[Keeping, int] = {}
        self._by_address: Counter[str] = Counter()
        self._total = 0

    @property
    def kept_bytes(self) -> int:
        """For all of them together."""
        return self._total

    def note(self, connection: Keeping, kept_bytes: int) -> None:
        """Take in what is kept for a connection now. May close it, or others."""
        if kept_bytes < SMALL_BYTES:
            kept_bytes = 0
            if connection not in self._kept:
                return
        address = connection.peer.ip
        more = kept_bytes - self._kept.get(connection, 0)
        self._total += more
        self._by_address[address] += more
        if kept_bytes:
            self._kept[connection] = kept_bytes
        else:
            del self._kept[connection]
            if not self._by_address[address]:
                del self._by_address[address]
        while self._by_address[address] > KEPT_BYTES_PER_ADDRESS_MAX:
            self._close_one(address)
        while self._total > KEPT_BYTES_MAX:
            self._close_one("")

    def _close_one(self, address: str) -> None:
        """Close the one that has been still for longest, of an address if that is given."""
        candidates = [each for each in self._kept if address in ("", each.peer.ip)]
        victim = min(candidates, key=_last_active)
        _log.warning(
            "connection from %s closed: %d bytes are kept for %s, in unfinished requests and in"
            " answers that are not taken, and nothing has moved on this one for longest",
            victim.peer,
            self._by_address[address] if address else self._total,
            address or "all clients",
        )
        victim.close()


def _last_active(connection: Keeping) -> float:
    return connection.last_active
