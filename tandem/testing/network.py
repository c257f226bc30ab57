"""The network between the nodes of a test's cluster: a process of proxies that can hold up bytes.

    test ---- Unix socket: flows and their rules ----> tandem.testing.network_process
    node ------------------ TCP ---------------------> proxy of the pair ----> other node

See `tandem.drill.fault_proxy` for what a proxy does.
"""

import socket
import threading  # noqa: TID251 - a test may hurt its cluster from a thread
from collections.abc import Sequence
from typing import Final

import msgspec

from tandem.cluster_file.errors import ClusterError
from tandem.testing.faults import Flow

MESSAGE_BYTES_MAX: Final = 65_536

DONE: Final = b"done"
"""What is said when proxies listen, and when rules are in effect."""


class NetworkGoneError(ClusterError):
    """The process of the proxies has ended."""


class NetworkControl:
    """The test's side."""

    def __init__(self, connection: socket.socket) -> None:
        """Take the connection to the process. It belongs to the caller."""
        self._connection = connection
        self._lock = threading.Lock()

    def wait_ready(self) -> None:
        """Block until the proxies listen.

        Raises:
            NetworkGoneError: They could not.
        """
        self._receive()

    def change(self, flows: Sequence[Flow]) -> None:
        """Let these rules be in effect, and no others; block until they are.

        Raises:
            NetworkGoneError: Nobody is there to do it.
        """
        with self._lock:
            try:
                self._connection.send(msgspec.json.encode(flows))
            except OSError as error:
                raise NetworkGoneError(f"the network of this cluster is gone: {error}") from error
            self._receive()

    def _receive(self) -> None:
        if self._connection.recv(MESSAGE_BYTES_MAX) != DONE:
            raise NetworkGoneError("the network of this cluster is gone; see network.log")
