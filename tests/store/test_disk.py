"""The real disk: what goes wrong is told in the store's words, and nothing is left lying about.

What it must do when all goes well it shares with its simulated twin: tests/support/contracts.py.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import store.disk
from store import CorruptLogError, DiskFailedError, StoreFullError, StoreLockedError
from store.disk import RealDisk

SIZE = 8192


def failing(error: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    return fail


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["posix_fallocate", "open", "makedirs"])
def test_no_room_is_a_full_store_and_leaves_nothing(
    call: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/new/f"
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(error))
        with pytest.raises(StoreFullError, match="free space on that disk") as caught:
            RealDisk().create(path, SIZE)
    assert caught.value.path == path
    assert os.strerror(error) in str(caught.value)
    assert list(tmp_path.rglob("f*")) == []


@pytest.mark.parametrize("call", ["posix_fallocate", "open", "makedirs"])
def test_any_other_refusal_is_a_failed_disk_and_leaves_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.EACCES))
        with pytest.raises(DiskFailedError, match="f: Permission denied; check the disk"):
            RealDisk().create(f"{tmp_path}/new/f", SIZE)
    assert list(tmp_path.rglob("f*")) == []


def test_a_small_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    disk.replace(f"{tmp_path}/f", b"old")
    for error, kind in ((errno.ENOSPC, StoreFullError), (errno.EIO, DiskFailedError)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", failing(error))
            with pytest.raises(kind):
                disk.replace(f"{tmp_path}/f", b"new")
        assert disk.read(f"{tmp_path}/f") == b"old"
        assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208 - hidden names too


def test_what_a_crash_left_of_a_new_file_is_not_shown_and_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f.tmp").write_bytes(b"half")
    (tmp_path / "g.tmp").write_bytes(b"half")
    disk = RealDisk()
    assert disk.list_files(str(tmp_path)) == []
    disk.create(f"{tmp_path}/f", SIZE).close()
    disk.replace(f"{tmp_path}/g", b"whole")
    assert disk.list_files(str(tmp_path)) == [("f", SIZE), ("g", 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "g"]


def test_blocks_are_allocated_when_a_file_is_made_and_when_it_is_opened(tmp_path: Path) -> None:
    """A hole in a mapping on a full disk ends in SIGBUS, which nobody can catch."""
    disk = RealDisk()
    disk.create(f"{tmp_path}/f", 1 << 20).close()
    assert (tmp_path / "f").stat().st_blocks * 512 >= 1 << 20
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    assert (tmp_path / "sparse").stat().st_blocks == 0
    disk.open(f"{tmp_path}/sparse").close()
    assert (tmp_path / "sparse").stat().st_blocks * 512 >= 1 << 20


def test_a_file_without_room_for_its_holes_does_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(bytes(SIZE))
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(StoreFullError):
        RealDisk().open(f"{tmp_path}/f")
    (tmp_path / "empty").touch()
    with pytest.raises(CorruptLogError, match="empty"):
        RealDisk().open(f"{tmp_path}/empty")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


LOCKER = """
import sys
from store.disk import RealDisk
from store.errors import StoreLockedError
try:
    release = RealDisk().lock(sys.argv[1])
except StoreLockedError:
    print("locked", flush=True)
else:
    print("free", flush=True)
    sys.stdin.read()
"""


def a_locker(path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_another_process_finds_the_store_locked_until_this_one_is_dead(tmp_path: Path) -> None:
    """A POSIX lock on the first byte, as RocketMQ takes it: no file to clean up after a crash."""
    path = tmp_path / "store" / "lock"
    with a_locker(path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "free\n"
        assert path.read_bytes() == b"lock"
        with pytest.raises(StoreLockedError, match="another process has this store open"):
            RealDisk().lock(str(path))
        first.kill()
    release = RealDisk().lock(str(path))
    with a_locker(path) as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "locked\n"
    release()
    RealDisk().lock(str(path))()


async def test_a_file_made_in_the_background_leaves_nothing_else(tmp_path: Path) -> None:
    disk = RealDisk()
    file = await disk.create_in_background(f"{tmp_path}/1", SIZE)
    assert file is not None
    assert file.path == f"{tmp_path}/1"
    file.buffer[0:4] = b"data"
    assert await disk.create_in_background(f"{tmp_path}/1", SIZE) is None
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert (tmp_path / "1").read_bytes()[:4] == b"data"
    file.close()


@pytest.mark.parametrize("awaits", range(4))
async def test_a_cancelled_preparation_leaves_nothing_or_the_file(
    awaits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled at each of its waits; a file that already has its name is handed out."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    scope = trio.CancelScope()
    calls = 0
    run_sync = trio.to_thread.run_sync

    async def counting(*arguments: object, **options: object) -> object:
        nonlocal calls
        if calls == awaits:
            scope.cancel()
        calls += 1
        return await run_sync(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(trio.to_thread, "run_sync", counting)
    file = None
    with scope:
        file = await RealDisk().create_in_background(f"{tmp_path}/1", SIZE)
    names = [path.name for path in tmp_path.iterdir()]
    if file is None:
        assert names == []
    else:
        assert names == ["1"]
        file.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_new_directory_and_a_removal_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every directory whose names changed is synced: without that a power loss undoes them."""
    synced: list[str] = []
    sync = store.disk._sync_directory

    def note(directory: str) -> None:
        synced.append(os.path.relpath(directory, tmp_path))
        sync(directory)

    monkeypatch.setattr(store.disk, "_sync_directory", note)
    disk = RealDisk()
    disk.create(f"{tmp_path}/a/b/f", SIZE).close()
    assert synced == [".", "a", "a/b"]
    synced.clear()
    disk.remove(f"{tmp_path}/a/b/f")
    disk.remove(f"{tmp_path}/a/b/f")
    assert synced == ["a/b"]
