import gc
from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from store.files.growing_file import GrowingFile
from store.files.open_files import OpenFiles
from store.machine.errors import DiskFailedError
from store.machine.real_disk import RealDisk
from tests.support.descriptors import descriptors_to_stay

SIZE = 1 << 16


def made(directory: str, open_files: OpenFiles, offset: int = 0) -> GrowingFile:
    file = GrowingFile(directory, offset, SIZE, open_files)
    file.opened(open_files.disk.create(file.path, SIZE, grows=True))
    return file


def write(file: GrowingFile, data: bytes, *, is_synced: bool = True) -> None:
    file.use()
    file.allocate(file.wrote_position + len(data))
    file.buffer[file.wrote_position : file.wrote_position + len(data)] = data
    file.wrote_position += len(data)
    if is_synced:
        file.file.sync()
        file.flushed_position = file.wrote_position


def are_open(*files: GrowingFile) -> list[bool]:
    return [file.is_open for file in files]


def test_it_is_closed_for_another_and_opened_for_its_bytes(tmp_path: Path) -> None:
    open_files = OpenFiles(RealDisk(), 1)
    first = made(str(tmp_path), open_files)
    write(first, b"first" * 1000)
    second = made(str(tmp_path), open_files, SIZE)
    assert are_open(first, second) == [False, True]
    assert first.end_offset == 5000
    assert are_open(first, second) == [False, True]
    write(second, b"second")
    assert bytes(first.buffer[4995:5001]) == b"first\0"
    assert are_open(first, second) == [True, False]
    assert first.allocated_position == 8192
    write(first, b"!")
    assert bytes(second.select(0, 6) or b"") == b"second"


def test_who_has_its_buffer_reads_on_when_it_is_closed_and_its_descriptors_go(
    tmp_path: Path,
) -> None:
    open_files = OpenFiles(RealDisk(), 1)
    file = made(str(tmp_path), open_files)
    write(file, b"read")
    before = descriptors_to_stay()
    buffer = file.buffer
    made(str(tmp_path), open_files, SIZE)
    assert not file.is_open
    assert buffer[:4] == b"read"
    del buffer
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_it_stays_open_while_it_is_not_synced_or_held() -> None:
    open_files = OpenFiles(SimulatedDisk(), 1)
    file = made("/q", open_files)
    write(file, b"new", is_synced=False)
    assert not file.let_go()
    assert file.let_go(unsynced=True)
    assert bytes(file.buffer[:3]) == b"new"
    assert not file.let_go()
    file.flushed_position = file.wrote_position
    assert file.hold()
    assert not file.let_go()
    file.release()
    assert file.let_go()
    assert not file.is_open


def test_a_file_that_is_gone_or_short_is_an_error_that_names_it(tmp_path: Path) -> None:
    open_files = OpenFiles(RealDisk(), 8)
    file = GrowingFile(str(tmp_path), 0, SIZE, open_files)
    with pytest.raises(DiskFailedError) as gone:
        _ = file.buffer
    assert gone.value.path == file.path
    Path(file.path).write_bytes(b"short")
    with pytest.raises(DiskFailedError) as short:
        file.use()
    assert short.value.path == file.path
    assert not file.is_open
    assert open_files.count == 0


def test_a_closed_file_is_destroyed_and_shut_down_without_opening_it(tmp_path: Path) -> None:
    disk = RealDisk()
    open_files = OpenFiles(disk, 8)
    file = made(str(tmp_path), open_files)
    assert file.let_go()
    assert file.destroy(disk, 0, 0)
    assert list(tmp_path.iterdir()) == []
    opened = made(str(tmp_path), open_files)
    assert open_files.count == 1
    opened.shutdown(0, 0)
    assert not hasattr(opened, "unknown")


@pytest.mark.slow
def test_a_file_that_gets_no_blocks_when_it_is_opened_again_is_closed(tmp_path: Path) -> None:
    open_files = OpenFiles(RealDisk(), 1)
    file = made(str(tmp_path), open_files)
    write(file, bytes(5000))
    assert file.let_go()
    file.allocated_position = SIZE + 1  # more than any file of this size can have
    before = descriptors_to_stay()
    with pytest.raises(ValueError, match="not within"):
        file.use()
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert not file.is_open
