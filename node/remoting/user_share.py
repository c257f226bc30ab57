"""What one user takes of a node, and when that is too much. No I/O, no clock.

    request --> over? --+--> None: taken
                        +--> Over --> refused: counted, and answered after `refuse` seconds

A bound of so much a second is a `Rate`: a bucket that fills with time, and holds one second of it:
a client that sends in bursts gets what it was promised. Whatever comes is taken whole while there
is anything left; what it takes beyond that is paid for with time, before the next.

A refusal is not answered at once. RocketMQ's producers try again without a pause, and three times:
an answer that comes when there is room again makes them wait for it. That room is promised: it is
kept for a moment for the same message, and what comes meanwhile is refused after it, so that what
comes first is taken first. No answer is later than `DELAY_SECONDS_MAX`: three tries are within the
time that Java's producer has for a send. Beyond that nothing is promised.

Only what is here waits: nobody else's requests do.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tandem.wire.user_quota import UserQuota

BURST_SECONDS: Final = 1.0
"""What was not used of a rate may be used this much later."""

DELAY_SECONDS_MAX: Final = 0.75
"""Three of them, with the way there and back, are less than RocketMQ's sendMsgTimeout of 3 s."""

PROMISE_SECONDS: Final = 0.5
"""How long a place is kept for what was refused and may come back, after the answer."""

NOTHING: Final = 1e-6
"""Of a bucket: what is left of it by floating point alone."""

PROMISES_MAX: Final = 4_096
"""Of one user and bound; more are answered as if nothing was kept for them."""

EARLY_SECONDS: Final = 0.001
"""Clocks of floating point: what was promised for now is there now."""

IN_FLIGHT_SECONDS: Final = 0.05
"""Before a refusal that waits for answers is answered: about what disks and replicas take."""

REPORT_SECONDS: Final = 60.0
"""Between two lines about one bound of one user."""


class Bound(enum.Enum):
    """What of a user is bounded; the values are their words."""

    CONNECTIONS = "connections"
    REQUESTS = "requests a second"
    BYTES = "bytes a second"
    IN_FLIGHT = "bytes in flight"


class Over(NamedTuple):
    """A bound that a request would exceed.

    Attributes:
        bound: Which.
        most: What it allows.
        wait_seconds: When there may be room again.
        amount: How much of it the request would take.
        key: Of a request that is sent again as it is: what is promised to it, nobody else gets.
    """

    bound: Bound
    most: int
    wait_seconds: float
    amount: int = 0
    key: int | None = None


class Rate:
    """So much a second: a bucket that fills, and is full after a second.

    What is refused may be promised a place: it is paid for at once, and taken from a moment on.
    """

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._most = per_second * BURST_SECONDS
        self._left = self._most
        self._filled_at = -math.inf
        self._promises: dict[int, tuple[float, int]] = {}
        """By what is to come back: from when on, and how much. In the order of their making."""

    def wait_seconds(self, now: float, key: int | None) -> float:
        """How long a request is not taken; 0: it is, for anything is left, or it was promised."""
        left = self._left_at(now)
        if left > NOTHING or self._is_promised(now, key):
            return 0.0
        return (1 - left) / self.per_second

    def take(self, now: float, amount: int, key: int | None = None) -> None:
        """Note that this much was taken, though it may be more than what is left."""
        left = self._left_at(now)
        if key is not None and self._is_promised(now, key):
            left += self._promises.pop(key)[1]
        self._left = left - amount

    def promise(self, now: float, amount: int, key: int | None, wait_seconds: float) -> bool:
        """Keep a place for what comes back after this time; return whether there is one."""
        if key is None or key in self._promises or len(self._promises) >= PROMISES_MAX:
            return False
        self._left = self._left_at(now) - amount
        self._promises[key] = now + wait_seconds, amount
        return True

    def room(self, now: float, amounts: Iterable[int]) -> int:
        """Return how many of these, one after the other, would be taken now."""
        count, left = 0, self._left_at(now)
        for amount in amounts:
            if left <= NOTHING:
                break
            left -= amount
            count += 1
        return count

    def _is_promised(self, now: float, key: int | None) -> bool:
        if key is None or (promise := self._promises.get(key)) is None:
            return False
        return promise[0] <= now + EARLY_SECONDS

    def _left_at(self, now: float) -> float:
        """Return what is left, with what was promised to those that have not come."""
        while self._promises:
            key = next(iter(self._promises))
            at, amount = self._promises[key]
            if at >= now - PROMISE_SECONDS:
                break
            del self._promises[key]
            self._left += amount
        if self._filled_at != now:
            filled = self._left + (now - self._filled_at) * self.per_second
            self._left, self._filled_at = min(self._most, filled), now
        return self._left


class Place:
    """One connection of a user. What is in flight on it stays so when it has ended."""

    __slots__ = ("_share",)

    def __init__(self, share: UserShare) -> None:
        self._share = share

    def begin(self, size: int) -> Charge:
        """Note a request whose answer is waited for."""
        return self._share.in_flight.begin(size)


class InFlight:
    """The bytes of one user's requests that wait, whether their connections are there or not."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0

    def begin(self, size: int) -> Charge:
        """Note a request whose answer is waited for."""
        self.size += size
        return Charge(self, size)


class Charge(NamedTuple):
    """Bytes in flight, until they are answered. Release it once."""

    of: InFlight
    size: int

    def release(self) -> None:
        """They wait no more."""
        self.of.size -= self.size


class UserShare:
    """What one user takes of one node.

    Attributes:
        name: Of the user.
        quota: The bounds that count: None and 0 are none.
        places: The user's connections, by connection.
        in_flight: What waits, also of connections that have ended.
        refused: How many requests were, by bound, since this node runs.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.quota = UserQuota()
        self.places: dict[Any, Place] = {}
        self.in_flight = InFlight()
        self.refused: Counter[Bound] = Counter()
        self._requests: Rate | None = None
        self._bytes: Rate | None = None
        self._answered_until = -math.inf
        self._reported: dict[Bound, tuple[float, int]] = {}

    def bound(self, quota: UserQuota) -> None:
        """Let these bounds count from now on."""
        if quota == self.quota:
            return
        self.quota = quota
        self._requests = Rate(quota.requests_per_second) if quota.requests_per_second else None
        self._bytes = Rate(quota.bytes_per_second) if quota.bytes_per_second else None

    # -- taking ----------------------------------------------------------------------------------

    def over(self, now: float, size: int, key: int | None = None) -> Over | None:
        """Return the bound that a request with this many bytes of messages exceeds, if any.

        `key` is what the request has in common with itself, when it is sent again.
        """
        requests, size_rate = self._requests, self._bytes
        if requests is not None and (wait := requests.wait_seconds(now, key)):
            return Over(Bound.REQUESTS, requests.per_second, wait, 1, key)
        if size_rate is not None and (wait := size_rate.wait_seconds(now, key)):
            return Over(Bound.BYTES, size_rate.per_second, wait, size, key)
        most = self.quota.bytes_in_flight_max or 0
        if most and size and 0 < self.in_flight.size > most - size:
            return Over(Bound.IN_FLIGHT, most, IN_FLIGHT_SECONDS)
        return None

    def room(self, now: float, sizes: Sequence[int]) -> int:
        """Return how many requests, one after the other, are over no bound."""
        count = len(sizes)
        if self._requests is not None:
            count = self._requests.room(now, [1] * count)
        if self._bytes is not None:
            count = self._bytes.room(now, sizes[:count])
        if most := self.quota.bytes_in_flight_max:
            in_flight = self.in_flight.size
            for number, size in enumerate(sizes[:count]):
                if size and 0 < in_flight > most - size:
                    return number
                in_flight += size
        return count

    def take(self, now: float, requests: int, size: int, key: int | None = None) -> None:
        """Note requests that are taken, with this many bytes of messages."""
        if self._requests is not None:
            self._requests.take(now, requests, key)
        if self._bytes is not None and size:
            self._bytes.take(now, size, key)

    def read(self, now: float, size: int) -> None:
        """Note bytes of messages that a request, taken before, has brought."""
        if self._bytes is not None and size:
            self._bytes.take(now, size)

    def forget_in_flight(self) -> None:
        """The broker that was to answer has ended: its answers may never come."""
        self.in_flight = InFlight()

    @property
    def counts_in_flight(self) -> bool:
        """Whether there is a bound on bytes in flight."""
        return bool(self.quota.bytes_in_flight_max)

    # -- connections -----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the user may have no further connection."""
        most = self.quota.connections_max
        return bool(most) and len(self.places) >= (most or 0)

    def enter(self, connection: object) -> Place:
        """Count a connection that is not counted yet."""
        place = self.places[connection] = Place(self)
        return place

    def leave(self, connection: object) -> None:
        """Count a connection no more. Harmless if it is not counted."""
        self.places.pop(connection, None)

    # -- refusing --------------------------------------------------------------------------------

    def refuse(self, now: float, over: Over) -> float:
        """Count a refusal; return after how many seconds it is to be answered.

        With a `key` it then finds a place: that of what comes meanwhile is after it.
        """
        self.refused[over.bound] += 1
        rate = {Bound.REQUESTS: self._requests, Bound.BYTES: self._bytes}.get(over.bound)
        if over.wait_seconds > DELAY_SECONDS_MAX or rate is None:
            return min(over.wait_seconds, DELAY_SECONDS_MAX)
        if rate.promise(now, over.amount, over.key, over.wait_seconds):
            return over.wait_seconds
        # Nothing is promised: these are answered one after the other, too, or a flood would have
        # its answers as quickly as it can ask.
        at = max(now + over.wait_seconds, self._answered_until)
        latest = now + DELAY_SECONDS_MAX
        self._answered_until = min(at + over.amount / over.most, latest)
        return min(at, latest) - now

    def to_report(self, now: float, bound: Bound) -> int | None:
        """Return how many refusals a line is to speak of; None: there was one a while ago."""
        last, count = self._reported.get(bound, (-math.inf, 0))
        if now - last < REPORT_SECONDS:
            return None
        self._reported[bound] = now, self.refused[bound]
        return self.refused[bound] - count
