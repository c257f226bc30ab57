"""A whole shadow on virtual time, following a master that goes by RocketMQ's rules."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.classic.ha_client import NOTHING_ACKNOWLEDGED
from node.shadow.errors import ShadowCause, ShadowError
from node.shadow.follower import MARGIN_SECONDS
from store.machine.errors import ConnectionLost
from tandem.wire.message import Host
from tandem.wire.route import BrokerData
from tests.node.shadow.fake_master import CLIENT_PORT, FILE_BYTES, HA_PORT, SERVER_PORT, FakeMaster
from tests.node.shadow.world import OTHER_IP, TIMEOUT_SECONDS, World, a_log, grow, open_world
from tests.support.log_builder import record_starts


async def test_a_log_is_copied_and_nothing_is_acknowledged(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.shadow():
        await world.caught_up()
        master = world.master
        # An empty log begins with the master's last file, by the master's own rule.
        begin = len(master.log) - len(master.log) % FILE_BYTES
        assert world.log == master.log[begin:]
        assert master.requested[0][1] == 0
        grow(world.builder, 5)
        await world.caught_up()
        assert world.log == master.log[begin:]
        assert master.acknowledged == 0
        assert master.slave_ack == NOTHING_ACKNOWLEDGED
        await trio.sleep(25)
        assert master.slave_ack == NOTHING_ACKNOWLEDGED
        assert len(master.requested) == 1  # its heartbeats keep the connection alive
        assert (world.said[-1].state, world.said[-1].behind_bytes) == ("following", 0)


async def test_one_that_counts_acknowledges_all(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.shadow(count_as_slave=True):
        await world.caught_up()
        assert world.master.acknowledged == len(world.master.log)


async def test_who_comes_back_waits_until_no_put_can_wait_for_what_it_has(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.shadow():
        await world.caught_up()
        for _ in range(3):
            grow(world.builder, 1)
            await trio.sleep(0.2)
            last_byte = trio.current_time()
            world.master.drop()
            dials = len(world.master.requested)
            while len(world.master.requested) == dials:
                await trio.sleep(0.05)
            at, requested = world.master.requested[-1]
            assert at >= last_byte - 0.2 + TIMEOUT_SECONDS + MARGIN_SECONDS
            begin = len(world.master.log) - len(world.log)
            assert requested == begin + record_starts(world.log)[-1]


async def test_a_process_that_starts_with_a_log_waits_too(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.shadow():
            await world.caught_up()
        begin = trio.current_time()
        async with world.shadow():
            while len(world.master.requested) == 1:
                await trio.sleep(0.05)
            assert world.master.requested[-1][0] >= begin + TIMEOUT_SECONDS + MARGIN_SECONDS
            await world.caught_up()
    assert world.said[-1].state == "stopped"


async def test_a_put_that_waits_at_a_master_that_grew_again_is_not_answered(
    autojump_clock: MockClock,
) -> None:
    """The master lost its tail while the shadow was away, and the offsets are given out anew."""
    async with open_world() as world:
        async with world.shadow():
            await world.caught_up()
        world.master.brokers, brokers = {}, world.master.brokers
        async with world.shadow():
            # Away for longer than any put waits.
            await trio.sleep(2 * (TIMEOUT_SECONDS + MARGIN_SECONDS))
            grown = trio.current_time()
            world.master.brokers = brokers
            while len(world.master.requested) == 1:
                await trio.sleep(0.05)
            assert world.master.requested[-1][0] >= grown + TIMEOUT_SECONDS + MARGIN_SECONDS


async def test_tables_are_copied_into_the_files_that_rocketmq_reads(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.shadow():
        await world.caught_up()
        assert b'"topicName":"T"' in (world.disk.read("/shadow/config/topics.json") or b"")
        await trio.sleep(15)
        assert b'"T@g":{0:7' in (world.disk.read("/shadow/config/consumerOffset.json") or b"")
        assert world.said[-1].topics == 1
        assert world.disk.list_directories("/shadow/consumequeue") == ["T"]


async def test_the_master_is_found_again_where_the_name_server_says(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.shadow():
        await world.caught_up()
        other = FakeMaster(world.network.machine(OTHER_IP), OTHER_IP)
        other.log = a_log(43).log
        async with trio.open_nursery() as nursery:
            await nursery.start(other.serve)
            world.master.brokers["broker-a"] = BrokerData(
                broker_addrs={0: f"{OTHER_IP}:{CLIENT_PORT}"}, broker_name="broker-a", cluster="c"
            )
            world.master.drop()
            world.master.log = other.log
            await world.caught_up()
            assert other.requested
            assert world.said[-1].master == f"{OTHER_IP}:{HA_PORT}"
            nursery.cancel_scope.cancel()


async def refused(world: World, cause: ShadowCause, **changes: object) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(ShadowError, check=lambda error: error.cause is cause),
        flatten_subgroups=True,
    ):
        async with world.shadow(**changes):
            await trio.sleep(60)


@pytest.mark.parametrize("name_servers", [True, False])
async def test_another_history_is_refused_and_nothing_is_touched(
    autojump_clock: MockClock, *, name_servers: bool
) -> None:
    changes: dict[str, object] = {} if name_servers else {"name_servers": ()}
    if not name_servers:
        changes["commit_log_file_bytes"] = FILE_BYTES
    async with open_world() as world:
        async with world.shadow(**changes):
            await world.caught_up()
        before = world.log
        end = len(world.master.log)
        grow(world.builder, 2)
        world.master.log[end - 10] ^= 1
        await refused(world, ShadowCause.OTHER_HISTORY, **changes)
        assert world.log == before


async def test_a_master_that_lost_what_was_copied_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.shadow():
            await world.caught_up()
        starts = record_starts(bytes(world.master.log))
        del world.master.log[starts[-3] :]
        await refused(world, ShadowCause.MASTER_LOST)


async def test_a_gap_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.shadow():
            await world.caught_up()
        start = 10 * FILE_BYTES
        world.master.start, world.master.log = start, a_log(20, start).log
        await refused(world, ShadowCause.GAP)


async def test_the_directory_of_another_broker_or_store_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.shadow():
            await world.caught_up()
        world.master.brokers["b"] = msgspec.structs.replace(
            world.master.brokers["broker-a"], broker_name="b"
        )
        await refused(world, ShadowCause.OTHER_BROKER, broker_name="b")
        await refused(world, ShadowCause.UNKNOWN_BROKER, broker_name="c")
        await refused(world, ShadowCause.WHICH_BROKER, directory="/new")
        world.disk.remove("/shadow/shadow.json")
        await refused(world, ShadowCause.OTHER_STORE, broker_name="broker-a")


async def test_files_of_another_size_are_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.shadow():
            await world.caught_up()
        world.master.settings["mappedFileSizeCommitLog"] = "8192"
        await refused(world, ShadowCause.FILE_SIZE)


async def test_without_anybody_to_ask_at_the_start_it_says_so(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with pytest.RaisesGroup(pytest.RaisesExc(ConnectionLost), flatten_subgroups=True):
            async with world.shadow(name_servers=(Host(OTHER_IP, SERVER_PORT),)):
                await trio.sleep(60)


@pytest.mark.parametrize("known", ["not at all", "without a master"])
async def test_a_master_that_nobody_knows_later_is_waited_for(
    autojump_clock: MockClock, known: str
) -> None:
    """Name servers forget a broker that is gone."""
    async with open_world() as world:
        async with world.shadow():
            await world.caught_up()
        grow(world.builder, 3)
        brokers = dict(world.master.brokers)
        del world.master.brokers["broker-a"]
        if known != "not at all":
            world.master.brokers["broker-a"] = BrokerData(
                broker_addrs={1: f"{OTHER_IP}:{CLIENT_PORT}"}, broker_name="broker-a", cluster="c"
            )
        async with world.shadow():
            await trio.sleep(30)
            assert world.said[-1].state == "searching"
            world.master.brokers = brokers
            await world.caught_up()
