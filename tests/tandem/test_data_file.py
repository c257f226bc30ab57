import os
from pathlib import Path

import pytest

from tandem import data_file
from tandem.data_file import (
    DataFile,
    Entry,
    data_end,
    data_files,
    entries_in,
    is_hole,
    lock_holder,
    only_zeros,
    opened,
    read_at,
    read_into,
    topics_in_table,
)


def test_a_file_ends_at_its_name_plus_its_size() -> None:
    assert DataFile("00000000000000008192", 8192, 8192).end_offset == 16_384


def test_a_read_stops_at_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with opened(str(path)) as descriptor:
        assert read_at(descriptor, 8, 100) == b"89"
        assert read_at(descriptor, 50, 100) == b""
        assert read_into(descriptor, memoryview(bytearray(4)), 0) == 4


@pytest.mark.parametrize("read_bytes", [4, 4096])
def test_the_end_of_data_is_after_the_last_byte_that_is_not_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(data_file, "READ_BYTES", read_bytes)
    path = tmp_path / "file"
    path.write_bytes(bytes(9) + b"x" + bytes(20))
    with opened(str(path)) as descriptor:
        assert data_end(descriptor, 0, 30) == 10
        assert data_end(descriptor, 10, 30) == 10
        assert not only_zeros(descriptor, 0, 30)
        assert only_zeros(descriptor, 10, 30)
        assert only_zeros(descriptor, 0, 9)


def test_a_hole_is_zeros(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with opened(str(path)) as descriptor:
        assert only_zeros(descriptor, 0, 1 << 40)
        assert is_hole(descriptor, 0, 1 << 40)


def test_a_file_cut_meanwhile_counts_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    with opened(str(path)) as descriptor:
        assert only_zeros(descriptor, 0, 100)


def test_a_row_of_files_is_in_order_and_has_nothing_that_no_offset_names(tmp_path: Path) -> None:
    for name, size in ((f"{4096:020d}", 7), (f"{0:020d}", 0), ("9" * 20, 3), ("0" * 19, 3)):
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / f"{8192:020d}").mkdir()
    (tmp_path / "\u0660\u0661").write_bytes(b"")
    folder = str(tmp_path)
    assert data_files(folder, entries_in(folder)) == [
        DataFile(f"{folder}/{0:020d}", 0, 0),
        DataFile(f"{folder}/{4096:020d}", 4096, 7),
    ]


def test_what_is_neither_file_nor_directory_is_not_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{0:020d}")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "folder").mkdir()
    found = sorted(entries_in(str(tmp_path)), key=lambda entry: entry.name)
    assert found == [
        Entry("file", is_directory=False, size=3),
        Entry("folder", is_directory=True, size=0),
    ]


@pytest.mark.parametrize(
    ("data", "topics"),
    [
        (b'{"topicConfigTable":{"a":{},"b":{"order":true}},"dataVersion":{}}', {"a", "b"}),
        (b"{}", set()),
        (b"", None),
        (b"[]", None),
        (b'{"topicConfigTable":{"a"', None),
    ],
)
def test_a_table_that_cannot_be_read_is_not_one_without_topics(
    data: bytes, topics: set[str] | None
) -> None:
    assert topics_in_table(data) == topics


def test_nobody_holds_a_lock_that_is_removed_as_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is emptied: its disk is lost, or its power was cut."""
    lock = tmp_path / "lock"
    lock.touch()

    def removed() -> set[int]:
        lock.unlink()
        return set()

    monkeypatch.setattr(data_file, "_locked_by_us", removed)
    assert lock_holder(lock) is None
