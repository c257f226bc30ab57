"""What is seen of damage while it is open: each thing that may go wrong is planted once."""

import random

import pytest
import trio
from trio.testing import MockClock

from store.log.damage import LogDamage
from tandem.wire.message import Host
from tests.sim.engine.history import History
from tests.sim.engine.rot import own_share, rot_log
from tests.sim.engine.rot_watch import IN_FLIGHT_SECONDS, LOOK_SECONDS, RotWatch
from tests.support.rotten_node import FILE_BYTES, a_node

CLIENT = Host("127.0.2.1", 40_000)


class World:
    """One node with a hurt file that it has noted, watched for a moment."""

    def __init__(self) -> None:
        self.node = a_node()
        rot = rot_log(self.node, "flip", 2 * FILE_BYTES, random.Random(1), own_share(1, 2))
        assert rot is not None
        self.rot = rot
        self.node.rots.append(rot)
        self.history = History()
        self.watch = RotWatch({self.node.name: self.node}, self.history)
        self.damage = LogDamage(self.node.disk, self.node.directory)
        self.damage.note(rot.start, rot.start + FILE_BYTES, "found")
        self.watch.look()

    @property
    def source(self) -> Host:
        """Where clients ask it."""
        return Host(self.node.ip, self.node.config.node.port)

    def hurt_bytes(self) -> bytes:
        """What a reader would get."""
        content = self.node.disk.read(self.rot.path) or b""
        return content[max(0, self.rot.at - 100) : self.rot.at + 100]


@pytest.fixture
async def world(autojump_clock: MockClock) -> World:
    del autojump_clock
    return World()


async def test_damage_that_is_healed_is_no_finding(world: World, autojump_clock: MockClock) -> None:
    world.node.disk.open(world.rot.path).buffer[:FILE_BYTES] = world.rot.before
    world.damage.healed(world.rot.start, world.rot.start + FILE_BYTES)
    world.watch.look()
    assert world.history.falsely_whole == []


async def test_a_note_that_goes_before_the_bytes_are_right_is_found_once(
    world: World, autojump_clock: MockClock
) -> None:
    world.damage.healed(world.rot.start, world.rot.start + FILE_BYTES)
    world.watch.look()
    world.watch.look()
    assert [text.rpartition(" ")[2] for text in world.history.falsely_whole] == [
        str(world.rot.start + world.rot.at)
    ]


async def test_what_is_healed_beside_the_bad_byte_may_go(
    world: World, autojump_clock: MockClock
) -> None:
    end = world.rot.start + FILE_BYTES
    world.damage.healed(world.rot.start, world.rot.start + world.rot.at)
    world.damage.healed(world.rot.start + world.rot.at + 1, end)
    world.watch.look()
    assert world.history.falsely_whole == []


async def test_who_denies_what_it_has_noted_is_found(
    world: World, autojump_clock: MockClock
) -> None:
    noted = world.watch.noted(world.node)
    assert noted
    world.watch.told_status(world.node, noted, "its log is damaged")
    world.watch.told_status(world.node, frozenset(), "")
    assert world.history.forgotten == []
    world.watch.told_status(world.node, noted, "")
    assert "says that nothing is damaged" in world.history.forgotten[0]


async def test_what_is_noted_may_leave_for_a_moment_and_then_no_more(
    world: World, autojump_clock: MockClock
) -> None:
    data = world.hurt_bytes()
    world.watch.was_sent(world.node, world.source, CLIENT, data)
    assert world.history.handed_out == []
    await trio.sleep(IN_FLIGHT_SECONDS + LOOK_SECONDS)
    world.watch.look()
    world.watch.was_sent(world.node, world.source, CLIENT, world.rot.before)
    assert world.history.handed_out == []
    world.watch.was_sent(world.node, world.source, CLIENT, data)
    assert "noted since" in world.history.handed_out[0]


async def test_what_nobody_has_noted_may_leave(world: World, autojump_clock: MockClock) -> None:
    world.damage.healed(0, 1 << 40)
    world.watch.look()
    await trio.sleep(2 * IN_FLIGHT_SECONDS)
    world.watch.was_sent(world.node, world.source, CLIENT, world.hurt_bytes())
    assert world.history.handed_out == []
