from pathlib import Path

import pytest

from tandem import data_file
from tandem.data_file import DataFile, data_end, is_hole, only_zeros, opened, read_at, read_into


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
