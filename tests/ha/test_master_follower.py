"""A slave and raw connections that play masters, RocketMQ's among them."""

import pytest
import trio
from trio.testing import MockClock

from ha.protocol import TRANSFER_HEADER
from tests.ha.replica_world import (
    BODIES,
    FILE_SIZE_BYTES,
    HA_PORT,
    MASTER_IP,
    open_world,
    receive_report,
    slave_config,
)


async def test_a_slave_reports_at_once_and_then_every_interval(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.running(slave_config("a")):
        listener = await world.network.machine(MASTER_IP).listen(MASTER_IP, HA_PORT)
        stream = await listener.accept()
        before = trio.current_time()
        assert await receive_report(stream) == 0
        assert trio.current_time() - before < 0.1
        for _ in range(3):
            assert await receive_report(stream) == 0
        assert trio.current_time() - before == pytest.approx(15.0, abs=0.1)


async def test_a_silent_master_is_dropped_and_dialled_again(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.running(slave_config("a")):
        listener = await world.network.machine(MASTER_IP).listen(MASTER_IP, HA_PORT)
        first = await listener.accept()
        before = trio.current_time()
        await listener.accept()
        assert trio.current_time() - before == pytest.approx(21.0, abs=0.1)
        first.close_nowait()


async def test_a_java_master_is_followed(autojump_clock: MockClock) -> None:
    """It sends from the reported offset on, frames of 32 KiB, and does not know of the overlap.
    Source: DefaultHAConnection."""
    async with open_world() as world:
        log = world.fill("master", BODIES)
        world.fill("a", [])
        async with world.running(slave_config("a")) as a:
            machine = world.network.machine(MASTER_IP)
            listener = await machine.listen(MASTER_IP, HA_PORT)
            for end in (3000, 30_000, len(log)):
                stream = await listener.accept()
                offset = await receive_report(stream)
                assert offset < end
                while offset < end:
                    stop = min(offset + 32_768, offset - offset % FILE_SIZE_BYTES + FILE_SIZE_BYTES)
                    body = log[offset : min(stop, end)]
                    await stream.send_all(TRANSFER_HEADER.pack(offset, len(body)) + body)
                    offset += len(body)
                while len(a.log) < end - 2000 or await receive_report(stream) < len(a.log):
                    await trio.sleep(0.01)
                stream.close_nowait()
            assert a.log == log
