"""What a service manager hears of a node: systemd's protocol, a line in a datagram.

    READY=1      it serves
    STOPPING=1   it has been asked to stop
    WATCHDOG=1   its loop goes on; sent twice as often as the unit asks for
    EXTEND_TIMEOUT_USEC=...   a long stop gets on: the limit of the unit is moved to after this time

Nothing is sent unless the environment says where to, and nothing depends on whether it arrives.

Source: systemd, sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
GETS_ON: Final = "EXTEND_TIMEOUT_USEC=90000000"


class ServiceManager:
    """The one that started this process.

    Attributes:
        watchdog_seconds: How often it wants to hear that the process lives; None: it does not.
    """

    def __init__(self, environment: Mapping[str, str], process_id: int) -> None:
        """Do as the environment of this process says."""
        address = environment.get("NOTIFY_SOCKET", "")
        # An abstract socket begins with a zero, which is written as an at sign.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_seconds = self._asked_for(environment, process_id)

    def _asked_for(self, environment: Mapping[str, str], process_id: int) -> float | None:
        microseconds = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(process_id)) == str(process_id)
        if not (self._address and is_ours and microseconds.isascii() and microseconds.isdecimal()):
            return None
        return int(microseconds) / 1_000_000 or None

    def say(self, state: str) -> bool:
        """Send it, without waiting; whether it was taken."""
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(0)
                sender.sendto(state.encode(), self._address)
        except OSError:
            return False
        return True


def this_service_manager() -> ServiceManager:
    """Return the one that the environment of this process names."""
    return ServiceManager(os.environ, os.getpid())
