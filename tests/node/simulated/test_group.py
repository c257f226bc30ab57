import pytest
import trio

from node.simulated.play import Room
from tests.node.simulated.group_world import played

pytestmark = [pytest.mark.sim, pytest.mark.slow]


def test_a_group_begins_in_sync_and_replaces_a_lost_master() -> None:
    async def test(room: Room) -> None:
        group = room.group
        first = group.master()
        assert first is not None
        assert group.is_in_sync()
        group.kill(first)
        assert group.master() is None
        assert not group.is_in_sync()
        assert await group.until(lambda: group.master() is not None, 20.0)
        assert group.master() != first
        group.heal()
        assert await room.until_in_sync()

    played(test)


def test_a_partition_is_of_all_that_are_not_inside_and_ends() -> None:
    async def test(room: Room) -> None:
        group = room.group
        first = group.master()
        assert first is not None
        group.partition([first])
        assert await group.until(lambda: group.master() not in (None, first), 20.0)
        group.end_partition([first])
        assert await room.until_in_sync()

    played(test)


def test_what_never_comes_is_waited_for_as_long_as_was_said() -> None:
    async def test(room: Room) -> None:
        begin = trio.current_time()
        assert not await room.group.until(lambda: False, 3.0)
        assert trio.current_time() == begin + 3.0

    played(test)


def test_a_slow_disk_is_slow_until_it_is_healed() -> None:
    async def test(room: Room) -> None:
        group = room.group
        group.slow_disk("broker-a-1", 1.5)
        assert group.nodes["broker-a-1"].disk.sync_seconds() == 1.5
        group.heal()
        assert group.nodes["broker-a-1"].disk.sync_seconds() < 0.01

    played(test)
