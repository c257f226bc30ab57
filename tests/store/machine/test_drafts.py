"""What is about to replace a file is synced by a thread, and nothing else comes in its place.

What shows of it is a contract that the disk shares with its twin: tests/support/contracts.py.
"""

import errno
import os
import threading
from pathlib import Path

import pytest
import trio

from store.machine.errors import StoreFullError
from store.machine.real_disk import RealDisk
from tests.support.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("ahead", [True, False])
async def test_what_is_written_ahead_is_synced_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> None:
    synced: list[int] = []
    fdatasync = os.fdatasync

    def counted(descriptor: int) -> None:
        synced.append(threading.get_ident())
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    disk, path = RealDisk(), f"{tmp_path}/f"
    for data in (b"one", b"two"):
        disk.will_replace(path, data)
        if ahead:
            await disk.write_ahead()
        disk.replace(path, data)
        assert disk.read(path) == data
    await disk.write_ahead()
    assert [each == threading.get_ident() for each in synced] == [not ahead, not ahead]
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


async def test_a_save_that_is_under_way_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile is written as ever, and what was late does not come in its place."""
    go_on = threading.Event()
    fdatasync = os.fdatasync
    here = threading.get_ident()

    def slow(descriptor: int) -> None:
        if threading.get_ident() != here:
            go_on.wait(PATIENCE_SECONDS)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    disk, path = RealDisk(), f"{tmp_path}/f"
    disk.will_replace(path, b"late")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.write_ahead)
        while not list(tmp_path.iterdir()):
            await trio.lowlevel.checkpoint()
        disk.will_replace(path, b"new")
        await disk.write_ahead()
        disk.replace(path, b"new")
        assert disk.read(path) == b"new"
        go_on.set()
    assert disk.read(path) == b"new"
    disk.will_replace(path, b"newer")
    await disk.write_ahead()
    disk.replace(path, b"newer")
    assert disk.read(path) == b"newer"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


async def test_what_somebody_has_deleted_is_written_again(tmp_path: Path) -> None:
    disk, path = RealDisk(), f"{tmp_path}/f"
    data = b"data"
    disk.will_replace(path, data)
    await disk.write_ahead()
    for file in tmp_path.iterdir():
        file.unlink()
    disk.replace(path, data)
    assert disk.read(path) == data


async def test_one_that_is_cancelled_is_written_later(tmp_path: Path) -> None:
    disk, path = RealDisk(), f"{tmp_path}/f"
    data = b"data"
    disk.will_replace(path, data)
    with trio.CancelScope() as scope:
        scope.cancel()
        await disk.write_ahead()
    disk.replace(path, data)
    assert disk.read(path) == data
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


async def test_what_was_announced_meanwhile_is_not_overwritten_by_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks write ahead; one of them has to wait between two files."""
    go_on, here = threading.Event(), threading.get_ident()
    disk, other, path = RealDisk(), f"{tmp_path}/a", f"{tmp_path}/f"
    fdatasync = os.fdatasync

    def slow(descriptor: int) -> None:
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if threading.get_ident() != here and name.startswith(other):
            go_on.wait(PATIENCE_SECONDS)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    old, new, one = b"old", b"newer", b"another"
    disk.will_replace(other, one)
    disk.will_replace(path, old)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.write_ahead)
        while not list(tmp_path.iterdir()):
            await trio.lowlevel.checkpoint()
        disk.will_replace(path, new)
        await disk.write_ahead()
        go_on.set()
    disk.replace(path, new)
    disk.replace(other, one)
    assert [disk.read(path), disk.read(other)] == [new, one]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "f"]


async def test_what_was_written_meanwhile_is_not_written_ahead_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stop would end in a KeyError."""
    go_on, here = threading.Event(), threading.get_ident()
    disk, path = RealDisk(), f"{tmp_path}/f"
    fdatasync = os.fdatasync

    def slow(descriptor: int) -> None:
        if threading.get_ident() != here:
            go_on.wait(PATIENCE_SECONDS)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    data = b"data"
    disk.will_replace(f"{tmp_path}/a", data)
    disk.will_replace(path, data)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.write_ahead)
        while not list(tmp_path.iterdir()):
            await trio.lowlevel.checkpoint()
        disk.replace(path, data)
        nursery.cancel_scope.cancel()
        go_on.set()
    assert disk.read(path) == data


async def test_one_that_could_not_be_written_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = RealDisk(), f"{tmp_path}/f"
    disk.replace(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", full)
    data = b"data"
    disk.will_replace(path, data)
    await disk.write_ahead()
    assert [each.name for each in tmp_path.iterdir()] == ["f"]
    with pytest.raises(StoreFullError):
        disk.replace(path, data)
    assert [each.name for each in tmp_path.iterdir()] == ["f"]
    assert disk.read(path) == b"old"


async def test_one_that_nobody_has_taken_goes_with_the_next_save(tmp_path: Path) -> None:
    """A stop comes between the two, and then saves what is newer."""
    disk, path = RealDisk(), f"{tmp_path}/f"
    disk.will_replace(path, b"old")
    await disk.write_ahead()
    data = b"newer"
    disk.will_replace(path, data)
    disk.replace(path, data)
    assert disk.read(path) == data
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("ahead", [True, False])
async def test_a_name_that_there_is_no_room_for_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> None:
    """Some file systems need room to give a file another name."""
    disk, path = RealDisk(), f"{tmp_path}/f"
    disk.replace(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    data = b"data"
    if ahead:
        disk.will_replace(path, data)
        await disk.write_ahead()
    with pytest.raises(StoreFullError):
        disk.replace(path, data)
    assert [each.name for each in tmp_path.iterdir()] == ["f"]
    assert disk.read(path) == b"old"
