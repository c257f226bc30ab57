from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import trio

from node.simulated.disk import SimulatedDisk
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.saving import Saving
from node.tables.subscription_group_table import SubscriptionGroupTable
from node.tables.topic_config_table import TopicConfigTable
from store.machine.errors import StoreFullError
from store.machine.table_file import ENTRIES_PER_STEP, TableFile
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.support.logged import logged

MANY = 4 * ENTRIES_PER_STEP


class World:
    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk()
        self.topics = TopicConfigTable(TableFile(self.disk, "t.json"), lambda: 1, is_copy=True)
        self.groups = SubscriptionGroupTable(
            TableFile(self.disk, "g.json"), lambda: 1, is_copy=True
        )
        self.offsets = ConsumerOffsetTable(TableFile(self.disk, "o.json"), lambda: 1)
        self.saving = Saving(self.disk, self.topics, self.groups, self.offsets)

    def change(self, numbers: range, queues: int = 4) -> None:
        self.topics.update(
            *(TopicConfig(topic_name=f"T{each}", read_queue_nums=queues) for each in numbers)
        )
        self.groups.update(
            *(SubscriptionGroupConfig(f"g{each}", retry_queue_nums=queues) for each in numbers)
        )
        for each in numbers:
            self.offsets.commit(f"g{each}", f"T{each}", 0, queues)

    def check(self, other: World) -> None:
        """Whether a broker that starts from the files of this one has the tables of another."""
        read = World(self.disk)
        assert read.topics.configs.topic_config_table == other.topics.configs.topic_config_table
        assert read.groups.configs == other.groups.configs
        assert read.offsets.offsets() == other.offsets.offsets()


async def test_others_run_while_a_large_table_is_saved() -> None:
    world = World()
    world.change(range(MANY))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await world.saving.save_in_turns()
        nursery.cancel_scope.cancel()
    assert turns > 3 * MANY // ENTRIES_PER_STEP
    world.check(world)


@pytest.mark.parametrize("turns", range(0, 32, 5))
async def test_what_changes_during_a_save_is_saved_by_the_next(turns: int) -> None:
    world = World()
    world.change(range(MANY))

    async def change() -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        world.change(range(MANY - 100, MANY + 100), 5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        nursery.start_soon(world.saving.save_in_turns)
    await world.saving.save_in_turns()
    world.check(world)


@pytest.mark.parametrize("turns", range(0, 32, 5))
async def test_a_save_that_is_stopped_midway_does_not_count(turns: int) -> None:
    world = World()
    world.change(range(MANY))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.saving.save_in_turns)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    world.saving.save()
    world.check(world)


async def test_all_that_is_saved_in_turns_was_written_ahead() -> None:
    replaced: list[str] = []
    disk = SimulatedDisk(
        on_event=lambda event: replaced.append(event) if event.startswith("replace") else None
    )
    world = World(disk)
    for queues in (4, 5):
        replaced.clear()
        disk.replaced_ahead = 0
        world.change(range(3), queues)
        await world.saving.save_in_turns()
        assert len(replaced) >= 6
        assert disk.replaced_ahead == len(replaced)
    world.check(world)


class FullTable:
    def save_in_steps(self) -> Iterator[None]:
        yield
        raise StoreFullError("t.json: no room", path="t.json")


async def test_a_full_disk_is_said_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    saving = Saving(SimulatedDisk(), FullTable())
    with caplog.at_level(logging.WARNING):
        await saving.save_in_turns()
        saving.save()
    assert [str(line[0]) for line in logged(caplog, "node.tables.saving")] == ["t.json: no room"]
