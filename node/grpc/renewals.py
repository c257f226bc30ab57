"""Messages that are with push consumers: renewed as long as their client is alive.

A push consumer gets messages for `RENEWED_MS`, and does not say for how long it will work on one.
The node that it is connected to has them kept for it, again and again, while heartbeats of that
client come; the handle stays good. A client that says good-bye, or is silent for too long, gives
back what it has: others get it a second later. A client is who the guard has found it to be,
together with its id: nobody speaks for another one.

What is here is not needed for anything else: if this node dies, a message comes again within
`RENEWED_MS` unless it is acknowledged, by the same handle, at any other node.

Source: RocketMQ 5.3.3, ReceiptHandleProcessor, RenewStrategyPolicy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from node.grpc.call import Call
from node.grpc.receipts import Delivery
from node.remoting.caller import Caller

RENEWED_MS: Final = 60_000
"""How long nobody else gets a message, from its receiving or its last renewal on."""

RENEW_SECONDS: Final = 25.0
"""Between two renewals: one may fail."""

SILENT_SECONDS: Final = 25.0
"""A client whose last heartbeat is older is gone. They send one every ten seconds."""

LONGEST_SECONDS: Final = 3 * 3600.0
"""After that a message comes again, whatever its client does."""

GIVEN_BACK_MS: Final = 1_000

KEPT_MAX: Final = 65_536
"""Of one node. What is beyond it is not renewed."""


Owner: TypeAlias = tuple[str, str]
"""Who the guard has found, and the client id, which anybody may write."""


def owner_of(caller: Caller, call: Call) -> Owner:
    """Return whose the messages of a call are."""
    return caller.in_words, call.client_id or ""


class Kept(msgspec.Struct, eq=False):
    """One message.

    Attributes:
        change: Has the broker asked for another time, in milliseconds.
    """

    delivery: Delivery
    change: Callable[[int], None]
    since: float
    due: float


class _Client:
    """What one client has."""

    __slots__ = ("heard", "kept")

    def __init__(self) -> None:
        self.heard = 0.0
        self.kept: dict[tuple[str, str], Kept] = {}


class Renewals:
    """Those of one node. Time is passed in, in seconds."""

    def __init__(self) -> None:
        self._clients: dict[Owner, _Client] = {}
        self._owners: dict[tuple[str, str], Owner] = {}
        """By group and handle."""

    @property
    def count(self) -> int:
        """How many messages are renewed."""
        return len(self._owners)

    def heard_of(self, owner: Owner, now: float) -> None:
        """A client is alive."""
        if (client := self._clients.get(owner)) is not None:
            client.heard = now

    def keep(
        self, owner: Owner, delivery: Delivery, change: Callable[[int], None], now: float
    ) -> None:
        """A client has a message."""
        key = delivery.group, delivery.text
        self.done(*key)
        if len(self._owners) < KEPT_MAX:
            client = self._clients.setdefault(owner, _Client())
            client.kept[key] = Kept(delivery, change, now, now + RENEW_SECONDS)
            client.heard = now
            self._owners[key] = owner

    def done(self, group: str, handle: str) -> None:
        """A message is with its client no more. Harmless if it was not."""
        key = group, handle
        owner = self._owners.pop(key, None)
        if owner is not None:
            client = self._clients[owner]
            del client.kept[key]
            if not client.kept:
                del self._clients[owner]

    def gone(self, owner: Owner) -> None:
        """Give back all that a client has."""
        client = self._clients.get(owner)
        for key, kept in [] if client is None else list(client.kept.items()):
            self.done(*key)
            kept.change(GIVEN_BACK_MS)

    def work(self, now: float) -> None:
        """Renew what is due, and give back what nobody is heard of."""
        for owner, client in list(self._clients.items()):
            if client.heard < now - SILENT_SECONDS:
                self.gone(owner)
                continue
            for key, kept in list(client.kept.items()):
                if kept.since < now - LONGEST_SECONDS:
                    self.done(*key)
                elif kept.due <= now:
                    kept.due = now + RENEW_SECONDS
                    kept.change(RENEWED_MS)
