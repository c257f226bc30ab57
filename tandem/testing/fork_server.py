"""The fork server of this process, which imports what nodes need while we do something else.

This module imports little, so that the server can be started before anything else is imported.
"""

import atexit
import importlib
import os
from typing import Final

from tandem.cluster.forking import ForkServer
from tandem.cluster.spec import SERVER, node_environment

_PRELOADED: Final = (
    "tandem.cluster.detached",
    f"{SERVER[-1]}.preload",
    "tandem.drill.fault_proxy",
    "tandem.testing.network",
)

_SHARED: Final = ("trio", "tandem.cluster.control", "tandem.cluster_file.load")
"""What both import who start a cluster: the fork server, and a program for which it is forked."""


class OwnForkServer:
    """One, from the first cluster on.

    Invariant: `_server` is of the process `_pid`; a child that was forked of that has none.
    """

    def __init__(self) -> None:
        self._server: ForkServer | None = None
        self._pid = 0

    def get(self) -> ForkServer:
        """Return it; start it if there is none. It takes a while until it answers."""
        if self._server is None or self._pid != os.getpid():
            return self._keep(ForkServer.started(_PRELOADED, node_environment()))
        return self._server

    def fork_off(self) -> None:
        """Start it as a fork of this process, which has one thread and runs no trio.

        That saves what both import; what this one imports beside that, it imports meanwhile.
        """
        for name in _SHARED:
            importlib.import_module(name)
        self._keep(ForkServer.forked(_PRELOADED, node_environment()))

    def _keep(self, server: ForkServer) -> ForkServer:
        self._server, self._pid = server, os.getpid()
        atexit.register(self.close)
        return server

    def close(self) -> None:
        """End it, if there is one. Its children go on."""
        if self._server is not None and self._pid == os.getpid():
            self._server.close()
        self._server = None
        atexit.unregister(self.close)


_own: Final = OwnForkServer()


def fork_server() -> ForkServer:
    """The fork server of this process; it is started if there is none."""
    return _own.get()


def fork_off_server() -> None:
    """Start the fork server of this process as a fork of it: see `OwnForkServer.fork_off`."""
    _own.fork_off()


def close_fork_server() -> None:
    """End the fork server, if there is one. The next cluster starts another."""
    _own.close()
