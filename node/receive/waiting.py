"""Requests that wait for a message: long polling of POP. No I/O; the time is passed in.

    park --> WAITING --+--> READY --> run again, once, by the service task
                       +-- a message of its topic, or of a retry topic of its group
                       +-- its deadline passed

One message wakes one request of each group: the oldest that wants it and asks for that queue, or
for all of them. A request that finds more than it takes wakes the next one.

Unlike RocketMQ's, those that wait are woken by retry topics of both names.

Source: RocketMQ 5.3.3, PopLongPollingService.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from node.receive.requests import ALL_QUEUES
from node.receive.retry_topics import retry_topic_of
from store.results import Arrival
from tandem.wire.receipt_handle import TopicMark

WAITING_MAX: Final = 65_536
"""Beyond it a request that finds nothing is answered at once. RocketMQ: 100,000."""

WAITING_PER_QUEUE_MAX: Final = 8_192
"""Of one group for one queue, or for all queues of a topic. RocketMQ: 1,024."""

_ROOM: Final = 1_024


class Place(NamedTuple):
    """What a request waits for: messages of the topic that it asked for, not of a real one."""

    group: str
    topic: str
    queue_id: int


class WaitingRequest:
    """One request that waits. `cancel` is `Waiting`'s.

    Attributes:
        deadline: In trio's time.
        tags_codes: Of the tags that it wants, None for all.
        run: Called once, with whether its time is up.
        woken_by: Queue id and tags code of what woke it last; None: it was of a retry topic, which
            all requests of the group read.
    """

    __slots__ = (
        "_owner",
        "deadline",
        "is_cancelled",
        "is_waiting",
        "number",
        "place",
        "run",
        "tags_codes",
        "woken_by",
    )

    def __init__(
        self,
        owner: WaitingRequests,
        place: Place,
        deadline: float,
        tags_codes: frozenset[int] | None,
        run: Callable[[bool], None],
    ) -> None:
        self._owner = owner
        self.place = place
        self.deadline = deadline
        self.tags_codes = tags_codes
        self.run = run
        self.woken_by: tuple[int, int | None] | None = (place.queue_id, None)
        self.is_waiting = True
        self.is_cancelled = False
        self.number = 0
        """In the order in which requests came."""

    def cancel(self) -> None:
        """Forget it; if it was woken and is not run yet, the next one is woken in its place."""
        self.is_cancelled = True
        self._owner.drop(self)


class _Row:
    """Those that wait at one place: by what they want, for consumers of a group want the same."""

    def __init__(self) -> None:
        self.by_codes: dict[frozenset[int] | None, dict[WaitingRequest, None]] = {}
        self.count = 0

    def add(self, request: WaitingRequest) -> None:
        self.by_codes.setdefault(request.tags_codes, {})[request] = None
        self.count += 1

    def drop(self, request: WaitingRequest) -> None:
        same = self.by_codes[request.tags_codes]
        del same[request]
        if not same:
            del self.by_codes[request.tags_codes]
        self.count -= 1

    def first(self, code: int | None) -> WaitingRequest | None:
        """The oldest that may want a message with this tags code; None: of several messages."""
        found = [
            next(iter(same))
            for codes, same in self.by_codes.items()
            if code is None or codes is None or code in codes
        ]
        return min(found, key=lambda each: each.number, default=None)


class WaitingRequests:
    """All of one broker."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], dict[int, _Row]] = {}
        """By group and topic, and by queue id."""
        self._places: dict[str, dict[tuple[str, str], int]] = {}
        """By real topic: (group, topic) of those that a message there is for, and how many."""
        self._deadlines: list[tuple[float, int, WaitingRequest]] = []
        self._look_at = _ROOM
        self._parked_count = 0
        self.count = 0
        self.ready: deque[WaitingRequest] = deque()
        """Those that were woken, to be run again."""

    def has_room(self, place: Place) -> bool:
        """Whether one more may wait there."""
        return self.count < WAITING_MAX and self.count_of(place) < WAITING_PER_QUEUE_MAX

    def count_of(self, place: Place) -> int:
        """How many wait at exactly this place."""
        row = self._rows.get(place[:2], {}).get(place.queue_id)
        return 0 if row is None else row.count

    def park(
        self,
        place: Place,
        deadline: float,
        tags_codes: frozenset[int] | None,
        run: Callable[[bool], None],
    ) -> WaitingRequest:
        """Have a request wait; there is room."""
        request = WaitingRequest(self, place, deadline, tags_codes, run)
        self._parked_count += 1
        request.number = self._parked_count
        self._rows.setdefault(place[:2], {}).setdefault(place.queue_id, _Row()).add(request)
        for topic in _real_topics(place):
            waiting = self._places.setdefault(topic, {})
            waiting[place[:2]] = waiting.get(place[:2], 0) + 1
        self.count += 1
        heappush(self._deadlines, (deadline, self._parked_count, request))
        if len(self._deadlines) > self._look_at:
            self._deadlines = [each for each in self._deadlines if each[2].is_waiting]
            heapify(self._deadlines)
            self._look_at = 2 * len(self._deadlines) + _ROOM
        return request

    def drop(self, request: WaitingRequest) -> None:
        """Forget one; harmless if it does not wait."""
        if not request.is_waiting:
            return
        request.is_waiting = False
        self.count -= 1
        asked, queue_id = request.place[:2], request.place.queue_id
        rows = self._rows[asked]
        rows[queue_id].drop(request)
        if not rows[queue_id].count:
            del rows[queue_id]
            if not rows:
                del self._rows[asked]
        for topic in _real_topics(request.place):
            waiting = self._places[topic]
            waiting[asked] -= 1
            if not waiting[asked]:
                del waiting[asked]
                if not waiting:
                    del self._places[topic]

    # -- waking ----------------------------------------------------------------------------------

    def messages_arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Wake one request of each group for each message that can be read."""
        places = self._places
        if not places:
            return
        for _, topic, queue_id, _, code in arrivals:
            for group, asked in list(places.get(topic, ())):
                if topic == asked:
                    self.wake(group, asked, queue_id, code)
                else:
                    self.wake_any(group, asked)

    def wake(self, group: str, topic: str, queue_id: int, code: int | None = None) -> None:
        """Wake the first one that waits for all queues, else for this one."""
        for each in (ALL_QUEUES, queue_id):
            if self._wake_first(Place(group, topic, each), code, (queue_id, code)):
                return

    def _wake_first(
        self,
        place: Place,
        code: int | None = None,
        woken_by: tuple[int, int | None] | None = None,
    ) -> bool:
        row = self._rows.get(place[:2], {}).get(place.queue_id)
        request = None if row is None else row.first(code)
        if request is None:
            return False
        request.woken_by = woken_by
        self.run_soon(request)
        return True

    def run_soon(self, request: WaitingRequest) -> None:
        """Have one that waits run again, as if it had been woken."""
        self.drop(request)
        self.ready.append(request)

    def wake_next(self, request: WaitingRequest) -> None:
        """Wake another one by what has woken this one, which does not take it."""
        group, topic, _ = request.place
        if request.woken_by is None:
            self.wake_any(group, topic)
        else:
            self.wake(group, topic, *request.woken_by)

    def opened(self, group: str, topic: str, queue_id: int) -> None:
        """Wake one of a group that may have messages of this queue, which is of a real topic."""
        for waiting_group, asked in list(self._places.get(topic, ())):
            if waiting_group == group and topic == asked:
                self.wake(group, asked, queue_id)
            elif waiting_group == group:
                self.wake_any(group, asked)

    def wake_any(self, group: str, topic: str) -> None:
        """Wake one of a group, whichever queue it waits for."""
        if self._wake_first(Place(group, topic, ALL_QUEUES)):
            return
        for queue_id in self._rows.get((group, topic), ()):
            self._wake_first(Place(group, topic, queue_id))
            return

    def run_ready(self) -> None:
        """Run those that were woken by now."""
        for _ in range(len(self.ready)):
            request = self.ready.popleft()
            if request.is_cancelled:
                self.wake_next(request)
            else:
                request.run(False)  # noqa: FBT003 - see `WaitingRequest.run`

    @property
    def next_deadline(self) -> float:
        """When to look next; infinity if nobody waits."""
        while self._deadlines and not self._deadlines[0][2].is_waiting:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else math.inf

    def take_expired(self, now: float) -> list[WaitingRequest]:
        """Return those whose time is up. They do not wait any more."""
        expired = []
        while self.next_deadline <= now:
            request = heappop(self._deadlines)[2]
            self.drop(request)
            expired.append(request)
        return expired


def _real_topics(place: Place) -> tuple[str, str, str]:
    group, topic, _ = place
    return (
        topic,
        retry_topic_of(group, topic, TopicMark.RETRY_V1),
        retry_topic_of(group, topic, TopicMark.RETRY_V2),
    )
