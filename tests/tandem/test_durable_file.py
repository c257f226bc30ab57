from pathlib import Path

import pytest

from tandem.durable_file import (
    make_directory,
    move_durably,
    sync_directory,
    sync_file,
    write_durably,
)


def test_a_file_is_replaced_and_no_draft_is_left(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "file"
    write_durably(place, b"one")
    write_durably(place, b"two")
    assert place.read_bytes() == b"two"
    assert [path.name for path in place.parent.iterdir()] == ["file"]


def test_a_file_that_cannot_be_replaced_stays_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"one")
    (tmp_path / ".file.draft").mkdir()
    with pytest.raises(IsADirectoryError):
        write_durably(place, b"two")
    assert place.read_bytes() == b"one"


def test_a_file_moves_into_directories_that_are_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "draft").write_bytes(b"data")
    move_durably(tmp_path / "draft", tmp_path / "x" / "y" / "file")
    assert (tmp_path / "x" / "y" / "file").read_bytes() == b"data"
    assert not (tmp_path / "draft").exists()


def test_what_is_there_can_be_made_and_synced_again(tmp_path: Path) -> None:
    make_directory(tmp_path / "tree" / "deep")
    make_directory(tmp_path / "tree" / "deep")
    sync_directory(tmp_path / "tree")
    (tmp_path / "file").touch()
    sync_file(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "file", "tree"]
