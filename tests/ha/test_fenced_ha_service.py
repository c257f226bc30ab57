"""Whole groups of three replicas: who is master, and what happens to messages."""

import trio
from trio.testing import MockClock

from store import PutMessageStatus
from tests.ha.fenced_world import open_world

OK = PutMessageStatus.PUT_OK


async def test_a_new_group_elects_a_master_and_replicates(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert world.state is not None
        assert (world.state.epoch, world.state.master) == (1, master.name)
        assert master.opened == [1]
        assert await master.send(b"|m1|") is OK
        for slave in world.slaves():
            assert slave.bodies == [b"m1"]
            assert slave.ha.master == master.name
            assert master.name in slave.ha.admission()
        assert [r.name for r in world.masters()] == [master.name]


async def test_a_killed_master_is_replaced_and_nothing_is_lost(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        assert await first.send(b"|m1|") is OK
        killed_at = trio.current_time()
        first.kill()
        world.reap(first.name)
        second = await world.master(but=first.name)
        assert trio.current_time() - killed_at < 1.0
        assert second.bodies == [b"m1"]
        assert await second.send(b"|m2|") is OK
        again = world.start(first.name)
        await world.wait_for(lambda: world.in_sync(second))
        assert again.bodies == [b"m1", b"m2"]
        assert world.state is not None
        assert world.state.epoch == 2
