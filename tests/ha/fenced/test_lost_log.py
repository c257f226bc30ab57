"""A replica that has lost all of its log copies it anew, and counts for nothing until it has it."""

import random
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.lost_log import begin_anew_if_log_is_lost
from ha.fenced.replica_file import ReplicaFile
from node.simulated.disk import SimulatedDisk
from node.simulated.virtual_clock import WallClock
from store.machine.errors import DiskFailedError, StoreLockedError
from store.machine.machine import Machine
from store.recovery.truncation import SET_ASIDE_FILE
from tests.ha.fenced_world import Replica
from tests.ha.healing_world import Group, open_group
from tests.ha.world import DIRECTORY, STORE_CONFIG, fenced_config, read_whole_log
from tests.store.store_world import check_store

LOG = f"{DIRECTORY}/commitlog"


def lose_log(group: Group, node: Replica, *, is_reaped: bool = True) -> SimulatedDisk:
    """Kill a node, and remove all files of its log."""
    node.kill()
    if is_reaped:
        group.world.reap(node.name)
    disk = group.world.disks[node.name]
    for name, _ in disk.list_files(LOG):
        disk.remove(f"{LOG}/{name}")
    return disk


def incarnation_on(disk: SimulatedDisk) -> str:
    return ReplicaFile(disk, DIRECTORY, random.Random(1)).incarnation


@pytest.mark.parametrize("has_checkpoint", [True, False])
async def test_a_replica_without_a_log_copies_it_anew_as_another_replica(
    has_checkpoint: bool,  # noqa: FBT001
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_group() as group:
        before = group.first.ha.replica.file.incarnation
        disk = lose_log(group, group.first)
        if not has_checkpoint:
            disk.remove(f"{DIRECTORY}/checkpoint")
        again = group.world.start(group.first.name)
        await group.world.wait_for(lambda: group.world.is_back(again), 100)
        assert again.ha.replica.file.incarnation != before
        assert read_whole_log(again.store)[: group.end] == group.log
        assert not again.store.commit_log.damage
        await group.world.wait_for(lambda: not again.store.reput_service.is_behind)
        again.store.confirm(again.store.max_physical_offset)
        check_store(again.store)
        assert "all of it is lost" in caplog.text
        assert f"no file of the log is in {LOG}" in caplog.text
        assert disk.list_directories(f"{DIRECTORY}/set-aside")


@pytest.mark.slow
async def test_without_its_log_a_member_does_not_count_for_what_it_had_acknowledged(
    autojump_clock: MockClock,
) -> None:
    """Two of three lose their logs, and the third is away: nobody knows what was acknowledged."""
    async with open_group() as group:
        lost = [group.first, group.second]
        for node in lost:
            lose_log(group, node)
        group.master.kill()
        group.world.reap(group.master.name)
        again = [group.world.start(node.name) for node in lost]
        await group.world.wait_for(lambda: all(node.serves for node in again))
        await trio.sleep(120)
        assert group.world.masters() == []
        # Back with its log, the third one has all there is, and the others copy it.
        third = group.world.start(group.master.name)
        await group.world.master(seconds=100)
        await group.world.wait_for(lambda: all(map(group.world.is_back, [*again, third])), 200)
        for node in (*again, third):
            assert read_whole_log(node.store)[: group.end] == group.log


async def test_killed_at_any_step_it_never_counts_under_its_old_name(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        before = group.first.ha.replica.file.incarnation
        whole = lose_log(group, group.first)
        pictures = [whole.crashed()]
        target = whole.crashed()

        def take_picture(_: str) -> None:
            hook = target.on_event
            pictures.append(target.crashed())
            target.on_event = hook

        target.on_event = take_picture
        assert begin_anew_if_log_is_lost(fenced_config("b"), STORE_CONFIG, _machine(group, target))
        target.on_event = lambda _: None
        assert target.exists(f"{DIRECTORY}/{SET_ASIDE_FILE}")
        for picture in [*pictures, target]:
            picture.on_event = lambda _: None
            # What is to be set aside is empty at the next opening, and under another name then.
            is_ordered = picture.exists(f"{DIRECTORY}/{SET_ASIDE_FILE}")
            assert not is_ordered or incarnation_on(picture) != before
            group.world.disks["b"] = picture.crashed()
            again = group.world.start("b")
            await group.world.wait_for(partial(group.world.is_back, again), 100)
            assert again.ha.replica.file.incarnation != before
            assert read_whole_log(again.store)[: group.end] == group.log
            again.kill()
            group.world.reap("b")
        assert len(pictures) > 2


async def test_a_disk_that_does_not_take_the_new_name_keeps_the_store_as_it_is(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        disk = lose_log(group, group.first)
        before = incarnation_on(disk)
        disk.writes_fail = True
        with pytest.raises(DiskFailedError):
            begin_anew_if_log_is_lost(fenced_config("b"), STORE_CONFIG, _machine(group, disk))
        assert incarnation_on(disk) == before
        assert not disk.exists(f"{DIRECTORY}/{SET_ASIDE_FILE}")
        disk.writes_fail = False
        release = disk.lock(f"{DIRECTORY}/lock")
        with pytest.raises(StoreLockedError):
            begin_anew_if_log_is_lost(fenced_config("b"), STORE_CONFIG, _machine(group, disk))
        release()
        assert incarnation_on(disk) == before


def _machine(group: Group, disk: SimulatedDisk) -> Machine:
    return Machine(
        disk=disk,
        network=group.first.machine,
        wall_clock_ms=WallClock().now_ms,
        boottime=trio.current_time,
        boot_id="boot-1",
        random=random.Random(5),
    )
