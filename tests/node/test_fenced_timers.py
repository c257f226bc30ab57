"""Messages with a time of their own, while masters come and go."""

from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from store.delayed.timer_metrics import TimerMetricsSerializeWrapper
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.message import decode_messages
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tests.node.world import COORDINATOR, NAMES, World, bodies, fenced_cluster, open_world

pytestmark = pytest.mark.slow


def timed_cluster(path: Path) -> ClusterConfig:
    config = fenced_cluster(path)
    store = msgspec.structs.replace(config.store, timer_wheel_enable=True)
    return msgspec.structs.replace(config, store=store)


def others(master: str) -> list[str]:
    return [name for name in NAMES if name != master]


async def send(world: World, master: str, body: bytes, seconds: int) -> None:
    properties = f"TIMER_DELAY_SEC\x01{seconds}\x02"
    header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties)
    async with world.client(world.address(master)) as client:
        answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, body)
        assert answer.code == 0, answer.remark


async def received(world: World, name: str) -> list[bytes]:
    async with world.client(world.address(name)) as client:
        answer = await client.pull()
        return [] if answer.code else bodies(answer)


async def test_messages_that_wait_are_delivered_by_the_next_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(timed_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        await send(world, master, b"soon", 5)
        await send(world, master, b"later", 60)
        await trio.sleep(10)
        assert await received(world, master) == [b"soon"]
        await world.kill(master)
        successor = await world.master(*others(master))
        assert await received(world, successor) == [b"soon"]
        await trio.sleep(60)
        assert await received(world, successor) == [b"soon", b"later"]
        async with world.client(world.address(successor)) as client:
            for message in decode_messages((await client.pull()).body):
                waited_ms = message.store_timestamp_ms - int(message.properties["TIMER_OUT_MS"])
                assert waited_ms >= 1000


async def waiting(world: World, name: str) -> dict[str, int] | None:
    async with world.client(world.address(name)) as client:
        answer = await client.call(RequestCode.GET_TIMER_METRICS)
        if answer.code:
            return None
        found = msgspec.json.decode(answer.body, type=TimerMetricsSerializeWrapper).timing_count
        return {topic: metric.count for topic, metric in found.items()}


async def test_the_master_says_how_many_wait_and_the_next_one_counts_anew(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(timed_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert await waiting(world, master) == {}
        assert [await waiting(world, name) for name in others(master)] == [None, None]
        for seconds in (5, 60, 60, 300):
            await send(world, master, b"x", seconds)
        await trio.sleep(1)
        assert await waiting(world, master) == {"T": 4}
        await trio.sleep(9)
        assert await waiting(world, master) == {"T": 3}
        await world.kill(master)
        successor = await world.master(*others(master))
        await trio.sleep(1)
        assert await waiting(world, successor) == {"T": 3}
        await trio.sleep(60)
        assert await waiting(world, successor) == {"T": 1}


async def test_every_node_that_becomes_master_knows_what_was_delivered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(timed_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        for turn in range(4):
            master = await world.master()
            await send(world, master, b"%d" % turn, 5)
            await send(world, master, b"far %d" % turn, 300)
            await trio.sleep(10)
            await world.kill(master)
            successor = await world.master(*others(master))
            await world.start(master)
            await trio.sleep(10)
            expected = [b"%d" % each for each in range(turn + 1)]
            assert await received(world, successor) == expected
        await trio.sleep(300)
        found = await received(world, await world.master())
        assert found[4:] == [b"far %d" % each for each in range(4)]


async def test_a_delivery_that_was_not_confirmed_is_done_by_the_next_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Its master is cut off before the time has come, and delivers to nobody."""
    async with open_world(timed_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        await send(world, master, b"once", 20)
        for each in (COORDINATOR, *map(world.address, others(master))):
            world.network.stall(world.address(master), each)
            world.network.stall(each, world.address(master))
        await trio.sleep(40)
        successor = await world.master(*others(master))
        assert await received(world, successor) == [b"once"]


async def test_all_nodes_stop_and_start_and_what_is_due_by_then_is_delivered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(timed_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        await send(world, master, b"first", 5)
        await send(world, master, b"second", 30)
        await trio.sleep(10)
        for name in NAMES:
            await world.kill(name)
        await trio.sleep(60)
        await world.start(*NAMES)
        master = await world.master()
        await trio.sleep(5)
        assert await received(world, master) == [b"first", b"second"]
