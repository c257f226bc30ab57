"""A node that has just started knows only itself: what readers hear from it and the others."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from node.name_server.readiness import NOT_READY_SECONDS_MAX
from node.simulated.trio_stream import TrioStream
from store.machine.network import ConnectionLost
from tandem.client.cluster_access import ClusterAccess
from tandem.client.identity import ClientIdentity
from tandem.client.pull_consumer import PullConsumer
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import GetRouteInfoRequestHeader
from tandem.wire.response_code import ResponseCode
from tests.node.world import NAMES, World, fenced_cluster, open_world
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.sim]

NAME_SERVER_PORT = 9876


async def send(world: World, name: str, body: bytes) -> None:
    """Send until it is acknowledged."""
    with trio.fail_after(PATIENCE_SECONDS):
        async with world.client(world.address(name)) as client:
            while (await client.send(body)).code:
                await trio.sleep(0.1)


async def restart_alone(world: World) -> tuple[str, list[str]]:
    """Start a follower that lacks half of ten messages and reaches no other node."""
    await world.start(*NAMES)
    master = await world.master()
    name = next(name for name in NAMES if name != master)
    for number in range(5):
        await send(world, master, b"%d" % number)
    await world.kill(name)
    for number in range(5, 10):
        await send(world, master, b"%d" % number)
    others = [each for each in NAMES if each != name]
    for other in others:
        world.network.stall(world.address(other), world.address(name))
        world.network.stall(world.address(name), world.address(other))
    await world.start(name)
    return name, others


def consumer_of(world: World, *names: str) -> PullConsumer:
    machine = world.network.machine("10.0.0.77")

    async def open_stream(host: str, port: int) -> TrioStream:
        try:
            return TrioStream(await machine.connect(host, port, source=None))
        except ConnectionLost as error:
            raise trio.BrokenResourceError(str(error)) from error

    servers = [f"{world.address(name)}:{NAME_SERVER_PORT}" for name in names]
    access = ClusterAccess(servers, identity=ClientIdentity("10.0.0.77", 1, 1))
    return PullConsumer(access, "g", open_stream=open_stream)


@pytest.mark.parametrize("knows_others", [False, True])
async def test_a_reader_that_asks_it_first_reads_all_that_was_acknowledged(
    tmp_path: Path, autojump_clock: MockClock, *, knows_others: bool
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        alone, others = await restart_alone(world)
        read: list[bytes] = []

        async def read_to_end() -> None:
            name_servers = [alone, *others] if knows_others else [alone]
            async with consumer_of(world, *name_servers) as consumer:
                messages = consumer.messages("T", until_end=True)
                read.extend([message.body async for message in messages])

        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_to_end)
                await trio.sleep(NOT_READY_SECONDS_MAX + 2)
                assert bool(read) == knows_others
                world.network.heal_all()
        # What had to be sent twice may be there twice.
        assert set(read) == {b"%d" % number for number in range(10)}


async def test_its_name_server_does_not_say_that_there_is_no_such_topic(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        alone, _ = await restart_alone(world)
        header = GetRouteInfoRequestHeader("T")
        async with world.client(world.address(alone), NAME_SERVER_PORT) as client:
            told = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            assert told.code == ResponseCode.SYSTEM_ERROR
            await trio.sleep(NOT_READY_SECONDS_MAX)
            # It knows no topic yet: those are in the part of the log that it cannot vouch for.
            told = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            assert told.code == ResponseCode.SYSTEM_ERROR
