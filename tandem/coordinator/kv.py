"""Keys, leases and their history, as etcd keeps them: a state machine with no I/O in it.

Every change of the keys has a revision, one higher than the one before. A lease ends when it is
revoked or its time to live has passed without a keep-alive; its keys go with it, in one revision.

All that can change goes through one record, `Change`: it is made from a request and the state,
given to `on_change`, and applied. The same changes applied in the same order give the same state;
that is what the journal does after a restart. Times are seconds of any clock that does not go back;
they are no part of a change, so leases are armed anew, in full, when a change is applied again.

Source of the rules: etcd API v3, rpc.proto and kv.proto; tried against etcd 3.4.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

from tandem.coordinator.kv_records import (
    Answer,
    Change,
    CompactedError,
    Condition,
    Deleted,
    DeleteOperation,
    Found,
    InvalidArgumentError,
    Item,
    KeyEvent,
    LeaseExistsError,
    LeaseNotFoundError,
    LeaseTerms,
    Operation,
    Outcome,
    Put,
    PutOperation,
    RangeOperation,
    Relation,
    RevisionGapError,
    StoreImage,
    Target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TTL_SECONDS_MIN: Final = 2
"""Shorter leases are granted with this. Source: etcd with its default election timeout of 1 s."""

TTL_SECONDS_MAX: Final = 9_000_000_000
"""Source: etcd, lease/lessor.go."""

HISTORY_REVISIONS_MAX: Final = 10_000
"""How many revisions a watch can look back."""

OPERATIONS_MAX: Final = 128
"""Of one transaction. Source: etcd, --max-txn-ops."""


class _Lease:
    def __init__(self, ttl_seconds: int, deadline: float) -> None:
        self.ttl_seconds = ttl_seconds
        self.deadline = deadline
        self.keys: set[bytes] = set()


def ignore_change(change: Change) -> None:
    """Nobody keeps the changes."""


class KeyValueStore:
    """The keys and leases of one coordinator.

    Every method that takes `now` first ends the leases whose time is up by then: a lease is over at
    its deadline, whichever call comes first.

    Invariants: a key with a lease is in that lease's `keys`, and only there; revisions of the
    history rise by one.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[Change], None] = ignore_change,
        ttl_seconds_min: int = TTL_SECONDS_MIN,
        history_revisions_max: int = HISTORY_REVISIONS_MAX,
    ) -> None:
        self.revision = 1
        self._on_change = on_change
        self._ttl_seconds_min = ttl_seconds_min
        self._items: dict[bytes, Item] = {}
        self._leases: dict[int, _Lease] = {}
        self._history: deque[tuple[KeyEvent, ...]] = deque()
        self._history_max = history_revisions_max
        self._oldest = 2

    # --- leases --------------------------------------------------------------------------------

    def grant(self, lease_id: int, ttl_seconds: int, now: float) -> LeaseTerms:
        """Make a lease; its id is the caller's to choose, at random.

        Raises:
            LeaseExistsError: The id is in use.
            InvalidArgumentError: The id is not positive, or the time too long.
        """
        self.expire(now)
        if lease_id <= 0:
            raise InvalidArgumentError(f"lease id {lease_id} is not positive")
        if ttl_seconds > TTL_SECONDS_MAX:
            raise InvalidArgumentError("etcdserver: too large lease TTL")
        if lease_id in self._leases:
            raise LeaseExistsError
        terms = LeaseTerms(lease_id, max(ttl_seconds, self._ttl_seconds_min))
        self._commit(Change(revision=self.revision, granted=terms), now)
        return terms

    def keep_alive(self, lease_id: int, now: float) -> int:
        """Let a lease run its full time again; return that time in seconds.

        Raises:
            LeaseNotFoundError: It is over.
        """
        self.expire(now)
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseNotFoundError
        lease.deadline = now + lease.ttl_seconds
        return lease.ttl_seconds

    def revoke(self, lease_id: int, now: float) -> None:
        """End a lease and delete its keys.

        Raises:
            LeaseNotFoundError: It is over already.
        """
        self.expire(now)
        if lease_id not in self._leases:
            raise LeaseNotFoundError
        self._end([lease_id], now)

    def expire(self, now: float) -> None:
        """End the leases whose time is up."""
        for lease_id in [id_ for id_, lease in self._leases.items() if lease.deadline <= now]:
            self._end([lease_id], now)

    def postpone(self, seconds: float) -> None:
        """Give every lease more time: for `seconds`, nobody could have renewed one."""
        for lease in self._leases.values():
            lease.deadline += seconds

    def rearm(self, now: float) -> None:
        """Let every lease run its full time from `now`, as after a change of leader in etcd."""
        for lease in self._leases.values():
            lease.deadline = now + lease.ttl_seconds

    @property
    def next_expiry(self) -> float:
        """When the next lease ends if nobody renews it; infinity if there is none."""
        return min((lease.deadline for lease in self._leases.values()), default=math.inf)

    def time_left(self, lease_id: int, now: float) -> float:
        """How many seconds a lease has, at most 0 if it is over."""
        lease = self._leases.get(lease_id)
        return lease.deadline - now if lease else 0.0

    # --- keys ----------------------------------------------------------------------------------

    def range(self, key: bytes, range_end: bytes, now: float) -> tuple[Item, ...]:
        """One key, or all from `key` to before `range_end`, in order.

        A `range_end` of one zero byte means: to the last key there is.

        Raises:
            InvalidArgumentError: There is no key.
        """
        self.expire(now)
        _check_key(key)
        return self._range(key, range_end)

    def transact(
        self,
        conditions: Sequence[Condition],
        success: Sequence[Operation],
        failure: Sequence[Operation],
        now: float,
    ) -> Outcome:
        """Do `success` if all conditions hold, else `failure`, as one.

        Raises:
            LeaseNotFoundError: A put that was to be done names a lease that is over.
            InvalidArgumentError: A key twice, no key, too many operations.
        """
        self.expire(now)
        for operations in (success, failure):
            _check_operations(operations)
        for condition in conditions:
            _check_key(condition.key)
        succeeded = all(self._holds(condition) for condition in conditions)
        chosen = success if succeeded else failure
        answers, change = self._plan(chosen)
        if change is not None:
            self._commit(change, now)
        return Outcome(succeeded, self.revision, answers)

    def events(
        self, start_revision: int, key: bytes, range_end: bytes, end_revision: int
    ) -> tuple[KeyEvent, ...]:
        """All changes of a range of keys from `start_revision` to before `end_revision`.

        Raises:
            CompactedError: The history begins later than `start_revision`.
        """
        # Nothing happened before the second revision: an empty store is the first.
        start_revision = max(start_revision, 2)
        if start_revision < self._oldest:
            raise CompactedError(self._oldest)
        first, last = start_revision - self._oldest, end_revision - self._oldest
        found: list[KeyEvent] = []
        for index in range(first, min(last, len(self._history))):
            found += (e for e in self._history[index] if _in_range(e.key, key, range_end))
        return tuple(found)

    def compact(self, revision: int) -> None:
        """Forget the history before `revision`."""
        while self._history and self._oldest < revision:
            self._history.popleft()
            self._oldest += 1

    # --- state ---------------------------------------------------------------------------------

    def image(self) -> StoreImage:
        """Everything that a restart has to bring back."""
        leases = (LeaseTerms(id_, lease.ttl_seconds) for id_, lease in self._leases.items())
        return StoreImage(self.revision, tuple(self._items.values()), tuple(leases))

    def restore(self, image: StoreImage, now: float) -> None:
        """Become what the image shows. Leases run in full from `now`; the history is empty."""
        self.revision = image.revision
        self._items = {item.key: item for item in image.items}
        self._leases = {
            terms.lease_id: _Lease(terms.ttl_seconds, now + terms.ttl_seconds)
            for terms in image.leases
        }
        for item in image.items:
            if item.lease_id:
                self._leases[item.lease_id].keys.add(item.key)
        self._history.clear()
        self._oldest = image.revision + 1

    def apply(self, change: Change, now: float) -> None:
        """Do a change that `on_change` was given once, perhaps in an earlier life.

        Raises:
            KeyValueError: It does not follow the state that is here.
        """
        if change.revision != self.revision + bool(change.puts or change.deleted):
            raise RevisionGapError(change.revision, self.revision)
        for key in change.deleted:
            self._detach(self._items.pop(key))
        for item in change.puts:
            if (old := self._items.get(item.key)) is not None:
                self._detach(old)
            self._items[item.key] = item
            if item.lease_id:
                self._leases[item.lease_id].keys.add(item.key)
        for lease_id in change.ended:
            del self._leases[lease_id]
        if (terms := change.granted) is not None:
            self._leases[terms.lease_id] = _Lease(terms.ttl_seconds, now + terms.ttl_seconds)
        if change.revision > self.revision:
            self._remember(change)
        self.revision = change.revision

    # --- inside --------------------------------------------------------------------------------

    def _commit(self, change: Change, now: float) -> None:
        self.apply(change, now)
        self._on_change(change)

    def _end(self, lease_ids: Iterable[int], now: float) -> None:
        ended = tuple(lease_ids)
        deleted = tuple(sorted(key for id_ in ended for key in self._leases[id_].keys))
        revision = self.revision + bool(deleted)
        self._commit(Change(revision=revision, deleted=deleted, ended=ended), now)

    def _detach(self, item: Item) -> None:
        if item.lease_id:
            self._leases[item.lease_id].keys.discard(item.key)

    def _remember(self, change: Change) -> None:
        deleted = (KeyEvent(key, None, change.revision) for key in change.deleted)
        puts = (KeyEvent(item.key, item, change.revision) for item in change.puts)
        self._history.append((*deleted, *puts))
        if len(self._history) > self._history_max:
            self._history.popleft()
            self._oldest += 1

    def _range(self, key: bytes, range_end: bytes) -> tuple[Item, ...]:
        if not range_end:
            return (self._items[key],) if key in self._items else ()
        keys = sorted(name for name in self._items if _in_range(name, key, range_end))
        return tuple(self._items[name] for name in keys)

    def _holds(self, condition: Condition) -> bool:
        actual = _actual(self._items.get(condition.key), condition.target)
        if actual is None:
            # etcd, applyCompare: a key that is not there has no value to compare.
            return False
        wanted = condition.value
        if isinstance(actual, bytes):
            if isinstance(wanted, bytes):
                return _compare(actual > wanted, actual < wanted, condition.relation)
        elif isinstance(wanted, int):
            return _compare(actual > wanted, actual < wanted, condition.relation)
        raise InvalidArgumentError(f"{condition.target.value} is compared with {wanted!r}")

    def _plan(self, operations: Sequence[Operation]) -> tuple[tuple[Answer, ...], Change | None]:
        """What the operations would answer and change. Ranges see what is done before them."""
        before = self._items
        revision = self.revision + 1
        puts: dict[bytes, Item] = {}
        deleted: list[bytes] = []
        answers: list[Answer] = []
        for operation in operations:
            match operation:
                case PutOperation():
                    puts[operation.key] = self._written(operation, revision)
                    answers.append(Put())
                case DeleteOperation(key, range_end):
                    gone = [i.key for i in self._range(key, range_end) if i.key not in deleted]
                    deleted += gone
                    answers.append(Deleted(len(gone)))
                case RangeOperation(key, range_end):
                    seen = {k: v for k, v in before.items() if k not in deleted} | puts
                    names = sorted(k for k in seen if _in_range(k, key, range_end))
                    answers.append(Found(tuple(seen[name] for name in names)))
        if not puts and not deleted:
            return tuple(answers), None
        change = Change(revision=revision, puts=tuple(puts.values()), deleted=tuple(deleted))
        return tuple(answers), change

    def _written(self, put: PutOperation, revision: int) -> Item:
        if put.lease_id and put.lease_id not in self._leases:
            raise LeaseNotFoundError
        old = self._items.get(put.key)
        created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
        return Item(put.key, put.value, created, revision, version, put.lease_id)


def _in_range(name: bytes, key: bytes, range_end: bytes) -> bool:
    if not range_end:
        return name == key
    return name >= key and (range_end == b"\0" or name < range_end)


def _check_key(key: bytes) -> None:
    if not key:
        raise InvalidArgumentError("etcdserver: key is not provided")


def _check_operations(operations: Sequence[Operation]) -> None:
    if len(operations) > OPERATIONS_MAX:
        raise InvalidArgumentError("etcdserver: too many operations in txn request")
    for operation in operations:
        _check_key(operation.key)
    put = [operation.key for operation in operations if isinstance(operation, PutOperation)]
    deletes = [operation for operation in operations if isinstance(operation, DeleteOperation)]
    overlaps = any(_in_range(name, d.key, d.range_end) for name in put for d in deletes)
    if overlaps or len(set(put)) < len(put):
        raise InvalidArgumentError("etcdserver: duplicate key given in txn request")


def _actual(item: Item | None, target: Target) -> int | bytes | None:
    match target:
        case Target.VALUE:
            return item.value if item else None
        case Target.VERSION:
            return item.version if item else 0
        case Target.CREATE:
            return item.create_revision if item else 0
        case Target.MOD:
            return item.mod_revision if item else 0
        case Target.LEASE:
            return item.lease_id if item else 0


def _compare(greater: bool, less: bool, relation: Relation) -> bool:  # noqa: FBT001
    match relation:
        case Relation.EQUAL:
            return not greater and not less
        case Relation.NOT_EQUAL:
            return greater or less
        case Relation.GREATER:
            return greater
        case Relation.LESS:
            return less
