import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from node.broker.master_address import RETRY_SECONDS, MasterAddress
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from store.machine.errors import AddressInUseError
from store.machine.network import Listener
from tandem.wire.message import Host
from tests.support.logged import logged

ADDRESS = Host("10.0.0.100", 10911)


class Node:
    """One of two that may become master."""

    def __init__(
        self, network: SimulatedNetwork, ip: str, told: list[tuple[str, str | None]]
    ) -> None:
        self.machine = network.machine(ip)
        self.address = MasterAddress(
            self.machine, ADDRESS, lambda address: told.append((ip, address))
        )

    async def serve(self, listener: Listener) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()


class World:
    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline, random.Random(1))
        self.told: list[tuple[str, str | None]] = []
        self.one, self.other = (
            Node(self.network, ip, self.told) for ip in ("10.0.0.1", "10.0.0.2")
        )


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.timeline.run)
        for node in (world.one, world.other):
            nursery.start_soon(node.address.run, node.serve)
        yield world
        nursery.cancel_scope.cancel()


async def test_only_a_master_has_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await trio.sleep(1)
        assert world.network.listener_at(ADDRESS) is None
        world.one.address.role_changed(is_master=True)
        world.one.address.role_changed(is_master=True)
        await trio.sleep(0.01)
        assert world.network.listener_at(ADDRESS) is not None
        assert world.told == [("10.0.0.1", str(ADDRESS))]
        world.one.address.role_changed(is_master=False)
        await trio.sleep(0.01)
        assert world.network.listener_at(ADDRESS) is None
        assert world.told[1:] == [("10.0.0.1", None)]


async def test_the_next_master_has_it_as_soon_as_the_last_one_has_left(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        world.one.address.role_changed(is_master=True)
        await trio.sleep(0.01)
        with caplog.at_level(logging.WARNING):
            world.other.address.role_changed(is_master=True)
            await trio.sleep(60)
        assert world.told == [("10.0.0.1", str(ADDRESS))]
        ((_, error),) = logged(caplog, "node.broker.master_address")
        assert isinstance(error, AddressInUseError)
        world.one.address.role_changed(is_master=False)
        await trio.sleep(2 * RETRY_SECONDS)
        assert world.told[1:] == [("10.0.0.1", None), ("10.0.0.2", str(ADDRESS))]


async def test_who_is_master_no_more_stops_trying(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.one.address.role_changed(is_master=True)
        await trio.sleep(0.01)
        world.other.address.role_changed(is_master=True)
        await trio.sleep(1)
        world.other.address.role_changed(is_master=False)
        world.one.address.role_changed(is_master=False)
        await trio.sleep(1)
        assert world.network.listener_at(ADDRESS) is None
        assert world.told == [("10.0.0.1", str(ADDRESS)), ("10.0.0.1", None)]
        world.other.address.role_changed(is_master=True)
        await trio.sleep(0.01)
        assert world.told[2:] == [("10.0.0.2", str(ADDRESS))]
