"""Delayed messages through a whole node, on virtual time."""

import random
import re
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.delayed.delay_offset_table import DelayOffsetTable
from store.delayed.journaled_timers import JournaledTimers
from store.delayed.timer_metrics import TimerMetricsSerializeWrapper
from store.delayed.timer_place import TimerPlace
from store.delayed_delivery import DelayedDelivery, JournaledProgress
from store.machine.table_file import TableFile
from tandem.wire.message import decode_messages
from tandem.wire.reply_headers import RecallMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tests.node.world import MASTER, SLAVE_1, Caller, World, bodies, cluster_config, open_world
from tests.store.store_world import DIRECTORY, Clock, a_message, open_store, queue_messages

T0 = 1_700_000_000_000
DELAY_OFFSETS = re.compile("delayOffset[.]json$")


async def send_delayed(client: Caller, body: bytes, level: int) -> None:
    properties = f"WAIT\x01false\x02DELAY\x01{level}\x02"
    header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties)
    assert (await client.call(RequestCode.SEND_MESSAGE_V2, header, body)).code == 0


async def messages_of(client: Caller) -> list[bytes]:
    answer = await client.pull()
    return [] if answer.code else bodies(answer)


def delay_offsets(world: World) -> bytes:
    disk = world.disks["a0"]
    (path,) = (path for path in disk._files if DELAY_OFFSETS.search(path))
    return disk.read(path) or b""


async def test_a_delayed_message_arrives_when_its_time_has_come(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            await send_delayed(master, b"later", 2)
            await send_delayed(master, b"soon", 1)
            await trio.sleep(0.9)
            assert await messages_of(master) == []
            await trio.sleep(0.2)
            assert await messages_of(master) == [b"soon"]
            await trio.sleep(3.8)
            assert await messages_of(master) == [b"soon"]
            await trio.sleep(0.2)
            assert await messages_of(master) == [b"soon", b"later"]
            (_, found) = decode_messages((await master.pull()).body)
            assert found.properties["REAL_TOPIC"] == "T"
            assert str(found.store_host) == f"{MASTER}:10911"


@pytest.mark.slow
async def test_a_message_with_a_time_of_its_own_arrives_then(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path, role="ASYNC_MASTER")
    store = msgspec.structs.replace(config.store, timer_wheel_enable=True)
    async with open_world(msgspec.structs.replace(config, store=store)) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            properties = "WAIT\x01false\x02TIMER_DELAY_MS\x012500\x02"
            header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties)
            answer = await master.call(RequestCode.SEND_MESSAGE_V2, header, b"timed")
            assert answer.code == 0
            await trio.sleep(2.4)
            assert await messages_of(master) == []
            await trio.sleep(1.2)
            assert await messages_of(master) == [b"timed"]
        await world.stop("a0")
        await world.start("a0")
        async with world.client(MASTER) as master:
            await trio.sleep(10)
            assert await messages_of(master) == [b"timed"]
            told = await master.call(RequestCode.GET_TIMER_CHECK_POINT, None)
            disk = world.disks["a0"]
            (path,) = (path for path in disk._files if path.endswith("/config/timercheck"))
            assert told.body == (disk.read(path) or b"")[:56] != bytes(56)


async def waiting_of(client: Caller) -> dict[str, int]:
    answer = await client.call(RequestCode.GET_TIMER_METRICS, None)
    assert answer.code == 0
    found = msgspec.json.decode(answer.body, type=TimerMetricsSerializeWrapper).timing_count
    return {topic: metric.count for topic, metric in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_master_says_how_many_timers_wait_for_each_topic(
    how: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path, role="ASYNC_MASTER")
    store = msgspec.structs.replace(config.store, timer_wheel_enable=True)
    broker = msgspec.structs.replace(config.broker, recall_message_enable=True)
    config = msgspec.structs.replace(config, store=store, broker=broker)
    async with open_world(config) as world:
        await world.start("a0", "a1")
        async with world.client(MASTER) as master, world.client(SLAVE_1) as slave:
            assert await waiting_of(master) == {}
            refused = await slave.call(RequestCode.GET_TIMER_METRICS, None)
            assert (refused.code, refused.body) == (1, b"")
            handles = []
            for number, seconds in enumerate((2, 60, 60, 60)):
                properties = f"UNIQ_KEY\x01K{number}\x02TIMER_DELAY_SEC\x01{seconds}\x02"
                header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties)
                answer = await master.call(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
                handles.append(answer.ext_fields()["recallHandle"])
            await trio.sleep(0.5)
            assert await waiting_of(master) == {"T": 4}
            await trio.sleep(3)
            assert await waiting_of(master) == {"T": 3}
            recall = RecallMessageRequestHeader("T", handles[3], "PG")
            assert (await master.call(RequestCode.RECALL_MESSAGE, recall)).code == 0
            await trio.sleep(0.5)
            assert await waiting_of(master) == {"T": 2}
        await (world.stop("a0") if how == "stop" else world.kill("a0"))
        await world.start("a0")
        async with world.client(MASTER) as master:
            await trio.sleep(1)
            assert await waiting_of(master) == {"T": 2}
            await trio.sleep(60)
            assert sorted(set(await messages_of(master))) == [b"0", b"1", b"2"]
            assert await waiting_of(master) == {}


async def test_a_time_of_its_own_is_refused_where_timers_are_off(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            properties = "TIMER_DELAY_MS\x012500\x02"
            header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties)
            answer = await master.call(RequestCode.SEND_MESSAGE_V2, header, b"timed")
            assert answer.code == 1
            assert "timer_wheel_enable" in (answer.remark or "")
            told = await master.call(RequestCode.GET_TIMER_CHECK_POINT, None)
            assert (told.code, told.body) == (1, b"")
            told = await master.call(RequestCode.GET_TIMER_METRICS, None)
            assert (told.code, told.body) == (1, b"")


async def test_a_consumer_that_waits_gets_a_delayed_message_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with world.client(MASTER) as producer, world.client(MASTER) as consumer:
            await producer.send(b"first", wait=False)
            await send_delayed(producer, b"second", 1)
            start = trio.current_time()
            assert bodies(await consumer.pull(1, suspend_ms=15_000)) == [b"second"]
            assert trio.current_time() - start == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_delayed_message_survives_a_restart(
    how: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            await send_delayed(master, b"one", 1)
            await send_delayed(master, b"two", 3)
            await trio.sleep(2)
            assert await messages_of(master) == [b"one"]
        await (world.stop("a0") if how == "stop" else world.kill("a0"))
        await trio.sleep(1)
        await world.start("a0")
        async with world.client(MASTER) as master:
            await trio.sleep(3)
            repeated = [] if how == "stop" else [b"one"]
            assert await messages_of(master) == [b"one", *repeated]
            await trio.sleep(5)
            assert await messages_of(master) == [b"one", *repeated, b"two"]


async def test_a_stop_remembers_what_was_delivered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            await send_delayed(master, b"one", 1)
            await trio.sleep(1.1)
        await world.stop("a0")
        assert b"{1:1" in delay_offsets(world)


async def test_slaves_copy_delayed_messages_and_deliver_none_themselves(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0", "a1")
        async with world.client(MASTER) as master, world.client(SLAVE_1) as slave:
            await trio.sleep(2)
            await send_delayed(master, b"one", 1)
            await trio.sleep(3)
            assert await messages_of(master) == [b"one"]
            assert await messages_of(slave) == [b"one"]
            waiting = decode_messages((await slave.pull(topic="SCHEDULE_TOPIC_XXXX")).body)
            assert [message.body for message in waiting] == [b"one"]


@pytest.mark.parametrize("request_", [b"DELAY\x011\x02", b"TIMER_DELAY_MS\x011000\x02"])
@pytest.mark.parametrize("noted", [False, True])
def test_a_group_that_has_noted_nothing_yet_repeats_nothing(
    request_: bytes, *, noted: bool
) -> None:
    """Progress without a place in the log is of an older version, or of a classic master."""
    disk, clock = SimulatedDisk(), Clock(T0, step_ms=0)
    store = open_store(disk, clock=clock, timer_wheel_enable=True)

    def become_master() -> DelayedDelivery:
        table = DelayOffsetTable(TableFile(disk, f"{DIRECTORY}/none.json"), clock)
        journaled = JournaledProgress(table)
        if noted:
            table.update(2, 1)
            journaled.timers = TimerPlace(slot_ms=1)
        return DelayedDelivery(
            store, disk, wall_clock_ms=clock, random=random.Random(1), journaled=journaled
        )

    def deliver(delivery: DelayedDelivery) -> int:
        assert isinstance(delivery._timers, JournaledTimers)
        for _ in range(3):
            delivery._schedule.deliver_due(clock.now_ms)
            delivery._timers.deliver_due(clock.now_ms)
        store.announce()
        return len(queue_messages(store, "TopicA", 0))

    first = become_master()
    message = msgspec.structs.replace(a_message(1), properties=request_)
    assert store.puts.put_message(message).status.is_stored
    store.announce()
    clock.now_ms += 3000
    assert deliver(first) == 1
    assert len(first.timer_checkpoint() or b"") == 56
    assert deliver(become_master()) == 1 + noted
