"""A store that reports without running: `MessageStore.run` is what gives it its listener."""

from collections.abc import Callable

from store import MessageStore
from store.machine.signal import Signal
from store.results import Arrival


class Listener:
    """Hands on what a store says."""

    def __init__(
        self, arrived: Callable[[list[Arrival]], object], answered: Callable[[], object]
    ) -> None:
        self._arrived = arrived
        self._answered = answered

    def arrived(self, arrivals: list[Arrival]) -> None:
        self._arrived(arrivals)

    def answered(self) -> None:
        self._answered()


def listen(
    store: MessageStore,
    arrived: Callable[[list[Arrival]], object] = lambda _: None,
    answered: Callable[[], object] = lambda: None,
) -> Listener:
    """Have a store report from now on; return what `run` has to be given, if it is called."""
    listener = Listener(arrived, answered)
    store.arrivals.listen(listener)
    return listener


def told_by(store: MessageStore) -> list[tuple[str, int, int, int | None]]:
    """Return a list that grows with what arrives: (topic, queue id, new end, tags code)."""
    told: list[tuple[str, int, int, int | None]] = []
    listen(store, lambda arrivals: told.extend(arrival[1:] for arrival in arrivals))
    return told


_heard: list[object] = []
"""A context that nothing refers to would end by itself."""


def hear(signal: Signal, call: Callable[[], None]) -> None:
    """Have `call` made by every notification from now on."""
    context = signal.heard_by(call)
    context.__enter__()
    _heard.append(context)
