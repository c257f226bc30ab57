"""Opening hands over all parts of a store, or leaves nothing open behind an error."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from store.config import StoreConfig
from store.machine.disk import Disk
from store.machine.errors import CorruptLogError, DiskFailedError, LogFault, StoreLockedError
from store.machine.real_disk import RealDisk
from store.queue.consume_queue_store import nothing_hidden
from store.recovery.opening import StoreParts, open_parts
from tandem.cluster_file.choices import FlushDiskType
from tests.store.step_disk import StepDisk
from tests.store.store_world import BORN_MS, DIRECTORY, STORE_HOST, open_store, put_many
from tests.support.descriptors import descriptors_to_stay

CONFIG = StoreConfig(
    directory=DIRECTORY,
    mapped_file_size_commit_log_bytes=8192,
    mapped_file_size_consume_queue_bytes=200,
    max_hash_slot_num=100,
    max_index_num=400,
)


def opened(disk: Disk, *, is_slave: bool = False, **settings: Any) -> StoreParts:  # noqa: ANN401
    return open_parts(
        msgspec.structs.replace(CONFIG, **settings),
        disk=disk,
        wall_clock_ms=lambda: BORN_MS,
        store_host=STORE_HOST,
        is_slave=is_slave,
        hidden_before=nothing_hidden,
        is_batch_topic=lambda _: False,
        compacted=(),
        has_replicas=False,
    )


def a_killed_store(disk: SimulatedDisk, count: int = 40) -> SimulatedDisk:
    """Return a disk as a kill leaves it: with `abort`, and an index that was not closed."""
    store = open_store(disk)
    put_many(store, count)
    while store.reput_service.is_index_behind:
        store.reput_service.index_some()
    return disk.crashed()


def failing_at(step: int) -> Callable[[str], None]:
    left = step

    def on_step(name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(errno.EIO, "Input/output error", name.rsplit(maxsplit=1)[-1])

    return on_step


def test_all_parts_agree_and_the_store_counts_as_open() -> None:
    disk = a_killed_store(SimulatedDisk())
    parts = opened(disk)
    assert parts.commit_log.max_offset == parts.checkpoint.confirm_physical_offset > 0
    found = [parts.queues.find(*key) for key in parts.queues.queues()]
    assert sum(queue.next_offset for queue in found if queue is not None) == 40
    assert parts.index_service is not None
    assert parts.index_service.next_offset == 0  # its only file was being written
    assert disk.exists(f"{DIRECTORY}/abort")
    with pytest.raises(StoreLockedError):
        opened(disk)
    parts.unmap()
    parts.unmap()
    assert disk.exists(f"{DIRECTORY}/abort")
    opened(disk).unmap()


def test_an_index_that_is_switched_off_is_recovered_after_a_hard_stop_only() -> None:
    """It may be switched on again, and what it holds past the end of the log would be trusted."""
    disk = a_killed_store(SimulatedDisk())
    parts = opened(disk, message_index_enable=False)
    assert parts.index_service is None
    parts.unmap()
    assert disk.list_files(f"{DIRECTORY}/index") == []
    with open_store(disk) as store:
        put_many(store, 1)
    before = disk.list_files(f"{DIRECTORY}/index")
    assert before
    parts = opened(disk, message_index_enable=False)
    assert parts.index_service is None
    parts.unmap()
    assert disk.list_files(f"{DIRECTORY}/index") == before


@pytest.mark.parametrize(
    ("is_slave", "flush", "has_pool"),
    [
        (False, FlushDiskType.ASYNC_FLUSH, True),
        (True, FlushDiskType.ASYNC_FLUSH, False),
        (False, FlushDiskType.SYNC_FLUSH, False),
    ],
)
def test_a_pool_is_for_masters_that_do_not_wait_for_the_disk(
    flush: FlushDiskType, *, is_slave: bool, has_pool: bool
) -> None:
    """DefaultMessageStore.isTransientStorePoolEnable."""
    settings = {"transient_store_pool_enable": True, "flush_disk_type": flush}
    assert opened(SimulatedDisk(), is_slave=is_slave, **settings).has_pool == has_pool
    assert not opened(SimulatedDisk(), is_slave=is_slave, flush_disk_type=flush).has_pool


def test_an_error_of_the_disk_at_any_step_leaves_the_store_unlocked() -> None:
    killed = a_killed_store(SimulatedDisk())
    steps = StepDisk(killed)
    opened(steps).unmap()
    assert steps.steps > 5
    for step in range(1, steps.steps + 1):
        disk = StepDisk(killed.crashed())
        disk.on_step = failing_at(step)
        with pytest.raises(DiskFailedError) as failed:
            opened(disk)
        assert failed.value.path.startswith(f"{DIRECTORY}/")
        opened(disk).unmap()


def test_a_store_that_is_refused_leaves_no_file_open(tmp_path: Path) -> None:
    directory = str(tmp_path / "store")
    with open_store(RealDisk(), directory) as store:
        put_many(store, 40)
    for queue in (tmp_path / "store/consumequeue").rglob("0000*"):
        os.truncate(queue, 100)  # one alone would be built anew
    before = descriptors_to_stay()
    for _ in range(2):
        with pytest.raises(CorruptLogError) as caught:
            opened(RealDisk(), directory=directory)
        assert caught.value.fault is LogFault.LENGTH
        assert "/consumequeue/" in caught.value.path
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
