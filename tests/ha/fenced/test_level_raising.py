"""Groups whose members know different feature levels, and how they go to a higher one."""

import logging

import msgspec
import pytest
from trio.testing import MockClock

from ha.errors import StoreLevelError
from ha.fenced.level_raising import newest_known, why_not_raised
from store import PutMessageStatus
from tandem.wire.feature_level import LEVEL_MAX, LEVEL_MIN
from tandem.wire.group_state import GroupLevelError, NodeRecord, decode_state
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tests.ha.fenced_world import FencedWorld, Replica, open_world
from tests.ha.world import IPS, KEYS

OK = PutMessageStatus.PUT_OK


async def raised(master: Replica, level: int = 0) -> FencedCommandResult:
    return await master.ha.command(FencedCommand(command="raise-features", level=level))


async def mixed_group(world: FencedWorld, *older: str) -> Replica:
    """Start all nodes, some of them of the version before; return the master."""
    for name in IPS:
        world.start(name, level_max=LEVEL_MAX - 1 if name in older else LEVEL_MAX)
    master = await world.master()
    await world.wait_for(lambda: world.in_sync(master))
    return master


async def restart(world: FencedWorld, name: str, level_max: int) -> Replica:
    """Stop a node as a supervisor does, and start it as one of a version that knows this level."""
    world.replicas[name].kill()
    world.reap(name)
    return world.start(name, level_max=level_max)


def level_of(world: FencedWorld) -> int:
    assert world.state is not None
    return world.state.level


async def test_a_new_group_is_at_the_highest_level_that_all_know(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await mixed_group(world)
        assert level_of(world) == LEVEL_MAX
    async with open_world() as world:
        master = await mixed_group(world, "b")
        assert level_of(world) == LEVEL_MAX - 1
        assert await master.send(b"|m1|") is OK


@pytest.mark.parametrize("older", [("a",), ("b", "c"), ("a", "b", "c")])
async def test_members_of_two_versions_follow_each_other_and_switch(
    older: tuple[str, ...], autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        first = await mixed_group(world, *older)
        assert await first.send(b"|m1|") is OK
        seen = {first.name}
        for number in range(2, 6):
            master = world.masters()[0]
            order = FencedCommand(command="promote", node=world.slaves()[number % 2].name)
            assert (await master.ha.command(order)).done
            master = await world.master(but=master.name)
            await world.wait_for(lambda master=master: world.in_sync(master))  # type: ignore[misc]
            assert await master.send(b"|m%d|" % number) is OK
            seen.add(master.name)
        assert level_of(world) == LEVEL_MAX - 1
        assert len(seen) > 1
        await world.wait_for(lambda: all(len(r.bodies) == 5 for r in world.replicas.values()))


async def test_a_level_is_raised_when_all_members_are_there_and_know_it(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await mixed_group(world, "a", "b", "c")
        for name in sorted(IPS, key=lambda name: name == master.name):
            replica = await restart(world, name, LEVEL_MAX)
            await world.wait_for(lambda replica=replica: world.is_back(replica))  # type: ignore[misc]
            master = await world.master()
            others = [n for n in IPS if world.replicas[n].config.level_max < LEVEL_MAX]
            if others:
                refusal = await raised(master, LEVEL_MAX)
                assert not refusal.done
                assert all(other in refusal.text for other in others)
            assert level_of(world) == LEVEL_MAX - 1
        assert (await raised(master)).done
        assert level_of(world) == LEVEL_MAX
        assert await master.send(b"|m1|") is OK
        await world.wait_for(
            lambda: {r.ha.feature_level for r in world.replicas.values()} == {LEVEL_MAX}
        )
        again = await raised(master)
        assert again.done
        assert not (await raised(master, LEVEL_MIN)).done
        assert not (await raised(master, LEVEL_MAX + 1)).done
        order = FencedCommand(command="promote", node=world.slaves()[0].name)
        assert (await master.ha.command(order)).done
        after = await world.master(but=master.name)
        assert level_of(world) == LEVEL_MAX
        assert await after.send(b"|m2|") is OK


async def test_nothing_is_raised_while_a_member_is_missing(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await mixed_group(world, "a", "b", "c")
        for name in IPS:
            await world.wait_for(lambda: len(world.masters()) == 1)
            replica = await restart(world, name, LEVEL_MAX)
            await world.wait_for(lambda replica=replica: world.is_back(replica))  # type: ignore[misc]
        master = await world.master()
        missing = world.slaves()[0]
        missing.kill()
        world.reap(missing.name)
        await world.wait_for(lambda: missing.name not in world.isr)
        refusal = await raised(master)
        assert not refusal.done
        assert missing.name in refusal.text
        assert level_of(world) == LEVEL_MAX - 1


async def test_an_older_member_refuses_to_join_and_says_what_it_needs(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await mixed_group(world)
        older = world.slaves()[0].name
        world.replicas[older].kill()
        world.reap(older)
        await world.wait_for(lambda: older not in world.isr)
        world.disks[older] = type(world.disks[older])()  # it cannot know of the level from there
        replica = world.start(older, level_max=LEVEL_MAX - 1)
        await world.wait_for(
            lambda: replica.serves and f"level {LEVEL_MAX}" in replica.ha.session.trouble
        )
        assert "Install" in replica.ha.session.trouble
        assert await master.send(b"|m1|") is OK
        assert older not in world.isr
        assert not world.coordinator.item(KEYS.node(older))
        status = replica.ha.status()
        assert f"level {LEVEL_MAX}" in status.refusal


async def test_the_directory_says_so_as_well(autojump_clock: MockClock) -> None:
    """The coordinator may have lost its records, or be another one."""
    async with open_world() as world:
        await mixed_group(world)
        replica = world.slaves()[0]
        file = replica.ha.replica.file
        await world.wait_for(lambda: file.level == LEVEL_MAX)
        own = replica.ha.replica
        before = own.config
        own.config = msgspec.structs.replace(before, level_max=LEVEL_MAX - 1)
        with pytest.raises(StoreLevelError) as caught:
            own.begin("boot")
        assert (caught.value.level, caught.value.level_max) == (LEVEL_MAX, LEVEL_MAX - 1)
        own.config = before


async def test_the_record_of_a_higher_level_is_unreadable_and_says_what_is_needed(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await mixed_group(world)
        item = world.coordinator.item(KEYS.state)
        assert item is not None
        with pytest.raises(GroupLevelError) as caught:
            decode_state(item.value, KEYS.state, LEVEL_MAX - 1)
        assert (caught.value.level, caught.value.level_max) == (LEVEL_MAX, LEVEL_MAX - 1)
        assert item.value.startswith(b'{"needs":"TandemMQ')


async def test_a_raise_is_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        await mixed_group(world, "a", "b", "c")
        for name in IPS:
            replica = await restart(world, name, LEVEL_MAX)
            await world.wait_for(lambda replica=replica: world.is_back(replica))  # type: ignore[misc]
        master = await world.master()
        caplog.clear()
        assert (await raised(master)).done
        lines = [r for r in caplog.records if r.name == "ha.fenced.level_raising"]
        assert [line.levelno for line in lines] == [logging.WARNING]


def record(name: str, level_max: int, program: str = "1.0") -> NodeRecord:
    return NodeRecord(
        node=name,
        session="s",
        incarnation="i",
        epoch=1,
        end=0,
        program=program,
        level_max=level_max,
    )


def test_who_keeps_a_group_at_its_level_is_named() -> None:
    nodes = {"a": record("a", 3), "b": record("b", 2), "c": record("c", 1, "")}
    assert newest_known("abc", nodes) == 3
    assert newest_known("abc", {}) == LEVEL_MIN
    assert why_not_raised("abc", nodes, 1, 3) is None
    words = why_not_raised("abc", nodes, 3, 3)
    assert words is not None
    assert "b runs TandemMQ 1.0" in words
    assert "c runs a version from before" in words
    words = why_not_raised("abcd", nodes, 1, 3)
    assert words is not None
    assert words.startswith("d is not there")
    assert why_not_raised("a", nodes, 3, 2) is not None
