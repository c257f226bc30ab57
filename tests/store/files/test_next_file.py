"""The file after the last one: made in advance, in its place, and never twice."""

import gc
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.files.mapped_file_queue import MappedFileQueue
from store.machine.errors import StoreFullError
from store.machine.real_disk import RealDisk

SIZE = 4096
A, B = "/a", "/b"


def a_queue(disk: SimulatedDisk, count: int = 0, *, wrote: int = SIZE) -> MappedFileQueue:
    """Return a queue of `count` files, all full but the last, which has `wrote` bytes."""
    queue = filled(MappedFileQueue("/q", SIZE, disk), count)
    if queue.last is not None:
        queue.last.wrote_position = wrote
    return queue


def filled(queue: MappedFileQueue, count: int) -> MappedFileQueue:
    for _ in range(count):
        queue.last_or_create(0).wrote_position = SIZE
    return queue


def names(disk: SimulatedDisk) -> list[str]:
    return [name.lstrip("0") or "0" for name, _ in disk.list_files("/q")]


def places(queue: MappedFileQueue) -> str:
    """The directories of the files, in the order of the files."""
    return "".join(file.file.path[1] for file in queue.files)


def on_disk(disk: SimulatedDisk) -> dict[str, list[int]]:
    return {d: [int(name) // SIZE for name, _ in disk.list_files(d)] for d in (A, B)}


def loaded(disk: SimulatedDisk) -> MappedFileQueue:
    queue = MappedFileQueue("/q", SIZE, disk)
    queue.load()
    return queue


@pytest.mark.parametrize(
    ("wrote", "wanted"), [(0, False), (SIZE // 4, False), (SIZE // 4 + 1, True), (SIZE, True)]
)
def test_the_next_file_is_wanted_once_a_quarter_of_the_last_is_used(
    wrote: int, *, wanted: bool
) -> None:
    assert a_queue(SimulatedDisk(), 2, wrote=wrote).next_file.is_wanted == wanted


async def test_a_prepared_file_is_taken_and_not_made_twice() -> None:
    """AllocateMappedFileService."""
    disk = SimulatedDisk()
    queue = a_queue(disk, 1)
    await queue.next_file.prepare()
    assert names(disk) == ["0", "4096"]
    assert not queue.next_file.is_wanted
    assert queue.max_offset == SIZE
    disk.capacity_bytes = disk.used_bytes  # a new one could not be made
    assert queue.last_or_create(0).file_from_offset == SIZE
    assert (len(queue.files), queue.next_file.is_wanted) == (2, False)


async def test_a_prepared_file_that_was_not_needed_is_deleted_at_the_end() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 1)
    await queue.next_file.prepare()
    queue.close()
    queue.close()
    assert names(disk) == ["0"]


async def test_a_prepared_file_left_by_a_crash_goes_with_the_first_cut() -> None:
    """Section "The end of the log after recovery": a zero-filled next file is harmless."""
    disk = SimulatedDisk()
    await a_queue(disk, 1, wrote=3000).next_file.prepare()
    queue = loaded(disk)
    queue.truncate_dirty_files(3000)
    assert names(disk) == ["0"]
    queue.close()


async def test_the_log_may_be_faster_than_the_preparation(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 1.0)
    queue = a_queue(disk, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.next_file.prepare)
        await trio.sleep(0.5)
        mine = queue.last_or_create(0)
        mine.buffer[0:4] = b"mine"
    assert queue.last is mine
    assert names(disk) == ["0", "4096"]
    assert (disk.read("/q/00000000000000004096") or b"")[:4] == b"mine"
    assert queue.last_or_create(0) is mine


async def test_the_log_may_make_its_own_file_in_the_last_moment(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 1.0)
    queue = a_queue(disk, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.next_file.prepare)
        await trio.sleep(1.5)
        assert names(disk) == ["0", "4096"], "it has its name, and is not handed over yet"
        mine = queue.last_or_create(0)
        mine.buffer[0:4] = b"mine"
    assert (disk.read("/q/00000000000000004096") or b"")[:4] == b"mine"


@pytest.mark.parametrize("is_real", [False, True])
async def test_a_file_that_is_deleted_under_the_log_leaves_its_name_to_no_prepared_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_real: bool
) -> None:
    """Or what the scrub writes again from memory would go into a file without a name."""
    disk = RealDisk() if is_real else SimulatedDisk()
    queue = MappedFileQueue(str(tmp_path), SIZE, disk)
    queue.last_or_create(0).wrote_position = SIZE
    create = disk.create_in_background

    async def create_late(path: str, size: int) -> object:
        mine = queue.last_or_create(0)
        mine.buffer[0:4] = b"mine"
        disk.remove(mine.file.path)
        return await create(path, size)

    monkeypatch.setattr(disk, "create_in_background", create_late)
    await queue.next_file.prepare()
    assert [name for name, _ in disk.list_files(str(tmp_path))] == [f"{0:020d}"]
    queue.close()


async def test_a_log_that_begins_elsewhere_has_no_use_for_the_first_file(
    autojump_clock: MockClock,
) -> None:
    """A slave's log begins where its master tells it to, perhaps while file 0 is being prepared."""
    for moment in (0.5, 1.5):
        disk = SimulatedDisk(sync_seconds=lambda: 1.0)
        queue = a_queue(disk)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queue.next_file.prepare)
            await trio.sleep(moment)
            assert queue.last_or_create(8 * SIZE).file_from_offset == 8 * SIZE
        assert names(disk) == [str(8 * SIZE)]


async def test_without_room_nothing_is_prepared() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 1)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StoreFullError):
        await queue.next_file.prepare()
    assert (names(disk), queue.next_file.is_wanted) == (["0"], True)


def test_a_reserved_file_is_the_next_one() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk, 1, wrote=3000)
    queue.next_file.reserve(1)
    queue.next_file.reserve(1)
    assert names(disk) == ["0", "4096"]
    disk.capacity_bytes = disk.used_bytes
    assert queue.last_or_create(0).file_from_offset == 0
    assert queue.create_next().file_from_offset == SIZE


async def test_the_prepared_file_goes_where_its_turn_is() -> None:
    disk = SimulatedDisk()
    queue = filled(MappedFileQueue((A, B), SIZE, disk), 1)
    await queue.next_file.prepare()
    assert on_disk(disk) == {A: [0], B: [1]}
    disk.capacity_bytes = disk.used_bytes
    queue.last_or_create(0)
    assert places(queue) == "ab"


async def test_a_file_has_one_place_even_if_a_disk_fills_up_while_it_is_prepared(
    autojump_clock: MockClock,
) -> None:
    """Two files of one name in two directories would be a log that does not load."""
    disk = SimulatedDisk(sync_seconds=lambda: 1.0)
    full: set[str] = set()
    queue = MappedFileQueue((A, B), SIZE, disk, is_directory_full=full.__contains__)
    filled(queue, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.next_file.prepare)
        await trio.sleep(0.5)
        full.add(B)
        mine = queue.last_or_create(0)
        mine.wrote_position = SIZE
    assert on_disk(disk) == {A: [0], B: [1]}
    queue.last_or_create(0)
    assert places(queue) == "aba"


async def test_a_file_prepared_twice_is_there_once(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 1.0)
    queue = a_queue(disk, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.next_file.prepare)
        await trio.sleep(1.5)
        queue.next_file.reserve(1)
    assert names(disk) == ["0", "4096"]
    following = queue.create_next()
    assert following.file_from_offset == SIZE
    following.buffer[0:4] = b"mine"
    assert (disk.read(following.file.path) or b"")[:4] == b"mine"


async def test_a_warm_log_keeps_the_files_being_written_in_memory() -> None:
    """DefaultMappedFile.warmMappedFile; RocketMQ keeps every file locked until it is deleted."""
    disk = SimulatedDisk()
    queue = MappedFileQueue("/q", SIZE, disk, warm=True)
    locked = []
    for _ in range(4):
        await queue.next_file.prepare()
        locked.append(sorted(int(path[-20:]) // SIZE for path in disk.locked_in_memory))
        filled(queue, 1)
    assert locked == [[0], [0, 1], [1, 2], [2, 3]]
    cold = SimulatedDisk()
    await a_queue(cold, 1).next_file.prepare()
    assert cold.locked_in_memory == set()


async def test_the_next_file_of_this_machine_is_locked_before_it_is_needed(tmp_path: Path) -> None:
    def locked_kib() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmLck:")[1].split()[0])

    gc.collect()  # what a test before has left may go at any time
    before = locked_kib()
    queue = MappedFileQueue(str(tmp_path), SIZE, RealDisk(), warm=True)
    await queue.next_file.prepare()
    assert locked_kib() == before + SIZE // 1024
    for _ in range(3):
        queue.last_or_create(0).wrote_position = SIZE
        await queue.next_file.prepare()
        assert locked_kib() == before + 2 * SIZE // 1024
    queue.close()
    assert locked_kib() == before
