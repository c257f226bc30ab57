"""The address of a group, at which its master of the moment listens beside its own.

    FREE --- this node becomes master ---> TRYING --- the address can be bound ---> HELD
      ^                                      |                                       |
      +--------- it is master no more -------+---------------------------------------+

Name servers tell clients this address for the master while it is held, and the master's own
otherwise. RocketMQ's clients look for routes every 30 s and for nothing else; but an address that
has stopped answering they dial again with the next message. So whichever node is master next, they
have it as soon as it listens.

On one machine that is any address of the machine that no node has for itself. Between machines
somebody has to move it to the master's: until it is there it cannot be bound, and is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from store.machine.network import AddressInUseError, ConnectionLost, Listener, Network
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from tandem.wire.message import Host

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.05
"""Between two tries: a process that was killed frees its addresses within a moment."""


class MasterAddress:
    """Listens while this node is master."""

    def __init__(
        self, network: Network, address: Host, when_changed: Callable[[str | None], None]
    ) -> None:
        """Listen at `address`; `when_changed` gets it once it is held, None once it is not."""
        self._network = network
        self._address = address
        self._when_changed = when_changed
        self._is_master = False
        self._changed = Signal()
        self._turn = trio.CancelScope()
        self._told: TellOnce[str] = TellOnce()

    def role_changed(self, *, is_master: bool) -> None:
        """Listen from now on, or no more."""
        self._is_master = is_master
        if is_master:
            self._changed.notify()
        else:
            self._turn.cancel()

    async def run(self, serve: Callable[[Listener], Awaitable[None]]) -> None:
        """Listen whenever this node is master, until cancelled.

        `serve` accepts until cancelled, and then closes the listener.
        """
        while True:
            while not self._is_master:
                await self._changed.wait()
            self._turn = trio.CancelScope()
            with self._turn:
                await self._hold(serve)

    async def _hold(self, serve: Callable[[Listener], Awaitable[None]]) -> None:
        listener = await self._listen()
        _log.info("this node serves at %s, the address of the group's master", self._address)
        self._when_changed(str(self._address))
        try:
            await serve(listener)
        finally:
            self._when_changed(None)

    async def _listen(self) -> Listener:
        while True:
            try:
                listener = await self._network.listen(self._address.ip, self._address.port)
            except (AddressInUseError, ConnectionLost) as error:
                if self._told.is_news(str(error)):
                    _log.warning(
                        "this node cannot serve at %s, the address of the group's master: %s."
                        " Clients get this node's own address until it can",
                        self._address,
                        error,
                    )
            else:
                self._told.over()
                return listener
            await trio.sleep(RETRY_SECONDS)
