"""The real disk: what goes wrong is told in the store's words, and nothing is left lying about.

What it must do when all goes well it shares with its simulated twin: tests/support/contracts.py.
"""

import errno
import fcntl
import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

import store.machine.real_disk
import store.machine.real_file
from store import CorruptLogError, DiskFailedError, StoreFullError, StoreLockedError
from store.machine import kept_threads
from store.machine.disk import DiskSpace
from store.machine.errors import LogFault
from store.machine.real_disk import READ_BYTES_MAX, RealDisk
from store.machine.real_file import LARGE_FILE_BYTES
from tests.support.descriptors import descriptors_to_stay

SIZE = 8192


def failing(error: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    return fail


def fail_from(patch: pytest.MonkeyPatch, where: object, name: str, number: int) -> None:
    """Have the call of this number fail, and all after it."""
    real, calls = getattr(where, name), count(1)

    def call(*arguments: object, **named: object) -> object:
        if next(calls) >= number:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*arguments, **named)

    patch.setattr(where, name, call)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["posix_fallocate", "open", "mkdir"])
def test_no_room_is_a_full_store_and_leaves_nothing(
    call: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/new/f"
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(error))
        with pytest.raises(StoreFullError) as caught:
            RealDisk().create(path, SIZE)
    assert caught.value.path == path
    # The text has to say what to do.
    assert "free space on that disk" in str(caught.value)
    assert list(tmp_path.rglob("f*")) == []


@pytest.mark.parametrize("call", ["posix_fallocate", "open", "mkdir"])
def test_any_other_refusal_is_a_failed_disk_and_leaves_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.EACCES))
        with pytest.raises(DiskFailedError) as caught:
            RealDisk().create(f"{tmp_path}/new/f", SIZE)
    assert caught.value.path == f"{tmp_path}/new/f"
    assert list(tmp_path.rglob("f*")) == []


@pytest.mark.parametrize(
    ("made", "call"),
    [
        *(("nameless", call) for call in ("link", "fsync", "second open", "mmap")),
        *(("unfinished", call) for call in ("rename", "fsync", "second open", "mmap")),
    ],
)
def test_a_file_that_was_made_and_gets_no_name_leaves_nothing(
    made: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors_to_stay()
    with monkeypatch.context() as patch:
        if made == "unfinished":
            patch.setattr(store.machine.real_file, "_O_TMPFILE", 0)
        if call == "second open":
            fail_from(patch, os, "open", 2)
        else:
            patch.setattr(mmap if call == "mmap" else os, call, failing(errno.EMFILE))
        with pytest.raises(DiskFailedError) as caught:
            RealDisk().create(f"{tmp_path}/f", SIZE)
    assert caught.value.path == f"{tmp_path}/f"
    assert "Too many open files" in str(caught.value)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - hidden names too
    assert descriptors_to_stay() == before


@pytest.mark.parametrize("made", ["nameless", "unfinished"])
@pytest.mark.parametrize("call", ["link", "fsync", "mmap"])
async def test_a_file_made_in_the_background_that_gets_no_name_leaves_nothing(
    call: str, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors_to_stay()
    with monkeypatch.context() as patch:
        if made == "unfinished":
            patch.setattr(store.machine.real_file, "_O_TMPFILE", 0)
        patch.setattr(mmap if call == "mmap" else os, call, failing(errno.EIO))
        with pytest.raises(DiskFailedError) as caught:
            await RealDisk().create_in_background(f"{tmp_path}/f", SIZE)
    assert caught.value.path == f"{tmp_path}/f"
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - hidden names too
    assert descriptors_to_stay() == before


@pytest.mark.parametrize(("made", "call"), [("nameless", "link"), ("unfinished", "rename")])
def test_a_file_that_cannot_be_replaced_stays(
    made: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with monkeypatch.context() as patch:
        if made == "unfinished":
            patch.setattr(store.machine.real_file, "_O_TMPFILE", 0)
        patch.setattr(os, call, failing(errno.EIO))
        with pytest.raises(DiskFailedError):
            RealDisk().create(f"{tmp_path}/f", SIZE)
    assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208 - hidden names too
    assert (tmp_path / "f").read_bytes() == b"old"


async def test_a_name_that_another_file_has_got_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"

    def another(_: str) -> None:
        path.unlink()
        path.write_bytes(b"other")
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(store.machine.real_disk, "sync_directory", another)
    with pytest.raises(DiskFailedError):
        await RealDisk().create_in_background(str(path), SIZE)
    assert path.read_bytes() == b"other"


@pytest.mark.parametrize("call", ["posix_fallocate", "ftruncate", "open", "mkdir"])
def test_no_room_for_a_file_that_grows_leaves_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/new/f"
    before = descriptors_to_stay()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.ENOSPC))
        with pytest.raises(StoreFullError) as caught:
            RealDisk().create(path, SIZE, grows=True)
    assert caught.value.path == path
    assert list(tmp_path.rglob("f*")) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_file_that_grows_takes_few_calls_and_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a hundred thousand: each call more is a second more."""
    disk = RealDisk()
    disk.create(f"{tmp_path}/topic/0/f", SIZE, grows=True).close()
    calls: list[str] = []

    def noted(name: str) -> object:
        real = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            calls.append(name)
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "mkdir", "makedirs", "stat", "fstat", "ftruncate", "posix_fallocate"):
            patch.setattr(os, name, noted(name))
        file = disk.create(f"{tmp_path}/topic/1/f", SIZE, grows=True)
    assert calls == ["open", "mkdir", "open", "ftruncate", "posix_fallocate", "fstat"]
    file.buffer[:4] = b"here"
    again = disk.create(f"{tmp_path}/topic/1/f", 2 * SIZE, grows=True)
    assert (again.size, bytes(again.buffer[:4])) == (2 * SIZE, bytes(4))
    for each in (file, again):
        each.close()


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
    with (tmp_path / "f").open("wb") as file:
        file.truncate(SIZE)
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
    before = descriptors_to_stay()
    with pytest.raises(StoreFullError):
        RealDisk().open(f"{tmp_path}/f")
    (tmp_path / "empty").touch()
    with pytest.raises(CorruptLogError) as caught:
        RealDisk().open(f"{tmp_path}/empty")
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == f"{tmp_path}/empty"
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


LOCKER = """
import sys
from store.machine.real_disk import RealDisk
from store.machine.errors import StoreLockedError
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
        with pytest.raises(StoreLockedError):
            RealDisk().lock(str(path))
        first.kill()
    release = RealDisk().lock(str(path))
    with a_locker(path) as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "locked\n"
    release()
    RealDisk().lock(str(path))()


def test_opening_a_file_leaves_its_modification_time_alone(tmp_path: Path) -> None:
    """By it old files are found: a restart must not make them young, as fallocate would."""
    disk = RealDisk()
    path = f"{tmp_path}/f"
    disk.create(path, SIZE).close()
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    for read_only in (False, True):
        file = disk.open(path, read_only=read_only)
        assert file.buffer[:3] == bytes(3)
        file.close()
    assert disk.modified_ms(path) == 1_700_000_000_123


def test_a_write_through_the_mapping_or_the_file_makes_it_young(tmp_path: Path) -> None:
    disk = RealDisk()
    path = f"{tmp_path}/f"
    disk.create(path, SIZE).close()
    for through_the_file in (False, True):
        os.utime(path, ns=(1, 1))
        file = disk.open(path)
        if through_the_file:
            file.write(0, memoryview(b"new"))
        else:
            file.buffer[0:3] = b"new"
        file.sync()
        file.close()
        assert disk.modified_ms(path) > 1_600_000_000_000


def test_a_read_only_file_needs_no_right_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real_open = os.open

    def noting(path: str, flags: int, *rest: int) -> int:
        modes.append(flags & os.O_ACCMODE)
        return real_open(path, flags, *rest)

    (tmp_path / "f").write_bytes(b"x" * SIZE)
    monkeypatch.setattr(os, "open", noting)
    file = RealDisk().open(f"{tmp_path}/f", read_only=True)
    assert modes == [os.O_RDONLY]
    assert file.buffer[:] == b"x" * SIZE
    with pytest.raises(TypeError):
        file.buffer[0:1] = b"y"
    with pytest.raises(OSError, check=lambda error: error.filename == f"{tmp_path}/f"):
        file.write(0, memoryview(b"y"))
    file.close()
    # A hole in it is none of our business.
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(SIZE)
    RealDisk().open(f"{tmp_path}/sparse", read_only=True).close()
    assert (tmp_path / "sparse").stat().st_blocks == 0


def locked_kib() -> int:
    """How much memory of this process is locked."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmLck:")[1].split()[0])


async def test_files_and_buffers_are_locked_into_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DefaultMappedFile.mlock, TransientStorePool.init."""
    disk = RealDisk()
    gc.collect()  # what a test before has left may go at any time
    before = locked_kib()
    buffer = disk.allocate_buffer(1 << 14)
    assert buffer[:] == bytes(1 << 14)
    file = disk.create(f"{tmp_path}/f", 1 << 14)
    await disk.lock_in_memory(file)
    assert caplog.text == ""
    assert locked_kib() == before + 32
    await disk.unlock_memory(file)
    assert locked_kib() == before + 16
    file.close()
    await disk.unlock_memory(file)
    buffer.close()
    assert locked_kib() == before


async def test_without_the_right_to_lock_memory_the_store_goes_on_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = RealDisk()
    file = disk.create(f"{tmp_path}/f", 1 << 16)
    # Root may lock what it likes; what the C library answers to others is put in its place.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.machine.real_disk, "_lock_memory", lambda *_: errno.ENOMEM)
        await disk.lock_in_memory(file)
        buffer = disk.allocate_buffer(1 << 16)
    assert (len(buffer), file.buffer[:3]) == (1 << 16, bytes(3))
    (message,) = caplog.messages
    assert message.startswith("65536 bytes cannot be locked into memory (Cannot allocate memory")
    assert "ulimit -l" in message
    file.close()
    buffer.close()


def test_without_memory_for_a_buffer_there_is_none() -> None:
    with pytest.raises(StoreFullError) as caught:
        RealDisk().allocate_buffer(1 << 60)
    assert caught.value.path == "memory"


def test_the_space_of_a_disk_is_that_of_its_file_system(tmp_path: Path) -> None:
    """UtilAll.getDiskPartitionSpaceUsedPercent: what is set aside for root is left out."""
    disk = RealDisk()
    space = disk.space(str(tmp_path))
    status = os.statvfs(tmp_path)
    assert 0 < space.used_bytes < status.f_blocks * status.f_frsize
    assert space.usable_bytes == pytest.approx(disk.free_bytes(str(tmp_path)), rel=0.1)
    assert disk.space(f"{tmp_path}/none") == DiskSpace(0, 0)


def test_a_new_directory_and_a_removal_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every directory whose names changed is synced: without that a power loss undoes them."""
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        directory = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(os.path.relpath(directory, tmp_path))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    disk = RealDisk()
    disk.create(f"{tmp_path}/a/b/f", SIZE).close()
    assert synced == [".", "a", "a/b"]
    synced.clear()
    disk.remove(f"{tmp_path}/a/b/f")
    disk.remove(f"{tmp_path}/a/b/f")
    assert synced == ["a/b"]


def test_a_new_name_is_durable_before_the_old_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    disk.replace(f"{tmp_path}/a/f", b"f")
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        directory = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(os.path.relpath(directory, tmp_path))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert disk.rename(f"{tmp_path}/a", f"{tmp_path}/b/c/a")
    assert synced == [".", "b", "b/c", "."]


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EACCES])
def test_what_cannot_be_renamed_stays_where_it_is(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RealDisk().replace(f"{tmp_path}/a", b"a")
    monkeypatch.setattr(os, "rename", failing(error))
    with pytest.raises(DiskFailedError) as caught:
        RealDisk().rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert caught.value.path == f"{tmp_path}/b"
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == error
    assert RealDisk().read(f"{tmp_path}/a") == b"a"


@pytest.mark.timeout(60)
def test_what_is_read_whole_is_an_ordinary_file_of_bounded_size(tmp_path: Path) -> None:
    """A pipe would keep the process waiting, a file of a terabyte take all memory."""
    disk = RealDisk()
    pipe, large, device = (str(tmp_path / name) for name in ("pipe", "large", "device"))
    os.mkfifo(pipe)
    Path(device).symlink_to("/dev/zero")
    with Path(large).open("wb") as file:
        file.truncate(READ_BYTES_MAX + 1)
    for path in (pipe, device, large, "."):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - of which file, is looked at below
            disk.read(path)
        assert caught.value.filename == path


@pytest.mark.parametrize("how", ["made", "opened"])
async def test_files_of_queues_on_another_file_system_are_synced_each(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "consumequeue" / "f")
    if how == "opened":
        RealDisk().create(path, 4096, grows=True).close()
    disk = RealDisk()
    release = disk.lock(str(tmp_path / "lock"))
    file = disk.create(path, 4096, grows=True) if how == "made" else disk.open(path, grows=True)
    monkeypatch.setattr(store.machine.real_disk, "sync_file_system", lambda _: True)
    assert disk.sync_tree_now(str(tmp_path))
    elsewhere = Path("/proc").stat()
    monkeypatch.setattr(os, "fstat", lambda _: elsewhere)
    assert not disk.sync_tree_now(str(tmp_path))
    assert not await disk.sync_tree(str(tmp_path))
    file.close()
    release()


async def test_a_name_that_is_made_during_the_sync_is_not_durable_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    release = disk.lock(str(tmp_path / "lock"))
    disk.create(str(tmp_path / "a" / "f"), 4096, grows=True).close()

    def sync(_descriptor: int) -> bool:
        disk.create(str(tmp_path / "b" / "f"), 4096, grows=True).close()
        return True

    monkeypatch.setattr(store.machine.real_disk, "sync_file_system", sync)
    assert await disk.sync_tree(str(tmp_path))
    assert sorted(disk._names._made) == [str(tmp_path), str(tmp_path / "b")]
    release()


def test_a_large_file_is_given_back_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes the system long is its blocks, and they go with the last descriptor."""
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(kept_threads, "do_later", jobs.append)
    disk = RealDisk()
    for name, size in (("small", SIZE), ("large", LARGE_FILE_BYTES)):
        disk.create(f"{tmp_path}/{name}", size).close()
    jobs.pop()()
    before = descriptors_to_stay()
    disk.remove(f"{tmp_path}/small")
    assert not jobs
    disk.remove(f"{tmp_path}/large")
    assert list(tmp_path.iterdir()) == []
    (close,) = jobs
    links = [
        os.readlink(f"/proc/self/fd/{each}")  # noqa: PTH115
        for each in os.listdir("/proc/self/fd")  # noqa: PTH208
        if os.path.islink(f"/proc/self/fd/{each}")  # noqa: PTH114
    ]
    assert f"{tmp_path}/large (deleted)" in links
    close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_large_file_that_cannot_be_deleted_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(kept_threads, "do_later", jobs.append)
    disk = RealDisk()
    disk.create(f"{tmp_path}/f", LARGE_FILE_BYTES).close()
    jobs.pop()()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", failing(errno.EACCES))
        with pytest.raises(PermissionError):
            disk.remove(f"{tmp_path}/f")
    assert len(jobs) == 1
    jobs[0]()
    assert disk.exists(f"{tmp_path}/f")


def test_a_file_system_without_locks_is_not_taken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors_to_stay()
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", failing(errno.ENOLCK))
        with pytest.raises(DiskFailedError, match="No locks available"):
            RealDisk().lock(f"{tmp_path}/lock")
    assert descriptors_to_stay() == before


def is_read_around(path: str) -> list[bool]:
    """Whether the system reads pages around one that is asked for, by part of a mapping."""
    found, is_ours = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            is_ours = line.endswith(path)
        elif is_ours and line.startswith("VmFlags:"):
            found.append("rr" not in line.split())
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_nothing_is_read_around_in_a_file_that_was_made_until_that_is_said(
    tmp_path: Path,
) -> None:
    disk, path = RealDisk(), f"{tmp_path}/f"
    made = disk.create(path, 4 * SIZE)
    assert is_read_around(path) == [False]
    made.read_around(0, SIZE, wanted=True)
    assert is_read_around(path) == [True, False]
    made.read_around(SIZE, 4 * SIZE, wanted=True)
    assert is_read_around(path) == [True]
    made.read_around(SIZE, SIZE, wanted=False)
    assert is_read_around(path) == [True]
    made.close()
    made.read_around(0, SIZE, wanted=True)

    opened = disk.open(path)
    assert is_read_around(path) == [True]
    opened.close()
