"""The ports of whole nodes: which there are, and who is told of them."""

from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from store.machine.network import ConnectionLost
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.world import (
    MASTER,
    NAMES,
    SLAVE_1,
    bodies,
    cluster_config,
    fenced_cluster,
    open_world,
)

GROUP_IP = "10.0.0.100"


def with_master_address(config: ClusterConfig) -> ClusterConfig:
    group = msgspec.structs.replace(config.groups["broker-a"], master_address=f"{GROUP_IP}:10911")
    return msgspec.structs.replace(config, groups={"broker-a": group})


async def test_the_second_port_takes_messages_and_gives_none(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    broker = msgspec.structs.replace(config.broker, vip_channel_enable=True)
    async with open_world(msgspec.structs.replace(config, broker=broker)) as world:
        await world.start("a0", "a1")
        await trio.sleep(1)  # until the slave has found its master
        async with world.client(MASTER, 10909) as client:
            assert (await client.send(b"one")).code == 0
            assert (await client.pull()).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        async with world.client(SLAVE_1, 10909) as client:
            assert (await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0
        async with world.client(MASTER) as client:
            assert bodies(await client.pull()) == [b"one"]


async def test_there_is_no_second_port_unless_the_cluster_file_says_so(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0")
        with pytest.raises(ConnectionLost):
            async with world.client(MASTER, 10909):
                pass


@pytest.mark.slow
async def test_a_client_finds_each_new_master_at_the_same_address(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(with_master_address(fenced_cluster(tmp_path))) as world:
        await world.start(*NAMES)
        first = await world.master()
        async with world.client(GROUP_IP) as client:
            assert (await client.send(b"one")).code == 0
        await trio.sleep(0.2)
        for name in NAMES:
            async with world.client(world.address(name)) as client:
                assert (await client.route("T"))[0] == f"{GROUP_IP}:10911"
        await world.kill(first)
        second = await world.master(*(name for name in NAMES if name != first))
        await trio.sleep(0.2)
        async with world.client(GROUP_IP) as client:
            assert (await client.send(b"two")).code == 0
        async with world.client(world.address(second)) as client:
            assert (await client.send(b"at its own")).code == 0
            route = await client.route("T")
            assert route[0] == f"{GROUP_IP}:10911"
            assert len(route) == 2


@pytest.mark.slow
async def test_clients_are_told_the_masters_own_while_it_cannot_have_the_address(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(with_master_address(fenced_cluster(tmp_path))) as world:
        stranger = await world.network.machine("10.0.0.99").listen(GROUP_IP, 10911)
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert (await client.send(b"one")).code == 0
            await trio.sleep(0.2)
            assert (await client.route("T"))[0] == f"{world.address(master)}:10911"
            await stranger.aclose()
            await trio.sleep(0.2)
            assert (await client.route("T"))[0] == f"{GROUP_IP}:10911"
