"""A slave and raw connections that play masters, RocketMQ's among them."""

import pytest
import trio
from trio.testing import MockClock

from ha.classic.master_follower import MasterFollower
from ha.classic.protocol import TRANSFER_HEADER
from store.machine.errors import ConnectionLost
from store.machine.network import Listener, Stream
from tests.ha.classic_world import (
    HA_PORT,
    MASTER_IP,
    SLAVE_IPS,
    open_world,
    receive_report,
    slave_config,
)
from tests.ha.world import BODIES, FILE_SIZE_BYTES
from tests.support.log_builder import record_starts


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
                assert offset == (record_starts(a.log)[-1] if a.log else 0)
                while offset < end:
                    stop = min(offset + 32_768, offset - offset % FILE_SIZE_BYTES + FILE_SIZE_BYTES)
                    body = log[offset : min(stop, end)]
                    await stream.send_all(TRANSFER_HEADER.pack(offset, len(body)) + body)
                    offset += len(body)
                while len(a.log) < end - 2000 or await receive_report(stream) < len(a.log):
                    await trio.sleep(0.01)
                stream.close_nowait()
            assert a.log == log


class UnreachableNetwork:
    """Remembers who was dialled from where."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int, str | None]] = []

    async def connect(self, host: str, port: int, *, source: str | None) -> Stream:
        await trio.lowlevel.checkpoint()
        self.dialled.append((host, port, source))
        if len(self.dialled) == 2:
            await trio.sleep_forever()
        raise ConnectionLost(f"cannot connect to {host}:{port}: Connection refused")

    async def listen(self, host: str, port: int) -> Listener:
        raise NotImplementedError


async def test_a_slave_dials_from_its_own_address_and_complains_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    network = UnreachableNetwork()
    async with open_world() as world:
        with world.open_store("a", is_slave=True) as store, trio.move_on_after(9.5):
            await MasterFollower(slave_config("a"), store, network).run()
    # A refusal, one that waits for 5 seconds, and then one every second.
    assert network.dialled == [(MASTER_IP, HA_PORT, SLAVE_IPS["a"])] * 5
    refused = "cannot connect to 127.0.0.1:10912: Connection refused. Trying every 1 s"
    told = [r.getMessage() for r in caplog.records if r.name == "ha.classic.master_follower"]
    assert [
        text.removeprefix("this node does not follow master 127.0.0.1:10912: ") for text in told
    ] == [
        refused,
        "no answer within 5 seconds. Trying every 1 s",
        refused,
    ]
