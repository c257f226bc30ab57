import pytest

from node.simulated.disk import SimulatedDisk
from store.services.queue_files_check import QueueFilesCheck
from tests.store.store_world import open_store, put_many


@pytest.mark.parametrize("size", [-1, 0, 40, 199, 201])
def test_what_is_lost_of_a_file_decides_whether_its_queue_is_in_doubt(size: int) -> None:
    """Elsewhere the whole scrub is tested: see test_queue_care.py."""
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 90)
    queue = store.queues.find("TopicA", 0)
    assert queue is not None
    check = QueueFilesCheck(disk)
    assert check.look_at(queue) == 0
    file = queue.files.files[1]
    path, whole = file.file.path, bytes(file.buffer)
    if size < 0:
        del disk._files[path]
    else:
        disk._files[path] = disk._file(path, whole.ljust(size, b"x")[:size])

    assert check.look_at(queue) == 1

    assert bool(queue.trouble) is (0 <= size < 200)
    assert queue.confirmed_from == (queue.next_offset if queue.trouble else 0)
    there = whole[:size] if queue.trouble else whole
    assert disk.read(path) == there.ljust(200, b"\0")
    assert bytes(file.buffer) == disk.read(path)
    assert file.file is disk.open(path)
    assert check.look_at(queue) == 0
