import logging

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store import MessageStore
from store.recovery.closing import PROGRESS_INTERVAL_MS, SyncProgress
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import DIRECTORY, a_message, check_store, open_store, put
from tests.support.logged import logged

QUEUES = 30


def with_queues(disk: SimulatedDisk, count: int = QUEUES) -> MessageStore:
    store = open_store(disk)
    for queue_id in range(count):
        put(store, a_message(queue_id=queue_id))
    return store


def test_all_queues_are_on_the_disk_before_the_stop_counts_as_clean() -> None:
    disk = StepDisk()
    store = with_queues(disk)
    store.announce()
    steps: list[str] = []
    disk.on_step = steps.append
    store.close()
    is_of_queue = [step.startswith("sync") and "/consumequeue/" in step for step in steps]
    units = [place for place, found in enumerate(is_of_queue) if found]
    assert len({steps[i] for i in units}) == QUEUES
    assert steps[-1] == f"remove {DIRECTORY}/abort"
    assert max(units) < len(steps) - 1


@pytest.mark.parametrize("many", [4, 1000])
def test_a_stop_killed_at_any_step_loses_nothing(many: int) -> None:
    """With one sync of the file system, and with a sync of each file."""
    step, met = 0, 0
    while True:
        step += 1
        disk = StepDisk()
        disk.many_files = many
        store = with_queues(disk, 6)
        disk.on_step = die_at(step)
        try:
            store.close()
        except Interrupted:
            met += 1
            assert len(check_store(open_store(disk.crashed()))) == 6
            continue
        break
    assert met > 6


def test_each_file_is_synced_where_the_file_system_may_have_had_an_error() -> None:
    disk = SimulatedDisk()
    store = with_queues(disk)
    disk._locked.clear()
    store.close()
    assert not disk.exists(f"{DIRECTORY}/abort")
    assert all(file.durable == file.content for file in disk._files.values())


async def test_queues_are_brought_to_the_disk_before_the_stop_while_others_go_on(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.5)
    store = with_queues(disk)
    store.announce()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.1)
            ticks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        await store.settle()
        nursery.cancel_scope.cancel()
    assert ticks > 2
    assert store.queues.awake.count == 0
    store.close()
    assert not disk.exists(f"{DIRECTORY}/abort")


async def test_a_store_whose_disk_has_failed_does_not_settle(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = with_queues(disk)
    disk.sync_fails = True
    await store.settle()
    assert store.flags.is_not_writeable
    store.close()
    assert disk.exists(f"{DIRECTORY}/abort")


def test_a_long_stop_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 1000
    progress = SyncProgress(lambda: now_ms)
    caplog.set_level(logging.INFO)
    progress(256, 5000)
    assert not logged(caplog, "store.recovery.closing", logging.INFO)
    now_ms += PROGRESS_INTERVAL_MS
    progress(512, 5000)
    progress(768, 5000)
    assert logged(caplog, "store.recovery.closing", logging.INFO) == [(512, 5000)]


def test_a_clock_that_is_put_back_does_not_keep_it_from_saying_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now: list[int] = [10_000]
    progress = SyncProgress(lambda: now[0])
    caplog.set_level(logging.INFO)
    now[0] = 5_000
    progress(1, 2)
    assert logged(caplog, "store.recovery.closing", logging.INFO) == [(1, 2)]


def test_after_a_hard_stop_each_file_is_asked_for_errors_that_the_one_before_had_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    with_queues(disk).announce()
    disk = disk.crashed()
    synced: list[str] = []
    real = SimulatedFile.sync

    def sync(file: SimulatedFile) -> None:
        synced.append(file.path)
        real(file)

    monkeypatch.setattr(SimulatedFile, "sync", sync)
    # It may bring their names to the disk, and stands in for no sync of a file.
    monkeypatch.setattr(SimulatedDisk, "sync_tree_now", lambda _disk, _directory: True)
    open_store(disk)
    files = [path for path in disk._files if "/consumequeue/" in path]
    assert len(files) >= disk.many_files
    assert set(files) <= set(synced)
