"""What has arrived in the queues of a store, handed over as one list.

That is after each round of puts or of dispatch, and when more of the log is confirmed: a put calls
nothing above itself. Before the store runs nothing hears of arrivals, and none are kept.
"""

from __future__ import annotations

from typing import Final

from store.messages.confirm_bound import ConfirmBound
from store.results import Arrival
from store.store_listener import StoreListener


class NoListener:
    """Hears nothing."""

    def arrived(self, arrivals: list[Arrival]) -> None:
        """See `StoreListener`."""

    def answered(self) -> None:
        """See `StoreListener`."""


NO_LISTENER: Final = NoListener()


class Arrivals:
    """The arrivals of one store. With a bound they can be read, and are reported, below it.

    Attributes:
        entered: What has entered its queue in this round. Puts and dispatch add to it.
    """

    def __init__(self, bound: ConfirmBound | None) -> None:
        self.entered: list[Arrival] = []
        self._bound = bound
        self._listener: StoreListener = NO_LISTENER

    def listen(self, listener: StoreListener) -> None:
        """Report to this one from now on."""
        self._listener = listener

    def end_round(self) -> None:
        """Report what has entered its queue, as far as it can be read."""
        arrivals = self.entered[:]
        del self.entered[:]
        if self._bound is not None:
            arrivals = self._bound.arrived(arrivals)
        if arrivals:
            self._listener.arrived(arrivals)

    def readable(self, arrivals: list[Arrival]) -> None:
        """Report what can be read from now on."""
        if arrivals:
            self._listener.arrived(arrivals)

    def answered(self) -> None:
        """Report that puts were answered which waited for the disk."""
        self._listener.answered()
