"""Long polling: a pull that finds nothing new waits here for a message, or for its deadline.

    hold() --> HELD --+--> READY --> run again, once, by the service task
                      |
                      +-- messages_arrived(): one that the pull wants
                      +-- its deadline passed

Messages arrive in the middle of somebody's round of puts. So an arrival only moves pulls to the
ready list; the service task runs them when the round is over, and a consumer gets the whole round
in one answer instead of its first message alone. It runs them in turns as long as those of a
connection: one message may be what thousands wait for.

Pulls of a connection that ends are forgotten. No connection and no address has all the room.

Source: RocketMQ 5.3.3, PullRequestHoldService; its sweep every 5 s is a deadline here.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import trio

from node.remoting.turns import TURN_SECONDS
from store.machine.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from node.remoting.connection import Connection
    from store.results import Arrival

HELD_MAX: Final = 262_144
"""Pulls held at any time. Beyond it a pull is answered at once, empty."""

HELD_PER_ADDRESS_MAX: Final = 131_072
HELD_PER_CONNECTION_MAX: Final = 8_192
"""One client holds one for each queue it consumes, and a proxy those of some hundreds."""

SWEEP_SECONDS_MIN: Final = 0.05
"""Between two looks at deadlines: those between two are met by the second."""


class HeldPull:
    """One waiting pull. A kind of them says what `run` does.

    Attributes:
        offset: The queue offset it wants to read from.
        tags_codes: Codes it is interested in; None for all.
        deadline: In trio's time.
        owner: The connection it came by.
        caller: Who asked by that connection then.
        key: Topic and queue, once it is held.
    """

    __slots__ = ("caller", "deadline", "key", "offset", "owner", "tags_codes")

    def __init__(
        self,
        offset: int,
        tags_codes: frozenset[int] | None,
        deadline: float,
        owner: Connection,
    ) -> None:
        self.offset = offset
        self.tags_codes = tags_codes
        self.deadline = deadline
        self.owner = owner
        self.caller = owner.caller
        self.key = ("", 0)

    def run(self) -> None:
        """Read again and answer; called at most once."""
        raise NotImplementedError

    @property
    def sweep(self) -> int:
        """The number of the first sweep after its deadline."""
        return math.ceil(self.deadline / SWEEP_SECONDS_MIN)

    def wants(self, max_queue_offset: int, tags_code: int | None) -> bool:
        """Whether a message makes it worth running again.

        Args:
            max_queue_offset: Queue offset after the message.
            tags_code: Code of its tags; None if unknown or several messages came at once.
        """
        if max_queue_offset <= self.offset:
            return False
        return tags_code is None or self.tags_codes is None or tags_code in self.tags_codes


class PullRequestHoldService:
    """The held pulls of one node. `after_run` is called after each round, to send the answers."""

    def __init__(self, after_run: Callable[[], None]) -> None:
        self._after_run = after_run
        self._held: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_sweep: dict[int, dict[HeldPull, None]] = {}
        self._by_owner: dict[Connection, dict[HeldPull, None]] = {}
        self._by_address: Counter[str] = Counter()
        self.held_count = 0
        """How many pulls are waiting."""
        self._ready: deque[HeldPull] = deque()
        self._sweeps: list[int] = []
        """The numbers in `_by_sweep`, as a heap."""
        self._wake = Signal()

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """Take in a pull; False if there are too many."""
        owner, address = pull.owner, pull.owner.peer.ip
        of_owner = self._by_owner.get(owner, {})
        if (
            self.held_count >= HELD_MAX
            or len(of_owner) >= HELD_PER_CONNECTION_MAX
            or self._by_address[address] >= HELD_PER_ADDRESS_MAX
        ):
            return False
        pull.key = topic, queue_id
        self._held.setdefault(pull.key, {})[pull] = None
        self._by_owner[owner] = of_owner
        of_owner[pull] = None
        self._by_address[address] += 1
        self.held_count += 1
        sweep = pull.sweep
        if sweep not in self._by_sweep:
            self._by_sweep[sweep] = {}
            heapq.heappush(self._sweeps, sweep)
            if self._sweeps[0] == sweep:
                self._wake.notify()
        self._by_sweep[sweep][pull] = None
        return True

    def messages_arrived(self, arrivals: list[Arrival]) -> None:
        """Messages are in their queues. Called for every round of them, if any pull waits."""
        for _, topic, queue_id, max_queue_offset, tags_code in arrivals:
            pulls = self._held.get((topic, queue_id))
            if pulls is None:
                continue
            wanting = [pull for pull in pulls if pull.wants(max_queue_offset, tags_code)]
            if wanting:
                self._make_ready(wanting)
                self._wake.notify()

    def run_again(self, topic: str, queue_id: int) -> None:
        """Something other than a message has changed what the pulls of a queue are answered."""
        pulls = self._held.get((topic, queue_id))
        if pulls is not None:
            self._make_ready(list(pulls))
            self._wake.notify()

    def run_of_the_changed(self) -> None:
        """Run the pulls of those of whom something has changed: each asks again if it may."""
        changed = [
            pull
            for pulls in self._by_owner.values()
            for pull in pulls
            if not pull.caller.is_current
        ]
        if changed:
            self._make_ready(changed)
            self._wake.notify()

    def connection_closed(self, connection: Connection) -> None:
        """Forget the pulls that came by a connection: nobody would get the answers."""
        for pull in list(self._by_owner.get(connection, ())):
            self._forget(pull)

    async def run(self) -> None:
        """Run pulls as they become ready, until cancelled. Held pulls are then never answered."""
        while True:
            if not self._ready:
                deadline = self._sweeps[0] * SWEEP_SECONDS_MIN if self._sweeps else math.inf
                with trio.move_on_at(deadline):
                    await self._wake.wait()
            self._expire(trio.current_time())
            if self._ready:
                self._run_for_a_turn()
                self._after_run()
            await trio.lowlevel.checkpoint()

    def _run_for_a_turn(self) -> None:
        end = trio.current_time() + TURN_SECONDS
        while self._ready:
            self._ready.popleft().run()
            if trio.current_time() >= end:
                return

    def _expire(self, now: float) -> None:
        while self._sweeps and self._sweeps[0] * SWEEP_SECONDS_MIN <= now:
            sweep = heapq.heappop(self._sweeps)
            self._make_ready(list(self._by_sweep[sweep]))
            del self._by_sweep[sweep]

    def _make_ready(self, pulls: Iterable[HeldPull]) -> None:
        for pull in pulls:
            self._forget(pull)
            self._ready.append(pull)

    def _forget(self, pull: HeldPull) -> None:
        """Hold a pull no longer. Its sweep stays, even if that has nothing to do."""
        self.held_count -= 1
        del self._by_sweep[pull.sweep][pull]
        held, owner, address = self._held[pull.key], pull.owner, pull.owner.peer.ip
        del held[pull]
        if not held:
            del self._held[pull.key]
        of_owner = self._by_owner[owner]
        del of_owner[pull]
        if not of_owner:
            del self._by_owner[owner]
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
