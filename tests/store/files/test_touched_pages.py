"""Pages are touched ahead of the writer, in steps, and no more of them than that."""

import itertools
from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store.files import touched_pages
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.files.touched_pages import (
    CALMED_SECONDS,
    LEAD_BYTES,
    STEP_BYTES,
    STEP_BYTES_MIN,
    STEPS_A_SECOND,
    TouchedPages,
)
from store.machine.real_disk import RealDisk

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


def whole(steps: list[tuple[int, int]]) -> tuple[int, int]:
    """What steps that follow one another cover."""
    assert all(before[1] == after[0] for before, after in itertools.pairwise(steps))
    return steps[0][0], steps[-1][1]


def longest(steps: list[tuple[int, int]]) -> int:
    return max(end - start for start, end in steps)


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
    steps = disk.touched[last.file.path]
    assert whole(steps) == (0, LEAD_BYTES)
    last.wrote_position += 1
    await touch_what_is_wanted(pages)
    assert whole(steps) == (0, LEAD_BYTES + STEP_BYTES_MIN)
    last.wrote_position = STEP_BYTES_MIN
    assert not pages.are_wanted


@pytest.mark.parametrize(
    ("bytes_a_second", "step_bytes"),
    [
        (1_000, STEP_BYTES_MIN),
        (6_500_000, STEP_BYTES_MIN),
        (STEPS_A_SECOND << 20, 1 << 20),
        (2 * STEPS_A_SECOND * STEP_BYTES, STEP_BYTES),
    ],
)
async def test_a_step_is_a_small_part_of_what_the_log_needs_in_a_second(
    queue: MappedFileQueue, disk: SimulatedDisk, bytes_a_second: int, step_bytes: int
) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    busy(pages, last, bytes_a_second)
    last.wrote_position = 0
    assert pages.step_bytes == step_bytes
    await touch_what_is_wanted(pages)
    assert longest(disk.touched[last.file.path]) == step_bytes
    await bring_in_all(pages, None)
    assert longest(disk.brought_in.get(last.file.path, [(0, 0)])) <= step_bytes


async def test_pages_that_the_writer_has_passed_are_left_out(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    last.wrote_position = STEP_BYTES + 5000
    await pages.touch_some()
    start = STEP_BYTES + 4096
    assert disk.touched[last.file.path] == [(start, start + STEP_BYTES_MIN)]


async def test_it_ends_with_the_file_and_goes_on_with_the_next(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    for position in range(0, SIZE + 1, 4096):
        last.wrote_position = position
        await touch_what_is_wanted(pages)
    steps = disk.touched[last.file.path]
    assert whole(steps) == (0, SIZE)
    assert longest(steps) == STEP_BYTES_MIN
    following = queue.last_or_create(0)
    assert following is not last
    assert pages.are_wanted
    await touch_what_is_wanted(pages)
    assert whole(disk.touched[following.file.path]) == (0, LEAD_BYTES)


async def test_a_prepared_file_begins_with_pages_that_are_touched(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    await queue.next_file.prepare()
    steps = disk.touched[f"/q/{0:020d}"]
    assert whole(steps) == (0, LEAD_BYTES)
    assert longest(steps) == STEP_BYTES_MIN


def busy(pages: TouchedPages, last: MappedFile, bytes_a_second: int) -> None:
    """Have a log grow for a second, past the end of the file if need be, and be looked at."""
    for quarter in range(5):
        last.wrote_position += bytes_a_second // 4
        assert not pages.look(100 + 0.25 * quarter)


async def test_pages_are_read_around_behind_the_writer_and_in_files_before_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(touched_pages, "READ_STEP_BYTES", SIZE // 2)
    said: list[tuple[str, int, int, bool]] = []

    def note(file: SimulatedFile, start: int, end: int, *, wanted: bool) -> None:
        said.append((file.path[-9:].lstrip("0") or "0", start, end, wanted))

    monkeypatch.setattr(SimulatedFile, "read_around", note)
    disk = SimulatedDisk()
    queue = MappedFileQueue("/q", SIZE, disk)
    last, pages = queue.last_or_create(0), queue.touched_pages
    await touch_what_is_wanted(pages)
    assert said == [("0", 0, SIZE, False)]
    said.clear()
    last.set_positions(SIZE // 2 - 1)
    await touch_what_is_wanted(pages)
    assert said == []
    last.set_positions(SIZE // 2 + 1)
    await pages.touch_some()
    assert said == [("0", 0, SIZE // 2, True)]
    said.clear()
    last.set_positions(SIZE)
    queue.create_next()
    assert said == [("0", 0, SIZE, True)]
    said.clear()
    await pages.touch_some()
    assert said == [(str(SIZE), 0, SIZE, False)]

    # A busy log takes many pages at once, and each by itself when it is calm again.
    for now, written in ((0.0, 0), (1.0, 4 << 20), (2.0, 4 << 20)):
        queue.files[-1].set_positions(written)
        pages.look(now)
    monkeypatch.setattr(touched_pages, "READ_AROUND_BYTES_MIN", 3 << 20)
    said.clear()
    await pages.touch_some()
    monkeypatch.setattr(touched_pages, "READ_AROUND_BYTES_MIN", 5 << 20)
    await pages.touch_some()
    await pages.touch_some()
    assert [each[-1] for each in said] == [True, False]
    assert all(start >= 4 << 20 and end == SIZE for _, start, end, _ in said)

    # Of a file that was opened, what is in it is read around, and what comes after that is not.
    again = MappedFileQueue("/q", SIZE, disk)
    again.load()
    again.files[-1].set_positions(3 * 4096 + 7)
    said.clear()
    await again.touched_pages.touch_some()
    assert said == [(str(SIZE), 3 * 4096, SIZE, False)]


async def bring_in_all(pages: TouchedPages, following: MappedFile | None) -> None:
    while (step := pages.absent_step(following)) is not None:
        await pages.bring_in(*step)


async def test_a_log_that_is_not_busy_has_nothing_brought_in(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    pages = queue.touched_pages
    assert pages.look(1.0)
    assert pages.absent_step(None) is None
    last = queue.last_or_create(0)
    busy(pages, last, LEAD_BYTES)
    assert pages.lead_bytes == LEAD_BYTES
    assert pages.absent_step(None) is None
    assert not disk.brought_in


async def test_after_a_busy_second_as_much_is_brought_in_as_it_wrote(
    queue: MappedFileQueue, disk: SimulatedDisk
) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    await queue.next_file.prepare()
    following = queue.next_file.prepared
    assert following is not None
    # 3 of the 4 steps of the last file are left, and one of the next one is wanted.
    busy(pages, last, 4 * STEP_BYTES)
    last.wrote_position = STEP_BYTES
    assert pages.lead_bytes == 4 * STEP_BYTES
    await touch_what_is_wanted(pages)
    touched_to = disk.touched[last.file.path][-1][1]
    await bring_in_all(pages, following)
    assert whole(disk.brought_in[last.file.path]) == (touched_to, SIZE)
    assert whole(disk.brought_in[following.file.path])[0] == 0
    brought_in = disk.brought_in[following.file.path][-1][1]
    assert STEP_BYTES - pages.step_bytes < brought_in <= STEP_BYTES
    # All of it once.
    assert pages.absent_step(following) is None
    last.wrote_position += STEP_BYTES
    await bring_in_all(pages, following)
    more = disk.brought_in[following.file.path][-1][1] - brought_in
    assert STEP_BYTES - pages.step_bytes < more < STEP_BYTES + pages.step_bytes


async def test_no_more_than_the_limit_is_brought_in(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(touched_pages, "IN_MEMORY_BYTES_MAX", 2 * STEP_BYTES)
    queue = MappedFileQueue("/q", SIZE, disk)
    last, pages = queue.last_or_create(0), queue.touched_pages
    busy(pages, last, 4 * SIZE)
    last.wrote_position = 0
    assert pages.lead_bytes == 2 * STEP_BYTES
    await bring_in_all(pages, None)
    assert whole(disk.brought_in[last.file.path]) == (0, 2 * STEP_BYTES)


async def test_a_busy_second_is_forgotten(queue: MappedFileQueue) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    busy(pages, last, 4 * STEP_BYTES)
    assert pages.look(101 + CALMED_SECONDS)
    assert pages.lead_bytes == pytest.approx(2 * STEP_BYTES, rel=0.01)
    assert pages.look(101 + 3 * CALMED_SECONDS)
    assert pages.lead_bytes == LEAD_BYTES


async def test_a_log_that_has_been_cut_is_looked_at_anew(queue: MappedFileQueue) -> None:
    last, pages = queue.last_or_create(0), queue.touched_pages
    last.wrote_position = 3 * STEP_BYTES
    pages.look(1.0)
    last.wrote_position = 0
    pages.look(2.0)
    last.wrote_position = STEP_BYTES
    pages.look(3.0)
    assert pages.lead_bytes == LEAD_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("clean", [False, True])
async def test_a_real_file_has_its_pages_in_memory_and_its_bytes_as_before(
    *, clean: bool, tmp_path: Path
) -> None:
    disk = RealDisk()
    file = disk.create(str(tmp_path / "1"), 1 << 20)
    file.buffer[4096:4100] = b"data"
    before = bytes_in_memory(file.path, "Rss:")
    await disk.touch(file, 4096, (1 << 20) - 4096, clean=clean)
    assert bytes_in_memory(file.path, "Rss:") - before >= (1 << 20) - 2 * 4096
    dirty = bytes_in_memory(file.path, "Shared_Dirty:", "Private_Dirty:")
    # Those that are not may have been written to the disk by now.
    assert not clean or dirty < 1 << 16
    assert file.buffer[:] == bytes(4096) + b"data" + bytes((1 << 20) - 4100)
    file.close()
    await disk.touch(file, 0, 4096)


def bytes_in_memory(path: str, *kinds: str) -> int:
    """What of a file's mapping this process has in memory, of these kinds."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(path):
            values = dict(each.split()[:2] for each, _ in zip(lines, range(20), strict=False))
            return sum(int(values[kind]) << 10 for kind in kinds)
    pytest.fail(f"{path} is not mapped")


@pytest.mark.parametrize("size", [4096, 8192, 8193, 262_144])
async def test_a_file_that_is_full_has_nothing_to_touch(size: int, tmp_path: Path) -> None:
    """As it is found when a store is opened whose log ends exactly at the end of a file."""
    queue = MappedFileQueue(str(tmp_path), size, RealDisk())
    last, pages = queue.last_or_create(0), queue.touched_pages
    last.wrote_position = size
    was_wanted = [pages.are_wanted]
    await touch_what_is_wanted(pages)
    await pages.touch_some()
    was_wanted.append(pages.are_wanted)
    assert was_wanted == [True, False]
    assert pages.absent_step(None) is None
