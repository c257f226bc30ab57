"""A master and raw connections that play slaves, RocketMQ's among them."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from ha.classic.protocol import REPORT
from store import PutMessageStatus
from store.machine.errors import ConnectionLost
from tests.ha.classic_world import (
    HA_PORT,
    MASTER_IP,
    SLAVE_IPS,
    dial,
    master_config,
    open_world,
    receive_frame,
)
from tests.ha.world import BODIES, FILE_SIZE_BYTES


async def test_two_connections_of_one_node_count_once_and_the_newer_one_stays(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        config = master_config(in_sync_replicas=3)
        async with world.running(config) as master:
            machine = world.network.machine(SLAVE_IPS["a"])
            first = await machine.connect(MASTER_IP, HA_PORT, source=None)
            await first.send_all(REPORT.pack(0))
            await receive_frame(first)
            second = await machine.connect(MASTER_IP, HA_PORT, source=None)
            await second.send_all(REPORT.pack(0))
            with pytest.raises(ConnectionLost):
                await receive_frame(first)
            end = master.put()
            await receive_frame(second)
            await receive_frame(second)
            await second.send_all(REPORT.pack(end))
            await trio.sleep(0.1)
            service = master.service.group_transfer_service
            assert service.slaves["a"].ack_offset == end
            assert service.replicated_offset == 0


async def test_a_stranger_is_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world, world.running(master_config()) as master:
        stranger = await dial(world, "127.0.0.99")
        assert await stranger.receive_some(1) == b""
        assert not master.service.group_transfer_service.slaves["a"].connected
        assert "127.0.0.99 is not the address of a slave" in caplog.text


async def test_a_report_above_what_was_sent_ends_the_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world, world.running(master_config()) as master:
        slave = await dial(world)
        await slave.send_all(REPORT.pack(0))
        await receive_frame(slave)
        end = master.put()
        await slave.send_all(REPORT.pack(end + 1))
        with pytest.raises(ConnectionLost):
            while True:
                await receive_frame(slave)
        assert f"reported offset {end + 1}, but only bytes below" in caplog.text
        assert master.service.group_transfer_service.push2_slave_max_offset == 0


@pytest.mark.parametrize("garbage", [b"\xff" * 8, b"\x7f" * 8, b"\x00" * 8 + b"\xff" * 8 * 3])
async def test_garbage_ends_the_connection_and_counts_for_nothing(
    autojump_clock: MockClock, garbage: bytes
) -> None:
    async with open_world() as world, world.running(master_config()) as master:
        master.put()
        slave = await dial(world)
        for start in range(0, len(garbage), 7):
            await slave.send_all(garbage[start : start + 7])
        with pytest.raises(ConnectionLost):
            while True:
                await receive_frame(slave)
        assert master.service.group_transfer_service.push2_slave_max_offset == 0


async def test_both_sides_send_heartbeats_while_nothing_happens(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.running(master_config()) as master:
        slave = await dial(world)
        await slave.send_all(REPORT.pack(0))
        times = []
        for _ in range(8):
            assert await receive_frame(slave) == (0, b"")
            times.append(trio.current_time())
            await slave.send_all(REPORT.pack(0))
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == pytest.approx([5.0] * 7, abs=0.1)
        assert master.why_not_in_sync("a") is None


async def test_a_silent_slave_is_dropped(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.running(master_config()) as master:
        slave = await dial(world)
        await slave.send_all(REPORT.pack(0))
        before = trio.current_time()
        with pytest.raises(ConnectionLost):
            while True:
                await receive_frame(slave)
        assert trio.current_time() - before == pytest.approx(20.0, abs=0.1)
        assert master.why_not_in_sync("a") == "is not connected"


async def test_a_java_slave_is_served(autojump_clock: MockClock) -> None:
    """It is silent for up to 6 seconds, reports its plain end, and drops the connection if a frame
    does not begin there. Source: DefaultHAClient."""
    async with open_world() as world:
        log = world.fill("master", BODIES)
        copied = bytearray(log[:5000])
        async with world.running(master_config()) as master:
            slave = await dial(world)
            await trio.sleep(6)
            await slave.send_all(REPORT.pack(len(copied)))
            while len(copied) < len(log):
                offset, body = await receive_frame(slave)
                assert offset == len(copied)
                assert len(body) <= 4096
                assert offset // FILE_SIZE_BYTES == (offset + len(body) - 1) // FILE_SIZE_BYTES
                copied += body
                await slave.send_all(REPORT.pack(len(copied)))
            await master.wait_in_sync("a")
        assert copied == log


async def test_without_a_slave_the_answer_comes_at_once(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.running(master_config()) as master:
        before = trio.current_time()
        assert await master.put_and_wait() == (
            PutMessageStatus.SLAVE_NOT_AVAILABLE,
            "no slave connected",
        )
        assert trio.current_time() == before
