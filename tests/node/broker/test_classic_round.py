from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from node.config.part_configs import ha_config, store_config
from store import FlushDiskType
from store.machine.network import ConnectionLost
from tandem.wire.message import Host
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.system_topics import AUTO_CREATE_TOPIC
from tests.node.world import (
    MASTER,
    SLAVE_1,
    SLAVE_2,
    Caller,
    World,
    bodies,
    cluster_config,
    open_world,
)

ALL = ("a0", "a1", "a2")


async def until_in_sync(client: Caller, count: int = 2) -> None:
    with trio.fail_after(30):
        while (await client.ha_status()).in_sync_slave_nums != count:
            await trio.sleep(0.05)


async def test_a_cluster_takes_messages_and_its_slaves_serve_them(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start(*ALL)
        async with world.client(MASTER) as master, world.client(SLAVE_2) as slave:
            await until_in_sync(master)
            assert (await master.send(b"one")).code == 0
            assert (await master.send(b"two")).code == 0
            with trio.fail_after(1):
                while (await slave.pull()).code:
                    await trio.sleep(0.05)
            assert bodies(await master.pull()) == [b"one", b"two"]
            assert bodies(await slave.pull(1)) == [b"two"]
            assert (await slave.send(b"three")).code == 2


async def test_master_and_slave_tell_when_the_first_message_was_stored(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start(*ALL)
        async with world.client(MASTER) as master, world.client(SLAVE_1) as slave:
            await until_in_sync(master)
            assert await master.earliest_store_time() == -1
            assert (await master.send(b"one")).code == 0
            await trio.sleep(1)
            assert await master.earliest_store_time() == await slave.earliest_store_time() > 0


async def test_every_node_knows_every_node(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start(*ALL)
        await trio.sleep(2)
        everybody = {0: f"{MASTER}:10911", 1: f"{SLAVE_1}:10911", 2: f"{SLAVE_2}:10911"}
        for host in (MASTER, SLAVE_1, SLAVE_2):
            for port in (10911, 9876):
                async with world.client(host, port) as client:
                    assert await client.route(AUTO_CREATE_TOPIC) == everybody


async def test_the_name_server_port_serves_routes_only(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0")
        async with world.client(MASTER, 9876) as client:
            assert (await client.call(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
            assert (await client.send(b"x")).code == 3


async def test_a_new_topic_is_known_everywhere_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start(*ALL)
        async with world.client(MASTER) as master, world.client(SLAVE_1) as slave:
            await until_in_sync(master)
            await trio.sleep(10)
            assert (await master.send(b"x", topic="Fresh")).code == 0
            await trio.sleep(0.3)
            assert len(await slave.route("Fresh")) == 3
            assert bodies(await slave.pull(topic="Fresh")) == [b"x"]


async def test_without_slaves_the_answer_says_so_and_wait_false_is_fine(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            answer = await master.send(b"one")
            assert (answer.code, answer.remark) == (11, "no slave connected")
            assert (await master.send(b"two", wait=False)).code == 0
            assert bodies(await master.pull()) == [b"one", b"two"]


async def test_an_async_master_waits_for_nobody(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            assert (await master.send(b"one")).code == 0


async def test_a_sync_flush_is_waited_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    config = cluster_config(tmp_path, role="ASYNC_MASTER", flush="SYNC_FLUSH")
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            world.disks["a0"].sync_seconds = lambda: 0.5
            begin = trio.current_time()
            assert (await master.send(b"one")).code == 0
            assert trio.current_time() - begin >= 0.5


async def test_a_slave_that_stands_still_makes_the_put_time_out_with_a_reason(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0", "a1")
        async with world.client(MASTER) as master:
            await until_in_sync(master, 1)
            world.network.stall(MASTER, SLAVE_1)
            begin = trio.current_time()
            answer = await master.send(b"one")
            assert answer.code == 12
            assert "a1" in str(answer.remark)
            assert trio.current_time() - begin == pytest.approx(3, abs=0.1)


async def test_the_slave_serves_while_the_master_is_dead(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start(*ALL)
        async with world.client(MASTER) as master:
            await until_in_sync(master)
            await master.send(b"one")
            header = UpdateConsumerOffsetRequestHeader("g", "T", 0, 1)
            await master.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            await trio.sleep(4)
        await world.kill("a0")
        async with world.client(SLAVE_1) as slave:
            # Its connection to this name server has ended, which is noticed in a turn of its own.
            with trio.fail_after(1):
                while await slave.route("T") != {1: f"{SLAVE_1}:10911", 2: f"{SLAVE_2}:10911"}:
                    await trio.sleep(0.05)
            assert bodies(await slave.pull()) == [b"one"]
            query = QueryConsumerOffsetRequestHeader("g", "T", 0)
            told = await slave.call(RequestCode.QUERY_CONSUMER_OFFSET, query)
            assert told.decode_header(OffsetResponseHeader).offset == 1
            begin = trio.current_time()
            held = await slave.pull(1, suspend_ms=2000)
            assert held.code == 19
            assert trio.current_time() - begin == pytest.approx(2, abs=0.1)


async def test_a_killed_master_comes_back_with_all_it_had(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start(*ALL)
        async with world.client(MASTER) as master:
            await until_in_sync(master)
            for number in range(20):
                assert (await master.send(b"%d" % number)).code == 0
        await world.kill("a0")
        await world.start("a0")
        async with world.client(MASTER) as master:
            await until_in_sync(master)
            assert (await master.send(b"after")).code == 0
            assert len(bodies(await master.pull())) == 21
            with trio.fail_after(3):
                while len(await master.route("T")) != 3:
                    await trio.sleep(0.1)


async def test_a_held_pull_on_a_slave_is_answered_by_replication(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0", "a1")
        async with world.client(MASTER) as master, world.client(SLAVE_1) as slave:
            await until_in_sync(master, 1)
            await master.send(b"one")
            await trio.sleep(4)
            answers: list[RemotingCommand] = []

            async def wait_for_second() -> None:
                answers.append(await slave.pull(1, suspend_ms=15_000))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_second)
                await trio.sleep(0.5)
                begin = trio.current_time()
                await master.send(b"two")
            assert bodies(answers[0]) == [b"two"]
            assert trio.current_time() - begin < 1


async def test_offsets_survive_a_stop(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            await master.send(b"one")
            header = UpdateConsumerOffsetRequestHeader("g", "T", 0, 1)
            await master.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        await world.stop("a0")
        await world.start("a0")
        async with world.client(MASTER) as master:
            query = QueryConsumerOffsetRequestHeader("g", "T", 0)
            told = await master.call(RequestCode.QUERY_CONSUMER_OFFSET, query)
            assert told.decode_header(OffsetResponseHeader).offset == 1


async def stop_during_a_put(world: World, stalled_seconds: float) -> RemotingCommand | None:
    """The answer to a put that waits for a stalled slave while its master is told to stop."""
    answers: list[RemotingCommand] = []

    async def send(master: Caller) -> None:
        try:
            answers.append(await master.send(b"one"))
        except ConnectionLost:
            return

    async with world.client(MASTER) as master, trio.open_nursery() as nursery:
        await until_in_sync(master, 1)
        world.network.stall(MASTER, SLAVE_1)
        nursery.start_soon(send, master)
        await trio.sleep(0.1)
        world.timeline.call_later(stalled_seconds, lambda: world.network.heal(MASTER, SLAVE_1))
        await world.stop("a0")
    return answers[0] if answers else None


async def test_a_stop_lets_the_put_in_flight_finish(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0", "a1")
        begin = trio.current_time()
        answer = await stop_during_a_put(world, 1)
        assert answer is not None
        assert answer.code == 0
        assert trio.current_time() - begin < 3


async def test_an_idle_client_does_not_hold_up_a_stop(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0")
        async with world.client(MASTER) as master:
            await master.send(b"one", wait=False)
            begin = trio.current_time()
            await world.stop("a0")
            assert trio.current_time() - begin < 0.5
            assert not world.disks["a0"].exists(f"{tmp_path}/data/a0/abort")
            with pytest.raises(ConnectionLost):
                await master.pull()


async def test_a_full_disk_refuses_puts_and_the_node_lives_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        disk = world.disks["a0"]
        async with world.client(MASTER) as master:
            await master.send(b"first")
            disk.capacity_bytes = disk.used_bytes
            answers = [await master.send(bytes(90_000)) for _ in range(30)]
            assert answers[-1].code == 1
            assert "no room" in str(answers[-1].remark)
            header = UpdateConsumerOffsetRequestHeader("g", "T", 0, 1)
            await master.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            await trio.sleep(30)
            assert bodies(await master.pull())[0] == b"first"
            disk.capacity_bytes = 1 << 40
            assert (await master.send(bytes(90_000))).code == 0


async def test_a_broker_that_falls_silent_leaves_the_route(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path)) as world:
        await world.start("a0", "a1")
        await trio.sleep(2)
        world.network.stall(SLAVE_1, MASTER)
        async with world.client(MASTER) as master:
            assert set(await master.route(AUTO_CREATE_TOPIC)) == {0, 1}
            await trio.sleep(22)
            assert set(await master.route(AUTO_CREATE_TOPIC)) == {0}
            world.network.heal(SLAVE_1, MASTER)
            await trio.sleep(6)
            assert set(await master.route(AUTO_CREATE_TOPIC)) == {0, 1}


def test_the_store_is_told_what_the_file_says(tmp_path: Path) -> None:
    config = store_config(cluster_config(tmp_path, flush="SYNC_FLUSH").node("a1"))
    assert config.directory == f"{tmp_path}/data/a1"
    assert config.mapped_file_size_commit_log_bytes == 1_048_576
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH


def test_replication_is_told_who_is_who(tmp_path: Path) -> None:
    cluster = cluster_config(tmp_path)
    assert ha_config(cluster.node("a0")).master is None
    slave = ha_config(cluster.node("a1"))
    assert slave.master == Host(MASTER, 10912)
    assert [(node.name, node.address) for node in slave.slaves] == [
        ("a1", SLAVE_1),
        ("a2", SLAVE_2),
    ]
