"""The simulated disk keeps the contract of the real one, and loses what it should lose."""

import random
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SECTOR_BYTES, SimulatedDisk
from store.machine.disk import DiskSpace
from store.machine.errors import StoreFullError
from store.machine.real_disk import RealDisk
from tandem.wire.store_layout import PAGE_BYTES
from tests.support.contracts import DISK_CONTRACTS, check_disk, lock_is_exclusive_and_comes_back


@pytest.mark.parametrize("name", DISK_CONTRACTS)
async def test_the_simulated_disk_keeps_the_contract(name: str) -> None:
    await check_disk(name, SimulatedDisk(), "/disk")


@pytest.mark.parametrize("name", DISK_CONTRACTS)
async def test_the_real_disk_keeps_the_contract(name: str, tmp_path: Path) -> None:
    await check_disk(name, RealDisk(), str(tmp_path))


def test_the_lock_is_exclusive_and_dies_with_the_process() -> None:
    disk = SimulatedDisk()
    lock_is_exclusive_and_comes_back(disk, "/disk")
    disk.lock("/disk/lock")
    disk.crashed().lock("/disk/lock")


def test_a_full_disk_refuses_and_leaves_nothing() -> None:
    disk = SimulatedDisk(capacity_bytes=10_000)
    disk.create("/f", 8192)
    with pytest.raises(StoreFullError, match="/g"):
        disk.create("/g", 4096)
    with pytest.raises(StoreFullError):
        disk.replace("/config", bytes(4096))
    assert not disk.exists("/g")
    assert not disk.exists("/config")
    disk.remove("/f")
    disk.create("/g", 4096)


def test_after_kill_the_page_cache_is_all_there_and_the_dead_change_nothing() -> None:
    disk = SimulatedDisk()
    file = disk.create("/f", 8192)
    file.buffer[0:4] = b"kept"
    after = disk.crashed()
    file.buffer[0:4] = b"late"
    file.sync()
    disk.remove("/f")
    assert after.open("/f").buffer[:4] == b"kept"
    assert after.open("/f").durable == bytes(8192)


def test_memory_of_nobody_dies_with_the_process() -> None:
    disk = SimulatedDisk()
    disk.create("/d/f", 4096)
    disk.allocate_buffer(4096)[0:4] = b"gone"
    assert disk.crashed().list_files("/d") == [("f", 4096)]
    assert disk.crashed().read("/d/f") == bytes(4096)


async def test_files_have_the_time_of_their_last_change_and_keep_it_in_a_crash() -> None:
    now_ms = 1000
    disk = SimulatedDisk(now_ms=lambda: now_ms, sync_seconds=lambda: 0.0)
    file = disk.create("/f", 4096)
    now_ms = 2000
    await disk.sync(file)
    file.sync()
    assert disk.modified_ms("/f") == 1000
    file.buffer[0:1] = b"x"
    await disk.sync(file)
    assert disk.modified_ms("/f") == 2000
    now_ms = 3000
    file.write(1, memoryview(b"y"))
    assert disk.modified_ms("/f") == 3000
    now_ms = 4000
    assert disk.crashed().modified_ms("/f") == 3000
    assert disk.powered_off(random.Random(1)).modified_ms("/f") == 3000
    file.modified_ms = 77
    assert disk.modified_ms("/f") == 77


def test_further_file_systems_are_full_one_by_one() -> None:
    disk = SimulatedDisk(capacity_bytes=10_000)
    disk.volumes["/mnt/b"] = 8192
    disk.create("/mnt/b/log/0", 4096)
    assert disk.space("/mnt/b/log") == DiskSpace(4096, 4096)
    assert disk.free_bytes("/mnt/b") == 4096
    assert disk.free_bytes("/mnt/bb") == 10_000
    with pytest.raises(StoreFullError):
        disk.create("/mnt/b/log/1", 8192)
    disk.create("/mnt/a/log/1", 8192)
    assert disk.space("/mnt") == DiskSpace(8192, 1808)
    assert disk.crashed().space("/mnt/b") == DiskSpace(4096, 4096)


async def test_a_failed_write_through_the_file_does_nothing() -> None:
    disk = SimulatedDisk()
    file = disk.create("/f", 4096)
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        file.write(0, memoryview(b"x"))
    assert file.content == bytes(4096)


async def test_a_sync_makes_durable_what_was_there_when_it_began(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 2.0)
    file = disk.create("/f", 4096)
    file.buffer[0:1] = b"a"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.sync, file)
        await trio.sleep(1.0)
        file.buffer[1:2] = b"b"
        assert file.durable == bytes(4096)
    assert file.durable == b"a" + bytes(4095)


async def test_a_running_sync_is_not_cancelled(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 2.0)
    file = disk.create("/f", 4096)
    start = trio.current_time()
    with trio.move_on_after(0.5):
        await disk.sync(file)
    assert trio.current_time() - start == 2.0


async def test_a_failed_sync_makes_nothing_durable() -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.0)
    file = disk.create("/f", 4096)
    file.buffer[0:1] = b"a"
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        await disk.sync(file)
    with pytest.raises(OSError, match="Input/output"):
        disk.crashed().open("/f").sync()
    assert file.durable == bytes(4096)


def test_power_loss_keeps_synced_pages_and_mixes_the_others_by_sector() -> None:
    disk = SimulatedDisk()
    pages = 64
    file = disk.create("/f", pages * PAGE_BYTES)
    file.buffer[:] = b"o" * file.size
    file.sync()
    file.buffer[PAGE_BYTES:] = b"n" * (file.size - PAGE_BYTES)
    outcomes = set()
    for seed in range(8):
        after = disk.powered_off(random.Random(seed)).open("/f")
        content = after.buffer[:]
        assert content == after.durable
        assert content[:PAGE_BYTES] == b"o" * PAGE_BYTES
        for page in range(PAGE_BYTES, len(content), PAGE_BYTES):
            sectors = {
                bytes(content[at : at + SECTOR_BYTES])
                for at in range(page, page + PAGE_BYTES, SECTOR_BYTES)
            }
            assert sectors <= {b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES}
            outcomes.add((len(sectors), content[page : page + 1]))
    assert {size for size, _ in outcomes} == {1, 2}


def test_the_same_chance_loses_the_same_pages() -> None:
    disk = SimulatedDisk()
    disk.create("/f", 40 * PAGE_BYTES).buffer[:] = b"n" * 40 * PAGE_BYTES
    first, second = (disk.powered_off(random.Random(5)).read("/f") for _ in range(2))
    assert first == second


def test_events_are_told() -> None:
    seen: list[str] = []
    disk = SimulatedDisk(on_event=seen.append)
    disk.create("/f", 4096)
    disk.remove("/f")
    disk.replace("/g", b"12")
    assert seen == ["create /f 4096", "remove /f", "replace /g 2"]


async def test_a_sync_after_a_failed_one_does_not_write_what_was_given_up(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    file = disk.create("/a", 2 * PAGE_BYTES)
    file.buffer[:4] = b"lost"
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output error"):
        await disk.sync(file)
    disk.sync_fails = False
    file.buffer[PAGE_BYTES : PAGE_BYTES + 4] = b"kept"
    await disk.sync(file)
    assert file.durable[:4] == bytes(4)
    assert file.durable[PAGE_BYTES : PAGE_BYTES + 4] == b"kept"
    file.buffer[:4] = b"anew"
    await disk.sync(file)
    assert file.durable[:4] == b"anew"


async def test_a_page_that_was_written_after_all_is_not_given_up_any_more(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    file = disk.create("/a", PAGE_BYTES)
    file.buffer[:4] = b"lost"
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output error"):
        await disk.sync(file)
    disk.sync_fails = False
    file.buffer[:4] = b"anew"
    await disk.sync(file)
    file.buffer[:4] = b"lost"
    await disk.sync(file)
    assert file.durable[:4] == b"lost"


async def test_what_was_given_up_is_not_written_for_the_next_process_either(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    file = disk.create("/a", 2 * PAGE_BYTES)
    file.buffer[:4] = b"lost"
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output error"):
        await disk.sync(file)
    later = disk.crashed()
    later.sync_fails = False
    file = later.open("/a")
    assert file.buffer[:4] == b"lost"
    await later.sync(file)
    assert file.durable[:4] == bytes(4)
    file.write(0, memoryview(b"lost"))
    await later.sync(file)
    assert file.durable[:4] == b"lost"
