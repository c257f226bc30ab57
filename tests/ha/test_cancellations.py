"""Cancel the tasks of replication wherever they wait, and look at what is left."""

import pytest
import trio
from trio.testing import MockClock

from ha.classic.protocol import REPORT
from store.machine.errors import ConnectionLost
from tests.ha.classic_world import (
    HA_PORT,
    MASTER_IP,
    SLAVE_IPS,
    dial,
    master_config,
    open_pair,
    open_world,
    receive_frame,
    slave_config,
)
from tests.ha.world import BODIES


async def test_a_stopped_master_leaves_no_stream_and_no_port(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.running(master_config()) as master:
            slave = await dial(world)
            await slave.send_all(REPORT.pack(0))
            await receive_frame(slave)
        with pytest.raises(ConnectionLost):
            await receive_frame(slave)
        assert not master.machine.streams_to(SLAVE_IPS["a"])
        assert not master.service.group_transfer_service.slaves["a"].connected
        await world.network.machine(MASTER_IP).listen(MASTER_IP, HA_PORT)


async def test_a_master_can_be_stopped_while_a_slave_takes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.fill("master", BODIES * 10)
        async with world.running(master_config()):
            slave = await dial(world)
            await slave.send_all(REPORT.pack(0))
            await trio.sleep(3)
        with pytest.raises(ConnectionLost):
            while True:
                await receive_frame(slave)


@pytest.mark.parametrize("moment", range(0, 60, 3))
async def test_a_slave_stopped_at_any_moment_goes_on_where_it_was(
    autojump_clock: MockClock, moment: int
) -> None:
    """Its log ends where a record ends, is a part of the master's, and is taken up again."""
    async with open_world() as world:
        world.fill("master", BODIES)
        async with world.running(master_config()) as master:
            async with world.running(slave_config("a")) as a:
                await trio.sleep(moment * 0.0005)
                assert master.log.startswith(a.log)
            async with world.running(slave_config("a")) as a:
                await master.wait_in_sync("a")
                assert a.log == master.log


@pytest.mark.parametrize("moment", range(0, 60, 3))
async def test_a_master_stopped_at_any_moment_is_followed_again(
    autojump_clock: MockClock, moment: int
) -> None:
    async with open_world() as world:
        world.fill("master", BODIES)
        async with world.running(slave_config("a")) as a:
            async with world.running(master_config()):
                await trio.sleep(moment * 0.0005)
            async with world.running(master_config()) as master:
                await master.wait_in_sync("a")
                assert a.log == master.log


async def test_a_put_given_up_by_its_waiter_is_still_answered_once(
    autojump_clock: MockClock,
) -> None:
    """`done` belongs to the put, not to a task: nothing is left behind and nothing is lost."""
    async with open_pair() as (world, master, _):
        await master.wait_in_sync("a")
        world.network.stall(SLAVE_IPS["a"], MASTER_IP)
        answers: list[object] = []
        service = master.service.group_transfer_service
        with trio.move_on_after(1):
            service.submit(
                master.put(),
                trio.current_time() + 3,
                lambda status, _: answers.append(status),
            )
            await trio.sleep_forever()
        assert not answers
        assert service.waiting_count == 1
        await trio.sleep(3)
        assert len(answers) == 1
        assert service.waiting_count == 0


async def test_a_replaced_connection_takes_nothing_with_it(autojump_clock: MockClock) -> None:
    """The older link ends after the newer one has its place; it must not report the slave lost."""
    async with open_world() as world, world.running(master_config()) as master:
        machine = world.network.machine(SLAVE_IPS["a"])
        for _ in range(5):
            stream = await machine.connect(MASTER_IP, HA_PORT, source=None)
            await stream.send_all(REPORT.pack(0))
            await trio.lowlevel.checkpoint()
        await trio.sleep(0.1)
        assert master.service.group_transfer_service.slaves["a"].connected
        assert len(master.machine.streams_to(SLAVE_IPS["a"])) == 1
