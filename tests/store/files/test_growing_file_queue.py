from node.simulated.disk import SimulatedDisk
from store.files.growing_file_queue import GrowingFileQueue
from store.files.open_files import OpenFiles

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
