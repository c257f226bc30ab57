"""Brokers that have just registered with a name server: its own node may reach them now."""

from __future__ import annotations

from store.machine.signal import Signal


class Newcomers:
    """The addresses of brokers that are new since they were taken last.

    Attributes:
        signal: Notified when there is one.
    """

    def __init__(self) -> None:
        self._addresses: set[str] = set()
        self.signal = Signal()

    def add(self, address: str) -> None:
        """A broker at this address is new here."""
        self._addresses.add(address)
        self.signal.notify()

    def take(self) -> set[str]:
        """Return those there are, and forget them."""
        taken, self._addresses = self._addresses, set()
        return taken
