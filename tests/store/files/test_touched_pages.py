"""Pages are touched ahead of the writer, in steps, and no more of them than that."""

from pathlib import Path

import pytest

from store.files.mapped_file_queue import MappedFileQueue
from store.files.touched_pages import LEAD_BYTES, STEP_BYTES, TouchedPages
from store.machine.real_disk import RealDisk
from tests.support.simulated_disk import SimulatedDisk

SIZE = 4 * STEP_BYTES


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def queue(disk: SimulatedDisk) -> MappedFileQueue:
    return MappedFileQueue("/q", SIZE, disk)


async def touch_what_is_wanted(pages: TouchedPages) -> None:
    while pages.are_wanted:
        await pages.touch_some()


async def test_nothing_is_wanted_without_a_file(queue: MappedFileQueue) -> None:
    pages = queue.touched_pages
    assert not pages.are_wanted
    await pages.touch_some()
    assert not pages.are_wanted


async def test_the_lead_is_kept_and_an_idle_file_is_left_alone(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    await touch_what_is_wanted(pages)
    assert disk.touched == {last.file.path: [(0, STEP_BYTES)]}
    last.wrote_position = STEP_BYTES - LEAD_BYTES
    assert not pages.are_wanted
    last.wrote_position += 1
    await touch_what_is_wanted(pages)
    assert disk.touched[last.file.path][1:] == [(STEP_BYTES, 2 * STEP_BYTES)]


async def test_pages_that_the_writer_has_passed_are_left_out(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    last.wrote_position = STEP_BYTES + 5000
    await pages.touch_some()
    start = STEP_BYTES + 4096
    assert disk.touched[last.file.path] == [(start, start + STEP_BYTES)]


async def test_it_ends_with_the_file_and_goes_on_with_the_next(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    for position in range(0, SIZE + 1, 4096):
        last.wrote_position = position
        await touch_what_is_wanted(pages)
    assert disk.touched[last.file.path] == [
        (start, start + STEP_BYTES) for start in range(0, SIZE, STEP_BYTES)
    ]
    following = queue.last_or_create(0)
    assert following is not last
    assert pages.are_wanted
    await touch_what_is_wanted(pages)
    assert disk.touched[following.file.path] == [(0, STEP_BYTES)]


async def test_a_prepared_file_begins_with_pages_that_are_touched(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    await queue.next_file.prepare()
    assert disk.touched == {f"/q/{0:020d}": [(0, LEAD_BYTES)]}


async def test_a_real_file_has_its_pages_in_memory_and_its_bytes_as_before(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.create(str(tmp_path / "1"), 1 << 20)
    file.buffer[4096:4100] = b"data"
    before = resident_bytes(file.path)
    await disk.touch(file, 4096, (1 << 20) - 4096)
    assert resident_bytes(file.path) - before >= (1 << 20) - 2 * 4096
    assert file.buffer[:] == bytes(4096) + b"data" + bytes((1 << 20) - 4100)
    file.close()
    await disk.touch(file, 0, 4096)


def resident_bytes(path: str) -> int:
    """What of a file's mapping this process has in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(path):
            return next(int(each.split()[1]) << 10 for each in lines if each.startswith("Rss:"))
    pytest.fail(f"{path} is not mapped")
