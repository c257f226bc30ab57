"""A lasting connection to another node on which a task is repeated, through all interruptions.

    DOWN -- connected --> UP -- task fails, connection lost --> DOWN
     ^                     |
     +-- retry delay ------+   one line in the log per change, none per repetition

Used for registration with the other nodes and for a slave's copying of its master's tables.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from node.errors import RequestError
from node.remoting.remoting_client import RemotingClient, RequestFailedError, open_client
from store.machine.network import ConnectionLost, Network
from tandem.cluster_file.settings import NodeSettings
from tandem.wire.errors import WireError

_log = logging.getLogger(__name__)

RETRY_SECONDS_MAX: Final = 1.0
"""Between two tries to reach a peer. A refused connection costs next to nothing."""

HURRY_SECONDS_MIN: Final = 0.05
"""Between two repetitions, however great the hurry."""

REQUEST_SECONDS_MAX: Final = 3.0
"""Source: SlaveSynchronize, BrokerOuterAPI: timeoutMills."""

_PASSING: Final = (ConnectionLost, WireError, RequestFailedError, RequestError, trio.TooSlowError)
"""What time may heal: a peer that is gone or starting, or a full disk on our side."""


class PeerLink:
    """One peer and what is repeated with it.

    `task` gets the connected client; it is run at once, then after each interval and after each
    `hurry`. It raises what the client raises.
    """

    def __init__(
        self,
        network: Network,
        source: str,
        peer: NodeSettings,
        purpose: str,
        task: Callable[[RemotingClient], Awaitable[None]],
        *,
        address: str | None = None,
        port: int | None = None,
        task_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        """Take what to repeat with whom; `address` and `port` where they are not the peer's own.

        A task that takes longer than `task_seconds_max` has failed.
        """
        self._network = network
        self._source = source
        self.peer = peer
        self._address = address or peer.address
        self._port = port or peer.port
        self._purpose = purpose
        self._task = task
        self._task_seconds_max = task_seconds_max
        self._hurry = trio.Event()
        self._is_up: bool | None = None

    @property
    def is_up(self) -> bool:
        """True if the task went well the last time."""
        return self._is_up is True

    def hurry(self) -> None:
        """Repeat the task, or try to connect, soon instead of at the end of the interval."""
        self._hurry.set()

    async def run(self, interval_seconds: float) -> None:
        """Keep repeating, until cancelled."""
        while True:
            try:
                async with open_client(
                    self._network,
                    self._address,
                    self._port,
                    source=self._source,
                    timeout_seconds=REQUEST_SECONDS_MAX,
                ) as client:
                    await self._repeat(client, interval_seconds)
            except _PASSING as error:
                self._note_down(error)
            self._hurry = trio.Event()
            with trio.move_on_after(min(RETRY_SECONDS_MAX, interval_seconds)):
                await self._hurry.wait()

    async def _repeat(self, client: RemotingClient, interval_seconds: float) -> None:
        while True:
            self._hurry = trio.Event()
            with trio.fail_after(self._task_seconds_max):
                await self._task(client)
            self._note_up()
            await trio.sleep(min(HURRY_SECONDS_MIN, interval_seconds))
            with trio.move_on_after(interval_seconds - HURRY_SECONDS_MIN):
                await self._hurry.wait()

    def _note_up(self) -> None:
        if self._is_up is not True:
            _log.info(
                "%s with %s at %s is up", self._purpose, self.peer.name, self.peer.broker_address
            )
        self._is_up = True

    def _note_down(self, error: Exception) -> None:
        if self._is_up is not False:
            reason = str(error) or f"no answer within {REQUEST_SECONDS_MAX} s"
            _log.warning(
                "%s with %s is down, trying again: %s", self._purpose, self.peer.name, reason
            )
        self._is_up = False
