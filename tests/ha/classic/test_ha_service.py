"""Masters and slaves over a simulated network: what both together promise."""

import logging

import pytest
import trio
from trio.testing import MockClock

from ha.classic.ha_service import HAService
from ha.results import Ack, ReplicaStanding
from node.simulated.network import NetworkSettings
from store import PutMessageStatus
from store.machine.errors import AddressInUseError
from tandem.wire.response_code import ResponseCode
from tests.ha.classic_world import (
    HA_PORT,
    MASTER_IP,
    SLAVE_IPS,
    Nobody,
    master_config,
    open_pair,
    open_world,
    slave_config,
)
from tests.ha.world import BODIES, DIRECTORY, FILE_SIZE_BYTES
from tests.support.reasons import words


async def test_an_empty_slave_gets_the_whole_log(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        log = world.fill("master", BODIES)
        assert len(log) > 2 * FILE_SIZE_BYTES
        async with world.running(master_config()) as master, world.running(slave_config("a")) as a:
            await master.wait_in_sync("a")
            assert a.log == log


async def test_an_empty_slave_gets_the_last_file_if_set_so(autojump_clock: MockClock) -> None:
    """RocketMQ's rule; source: DefaultHAConnection.WriteSocketService.run."""
    async with open_world() as world:
        log = world.fill("master", BODIES)
        start = len(log) - len(log) % FILE_SIZE_BYTES
        config = master_config(sync_from_last_file=True)
        async with world.running(config) as master, world.running(slave_config("a")) as a:
            await master.wait_in_sync("a")
            assert a.store.min_physical_offset == start
            assert a.log == log[start:]


async def test_puts_reach_both_slaves_and_their_queues(autojump_clock: MockClock) -> None:
    async with open_pair() as (world, master, a), world.running(slave_config("b")) as b:
        for body in BODIES:
            master.put(body)
            await trio.sleep(0.0003)
        await master.wait_in_sync("a", "b")
        assert a.log == b.log == master.log
        assert a.store.reads.max_offset_in_queue("T", 0) == len(BODIES)


async def test_a_waiting_put_is_answered_when_a_slave_has_it(autojump_clock: MockClock) -> None:
    async with open_pair() as (_, master, a):
        await master.wait_in_sync("a")
        before = trio.current_time()
        assert await master.put_and_wait() == (PutMessageStatus.PUT_OK, "")
        assert trio.current_time() - before < 0.1
        assert a.log == master.log


async def test_a_slave_that_was_away_catches_up(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.running(master_config()) as master:
        for _ in range(3):
            master.put()
            async with world.running(slave_config("a")) as a:
                await master.wait_in_sync("a")
                assert a.log == master.log
            for body in BODIES[:20]:
                master.put(body)


async def test_a_restarted_master_finds_its_slaves_again(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.running(slave_config("a")) as a:
        for _ in range(3):
            async with world.running(master_config()) as master:
                master.put()
                await master.wait_in_sync("a")
                assert a.log == master.log


async def test_a_cut_connection_is_made_again(autojump_clock: MockClock) -> None:
    async with open_pair() as (world, master, a):
        for number, body in enumerate(BODIES):
            master.put(body)
            await trio.sleep(0.5)
            if number % 10 == 5:
                world.network.cut(MASTER_IP, SLAVE_IPS["a"])
        await master.wait_in_sync("a")
        assert a.log == master.log


async def test_a_stalled_slave_is_a_timeout_exactly_at_the_deadline(
    autojump_clock: MockClock,
) -> None:
    async with open_pair() as (world, master, _):
        await master.wait_in_sync("a")
        world.network.stall(MASTER_IP, SLAVE_IPS["a"])
        before = trio.current_time()
        status, why = await master.put_and_wait()
        assert status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert "no slave acknowledged offset" in why
        assert trio.current_time() - before == pytest.approx(3.0)
        world.network.heal(MASTER_IP, SLAVE_IPS["a"])
        assert (await master.put_and_wait())[0] is PutMessageStatus.PUT_OK


async def test_a_slave_far_ahead_is_refused_with_an_alarm(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        world.fill("master", BODIES[:10])
        world.copy_disk("master", "a")
        slave_log = world.fill("a", BODIES[10:20])
        async with world.running(master_config()) as master, world.running(slave_config("a")) as a:
            await trio.sleep(10)
            _, why = await master.put_and_wait()
            assert "slave a is ahead of the master by" in why
            assert "refused" in why
            assert words(master.why_not_in_sync("a")).startswith("is ahead of the master by")
            assert a.log == slave_log
        alarms = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert len(alarms) == 1
        assert "move its store directory away" in alarms[0].getMessage()


async def test_a_slave_whose_rest_was_deleted_is_refused_with_what_to_do(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        world.fill("master", BODIES[:2])
        world.copy_disk("master", "a")
        world.fill("master", BODIES)
        world.disks["master"].remove(f"{DIRECTORY}/commitlog/{0:020d}")
        async with world.running(master_config()) as master, world.running(slave_config("a")) as a:
            await trio.sleep(10)
            reason = words(master.why_not_in_sync("a"))
            assert reason.startswith("is too far behind: reported offset ")
            assert reason.endswith(f"but the master's log begins at {FILE_SIZE_BYTES}")
            assert len(a.log) < FILE_SIZE_BYTES
        # The store's own says that the file is missing, for no clean-up has taken it.
        alarms = [
            r for r in caplog.records if r.levelno == logging.ERROR and "slave a" in r.message
        ]
        assert len(alarms) == 1
        assert "cannot catch up" in alarms[0].getMessage()
        assert "move its store directory away" in alarms[0].getMessage()


async def test_a_slave_ahead_by_its_last_record_is_refused_to_the_byte(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        log = world.fill("master", BODIES[:10])
        world.copy_disk("master", "a")
        slave_log = world.fill("a", [b"one more"])
        ahead_bytes = len(slave_log) - len(log)
        async with world.running(master_config()) as master, world.running(slave_config("a")) as a:
            await trio.sleep(0.5)
            assert (
                master.why_not_in_sync("a")
                == f"is ahead of the master by {ahead_bytes} bytes: refused"
            )
            await trio.sleep(10)
            assert a.log == slave_log
            assert master.service.group_transfer_service.push2_slave_max_offset == 0
        assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 2


async def test_a_slave_of_another_history_appends_nothing_and_acknowledges_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        world.fill("master", BODIES[:10])
        world.copy_disk("master", "a")
        slave_log = world.fill("a", [b"written by a"])
        world.fill("master", [b"written by the master", *BODIES[:5]])
        async with world.running(master_config()) as master, world.running(slave_config("a")) as a:
            await trio.sleep(10)
            assert a.log == slave_log
            assert words(master.why_not_in_sync("a")).startswith(
                "cannot follow the master and stopped at offset"
            )
            assert master.service.group_transfer_service.push2_slave_max_offset == 0
        assert "our log and the master's differ at offset" in caplog.text


async def test_a_full_slave_says_so_once_and_goes_on_when_there_is_room(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_pair() as (world, master, a):
        master.put()
        await master.wait_in_sync("a")
        disk = world.disks["a"]
        disk.capacity_bytes = disk.used_bytes
        for body in BODIES:
            master.put(body)
        await trio.sleep(10)
        assert len(a.log) <= 2 * FILE_SIZE_BYTES, "one file in use, one prepared"
        assert a.log == master.log[: len(a.log)]
        service = master.service.group_transfer_service
        assert service.push2_slave_max_offset <= len(a.log)
        about_room = [r for r in caplog.records if "no room for" in r.getMessage()]
        assert [r.levelno for r in about_room if r.name == "ha.classic.master_follower"] == [
            logging.ERROR
        ]
        disk.capacity_bytes = 1 << 40
        await master.wait_in_sync("a")
        assert a.log == master.log


async def test_a_half_open_connection_gives_way_to_a_new_one(autojump_clock: MockClock) -> None:
    async with open_pair() as (world, master, a):
        master.put()
        await master.wait_in_sync("a")
        world.network.cut(SLAVE_IPS["a"], MASTER_IP, half_open=True)
        master.put()
        await master.wait_in_sync("a")
        assert a.log == master.log


async def test_runtime_info_of_a_master(autojump_clock: MockClock) -> None:
    async with open_pair() as (_, master, _):
        end = master.put()
        await master.wait_in_sync("a")
        info = master.service.runtime_info()
        assert (info.master, info.master_commit_log_max_offset) == (True, end)
        assert info.in_sync_slave_nums == 1
        a, b = info.ha_connection_info
        assert (a.name, a.in_sync, a.reason) == ("a", True, "")
        assert a.addr.startswith("127.0.0.2:")
        assert (a.slave_ack_offset, a.diff, a.transfer_from_where) == (end, 0, end)
        assert (b.name, b.addr, b.in_sync) == ("b", "127.0.0.3", False)
        assert (b.slave_ack_offset, b.diff) == (-1, end)
        assert b.reason == "is not connected"
        await trio.sleep(1)
        assert master.service.runtime_info().ha_connection_info[0].transferred_byte_in_second


async def test_runtime_info_of_a_slave(autojump_clock: MockClock) -> None:
    async with open_pair() as (_, master, a):
        end = master.put()
        await master.wait_in_sync("a")
        info = a.service.runtime_info()
        assert not info.master
        client = info.ha_client_runtime_info
        assert (client.master_addr, client.max_offset) == ("127.0.0.1:10912", end)
        assert client.last_read_timestamp > 1_700_000_000_000
        assert client.last_write_timestamp > 1_700_000_000_000


async def test_a_busy_ha_port_is_an_error_that_names_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        machine = world.network.machine(MASTER_IP)
        await machine.listen(MASTER_IP, HA_PORT)
        with world.open_store("master", is_slave=False) as store:
            service = HAService(master_config(), store, machine, wall_clock_ms=lambda: 0)
            with pytest.raises(AddressInUseError, match=r"127\.0\.0\.1:10912"):
                await service.run(Nobody())


async def test_a_slave_whose_disk_failed_acknowledges_nothing_any_more(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_pair() as (world, master, a):
        master.put()
        await master.wait_in_sync("a")
        world.disks["a"].sync_fails = True
        await trio.sleep(15)
        copied = len(a.log)
        world.network.cut(MASTER_IP, SLAVE_IPS["a"])
        for _ in range(2):
            await trio.sleep(15)
            assert len(a.log) == copied
            assert master.service.group_transfer_service.slaves["a"].ack_offset == -1
            assert words(master.why_not_in_sync("a")).startswith("cannot follow the master")
            master.put()
        errors = [
            r for r in caplog.records if r.name == "ha.classic.master_follower" and r.levelno >= 40
        ]
        assert len(errors) == 1


async def test_what_is_sent_in_pieces_arrives_whole(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    always = NetworkSettings(split_chance=1.0, short_send_chance=1.0)
    async with open_world(always) as world:
        log = world.fill("master", BODIES)
        async with world.running(master_config()) as master, world.running(slave_config("a")) as a:
            await master.wait_in_sync("a")
            for body in BODIES:
                master.put(body)
                await trio.sleep(0.01)
            await master.wait_in_sync("a")
            assert a.log == master.log
            assert a.log.startswith(log)
            assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


async def test_a_master_begins_when_it_runs(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        machine = world.network.machine(MASTER_IP)
        with world.open_store("master", is_slave=False) as store:
            service = HAService(master_config(), store, machine, wall_clock_ms=lambda: 0)
            nobody = Nobody()
            with trio.move_on_after(0.1):
                await service.run(nobody)
            assert nobody.epochs_opened == [0]
            assert service.refusal() is None
            assert service.why_behind() is None
            assert (service.is_master, service.epoch) == (True, 0)


async def test_a_slave_takes_no_messages_and_names_its_master(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        config = slave_config("a", master_for_clients="broker-a-0 at 127.0.0.1:10911")
        machine = world.network.machine(config.address)
        with world.open_store("a", is_slave=True) as store:
            service = HAService(config, store, machine, wall_clock_ms=lambda: 0)
            nobody = Nobody()
            with trio.move_on_after(0.1):
                await service.run(nobody)
            assert nobody.epochs_opened == []
            refusal = service.refusal()
            assert refusal is not None
            assert refusal.code == ResponseCode.SYSTEM_BUSY
            assert refusal.text.startswith("[REJECTREQUEST]")
            assert refusal.text.endswith("send to the master broker-a-0 at 127.0.0.1:10911")
            assert not service.is_master
            assert "the master is broker-a-0" in words(service.why_behind())


@pytest.mark.parametrize("is_sync", [True, False])
async def test_puts_wait_for_slaves_of_a_sync_master(
    autojump_clock: MockClock, *, is_sync: bool
) -> None:
    async with open_world() as world:
        machine = world.network.machine(MASTER_IP)
        with world.open_store("master", is_slave=False) as store:
            config = master_config(is_sync_master=is_sync)
            service = HAService(config, store, machine, wall_clock_ms=lambda: 0)
            assert (service.waits(Ack.REPLICATED) is not None) == is_sync
            assert service.waits(Ack.FLUSHED) is service.waits(Ack.REPLICATED)


async def test_what_either_node_of_a_pair_is(autojump_clock: MockClock) -> None:
    async with open_pair() as (world, master, a):
        master.put()
        await master.wait_in_sync("a")
        standing = master.service.replica_standing()
        assert (standing.role, standing.in_sync, standing.needed) == ("MASTER", 2, None)
        assert a.service.replica_standing() == ReplicaStanding(role="SLAVE", follows=True)
        world.network.stall(SLAVE_IPS["a"], MASTER_IP)
        world.network.stall(MASTER_IP, SLAVE_IPS["a"])
        await trio.sleep(60)
        assert not a.service.replica_standing().follows
        assert master.service.replica_standing().in_sync == 1
