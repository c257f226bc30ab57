import pytest

from node.simulated.file import ReadOnlyFile, SimulatedFile
from tandem.wire.store_layout import PAGE_BYTES


def test_what_is_written_is_seen_at_once_and_durable_after_a_sync() -> None:
    file = SimulatedFile("a", bytes(8))
    file.write(2, memoryview(b"xy"))
    assert file.content == b"\0\0xy\0\0\0\0"
    assert file.durable == bytes(8)
    file.sync()
    assert file.durable == file.content


def test_pages_of_a_failed_sync_are_written_only_when_they_change_again() -> None:
    failing = [True]
    file = SimulatedFile("a", bytes(2 * PAGE_BYTES), lambda: failing[0])
    file.buffer[0] = file.buffer[PAGE_BYTES] = 1
    with pytest.raises(OSError, match="error"):
        file.sync()
    failing[0] = False
    file.buffer[PAGE_BYTES] = 2
    file.sync()
    assert (file.durable[0], file.durable[PAGE_BYTES]) == (0, 2)


def test_room_is_asked_for_before_a_file_grows() -> None:
    asked = []
    file = SimulatedFile("a", bytes(100), expect_room=lambda path, size: asked.append((path, size)))
    file.allocated = 10
    file.allocate(60)
    file.allocate(40)
    assert asked == [("a", 50)]
    assert file.allocated == 60


def test_a_read_only_file_shows_what_was_there_and_takes_nothing() -> None:
    file = SimulatedFile("a", b"before")
    read_only = ReadOnlyFile(file)
    file.write(0, memoryview(b"after!"))
    assert read_only.content == b"before"
    with pytest.raises(TypeError):
        read_only.buffer[0] = 1
