"""What a store says to its owner while it runs. It is given to `MessageStore.run` alone."""

from __future__ import annotations

from typing import Protocol

from store.results import Arrival


class StoreListener(Protocol):
    """Called between two awaits, never from within a put."""

    def arrived(self, arrivals: list[Arrival]) -> None:
        """These can be read from now on: after a round of puts or dispatch, or confirmed."""

    def answered(self) -> None:
        """Puts that waited for the disk were answered; their answers may be sent."""
