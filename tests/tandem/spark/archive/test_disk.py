from pathlib import Path

import pytest

from tandem.durable_file import make_directory, sync_directory
from tandem.spark.archive.disk import LocalDisk, locked
from tandem.spark.archive.errors import ArchiveBusyError
from tests.support.small_archive import CrashError, CrashingDisk


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "unit.json"
    LocalDisk().write(place, b"one")
    LocalDisk().write(place, b"two")
    assert place.read_bytes() == b"two"
    with pytest.raises(CrashError):
        CrashingDisk(1, after=False).write(place, b"three")  # before the draft gets its name
    assert place.read_bytes() == b"two"


def test_a_file_moves_into_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "draft").write_bytes(b"data")
    LocalDisk().move(tmp_path / "draft", tmp_path / "x" / "y" / "file")
    assert (tmp_path / "x" / "y" / "file").read_bytes() == b"data"
    assert not (tmp_path / "draft").exists()


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    make_directory(tmp_path / "tree" / "deep")
    sync_directory(tmp_path)
    LocalDisk().remove_tree(tmp_path / "tree")
    LocalDisk().remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_a_directory_is_locked_for_one(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "meta"),
        pytest.raises(ArchiveBusyError),
        locked(tmp_path / "meta"),
    ):
        pass
    with locked(tmp_path / "meta"):
        pass
