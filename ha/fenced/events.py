"""What a replica of a fenced group has done: small records for a watcher.

Nothing in production needs them but the log lines; the simulation's checkers and the tests that
kill a node at a named point live on them. An event is emitted in the same step in which the thing
happened, before the next await.

On the path of a put an event is made only if somebody watches: `on_event is not ignore`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec


class Promised(msgspec.Struct, frozen=True):
    """The promise is on disk: no byte is appended under a lower epoch from now on."""

    epoch: int


class Elected(msgspec.Struct, frozen=True):
    """The coordinator took our transaction; the epoch file does not know yet."""

    epoch: int
    log_end: int


class EpochAppended(msgspec.Struct, frozen=True):
    """An entry is in the epoch file, durably."""

    epoch: int
    start: int
    epoch_id: str = ""


class MasterOpened(msgspec.Struct, frozen=True):
    """Sends are taken from now on."""

    epoch: int
    confirm: int


class SteppedDown(msgspec.Struct, frozen=True):
    """No send is answered SEND_OK from now on."""

    epoch: int
    reason: str


class IsrChanging(msgspec.Struct, frozen=True):
    """A change of the ISR was sent to the coordinator; its outcome is not known."""

    epoch: int
    isr: tuple[str, ...]


class IsrChanged(msgspec.Struct, frozen=True):
    """The recorded ISR, as known to the master."""

    epoch: int
    isr: tuple[str, ...]


class ConfirmAdvanced(msgspec.Struct, frozen=True):
    """Every replica that must have it holds the log below `confirm`."""

    epoch: int
    confirm: int


class AckDecided(msgspec.Struct, frozen=True):
    """A put up to `end` is about to be answered SEND_OK."""

    epoch: int
    end: int
    isr: tuple[str, ...]
    """The union of recorded and pending ISR that the decision used."""
    live_count: int
    boottime_seconds: float
    deadline_seconds: float


class FrameTaken(msgspec.Struct, frozen=True):
    """A follower has appended `size` bytes of `epoch` at `offset`."""

    epoch: int
    offset: int
    size: int
    master_epoch: int = 0
    """Of the master that sent them: never below the promise. `epoch` is that of their writer."""


class ReplicaReported(msgspec.Struct, frozen=True):
    """A follower is about to report how far its log is written and flushed."""

    epoch: int
    written: int
    flushed: int


class TruncationDecided(msgspec.Struct, frozen=True):
    """The intent to cut the log at `cut` is on disk."""

    cut: int
    end: int
    confirm: int


class Quarantined(msgspec.Struct, frozen=True):
    """The replica takes no part until an operator has looked."""

    reason: str


HAEvent: TypeAlias = (
    Promised
    | Elected
    | EpochAppended
    | MasterOpened
    | SteppedDown
    | IsrChanging
    | IsrChanged
    | ConfirmAdvanced
    | AckDecided
    | FrameTaken
    | ReplicaReported
    | TruncationDecided
    | Quarantined
)

OnEvent: TypeAlias = Callable[[HAEvent], None]


def ignore(event: HAEvent) -> None:
    """Take the place of a watcher where nobody watches."""
