"""The places of a server: which connections it has, from where, and who gives way to a new one.

No address has more than half of the places, even if it comes first. When there is none for a new
connection, the connection that has been still for longest gives way: first of the strangers, which
have never asked for anything, then of those that have been still for longer than clients are.
Clients send a heartbeat every 30 s. So one place stays free; if there is none of either kind, new
ones wait before they are accepted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import trio

from node.remoting.connection import Connection
from store.machine.tell_once import TellOnce

_log = logging.getLogger(__name__)

STILL_SECONDS: Final = 70.0
"""Two heartbeats of a client, and some. Source: ClientConfig.heartbeatBrokerInterval."""

STRANGER_SECONDS: Final = 1.0
"""How long a new connection has to ask for something, if others want its place."""


class Places:
    """The connections of one server."""

    def __init__(self, connections_max: int) -> None:
        self._connections: dict[Connection, None] = {}
        self._by_address: Counter[str] = Counter()
        self._most = connections_max
        self._most_of_address = max(1, connections_max // 2)
        self._told: TellOnce[str] = TellOnce()

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        """All of them, as they are now."""
        return iter(list(self._connections))

    def make_room(self) -> bool:
        """Whether there is a place for one more, if need be that of one which gives way."""
        if len(self._connections) < self._most:
            self._told.over()
            return True
        return self._close_one(self._connections)

    def take(self, connection: Connection) -> bool:
        """Take in a new connection; False if its address has too many that are in use."""
        address = connection.peer.ip
        if self._by_address[address] >= self._most_of_address:
            others = [each for each in self._connections if each.peer.ip == address]
            if not self._close_one(others):
                if self._told.is_news("refused", address):
                    _log.warning(
                        "connections from %s are refused: it has %d that are in use, half of all"
                        " places (connections_max %d)",
                        address,
                        self._most_of_address,
                        self._most,
                    )
                return False
        self._connections[connection] = None
        self._by_address[address] += 1
        return True

    def leave(self, connection: Connection) -> None:
        """Give the place back. Harmless for a connection that has none."""
        if connection in self._connections:
            del self._connections[connection]
            address = connection.peer.ip
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _close_one(self, candidates: Iterable[Connection]) -> bool:
        """Close one that may give way, which gives its place back; whether there was any."""
        now = trio.current_time()
        may_give_way = [
            each
            for each in candidates
            if each.last_active < now - (STILL_SECONDS if each.has_asked else STRANGER_SECONDS)
            and not each.owed_count
        ]
        victim = min(may_give_way, key=_first_to_go, default=None)
        if victim is None:
            return False
        if self._told.is_news("full"):
            _log.warning(
                "all %d places are taken (connections_max): idle connections are closed,"
                " first the one from %s",
                self._most,
                victim.peer,
            )
        victim.close()
        self.leave(victim)
        return True


def _first_to_go(connection: Connection) -> tuple[bool, float]:
    return connection.has_asked, connection.last_active
