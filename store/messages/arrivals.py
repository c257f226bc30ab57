"""What has arrived in the queues of a store, handed over as one list.

That is after each round of puts or of dispatch, and when more of the log is confirmed: a put calls
nothing above itself.

Before the store runs there is no listener: what arrives is kept for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.messages.confirm_bound import ConfirmBound
    from store.results import Arrival
    from store.store_listener import StoreListener


class Arrivals:
    """The arrivals of one store. With a bound they can be read, and are reported, below it.

    Attributes:
        entered: What has entered its queue in this round. Puts and dispatch add to it.
    """

    def __init__(self, bound: ConfirmBound | None) -> None:
        self.entered: list[Arrival] = []
        self._bound = bound
        self._kept: list[Arrival] = []
        self._listener: StoreListener | None = None

    def listen(self, listener: StoreListener) -> None:
        """Report to this one from now on, and first of all what was kept for it."""
        self._listener = listener
        if kept := self.take():
            listener.arrived(kept)

    def end_round(self) -> None:
        """Report what has entered its queue, as far as it can be read."""
        arrivals = self.entered[:]
        del self.entered[:]
        if self._bound is not None:
            arrivals = self._bound.arrived(arrivals)
        if self._listener is None:
            self._kept += arrivals
        elif arrivals:
            self._listener.arrived(arrivals)

    def readable(self, arrivals: list[Arrival]) -> None:
        """Report what can be read from now on."""
        if self._listener is None:
            self._kept += arrivals
        elif arrivals:
            self._listener.arrived(arrivals)

    def take(self) -> list[Arrival]:
        """Return what was kept, and keep it no longer."""
        kept, self._kept = self._kept, []
        return kept

    def answered(self) -> None:
        """Report that puts were answered which waited for the disk."""
        if self._listener is not None:
            self._listener.answered()


class NoListener:
    """Hears nothing."""

    def arrived(self, arrivals: list[Arrival]) -> None:
        """See `StoreListener`."""

    def answered(self) -> None:
        """See `StoreListener`."""
