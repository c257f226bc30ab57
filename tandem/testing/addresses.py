"""Addresses and ports for one cluster, which no other cluster of a test has at the same time.

A cluster gets a network of its own, the 254 addresses of 127.X.Y.0/24, for Linux has all of
127.0.0.0/8. What one process of a test run has, another does not get: the name of an abstract Unix
socket is the claim, which the system gives to one process at a time and takes back when that
process ends, however it ends. Source: unix(7), abstract sockets.

Somebody else may listen at *all* addresses, such as a container that publishes port 10911. Then
other ports are taken.
"""

import errno
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from tandem.cluster.spec import check_system
from tandem.testing.errors import NoAddressesError

ATTEMPTS_MAX: Final = 100

_OTHER_PORTS: Final = range(12_000, 31_000, 10)
"""Below those that Linux gives to outgoing connections."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Where each node listens, and the coordinator."""

    client: int = 10_911
    ha: int = 10_912
    replication: int = 10_913
    name_server: int = 9_876
    coordinator: int = 10_920

    @classmethod
    def beginning_at(cls, first: int) -> "Ports":
        """Five in a row, for where the usual ones are taken."""
        return cls(
            client=first,
            ha=first + 1,
            replication=first + 2,
            name_server=first + 3,
            coordinator=first + 4,
        )


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """A network of one cluster."""

    prefix: str
    """The first three parts of its addresses, such as "127.4.17"."""
    ports: Ports = Ports()

    def address(self, number: int) -> str:
        """One of its addresses, 1 to 254."""
        return f"{self.prefix}.{number}"


def random_network() -> Network:
    """A network that nobody else is likely to have: one of 65,000. It is not claimed."""
    # 127.0 is left out, for that is where clusters of people are.
    return Network(prefix=f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}")


@contextmanager
def claimed_network() -> Iterator[Network]:
    """Have a network of our own while the block runs, with ports that are free.

    Raises:
        WrongSystemError: This is not Linux.
        NoAddressesError: None was found.
    """
    check_system(sys.platform)
    for _ in range(ATTEMPTS_MAX):
        network = random_network()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claim:
            try:
                claim.bind(f"\0tandem-testing-{network.prefix}")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            ports = _free_ports(network)
            if ports is None:
                continue
            yield msgspec.structs.replace(network, ports=ports)
            return
    raise NoAddressesError(f"no free addresses for a cluster in {ATTEMPTS_MAX} attempts")


def _free_ports(network: Network) -> Ports | None:
    others = (Ports.beginning_at(secrets.choice(_OTHER_PORTS)) for _ in range(ATTEMPTS_MAX))
    for ports in (network.ports, *others):
        if all(_is_free(network.address(1), port) for port in msgspec.structs.astuple(ports)):
            return ports
    return None


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As a node does: connections of a former process in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True
