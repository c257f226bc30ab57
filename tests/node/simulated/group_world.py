"""A simulated group under a test of the machines themselves: what tests of the room share."""

from collections.abc import Awaitable, Callable

from node.simulated.play import Room, play


def played(test: Callable[[Room], Awaitable[None]], seed: int = 1) -> list[tuple[str, str]]:
    """Play a test; return what was noted."""
    notes: list[tuple[str, str]] = []
    play(seed, test, lambda source, event: notes.append((source, event)))
    return notes
