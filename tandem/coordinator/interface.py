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

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager


class CoordinatorError(Exception):
    """Base of all errors of a coordinator."""


class CoordinatorUnavailableError(CoordinatorError):
    """No usable answer in time; what was asked for may have happened. Read, then decide."""


class LeaseLostError(CoordinatorError):
    """The lease does not exist (any more): expired or revoked. Keys attached to it are gone."""


class CoordinatorRefusedError(CoordinatorError):
    """The coordinator said no, in words: wrong user, no space, malformed request."""


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
