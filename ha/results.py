"""What replication answers its broker with: why no put is taken, and what a put waits for."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from store.results import PutMessageStatus

Submit: TypeAlias = Callable[[int, float, Callable[[PutMessageStatus, str], None]], None]
"""(end offset, deadline in trio's time, called once with the outcome and the reason)"""


class Refusal(msgspec.Struct, frozen=True):
    """Why no put is taken now. Nothing of it was stored.

    Attributes:
        code: The `ResponseCode` of the answer.
        text: The reason in words, and where to send instead if that is known.
        is_short: Too few replicas are in sync, and nothing else is wrong: this is the master.
    """

    code: int
    text: str
    is_short: bool = False


class ReplicaStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is at the moment, in numbers where there are any. None is unknown, or none.

    Attributes:
        role: MASTER or SLAVE in a classic group; in a fenced one that of FENCED_STATUS.
        in_sync: Members of the in-sync set, the master included; only a master knows.
        needed: How many there have to be for messages to be taken.
        lease_left_seconds: How long a master may go on without an answer of the coordinator.
        follows: Whether it gets the log of a master.
        behind_bytes: How much of what that master had it has not got yet.
        switched_at_ms: When the group changed its master last, as it is recorded; 0: never.
        switch_cause: Why, a value of `SwitchCause`; empty if it is not known.
        feature_level: Of the group; a classic one has none.
        late_keep_alives: How many were late because this process was not run, since it began.
        not_run_seconds: The longest time in the last ten minutes in which it was not run.
    """

    role: str
    in_sync: int | None = None
    needed: int | None = None
    lease_left_seconds: float | None = None
    follows: bool = False
    behind_bytes: int | None = None
    switched_at_ms: int = 0
    switch_cause: str = ""
    feature_level: int | None = None
    late_keep_alives: int | None = None
    not_run_seconds: float | None = None


class Ack(enum.Enum):
    """What a put waits for before it is answered SEND_OK."""

    REPLICATED = enum.auto()
    """What the group's settings say."""
    FLUSHED = enum.auto()
    """The disks of the in-sync replicas. In a classic group, which has no such promise, the same
    as REPLICATED."""


class PutWait(msgspec.Struct, frozen=True):
    """Something a put may have to wait for."""

    submit: Submit
    reached: Callable[[], int]
    """Up to which physical offset everything has what it waits for."""
    timeout_seconds: float
