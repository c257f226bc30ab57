"""The coordinator of the simulation: what it promises, and how it misbehaves on demand."""

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from node.simulated import deterministic_trio
from node.simulated.coordinator import (
    EXPIRED,
    REVOKED,
    CoordinatorClient,
    SimulatedCoordinator,
)
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from tandem.coordinator.interface import (
    Compare,
    Coordinator,
    CoordinatorUnavailableError,
    Delete,
    Event,
    LeaseLostError,
    Put,
)

NODE = "127.0.0.1"
SITE = "127.0.3.1"


class World:
    """One coordinator and one node."""

    def __init__(self, nursery: trio.Nursery) -> None:
        timeline = Timeline()
        nursery.start_soon(timeline.run)
        self.network = SimulatedNetwork(timeline, random.Random(1))
        self.site = SimulatedCoordinator(SITE, self.network, random.Random(2))
        self.client: CoordinatorClient = self.site.client(self.network.machine(NODE))

    @property
    def interface(self) -> Coordinator:
        """What a node is given."""
        return self.client


def _play(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await test(World(nursery))
            nursery.cancel_scope.cancel()

    deterministic_trio.run(1, main)


def test_a_transaction_is_done_if_its_compares_hold() -> None:
    async def test(world: World) -> None:
        create = [Compare("/a", 0)], [Put("/a", b"1")]
        first = await world.interface.transact(*create)
        again = await world.interface.transact(*create)
        assert (first.succeeded, again.succeeded) == (True, False)
        snapshot = await world.interface.read("/")
        assert snapshot.values["/a"].mod_revision == first.revision
        await world.interface.transact([Compare("/a", first.revision)], [Delete("/a")])
        assert (await world.interface.read("/")).values == {}

    _play(test)


def test_a_lease_takes_its_keys_along_unless_it_is_kept_alive() -> None:
    async def test(world: World) -> None:
        lease = await world.interface.grant(2)
        await world.interface.transact([], [Put("/a", b"1", lease.lease_id)])
        for _ in range(3):
            await trio.sleep(1.5)
            assert await world.interface.keep_alive(lease.lease_id) == 2
        await trio.sleep(2.6)
        assert world.site.ended[lease.lease_id] == EXPIRED
        assert (await world.interface.read("/")).values == {}
        with pytest.raises(LeaseLostError):
            await world.interface.keep_alive(lease.lease_id)
        with pytest.raises(LeaseLostError):
            await world.interface.transact([], [Put("/a", b"1", lease.lease_id)])

    _play(test)


def test_the_lease_of_a_key_can_be_revoked_from_outside() -> None:
    async def test(world: World) -> None:
        lease = await world.interface.grant(5)
        await world.interface.transact([], [Put("/a", b"1", lease.lease_id)])
        world.site.revoke_leases_of("/a")
        assert world.site.ended[lease.lease_id] == REVOKED
        assert world.site.item("/a") is None
        await world.interface.revoke(lease.lease_id)

    _play(test)


async def _next(world: World, start_revision: int) -> tuple[Event, ...]:
    async with world.interface.watch("/", start_revision) as events:
        async for batch in events:
            return batch
    raise AssertionError("a watch ends with an error")


def test_a_watch_tells_what_changed_and_breaks_on_demand() -> None:
    async def test(world: World) -> None:
        put = await world.interface.transact([], [Put("/a", b"1")])
        (event,) = await _next(world, put.revision)
        assert event.value is not None
        assert (event.key, event.value.value, event.revision) == ("/a", b"1", put.revision)
        world.network.timeline.call_later(1.0, world.site.break_watches)
        with pytest.raises(CoordinatorUnavailableError):
            await _next(world, put.revision + 1)

    _play(test)


def test_an_answer_can_be_lost_after_the_work_was_done() -> None:
    async def test(world: World) -> None:
        for round_ in range(8):
            world.site.lost_replies[NODE] = 1
            with trio.move_on_after(1.0), pytest.raises(CoordinatorUnavailableError):
                await world.interface.transact([], [Put(f"/{round_}", b"1")])
        assert len((await world.interface.read("/")).values) == 8

    _play(test)


def test_what_was_on_its_way_is_done_although_the_caller_gave_up() -> None:
    async def test(world: World) -> None:
        world.network.stall(NODE, SITE)
        with trio.move_on_after(1.0) as scope:
            await world.interface.transact([], [Put("/a", b"1")])
        assert scope.cancelled_caught
        assert world.site.item("/a") is None
        world.network.heal(NODE, SITE)
        await trio.sleep(0.1)
        assert world.site.item("/a") is not None

    _play(test)


def test_a_change_of_leader_answers_late_and_lets_leases_run_in_full() -> None:
    async def test(world: World) -> None:
        lease = await world.interface.grant(2)
        await world.interface.transact([], [Put("/a", b"1", lease.lease_id)])
        await trio.sleep(1.5)
        world.site.change_leader(1.0)
        assert (await world.interface.read("/")).values
        assert trio.current_time() > 2.5
        await trio.sleep(1.5)
        assert (await world.interface.read("/")).values

    _play(test)


def test_a_restart_keeps_what_was_decided() -> None:
    async def test(world: World) -> None:
        lease = await world.interface.grant(2)
        await world.interface.transact([], [Put("/a", b"1", lease.lease_id)])
        world.site.stop()
        with pytest.raises(CoordinatorUnavailableError):
            await world.interface.read("/")
        await trio.sleep(3.0)
        world.site.start()
        assert await world.interface.keep_alive(lease.lease_id) == 2
        assert (await world.interface.read("/")).values

    _play(test)


def test_an_old_backup_takes_decisions_back() -> None:
    async def test(world: World) -> None:
        await world.interface.transact([], [Put("/a", b"1")])
        image = world.site.store.image()
        await world.interface.transact([], [Put("/a", b"2")])
        world.site.restore(image)
        assert (await world.interface.read("/")).values["/a"].value == b"1"

    _play(test)
