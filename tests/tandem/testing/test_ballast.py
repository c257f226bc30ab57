import errno
from pathlib import Path
from typing import Self

import pytest

from tandem.testing import ballast
from tandem.testing.ballast import fill, free


class FullDisk:
    """A file on a disk with room for some bytes, as `Path.open` gives it."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes
        self.sizes: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, data: bytes) -> int:
        if not self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        size = min(len(data), self.room_bytes)
        self.room_bytes -= size
        self.sizes.append(size)
        return size


def test_a_disk_is_filled_to_its_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(150_000)
    monkeypatch.setattr(Path, "open", lambda *_args, **_kwargs: disk)
    fill(Path("/somewhere"))
    assert disk.room_bytes == 0
    assert sum(disk.sizes) == 150_000


def test_making_room_takes_away_what_was_written_and_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "commitlog").touch()
    (tmp_path / ballast._NAME).write_bytes(b"x")
    free(tmp_path)
    free(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["commitlog"]
