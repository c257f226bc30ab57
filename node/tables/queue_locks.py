"""Which client of a consumer group may read which queue in order.

    free --lock--> held --lock by the same client--> held, for another LOCK_SECONDS
     ^                |
     +--- unlock, or LOCK_SECONDS without a lock ---+

A client that consumes in order asks for its queues every 20 s and believes in a lock for 30 s.
Locks are memory of the master: a new master knows none and grants what is asked for first, which is
what RocketMQ does. The clients of a group share the same queues out as before, so that is the
holder, unless the group changes in the same moment.

Source: RocketMQ 5.3.3, RebalanceLockManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from node.errors import RequestError
from node.tables.by_age import ByAge
from node.tables.names import check_name
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tandem.wire.request_headers import MessageQueueBody

LOCK_SECONDS: Final = 60.0
"""Source: RebalanceLockManager.REBALANCE_LOCK_MAX_LIVE_TIME."""

LOCKS_MAX: Final = 262_144
"""Over all groups: any client may ask, so there has to be a bound. Some 80 MB."""


SWEEP_SECONDS: Final = 10.0
"""How often a full table is looked through for locks that are over, at most."""


class _Lock(msgspec.Struct):
    """Who holds a queue, and when it last said so."""

    client_id: str
    last: float


class QueueLocks:
    """The locks of one broker. Time is passed in, in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueueBody, _Lock]] = {}
        self._by_age: ByAge[tuple[str, MessageQueueBody]] = ByAge()
        self._sweep_at = 0.0

    @property
    def _count(self) -> int:
        return len(self._by_age)

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueueBody], now: float
    ) -> list[MessageQueueBody]:
        """Give a client those queues that nobody else holds; return those that it holds now.

        Raises:
            RequestError: A name is too long, or there are too many locks. Nothing was changed.
        """
        queues = list(queues)
        self._check(group, client_id, queues, now)
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None:
                held[queue] = _Lock(client_id, now)
            elif lock.client_id == client_id or _is_over(lock, now):
                lock.client_id, lock.last = client_id, now
            else:
                continue
            self._by_age.heard((group, queue), now)
            granted.append(queue)
        if not held:
            del self._groups[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueueBody]) -> None:
        """Take back what the client holds of these queues."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self._by_age.forget((group, queue))
        if group in self._groups and not held:
            del self._groups[group]

    def is_held(self, group: str, now: float) -> bool:
        """Whether any client of the group reads any queue in order.

        Source: RebalanceLockManager.isLockAllExpired.
        """
        locks = self._groups.get(group)
        return locks is not None and not all(_is_over(lock, now) for lock in locks.values())

    def forget_expired(self, now: float) -> None:
        """Make room: a lock that is over is as good as none."""
        for group, queue in self._by_age.silent_since(now - LOCK_SECONDS):
            held = self._groups[group]
            del held[queue]
            self._by_age.forget((group, queue))
            if not held:
                del self._groups[group]

    def _check(
        self, group: str, client_id: str, queues: list[MessageQueueBody], now: float
    ) -> None:
        check_name("consumer group", group)
        check_name("client id", client_id)
        for queue in queues:
            check_name("topic", queue.topic)
            check_name("broker", queue.broker_name)
        if self._count + len(queues) > LOCKS_MAX and now >= self._sweep_at:
            # Not for every request of somebody who is refused.
            self._sweep_at = now + SWEEP_SECONDS
            self.forget_expired(now)
        if self._count + len(queues) > LOCKS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{self._count} queues are locked at this broker, with room for {LOCKS_MAX};"
                " nothing was locked",
            )


def _is_over(lock: _Lock, now: float) -> bool:
    return now - lock.last > LOCK_SECONDS
