"""A coordinator in memory, reached over the simulated network's links, that can misbehave.

    SimulatedCoordinator     the one that all nodes share: the real engine of keys and leases
      CoordinatorClient      one life of one node; implements `tandem.coordinator.interface`

Requests and answers take the time of the link between the node's address and the coordinator's,
and wait with it while it is stalled. What was on its way when a caller gave up is still done. An
answer can get lost after the work was done; then the caller learns that the connection broke, or
nothing at all.
"""

import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, TypeVar

import trio

from node.simulated.network import Machine, SimulatedNetwork
from tandem.coordinator.interface import (
    Compare,
    CoordinatorError,
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    Delete,
    Event,
    KeyValue,
    Lease,
    LeaseLostError,
    Put,
    Snapshot,
    TransactionResult,
)
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import (
    Change,
    CompactedError,
    Condition,
    DeleteOperation,
    InvalidArgumentError,
    Item,
    LeaseNotFoundError,
    PutOperation,
    Relation,
    StoreImage,
    Target,
    prefix_end,
)

T = TypeVar("T")

SWEEP_SECONDS_MAX: Final = 0.5
"""Nobody is told of an expired lease at once: etcd looks twice a second."""

REVOKED: Final = "revoked"
EXPIRED: Final = "expired"
HELD: Final = "held"


class SimulatedCoordinator:
    """The shared side.

    Attributes:
        on_change: sees every change of keys and leases when it has happened.
        on_call: is told who is about to ask for what, before anything is sent. It may kill.
        on_event: is told what happens, for the trace.
        lost_replies: how many of the next answers to an address get lost.
        watch_delay_seconds: how late watches are.
    """

    def __init__(
        self,
        ip: str,
        network: SimulatedNetwork,
        chance: random.Random,
        *,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.ip = ip
        self.network = network
        self.on_event = on_event
        self.on_call: Callable[[str, str], None] = lambda _ip, _name: None
        self.on_change: Callable[[Change], None] = lambda _: None
        self.lost_replies: dict[str, int] = {}
        self.watch_delay_seconds = 0.0
        self.ended: dict[int, str] = {}
        """Leases that are no more, and whether they were revoked or expired."""
        self._chance = chance
        self._is_up = True
        self._paused = False
        self._waiting: list[Callable[[], None]] = []
        self._watches: list[_Watch] = []
        self._sweep_at = float("inf")
        self._revoking: int | None = None
        self.store = KeyValueStore(on_change=self._changed)

    def client(self, machine: Machine) -> "CoordinatorClient":
        """Return what one life of a node talks to."""
        return CoordinatorClient(self, machine)

    # Faults

    def change_leader(self, seconds: float) -> None:
        """Answer nobody for a while; then every lease runs its full time again."""
        if self._paused or not self._is_up:
            return
        self._paused = True
        self.network.timeline.call_later(seconds, self._follow_new_leader)

    def _follow_new_leader(self) -> None:
        self._paused = False
        if self._is_up:
            self.on_event("a new leader answers")
            self.store.rearm(trio.current_time())
            self._arm_sweep()
            self.break_watches()
            self._resume()

    def stop(self) -> None:
        """Go down: whoever waits for an answer will not get one, or learns of it."""
        if self._is_up:
            self.on_event("down")
            self._is_up = False
            self._waiting.clear()
            self.break_watches()

    def start(self) -> None:
        """Come back with everything that was decided, and with leases that run in full."""
        if self._is_up:
            return
        self.on_event("up")
        self._is_up = True
        self._paused = False
        image = self.store.image()
        self.store = KeyValueStore(on_change=self._changed)
        self.store.restore(image, trio.current_time())
        self._arm_sweep()

    def restore(self, image: StoreImage) -> None:
        """Be set back to what was saved once, as by an operator with an old backup."""
        self.stop()
        self.store.restore(image, trio.current_time())
        self.start()

    def break_watches(self) -> None:
        """End every stream of events."""
        watches, self._watches = self._watches, []
        for watch in watches:
            self._deliver(watch.machine, watch.break_off)

    def revoke_leases_of(self, key: str) -> None:
        """End the lease of a key, as whoever reaped the process does; harmless without one."""
        item = self.item(key)
        if item is not None and item.lease_id and self._is_up and not self._paused:
            self._revoke(item.lease_id)

    # What checks want to know

    def item(self, key: str) -> Item | None:
        """Return a key as it is."""
        return self.store._items.get(key.encode())

    # Requests

    def ask(self, machine: Machine, pending: "_Pending[T]", work: Callable[[float], T]) -> None:
        """Send a request; the answer goes into `pending`."""

        def arrive() -> None:
            if self._paused:
                self._waiting.append(arrive)
            elif not self._is_up:
                error = CoordinatorUnavailableError("connection refused")
                self._deliver(machine, lambda: pending.fail(error))
            else:
                self._answer(machine, pending, work)

        link = self.network.link(machine.ip, self.ip)
        link.send(self.network.timeline, link.arrival_time(0, self.network.delay_seconds()), arrive)

    def _answer(self, machine: Machine, pending: "_Pending[T]", work: Callable[[float], T]) -> None:
        result: T | None = None
        error: CoordinatorError | None = None
        try:
            result = work(trio.current_time())
        except LeaseNotFoundError as caught:
            error = LeaseLostError(str(caught))
        except InvalidArgumentError as caught:
            error = CoordinatorRefusedError(str(caught))
        self._arm_sweep()
        if self._loses_reply(machine.ip):
            self.on_event(f"the answer to {machine.ip} is lost")
            if self._chance.random() < 0.5:
                return
            error = CoordinatorUnavailableError("the connection broke")
        if error is not None:
            failure = error
            self._deliver(machine, lambda: pending.fail(failure))
        else:
            self._deliver(machine, lambda: pending.finish(result))  # type: ignore[arg-type]

    def _loses_reply(self, ip: str) -> bool:
        left = self.lost_replies.get(ip, 0)
        self.lost_replies[ip] = max(0, left - 1)
        return left > 0

    def _deliver(self, machine: Machine, delivery: Callable[[], None], late: float = 0.0) -> None:
        link = self.network.link(self.ip, machine.ip)
        arrival = link.arrival_time(0, self.network.delay_seconds() + late)
        link.send(self.network.timeline, arrival, delivery)

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, []
        for arrive in waiting:
            arrive()

    # Leases and changes

    def revoke(self, lease_id: int, now: float) -> None:
        """End a lease; harmless if it is gone."""
        self.store.expire(now)
        if self.store.time_left(lease_id, now) > 0:
            self._revoke(lease_id)

    def _revoke(self, lease_id: int) -> None:
        self._revoking = lease_id
        # It may end by itself in this very step.
        with suppress(LeaseNotFoundError):
            self.store.revoke(lease_id, trio.current_time())
        self._revoking = None

    def _changed(self, change: Change) -> None:
        for lease_id in change.ended:
            how = REVOKED if lease_id == self._revoking else EXPIRED
            self.ended[lease_id] = how
            self.on_event(f"lease {lease_id:x} {how}")
        self.on_change(change)
        for watch in self._watches:
            self._push(watch)

    def _arm_sweep(self) -> None:
        """Have expired leases found a little after their time."""
        at = self.store.next_expiry
        if at < self._sweep_at:
            late = self._chance.uniform(0, SWEEP_SECONDS_MAX)
            self._sweep_at = at
            self.network.timeline.call_at(at + late, self._sweep)

    def _sweep(self) -> None:
        self._sweep_at = float("inf")
        if self._is_up and not self._paused:
            self.store.expire(trio.current_time())
            self._arm_sweep()

    # Watches

    def open_watch(self, watch: "_Watch") -> None:
        """Serve a stream of events from where it wants to start."""
        self._watches.append(watch)
        self._push(watch)

    def close_watch(self, watch: "_Watch") -> None:
        """Forget a stream; harmless when repeated."""
        if watch in self._watches:
            self._watches.remove(watch)

    def _push(self, watch: "_Watch") -> None:
        prefix = watch.prefix.encode()
        end = self.store.revision + 1
        try:
            events = self.store.events(watch.next_revision, prefix, prefix_end(prefix), end)
        except CompactedError:
            self.close_watch(watch)
            self._deliver(watch.machine, watch.break_off)
            return
        watch.next_revision = max(end, watch.next_revision)
        if events:
            told = tuple(
                Event(e.key.decode(), _key_value(e.item) if e.item else None, e.revision)
                for e in events
            )
            self._deliver(watch.machine, lambda: watch.take(told), self.watch_delay_seconds)


class CoordinatorClient:
    """See `Coordinator`. Belongs to one life of one node."""

    def __init__(self, site: SimulatedCoordinator, machine: Machine) -> None:
        self._site = site
        self._machine = machine

    async def grant(self, ttl_seconds: int) -> Lease:
        """See `Coordinator.grant`."""
        lease_id = self._site._chance.getrandbits(62) | 1

        def work(now: float) -> Lease:
            terms = self._site.store.grant(lease_id, ttl_seconds, now)
            return Lease(terms.lease_id, terms.ttl_seconds)

        return await self._ask("grant", work)

    async def keep_alive(self, lease_id: int) -> int:
        """See `Coordinator.keep_alive`."""
        return await self._ask("keep-alive", lambda now: self._site.store.keep_alive(lease_id, now))

    async def revoke(self, lease_id: int) -> None:
        """See `Coordinator.revoke`."""
        await self._ask("revoke", lambda now: self._site.revoke(lease_id, now))

    async def read(self, prefix: str) -> Snapshot:
        """See `Coordinator.read`."""

        def work(now: float) -> Snapshot:
            store = self._site.store
            items = store.range(prefix.encode(), prefix_end(prefix.encode()), now)
            values = {item.key.decode(): _key_value(item) for item in items}
            return Snapshot(store.revision, values)

        return await self._ask("read", work)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        """See `Coordinator.transact`."""
        conditions = [
            Condition(c.key.encode(), Target.MOD, Relation.EQUAL, c.mod_revision) for c in compares
        ]
        changes = [
            PutOperation(o.key.encode(), o.value, o.lease_id)
            if isinstance(o, Put)
            else DeleteOperation(o.key.encode())
            for o in operations
        ]

        def work(now: float) -> TransactionResult:
            outcome = self._site.store.transact(conditions, changes, (), now)
            return TransactionResult(outcome.succeeded, outcome.revision)

        return await self._ask("transact", work)

    @asynccontextmanager
    async def watch(
        self, prefix: str, start_revision: int
    ) -> AsyncIterator[AsyncIterator[tuple[Event, ...]]]:
        """See `Coordinator.watch`."""
        watch = _Watch(self._machine, prefix, start_revision)
        await self._ask("watch", lambda _: self._site.open_watch(watch))
        try:
            yield watch
        finally:
            self._site.close_watch(watch)

    async def _ask(self, name: str, work: Callable[[float], T]) -> T:
        await trio.lowlevel.checkpoint()
        if self._machine.alive:
            self._site.on_event(f"{self._machine.ip} asks: {name}")
            self._site.on_call(self._machine.ip, name)
        if not self._machine.alive:
            raise CoordinatorUnavailableError(f"{self._machine.ip} is down")
        pending: _Pending[T] = _Pending()
        self._site.ask(self._machine, pending, work)
        return await pending.wait()


class _Pending(Generic[T]):
    """A request without an answer yet."""

    def __init__(self) -> None:
        self._answered = trio.Event()
        self._results: list[T] = []
        self._error: CoordinatorError | None = None

    def finish(self, result: T) -> None:
        self._results.append(result)
        self._answered.set()

    def fail(self, error: CoordinatorError) -> None:
        self._error = error
        self._answered.set()

    async def wait(self) -> T:
        await self._answered.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]


class _Watch:
    """One stream of events, as its reader sees it."""

    def __init__(self, machine: Machine, prefix: str, start_revision: int) -> None:
        self.machine = machine
        self.prefix = prefix
        self.next_revision = start_revision
        self._arrived: deque[tuple[Event, ...]] = deque()
        self._is_broken = False
        self._wake = trio.lowlevel.ParkingLot()

    def take(self, events: tuple[Event, ...]) -> None:
        self._arrived.append(events)
        self._wake.unpark_all()

    def break_off(self) -> None:
        self._is_broken = True
        self._wake.unpark_all()

    def __aiter__(self) -> AsyncIterator[tuple[Event, ...]]:
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        await trio.lowlevel.checkpoint()
        while not self._arrived:
            if self._is_broken:
                raise CoordinatorUnavailableError("the watch broke")
            await self._wake.park()
        return self._arrived.popleft()


def _key_value(item: Item) -> KeyValue:
    return KeyValue(
        item.key.decode(), item.value, item.create_revision, item.mod_revision, item.lease_id
    )
