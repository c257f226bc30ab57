import errno
from collections.abc import Iterable, Sequence

import pytest

from node.simulated.disk import SimulatedDisk
from store.files.growing_file import GrowingFile
from store.files.growing_file_queue import GrowingFileQueue
from store.files.mapped_file import MappedFile
from store.files.open_files import OpenFiles
from store.files.sync_at_once import no_progress, sync_at_once, sync_each, sync_tree_or_each
from store.machine.disk import DiskFile

SIZE = 8192


class NotingDisk(SimulatedDisk):
    def __init__(self) -> None:
        super().__init__()
        self.together: list[list[str]] = []
        self.trees: list[str] = []
        self.closed: list[list[str]] = []
        self.names: list[list[str]] = []

    def sync_now(self, files: Sequence[DiskFile]) -> None:
        self.together.append([file.path for file in files])
        super().sync_now(files)

    def sync_closed_now(self, paths: Sequence[str]) -> None:
        self.closed.append(list(paths))
        super().sync_closed_now(paths)

    def sync_names(self, directories: Iterable[str]) -> None:
        self.names.append(list(directories))
        super().sync_names(directories)

    def sync_tree_now(self, directory: str) -> bool:
        self.trees.append(directory)
        return super().sync_tree_now(directory)


def written(disk: SimulatedDisk, count: int, *, open_files_max: int = 100) -> list[MappedFile]:
    """Return files of so many queues, all with something to sync."""
    open_files, files = OpenFiles(disk, open_files_max), []
    for number in range(count):
        row = GrowingFileQueue(f"/s/consumequeue/T/{number}", SIZE, open_files, remedy="")
        file = row.last_or_create(0)
        file.buffer[:4] = b"unit"
        file.wrote_position = 4
        files.append(file)
    return files


def test_files_are_synced_together_and_know_it() -> None:
    disk = NotingDisk()
    files = written(disk, 3)
    sync_at_once(disk, files)
    assert disk.together == [[file.path for file in files]]
    assert [file.flushed_position for file in files] == [4, 4, 4]


def test_files_that_are_closed_are_opened_for_it_and_not_closed_before_it() -> None:
    disk = NotingDisk()
    files = written(disk, 12, open_files_max=2)
    assert sum(file.is_open for file in files) < 12
    sync_at_once(disk, files)
    assert disk.together == [[file.path for file in files]]


def test_a_file_that_is_about_to_be_deleted_is_left_alone() -> None:
    disk = NotingDisk()
    files = written(disk, 2)
    files[0].hold()
    files[0].shutdown(0, 1000)
    sync_at_once(disk, files)
    assert disk.together == [[files[1].path]]


def test_after_an_error_nothing_counts_as_synced() -> None:
    disk = NotingDisk()
    files = written(disk, 3)
    disk.sync_fails = True
    with pytest.raises(OSError, match="error") as caught:
        sync_at_once(disk, files)
    assert caught.value.errno == errno.EIO
    assert [file.flushed_position for file in files] == [0, 0, 0]
    for file in files:
        file.shutdown(0, 1000)
    assert all(file.is_cleanup_over for file in files), "somebody holds it"


def test_many_are_synced_with_their_file_system() -> None:
    disk = NotingDisk()
    disk.lock("/s/lock")
    files = written(disk, disk.many_files)
    sync_tree_or_each(disk, "/s", files, [])
    assert (disk.trees, disk.together) == (["/s"], [])
    assert {file.flushed_position for file in files} == {4}


@pytest.mark.parametrize("why", ["few", "not locked"])
def test_others_are_synced_each_with_their_names(why: str) -> None:
    disk = NotingDisk()
    if why == "few":
        disk.lock("/s/lock")
    files = written(disk, disk.many_files - (why == "few"))
    sync_tree_or_each(disk, "/s", files, ["/s/consumequeue/T/0"])
    assert disk.together == [[file.path for file in files]]
    assert {file.flushed_position for file in files} == {4}


def test_after_a_kill_each_file_is_synced_and_none_is_opened_for_it() -> None:
    disk = NotingDisk()
    files = written(disk, 12)
    for file in files[3:]:
        assert isinstance(file, GrowingFile)
        file.let_go(unsynced=True)
    is_open = [file.is_open for file in files]
    assert is_open == [True] * 3 + [False] * 9
    sync_each(disk, "/s", files, ["/s/consumequeue/T"])
    assert disk.closed == [[file.path for file in files[3:]]]
    assert disk.together == [[file.path for file in files[:3]]]
    assert [file.is_open for file in files] == is_open
    assert [file.flushed_position for file in files] == [4] * 12


def test_after_an_error_closed_files_do_not_count_as_synced() -> None:
    disk = NotingDisk()
    files = written(disk, 3)
    for file in files:
        assert isinstance(file, GrowingFile)
        file.let_go(unsynced=True)
    disk.sync_fails = True
    with pytest.raises(OSError, match="error"):
        sync_each(disk, "/s", files, [])
    assert [file.flushed_position for file in files] == [0, 0, 0]


@pytest.mark.parametrize(
    ("count", "is_locked", "trees", "names"), [(4, 1, 1, 0), (3, 1, 0, 1), (4, 0, 1, 1)]
)
def test_many_names_are_synced_with_their_file_system(
    count: int, is_locked: int, trees: int, names: int
) -> None:
    """And all of their files one by one all the same: an error of one of them is told there."""
    disk = NotingDisk()
    assert disk.many_files == 4
    if is_locked:
        disk.lock("/s/lock")
    files = written(disk, 4)
    directories = [f"/s/consumequeue/T/{number}" for number in range(count)]
    sync_each(disk, "/s", files, directories)
    assert (disk.trees, disk.names) == (["/s"] * trees, [directories] * names)
    assert disk.together == [[file.path for file in files]]


def test_progress_may_be_of_no_interest() -> None:
    no_progress(1, 2)
