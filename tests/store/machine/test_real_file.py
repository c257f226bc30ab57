"""Files of this machine: made whole, written whole, and closed under nobody who uses them."""

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

import store.machine.real_file
from store.machine import kept_threads
from store.machine.real_disk import RealDisk
from store.machine.real_file import LARGE_FILE_BYTES, UnsyncedNames
from tests.support.descriptors import descriptors_to_stay
from tests.support.patience import PATIENCE_SECONDS

SIZE = 8192


def test_a_write_that_comes_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, data[:1000], at))
    file = RealDisk().create(f"{tmp_path}/f", SIZE)
    data = bytes(range(256)) * 16
    file.write(100, memoryview(data))
    assert file.buffer[:4300] == bytes(100) + data + bytes(104)

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - of which file, is looked at below
        file.write(0, memoryview(b"y"))
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, f"{tmp_path}/f")
    file.close()


def mapped_paths() -> set[str]:
    """The files this process has mapped, deleted ones as well."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if line.count("/")}


def test_a_deleted_file_stays_mapped_until_its_last_reader_is_gone(tmp_path: Path) -> None:
    """ReferenceResource unmaps by force after a while; here nothing is unmapped under a reader."""
    disk = RealDisk()
    path = f"{tmp_path}/f"
    file = disk.create(path, SIZE)
    file.buffer[0:4] = b"read"
    view = memoryview(file.buffer)[:4]
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    file.close()
    disk.remove(path)
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208
    assert not (tmp_path / "f").exists()
    assert f"{path} (deleted)" in mapped_paths()
    assert bytes(view) == b"read"
    del view, file
    assert f"{path} (deleted)" not in mapped_paths()


async def test_a_file_may_be_closed_while_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the sync would meet a closed descriptor, or the one of another file."""
    disk = RealDisk()
    file = disk.create(f"{tmp_path}/f", SIZE)
    run_sync = kept_threads.run_sync

    async def closing(
        function: object, lent: list[tuple[str, int]], *rest: object, **options: object
    ) -> object:
        file.close()
        os.fstat(lent[0][1])
        return await run_sync(function, lent, *rest, **options)  # type: ignore[arg-type]

    before = descriptors_to_stay()
    monkeypatch.setattr(kept_threads, "run_sync", closing)
    await disk.sync(file)
    assert len(os.listdir("/proc/self/fd")) < before  # noqa: PTH208
    file.close()


def test_what_a_crash_left_of_a_new_file_is_not_shown_and_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files cannot be made without a name."""
    monkeypatch.setattr(store.machine.real_file, "_O_TMPFILE", 0)
    (tmp_path / "f.tmp").write_bytes(b"half")
    (tmp_path / "g.tmp").write_bytes(b"half")
    disk = RealDisk()
    assert disk.list_files(str(tmp_path)) == []
    disk.create(f"{tmp_path}/f", SIZE).close()
    disk.replace(f"{tmp_path}/g", b"whole")
    assert disk.list_files(str(tmp_path)) == [("f", SIZE), ("g", 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "g"]


@pytest.fixture(params=["nameless", "named"])
def way_to_make_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a file is made: without a name until it is finished, or where that cannot be."""
    if request.param == "named":
        monkeypatch.setattr(store.machine.real_file, "_O_TMPFILE", 0)
    return str(request.param)


@pytest.mark.parametrize("background", [True, False])
async def test_a_file_that_is_being_made_has_no_name(
    background: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed meanwhile, RocketMQ finds no file in the directory whose name is no number."""
    names: list[str] = []
    allocate = store.machine.real_file.allocate

    def note(descriptor: int, size: int) -> None:
        allocate(descriptor, size)
        names.extend(os.listdir(tmp_path))  # noqa: PTH208

    monkeypatch.setattr(store.machine.real_file, "allocate", note)
    if background:
        file = await RealDisk().create_in_background(f"{tmp_path}/1", SIZE)
    else:
        file = RealDisk().create(f"{tmp_path}/1", SIZE)
    assert file is not None
    assert names == []
    assert os.listdir(tmp_path) == ["1"]  # noqa: PTH208
    file.close()


def test_a_file_made_anew_takes_the_place_of_the_old_one(
    tmp_path: Path, way_to_make_files: str
) -> None:
    (tmp_path / "1").write_bytes(b"old")
    file = RealDisk().create(f"{tmp_path}/1", SIZE)
    assert (tmp_path / "1").read_bytes() == bytes(SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    file.close()


async def test_a_file_made_in_the_background_leaves_nothing_else(
    tmp_path: Path, way_to_make_files: str
) -> None:
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
    awaits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way_to_make_files: str
) -> None:
    """Cancelled at each of its waits; a file that already has its name is handed out."""
    before = descriptors_to_stay()
    scope = trio.CancelScope()
    calls = 0
    run_sync = kept_threads.run_sync

    async def counting(*arguments: object, **options: object) -> object:
        nonlocal calls
        if calls == awaits:
            scope.cancel()
        calls += 1
        return await run_sync(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_threads, "run_sync", counting)
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


def test_a_large_file_is_unmapped_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(kept_threads, "do_later", jobs.append)
    paths = f"{tmp_path}/small", f"{tmp_path}/large"
    files = [RealDisk().create(paths[0], SIZE), RealDisk().create(paths[1], LARGE_FILE_BYTES)]
    before = descriptors_to_stay()
    for file in files:
        file.close()
    assert [file.is_closed for file in files] == [True, True]
    # One descriptor of each file is the mapping's.
    assert len(os.listdir("/proc/self/fd")) == before - 3  # noqa: PTH208
    assert mapped_paths() & set(paths) == {paths[1]}
    (unmap,) = jobs
    unmap()
    assert not mapped_paths() & set(paths)
    files[1].close()
    assert len(jobs) == 1


def test_a_large_file_with_a_view_is_unmapped_with_the_last_one(tmp_path: Path) -> None:
    file = RealDisk().create(f"{tmp_path}/f", LARGE_FILE_BYTES)
    file.buffer[:4] = b"read"
    view = memoryview(file.buffer)[:4]
    done = threading.Event()
    file.close()
    kept_threads.do_later(done.set)
    assert done.wait(PATIENCE_SECONDS)
    assert bytes(view) == b"read"
    del view, file
    assert f"{tmp_path}/f" not in mapped_paths()


@pytest.mark.parametrize("grows", [True, False])
def test_what_was_deleted_just_now_is_room_for_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, grows: bool
) -> None:
    """The disk is full until the thread that gives back large files has come to this one."""
    go_on, is_given_back = threading.Event(), threading.Event()
    kept_threads.do_later(partial(go_on.wait, PATIENCE_SECONDS))
    kept_threads.do_later(is_given_back.set)
    allocate = os.posix_fallocate

    def full(descriptor: int, start: int, size: int) -> None:
        is_full = not is_given_back.is_set()
        go_on.set()
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, start, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    try:
        RealDisk().create(f"{tmp_path}/f", SIZE, grows=grows).close()
    finally:
        go_on.set()
    assert (tmp_path / "f").stat().st_size == SIZE


async def test_what_was_made_is_noted_by_one_thread_and_what_is_synced_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is made between another one's look and its note would be taken for synced."""
    changed_by: set[int] = set()

    class Made(dict[str, int]):
        def __setitem__(self, key: str, count: int) -> None:
            changed_by.add(threading.get_ident())
            super().__setitem__(key, count)

        def pop(self, key: str, *other: int) -> int:  # type: ignore[override]
            changed_by.add(threading.get_ident())
            return super().pop(key, *other)

    synced: list[str] = []
    monkeypatch.setattr(store.machine.real_file, "sync_directory", synced.append)
    disk = RealDisk()
    disk._names._made = Made()
    file = disk.create(f"{tmp_path}/d/1", SIZE, grows=True)
    for _ in range(2):
        await disk.sync(file)
        assert sorted(synced) == [str(tmp_path), f"{tmp_path}/d"]
    disk.create(f"{tmp_path}/d/2", SIZE, grows=True).close()
    await disk.sync(file)
    file.close()
    assert sorted(synced) == [str(tmp_path), f"{tmp_path}/d", f"{tmp_path}/d"]
    assert changed_by == {threading.get_ident()}


def test_what_was_made_while_a_sync_was_under_way_is_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, synced = UnsyncedNames(), []

    def sync(directory: str) -> None:
        synced.append(directory)
        if len(synced) == 1:
            names.made_in(directory)

    monkeypatch.setattr(store.machine.real_file, "sync_directory", sync)
    names.made_in(f"{tmp_path}/d")
    for _ in range(3):
        names.sync([f"{tmp_path}/d/1"])
    assert synced == [f"{tmp_path}/d"] * 2


def test_of_many_names_that_are_durable_few_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(store.machine.real_file, "sync_directory", synced.append)
    names = UnsyncedNames()
    for number in range(3_000):
        names.made_in(f"{tmp_path}/{number}")
    names.sync([f"{tmp_path}/{number}/1" for number in range(2_000)])
    names.made_in(f"{tmp_path}/1")
    assert len(names._made) == 1_001
    assert not names._synced
    names.sync([f"{tmp_path}/{number}/1" for number in range(2_001)])
    assert synced[2_000:] == [f"{tmp_path}/1", f"{tmp_path}/2000"]
