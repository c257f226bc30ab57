"""Which sends go at once, and which wait for company so that together they are one request.

Messages that may share a request are in one *lane*: of one topic, queue and contract.

    a send comes     fewer than `requests_max` requests of its lane are under way: it goes at once,
                     alone. Else it is gathered.
    a request ends   what was gathered meanwhile goes as the next one, up to `batch_max_bytes`.

So a send without others beside it is never held back, there is no timer and no linger; and the more
there is to send, the larger the batches become. It is Nagle's rule, with a window of a few requests
in place of one, so that client and broker work at the same time.

The lane of a sharding key has one request under way: its messages are stored in the order in which
they were given to the producer, whatever is tried again.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

import msgspec

from tandem.client.sending import SendOptions
from tandem.wire.message import Message

BATCH_MAX_BYTES: Final = 128 * 1024
"""Four times RocketMQ's batchMaxBytes: nobody waits for a batch to fill, and with bodies of 1 KB 32
messages a request leave most of what a batch saves."""

REQUESTS_MAX: Final = 4
"""Of a lane at a time. With fewer the broker waits for the client; with more, batches are small."""


class Gathered(msgspec.Struct, eq=False):
    """One message that waits: for company, then for the answer to its request."""

    lane: "Lane"
    message: Message
    unique_key: str
    entry: bytes
    """Its part of a batch body. That of a message without properties is empty until the batch is
    made, and its key with it."""
    entry_bytes: int = 0
    """How large its entry is or will be at most; 0: it cannot be in a batch with others."""
    wake: Callable[[Any], None] | None = None
    """Hands the outcome to the task that waits; None if it waits no more."""

    def withdraw(self) -> None:
        """Nobody waits for this one any more: if it has not left, it never will."""
        self.wake = None
        self.lane.drop(self)


def end_all(gathered: Iterable[Gathered], outcomes: Iterable[object]) -> None:
    """Hand each its outcome, once."""
    for each, outcome in zip(gathered, outcomes, strict=True):
        if each.wake is not None:
            wake, each.wake = each.wake, None
            wake(outcome)


class Lane:
    """Messages that may share requests.

    One that is `is_ordered` has one request under way.
    """

    __slots__ = (
        "_gathered",
        "_requests_max",
        "_under_way",
        "gather",
        "is_ordered",
        "key",
        "options",
        "requests",
    )

    def __init__(
        self, key: Hashable, options: SendOptions, requests_max: int, *, is_ordered: bool = False
    ) -> None:
        self.key = key
        self.options = options
        self.is_ordered = is_ordered
        self.requests = 0
        """How many are under way, or about to be."""
        self._requests_max = 1 if is_ordered else requests_max
        self._gathered: list[Gathered] = []
        self.gather: Callable[[Gathered], None] = self._gathered.append
        """Lets a message wait."""
        self._under_way = 0

    def enter(self) -> bool:
        """Take the place of a request for one message, if one is free and nobody came before."""
        if self.requests >= self._requests_max or self._gathered:
            return False
        self.requests += 1
        self._under_way += 1
        return True

    def answered(self, count: int) -> None:
        """A request with this many messages has ended; its place is still taken."""
        self._under_way -= count

    def leave(self) -> bool:
        """Give the place back. False: it is needed for what was gathered; go on with that."""
        if self._gathered:
            return False
        self.requests -= 1
        return True

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way and nothing waits."""
        return not self.requests and not self._gathered

    def drop(self, message: Gathered) -> None:
        """Let a message wait no more, if it has not left."""
        if message in self._gathered:
            self._gathered.remove(message)

    def take(self, batch_max_bytes: int) -> list[Gathered]:
        """Return what goes with the next request, oldest first: at least one if any waits.

        It is a fair share, so that all places are used and the broker is never without work while
        the client makes the next request. One that cannot be in a batch goes alone, in its turn.
        """
        gathered = self._gathered
        share = -(-(len(gathered) + self._under_way) // self._requests_max)
        size = count = 0
        for each in gathered[:share]:
            size += each.entry_bytes
            if count and (size > batch_max_bytes or not each.entry_bytes):
                break
            count += 1
            if not each.entry_bytes:
                break
        taken = gathered[:count]
        del gathered[:count]
        self._under_way += count
        return taken


class Lanes:
    """The lanes of one producer that are in use."""

    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._requests_max = requests_max
        self._lanes: dict[Hashable, Lane] = {}
        self.find: Callable[[Hashable], Lane | None] = self._lanes.get
        """Returns the lane of a key if it is in use."""

    def lane(self, key: Hashable, options: SendOptions, *, is_ordered: bool = False) -> Lane:
        """Return the lane of `key`. Its requests are made with `options`."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = Lane(key, options, self._requests_max, is_ordered=is_ordered)
            self._lanes[key] = lane
        return lane

    def drop_if_idle(self, lane: Lane) -> None:
        """Forget a lane that nobody uses: there is one for every sharding key."""
        if lane.is_idle:
            self._lanes.pop(lane.key, None)

    def all(self) -> list[Lane]:
        """Return those in use."""
        return list(self._lanes.values())
