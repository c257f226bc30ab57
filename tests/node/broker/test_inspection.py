"""The requests that look at a broker, on whole nodes of both kinds of group."""

import json
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tandem.wire.request_code import RequestCode
from tandem.wire.stats_requests import (
    ConsumeStatsRequestHeader,
    TopicRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from tests.node.world import (
    MASTER,
    NAMES,
    Caller,
    World,
    cluster_config,
    fenced_cluster,
    open_world,
)


async def look(client: Caller) -> None:
    """Send ten messages, pull them, and see them in everything that there is to look at."""
    for number in range(10):
        assert (await client.send(b"%d" % number)).code == 0
    assert (await client.pull()).code == 0
    await trio.sleep(12)
    info = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = json.loads(info.body)["table"]
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("10", "10")
    assert float(table["putTps"].split(" ")[0]) > 0
    assert table["brokerActive"] == "true"
    for name, key in (("TOPIC_PUT_NUMS", "T"), ("GROUP_GET_NUMS", "T@g")):
        answer = await client.call(
            RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader(name, key)
        )
        assert json.loads(answer.body)["statsMinute"]["sum"] == 10
    stats = await client.call(
        RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader("g", topic="T")
    )
    assert b'"brokerOffset":10,"consumerOffset":0,"lastTimestamp":0,"pullOffset":10' in stats.body
    stats = await client.call(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("T"))
    assert b'"maxOffset":10' in stats.body


async def test_a_classic_group(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(cluster_config(tmp_path, "ASYNC_MASTER")) as world:
        await world.start("a0", "a1")
        async with world.client(MASTER) as client:
            await look(client)
        async with world.client(world.address("a1")) as client:
            info = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            assert json.loads(info.body)["table"]["msgPutTotalTodayNow"] == "0"


async def put_total(world: World, name: str) -> str:
    async with world.client(world.address(name)) as client:
        info = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        total: str = json.loads(info.body)["table"]["msgPutTotalTodayNow"]
        return total


@pytest.mark.slow
async def test_a_fenced_group_whose_next_master_goes_on_with_what_it_has_seen(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        name = await world.master()
        async with world.client(world.address(name)) as client:
            await look(client)
        await world.kill(name)
        others = [each for each in NAMES if each != name]
        heir = await world.master(*others, after=1)
        assert await put_total(world, heir) == "10"
