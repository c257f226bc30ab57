"""Messages that are with push consumers: renewed as long as their client is alive.

A push consumer gets messages for `RENEWED_MS`, and does not say for how long it will work on one.
The node that it is connected to has them kept for it, again and again, while calls of that client
come; the handle stays good. A client that says good-bye, or is silent for too long, gives back what
it has: others get it a second later.

What is here is not needed for anything else: if this node dies, a message comes again within
`RENEWED_MS` unless it is acknowledged, by the same handle, at any other node.

Source: RocketMQ 5.3.3, ReceiptHandleProcessor, RenewStrategyPolicy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from node.grpc.receipts import Delivery

RENEWED_MS: Final = 60_000
"""How long nobody else gets a message, from its receiving or its last renewal on."""

RENEW_SECONDS: Final = 25.0
"""Between two renewals: one may fail."""

SILENT_SECONDS: Final = 25.0
"""A client whose last call is older is gone. They send a heartbeat every ten seconds."""

LONGEST_SECONDS: Final = 3 * 3600.0
"""After that a message comes again, whatever its client does."""

GIVEN_BACK_MS: Final = 1_000

KEPT_MAX: Final = 65_536
"""Of one node. What is beyond it is not renewed."""


class Kept(msgspec.Struct, eq=False):
    """One message.

    Attributes:
        change: Has the broker asked for another time, in milliseconds.
    """

    client_id: str
    delivery: Delivery
    change: Callable[[int], None]
    since: float
    due: float


class Renewals:
    """Those of one node. Time is passed in, in seconds."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Kept] = {}
        """By group and handle."""
        self._heard: dict[str, float] = {}
        """When clients that have messages made their last call."""

    @property
    def count(self) -> int:
        """How many messages are renewed."""
        return len(self._kept)

    def heard_of(self, client_id: str, now: float) -> None:
        """A client has made a call."""
        if client_id in self._heard:
            self._heard[client_id] = now

    def keep(
        self, client_id: str, delivery: Delivery, change: Callable[[int], None], now: float
    ) -> None:
        """A client has a message."""
        if len(self._kept) < KEPT_MAX:
            kept = Kept(client_id, delivery, change, now, now + RENEW_SECONDS)
            self._kept[delivery.group, delivery.text] = kept
            self._heard[client_id] = now

    def done(self, group: str, handle: str) -> None:
        """A message is with its client no more. Harmless if it was not."""
        self._kept.pop((group, handle), None)

    def gone(self, client_id: str) -> None:
        """Give back all that a client has."""
        self._heard.pop(client_id, None)
        for key, kept in list(self._kept.items()):
            if kept.client_id == client_id:
                del self._kept[key]
                kept.change(GIVEN_BACK_MS)

    def work(self, now: float) -> None:
        """Renew what is due, and give back what nobody is heard of."""
        for client_id, last in list(self._heard.items()):
            if last < now - SILENT_SECONDS:
                self.gone(client_id)
        for key, kept in list(self._kept.items()):
            if kept.since < now - LONGEST_SECONDS:
                del self._kept[key]
            elif kept.due <= now:
                kept.due = now + RENEW_SECONDS
                kept.change(RENEWED_MS)
        if not self._kept:
            self._heard.clear()
