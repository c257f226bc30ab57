import pytest
import trio

from node.simulated.machines import leaves
from node.simulated.play import Room
from tests.node.simulated.group_world import played

pytestmark = [pytest.mark.sim, pytest.mark.slow]


def test_a_killed_node_keeps_its_page_cache_and_a_dark_one_may_not() -> None:
    async def test(room: Room) -> None:
        group = room.group
        node = group.nodes["broker-a-1"]
        path = f"{node.directory}/notes"
        node.disk.replace(path, b"old")
        node.disk.open(path).buffer[:3] = b"new"
        group.kill(node.name)
        assert node.disk.read(path) == b"new"
        assert not node.is_up
        group.start(node.name)
        life = node.life
        group.start(node.name)
        assert node.life == life
        group.power_off(node.name)
        assert node.disk.read(path) in (b"old", b"new")
        assert node.boot_clock.boot_count == 2

    played(test)


def test_a_frozen_node_does_nothing_and_goes_on() -> None:
    async def test(room: Room) -> None:
        group = room.group
        master = group.master()
        assert master is not None
        group.freeze(master, 10.0)
        assert await group.until(lambda: group.master() not in (None, master), 9.0)
        assert await room.until_in_sync()
        assert group.hit == {"freeze": 1}

    played(test)


def test_a_node_that_is_stopped_ends_in_order_and_can_be_asked_to_start_again() -> None:
    async def test(room: Room) -> None:
        group = room.group
        node = group.nodes["broker-a-2"]
        group.stop(node.name)
        group.start(node.name)
        assert await group.until(lambda: node.life == 2, 10.0)
        group.stop(node.name)
        assert await group.until(lambda: not node.is_up, 10.0)
        assert not node.disk.exists(f"{node.directory}/abort")
        assert group.crashes == []

    played(test)


def test_a_node_that_ends_by_itself_is_noted() -> None:
    async def test(room: Room) -> None:
        group = room.group
        node = group.nodes["broker-a-3"]
        group.kill(node.name)
        for name, _ in node.disk.list_files(f"{node.directory}/commitlog"):
            node.disk.open(f"{node.directory}/commitlog/{name}").buffer[8:40] = bytes(32)
        other = room.network.machine(node.ip)
        await other.listen(node.ip, node.config.node.port)
        other.alive = False
        group.start(node.name)
        await trio.sleep(3)
        (crash,) = group.crashes
        assert crash.node == node.name
        assert not crash.excused

    played(test)


def test_leaves_of_a_group_of_groups() -> None:
    one, two, three = LookupError(), OSError(), ValueError()
    group = ExceptionGroup("", [one, ExceptionGroup("", [two, three])])
    assert leaves(group) == [one, two, three]
