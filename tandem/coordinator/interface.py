"""What a fenced group asks of its coordinator, and nothing more.

Three implementations pass the same contract checks: `EtcdClient` against etcd, the same client
against the embedded coordinator, and the simulated one of the tests.

Errors are of two kinds, and the difference decides what may be done next:

- `CoordinatorUnavailableError`: no answer. A write may have happened or not, now or a little later.
  Read again before anything else.
- `LeaseLostError`, `CoordinatorRefusedError`: an answer. Nothing was written.

Source of the words: etcd API v3, rpc.proto.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager


class CoordinatorError(Exception):
    """Base of all errors of a coordinator."""


class NoAnswer(enum.Enum):
    """Why there was no usable answer."""

    SAID = enum.auto()
    """The coordinator, or this node, says that it cannot answer now; the text has its words."""
    NO_CONNECTION = enum.auto()
    """There is no connection, so nothing was sent."""
    BROKEN = enum.auto()
    """The connection ended before the answer."""
    LATE = enum.auto()
    """It did not answer in time."""
    UNREADABLE = enum.auto()
    """What came is not an answer of a coordinator."""
    COMPACTED = enum.auto()
    """A watch asked for changes that are not known any more: read, then watch from there."""
    ENDED = enum.auto()
    """The coordinator has ended a watch."""


class CoordinatorUnavailableError(CoordinatorError):
    """No usable answer in time; what was asked for may have happened. Read, then decide.

    Attributes:
        cause: Why there was none; of several endpoints, that of the one that was asked last.
    """

    def __init__(self, text: str, cause: NoAnswer = NoAnswer.SAID) -> None:
        super().__init__(text)
        self.cause = cause


class LeaseLostError(CoordinatorError):
    """The lease does not exist (any more): expired or revoked. Keys attached to it are gone."""


class RefusalCause(enum.Enum):
    """Why a coordinator refuses, as far as somebody can do something about it."""

    OTHER = enum.auto()
    """The request is malformed, or for a reason that only the words of the coordinator have."""
    OTHER_SECRET = enum.auto()
    """The embedded coordinator was started with another secret."""
    PASSWORD = enum.auto()
    """User or password is wrong."""
    USER_NEEDED = enum.auto()
    """It wants a user, and none was given."""
    NO_USERS = enum.auto()
    """A user was given, and it does not know users."""
    PERMISSION = enum.auto()
    """The user may not do this."""
    SPACE = enum.auto()
    """Its database is full."""
    NO_GATEWAY = enum.auto()
    """What answers does not have etcd's API over HTTP."""
    TOKEN = enum.auto()
    """The token of an earlier authentication is not good any more."""


class CoordinatorRefusedError(CoordinatorError):
    """The coordinator said no, in words: wrong user, no space, malformed request.

    Attributes:
        cause: Why.
    """

    def __init__(self, text: str, cause: RefusalCause = RefusalCause.OTHER) -> None:
        super().__init__(text)
        self.cause = cause


class CoordinatorSettingError(CoordinatorRefusedError):
    """A setting of the coordinator cannot be used; nobody was asked.

    Attributes:
        setting: Its name in the cluster file.
    """

    def __init__(self, text: str, setting: str) -> None:
        super().__init__(text)
        self.setting = setting


class Lease(msgspec.Struct, frozen=True):
    """A lease as granted; the coordinator may have raised the time to live."""

    lease_id: int
    ttl_seconds: int


class KeyValue(msgspec.Struct, frozen=True):
    """One key as it is."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease_id: int
    """0 for none."""


class Snapshot(msgspec.Struct, frozen=True):
    """All keys under a prefix at one revision, read from a quorum."""

    revision: int
    values: dict[str, KeyValue]


class Compare(msgspec.Struct, frozen=True):
    """A condition of a transaction: this key was last changed at this revision; 0: no such key."""

    key: str
    mod_revision: int


class Put(msgspec.Struct, frozen=True):
    """Write a key. `lease_id` 0: it stays until deleted."""

    key: str
    value: bytes
    lease_id: int = 0


class Delete(msgspec.Struct, frozen=True):
    """Delete a key; harmless if there is none."""

    key: str


class TransactionResult(msgspec.Struct, frozen=True):
    """Whether all compares held, and so all operations were done, as one; and the revision."""

    succeeded: bool
    revision: int


class Event(msgspec.Struct, frozen=True):
    """One change: the key as it is now, or None in `value` if it was deleted or its lease ended."""

    key: str
    value: KeyValue | None
    revision: int


class Coordinator(Protocol):
    """Every call may raise `CoordinatorUnavailableError` and `CoordinatorRefusedError`.

    The caller owns the time limits; a call that is cancelled counts as unanswered.
    """

    async def grant(self, ttl_seconds: int) -> Lease:
        """Return a new lease."""

    async def keep_alive(self, lease_id: int) -> int:
        """Renew; return the time to live in seconds, counted from some time after the call.

        Raises:
            LeaseLostError: there is no such lease.
        """

    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys; harmless if it is gone."""

    async def read(self, prefix: str) -> Snapshot:
        """Return all keys under `prefix`. Linearizable."""

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        """Do all operations if all compares hold, else nothing.

        Raises:
            LeaseLostError: a put names a lease that does not exist; nothing was done.
        """

    def watch(
        self, prefix: str, start_revision: int
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[Event, ...]]]:
        """Follow all changes under `prefix` from `start_revision` on.

        An optimisation: a watcher also has to read from time to time. The iterator ends with
        `CoordinatorUnavailableError` when the stream breaks or the revision is compacted away.
        """
