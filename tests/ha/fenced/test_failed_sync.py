"""A disk that fails as a whole takes no note of it; the coordinator remembers it instead."""

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.replica_role import ReplicaRole
from store import PutMessageStatus
from tandem.wire.group_state import LifeRecord, decode_life
from tests.ha.fenced_world import COORDINATOR_IP, FencedWorld, Replica, open_world
from tests.ha.world import KEYS

OK = PutMessageStatus.PUT_OK


def life_of(world: FencedWorld, name: str) -> LifeRecord:
    item = world.coordinator.item(KEYS.life(name))
    assert item is not None
    return decode_life(item.value)


def fail(world: FencedWorld, replica: Replica) -> None:
    """From now on its disk takes nothing, neither of the log nor of small files."""
    disk = world.disks[replica.name]
    disk.sync_fails = disk.writes_fail = True


def start_again(world: FencedWorld, name: str) -> Replica:
    """Start a node on its disk, which works again; the page cache has dropped what it had."""
    disk = world.disks[name]
    disk.sync_fails = disk.writes_fail = False
    for file in disk._files.values():
        file.buffer[: file.size] = file.durable
    return world.start(name)


@pytest.mark.parametrize("is_away", [False, True])
async def test_it_is_another_replica_at_its_next_start(
    *, is_away: bool, autojump_clock: MockClock
) -> None:
    """Also if the coordinator answers only after the node's lease is over."""
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        before = slave.ha.replica.file.incarnation
        if is_away:
            world.isolate(slave.config.address, COORDINATOR_IP)
        fail(world, slave)
        assert await master.send(b"|m1|") is OK
        if is_away:
            await world.wait_for(lambda: world.coordinator.item(KEYS.node(slave.name)) is None)
            assert life_of(world, slave.name).failed == ""
            world.network.heal_all()
        await world.wait_for(lambda: life_of(world, slave.name).failed == before, 60)
        slave.kill()
        again = start_again(world, slave.name)
        await world.wait_for(lambda: world.is_back(again), 60)
        assert again.ha.replica.file.incarnation != before
        await world.wait_for(lambda: life_of(world, slave.name).failed == "")
        assert again.bodies == [b"m1"]


async def test_a_master_that_takes_no_part_any_more_says_it_when_the_coordinator_answers(
    autojump_clock: MockClock,
) -> None:
    """Its session has ended with its mastership."""
    async with open_world() as world:
        first = await world.whole_group()
        before = first.ha.replica.file.incarnation
        world.isolate(first.config.address, COORDINATOR_IP)
        fail(world, first)
        first.submit(first.put(b"|m1|"))
        await world.wait_for(lambda: first.ha.role is ReplicaRole.QUARANTINED)
        second = await world.master(but=first.name)
        await trio.sleep(20)
        assert life_of(world, first.name).failed == ""
        world.network.heal_all()
        await world.wait_for(lambda: life_of(world, first.name).failed == before)
        first.kill()
        again = start_again(world, first.name)
        await world.wait_for(lambda: world.in_sync(second), 60)
        assert again.ha.replica.file.incarnation != before


async def test_a_late_note_says_nothing_of_the_next_life(autojump_clock: MockClock) -> None:
    """It was put into the network by a process that is gone, and arrives when another one lives."""
    async with open_world() as world:
        await world.whole_group()
        slave = world.slaves()[0]
        world.isolate(slave.config.address, COORDINATOR_IP)
        fail(world, slave)
        slave.store._refuse("a sync failed")
        notes = slave.ha._failed_sync_notes
        before = life_of(world, slave.name)
        slave.kill()
        world.network.heal_all()
        again = start_again(world, slave.name)
        await world.wait_for(lambda: life_of(world, slave.name).token != before.token, 60)
        await world.wait_for(lambda: world.is_back(again), 60)
        newer = life_of(world, slave.name)
        notes._coordinator = world.coordinator.client(again.machine)
        await notes.at_coordinator()
        assert life_of(world, slave.name) == newer
