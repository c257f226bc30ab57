"""Addresses of this machine that no other test uses, whichever checkout or worker it is of."""

import errno
import os
import secrets
import socket
from typing import Final

from tandem.testing.addresses import Network

_WORKERS_MAX: Final = 16
_used: Final[set[str]] = set()
"""Of this process: what a test has left may still be ending when the next one begins."""


def own_network() -> str:
    """The first three parts of 254 addresses: Linux has all of 127.0.0.0/8.

    Each worker of a run has 4,000 of its own, and none twice. To meet one of another checkout is an
    error that names the port, and no wrong result. 127.0 is left out, for that is where clusters of
    people are.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        of_worker = range(1 + int(worker.removeprefix("gw")) % _WORKERS_MAX, 255, _WORKERS_MAX)
    else:
        of_worker = range(1, 255)
    while True:
        prefix = f"127.{secrets.choice(of_worker)}.{secrets.randbelow(256)}"
        if prefix not in _used and not _is_claimed(prefix):
            _used.add(prefix)
            return prefix


def unclaimed_network() -> Network:
    """The same for a cluster file: in place of one at random, which another may have."""
    return Network(prefix=own_network())


def _is_claimed(prefix: str) -> bool:
    """Whether a cluster of `tandem.testing` has it now."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claim:
        try:
            claim.bind(f"\0tandem-testing-{prefix}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return True
    return False
