"""What a worker process of Spark keeps from one task to the next: routes and open connections.

A micro-batch of a thousand rows is read in some milliseconds. To ask a name server for the route
first, over a connection of its own, and to connect to the broker, would take as long again. So a
task that has read all that it had to leaves its connections here, and the next one that asks the
same cluster in the same process takes them over. One that ended in any other way leaves none.

A kept route is as old as in any client that is open that long: it is fetched anew after some time,
and as soon as a broker does not answer as its master would.
"""

import os
from collections.abc import Collection
from typing import Final

from tandem.client.blocking_shell import BlockingShell
from tandem.client.cluster_access import ClusterAccess
from tandem.client.core import ClientCore
from tandem.client.plain_socket import SocketOpener
from tandem.spark.live.link import Link

PLACES_MAX: Final = 8
"""Clusters, or users of one, whose connections are kept at once: those used last."""


class Connections:
    """Those of one client: for its questions, and one that rests for each broker it has read."""

    def __init__(self, core: ClientCore, opener: SocketOpener) -> None:
        self.core = core
        self.shell = BlockingShell(core, opener)
        self._resting: dict[str, Link] = {}

    def take(self, address: str) -> Link | None:
        """Return a connection to a broker that rests and can go on, if there is one."""
        link = self._resting.pop(address, None)
        if link is None or link.is_usable():
            return link
        link.close()
        return None

    def keep(self, link: Link) -> None:
        """Let a connection rest whose pulls are all answered.

        Others that have ended meanwhile are closed: nobody may ever ask that address again.
        """
        for address, other in list(self._resting.items()):
            if not other.is_usable():
                self._resting.pop(address).close()
        self._resting[link.address] = link

    def forget_routes(self, *, but: Collection[str]) -> None:
        """Forget the routes of all topics but these: each costs a question every half a minute."""
        for topic in self.core.routes.keys() - but:
            del self.core.routes[topic]

    def close(self) -> None:
        """Close all of them."""
        for link in self._resting.values():
            link.close()
        self._resting.clear()
        self.shell.close()


class Kept:
    """Connections by what they are to, of this process: a fork of it has none of them."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ClusterAccess], Connections] = {}

    def take(self, access: ClusterAccess) -> Connections | None:
        """Take what an earlier task has left, if it has."""
        return self._places.pop((os.getpid(), access), None)

    def leave(self, access: ClusterAccess, connections: Connections) -> None:
        """Leave connections to the next task."""
        before = self._places.pop((os.getpid(), access), None)
        if before is not None:
            before.close()
        self._places[os.getpid(), access] = connections
        if len(self._places) > PLACES_MAX:
            self._places.pop(next(iter(self._places))).close()
