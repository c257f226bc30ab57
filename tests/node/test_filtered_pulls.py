"""Pulls through SQL92 filters, over both kinds of group, and through a change of masters."""

from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from trio.testing import MockClock

from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerData,
    HeartbeatData,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SubscriptionData,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tests.node.world import (
    MASTER,
    NAMES,
    Caller,
    World,
    bodies,
    cluster_config,
    fenced_cluster,
    open_world,
)

TEXT = "n BETWEEN 2 AND 3 OR color = 'red'"


def filtering(config: ClusterConfig, *, bit_maps: bool = False) -> ClusterConfig:
    replace = msgspec.structs.replace
    broker = replace(
        config.broker, enable_property_filter=True, enable_calc_filter_bit_map=bit_maps
    )
    store = replace(config.store, enable_consume_queue_ext=bit_maps)
    return replace(config, broker=broker, store=store)


async def send(client: Caller, number: int) -> None:
    color = "red" if number == 7 else "blue"
    properties = f"n\x01{number}\x02color\x01{color}\x02"
    header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties)
    answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
    assert answer.code == 0, answer.remark


async def beat(client: Caller, version: int = 5) -> None:
    wanted = SubscriptionData("T", TEXT, version, expression_type="SQL92")
    group = ConsumerData("g", "CONSUME_PASSIVELY", subscription_data_set=[wanted])
    body = encode_json_body(HeartbeatData("c", consumer_data_set=[group]))
    assert (await client.call(RequestCode.HEART_BEAT, {}, body)).code == 0


async def pull(client: Caller, version: int = 5) -> RemotingCommand:
    header = PullMessageRequestHeader("g", "T", 0, 0, 32, 0, 0, 0, version)
    return await client.call(RequestCode.PULL_MESSAGE, header)


@pytest.mark.parametrize("bit_maps", [False, True])
async def test_a_classic_group_filters_and_knows_its_filters_after_a_restart(
    tmp_path: Path, autojump_clock: MockClock, *, bit_maps: bool
) -> None:
    config = filtering(cluster_config(tmp_path, "ASYNC_MASTER"), bit_maps=bit_maps)
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as client:
            await send(client, 0)
            await beat(client)
            for number in range(1, 10):
                await send(client, number)
            assert bodies(await pull(client)) == [b"2", b"3", b"7"]
            late = await pull(client, version=6)
            assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await world.stop("a0")
        assert b"color" in (world.disks["a0"].read(filter_file(world, "a0")) or b"")
        await world.start("a0")
        async with world.client(MASTER) as client:
            assert (await pull(client)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
            await beat(client)
            assert bodies(await pull(client)) == [b"2", b"3", b"7"]


def filter_file(world: World, name: str) -> str:
    return f"{world.config.node(name).directory}/config/consumerFilter.json"


@pytest.mark.slow
@pytest.mark.parametrize("bit_maps", [False, True])
async def test_the_next_master_of_a_fenced_group_filters_as_the_one_before(
    tmp_path: Path, autojump_clock: MockClock, *, bit_maps: bool
) -> None:
    async with open_world(filtering(fenced_cluster(tmp_path), bit_maps=bit_maps)) as world:
        for name in NAMES:
            await world.start(name)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            await beat(client)
            for number in range(10):
                await send(client, number)
            assert bodies(await pull(client)) == [b"2", b"3", b"7"]
            epoch = (await world.status(master)).epoch
        others = [name for name in NAMES if name != master]
        async with AsyncExitStack() as stack:
            clients = {
                name: await stack.enter_async_context(world.client(world.address(name)))
                for name in others
            }
            for client in clients.values():
                await beat(client)
            await world.kill(master)
            master = await world.master(*others, after=epoch)
            assert bodies(await pull(clients[master])) == [b"2", b"3", b"7"]
            await send(clients[master], 7)
            assert len(bodies(await pull(clients[master]))) == 4
