from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from store import CorruptLogError
from store.files.growing_file_queue import GrowingFileQueue
from store.files.open_files import OpenFiles
from store.machine.real_disk import RealDisk

SIZE = 8192


def test_files_are_made_and_found_again_without_being_opened() -> None:
    disk = SimulatedDisk()
    row = GrowingFileQueue("/q", SIZE, OpenFiles(disk), remedy="build it anew")
    for _ in range(3):
        file = row.last_or_create(0)
        file.allocate(SIZE)
        file.wrote_position = SIZE
    row.sync_all()
    row.close()
    open_files = OpenFiles(disk)
    again = GrowingFileQueue("/q", SIZE, open_files, remedy="build it anew")
    again.load()
    assert [file.file_from_offset for file in again.files] == [0, SIZE, 2 * SIZE]
    assert again.max_offset == 3 * SIZE
    assert open_files.count == 0
    again.truncate_dirty_files(SIZE + 1)
    assert open_files.count == 1
    again.next_file.reserve(100)
    assert disk.exists(f"/q/{2 * SIZE:020d}")
    again.discard_next_file()
    assert not disk.exists(f"/q/{2 * SIZE:020d}")


def test_the_time_of_a_lone_file_comes_with_its_name_and_of_other_rows_it_does_not() -> None:
    disk = SimulatedDisk(now_ms=lambda: 77)
    path = f"/q/{0:020d}"
    disk.create(path, SIZE, grows=True)
    row = GrowingFileQueue("/q", SIZE, OpenFiles(disk), remedy="build it anew")
    assert row.load_found() == disk.modified_ms(path)
    assert row.max_offset == SIZE
    disk.create(f"/q/{SIZE:020d}", SIZE, grows=True)
    both = GrowingFileQueue("/q", SIZE, OpenFiles(disk), remedy="build it anew")
    assert both.load_found() == -1
    assert both.max_offset == 2 * SIZE
    listed = GrowingFileQueue("/q", SIZE, OpenFiles(disk), remedy="build it anew")
    assert listed.load_found([(f"{0:020d}", SIZE, 55)]) == 55, "it is not listed once more"
    assert listed.max_offset == SIZE
    none = GrowingFileQueue("/none", SIZE, OpenFiles(disk), remedy="build it anew")
    assert none.load_found() == -1


def test_a_lone_file_of_another_name_or_length_is_refused() -> None:
    for name, size in ((f"{0:020d}", SIZE // 2), (f"{1:020d}", SIZE), ("notes", SIZE)):
        disk = SimulatedDisk()
        disk.create(f"/q/{name}", size)
        with pytest.raises(CorruptLogError):
            GrowingFileQueue("/q", SIZE, OpenFiles(disk), remedy="").load_found()


def test_a_file_that_a_kill_left_without_length_is_deleted(tmp_path: Path) -> None:
    """It was killed between the name and the length of a new file."""
    disk = RealDisk()
    disk.create(f"{tmp_path}/q/{0:020d}", SIZE, grows=True).close()
    for left in (f"q/{SIZE:020d}", f"new/{0:020d}"):
        (tmp_path / left).parent.mkdir(exist_ok=True)
        (tmp_path / left).touch()
        row = GrowingFileQueue(
            f"{tmp_path}/{left.partition('/')[0]}", SIZE, OpenFiles(disk), remedy=""
        )
        row.load_found()
        assert not (tmp_path / left).exists()
        assert row.last_or_create(0).size == SIZE
        row.close()
