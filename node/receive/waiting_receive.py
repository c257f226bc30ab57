"""A receive that waits, maybe several times, until something was found or its time is up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from node.receive.requests import Client, Found, Receive, Received, WhenReceived
from node.receive.waiting import WaitingRequest, WaitingRequests


class Receives(Protocol):
    """What runs it: `PopService`."""

    receiving: WaitingRequests

    def park(self, request: Receive, run: Callable[[bool], None]) -> WaitingRequest | None:
        """Have a request wait for a message; None if there is no room."""

    def run_again(self, waiting: WaitingReceive, *, is_expired: bool) -> None:
        """Try once more for a request that was woken, or whose time is up."""


class WaitingReceive:
    """One of them. `done` is called once, with what was found or an error."""

    def __init__(
        self, service: Receives, request: Receive, done: WhenReceived, client: Client | None
    ) -> None:
        self._service = service
        self.request = request
        self.done = done
        self.client = client
        self.parked: WaitingRequest | None = None
        self.is_cancelled = False

    def wait(self, received: Received) -> bool:
        """Wait; False if there is no room, which is answered then."""
        self.parked = self._service.park(self.request, self._run)
        if self.parked is None:
            self.done(msgspec.structs.replace(received, found=Found.FULL))
        elif received.is_left_off:
            self._service.receiving.run_soon(self.parked)
        return self.parked is not None

    def _run(self, is_expired: bool) -> None:  # noqa: FBT001 - see `WaitingRequest.run`
        self._service.run_again(self, is_expired=is_expired)

    def cancel(self) -> None:
        """See `Waiting`."""
        self.is_cancelled = True
        if self.parked is not None:
            self.parked.cancel()
