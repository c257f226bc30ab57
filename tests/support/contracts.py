"""What every disk and every network must do: run against the real ones and their stand-ins.

A stand-in that passes a test the real thing would fail makes every simulated run worthless, so
both are held to the same words.
"""

import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trio

from store.machine.disk import Disk, DiskSpace
from store.machine.errors import CorruptLogError, DiskFailedError, StoreLockedError
from store.machine.kept_files import keep
from store.machine.network import AddressInUseError, ConnectionLost, Listener, Network, Stream
from tests.support.patience import PATIENCE_SECONDS

# --- disk --------------------------------------------------------------------------------------


def _taken_bytes(disk: Disk, root: str, free_bytes_before: int) -> int:
    """Return what the files of `root` take.

    A real disk is asked for their blocks, as others write to it and remove files meanwhile.
    """
    if not Path(root).is_dir():
        return free_bytes_before - disk.free_bytes(root)
    return sum(entry.stat().st_blocks * 512 for entry in Path(root).iterdir())


def _created_file_is_zeros_and_writable(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a/b/00000", 8192)
    assert (file.path, file.size, len(file.buffer)) == (f"{root}/a/b/00000", 8192, 8192)
    assert file.buffer[:] == bytes(8192)
    struct.pack_into(">q", file.buffer, 4096, 77)
    file.buffer[0:3] = b"abc"
    assert file.buffer[:3] == b"abc"
    assert disk.read(file.path) == b"abc" + bytes(4093) + struct.pack(">q", 77) + bytes(4088)
    file.close()
    file.close()


def _growing_file_has_its_length_and_gets_blocks_as_it_is_asked_to(disk: Disk, root: str) -> None:
    disk.create(f"{root}/first", 4096).close()
    before = disk.free_bytes(root)
    file = disk.create(f"{root}/f", 1 << 20, grows=True)
    assert (file.size, len(file.buffer), file.allocated) == (1 << 20, 1 << 20, 4096)
    assert disk.list_files(root) == [("f", 1 << 20), ("first", 4096)]
    file.buffer[0:4] = b"head"
    file.allocate(12_288)
    file.allocate(8192)
    assert file.allocated == 12_288
    file.buffer[12_284:12_288] = b"tail"
    file.sync()
    file.close()
    again = disk.open(f"{root}/f", grows=True)
    assert again.allocated >= 12_288
    assert again.buffer[:4] + again.buffer[12_284:12_290] == b"headtail\0\0"
    again.allocate(1 << 20)
    assert again.allocated == 1 << 20
    again.buffer[-4:] = b"last"
    again.close()
    assert _taken_bytes(disk, root, before) >= 1 << 20


def _file_that_grew_has_all_blocks_when_it_is_opened_as_a_whole(disk: Disk, root: str) -> None:
    disk.create(f"{root}/f", 1 << 20, grows=True).close()
    whole = disk.open(f"{root}/f")
    assert whole.allocated == whole.size == 1 << 20
    whole.buffer[-4:] = b"last"
    whole.close()
    again = disk.open(f"{root}/f", grows=True)
    assert again.buffer[-4:] == b"last"
    assert again.allocated == 1 << 20
    again.close()


def _slices_are_bytes_and_the_size_is_fixed(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 4096)
    assert type(file.buffer[1:3]) is bytes
    with pytest.raises((IndexError, ValueError)):
        file.buffer[0:2] = b"three"
    file.close()


def _opened_file_shows_what_was_written(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 4096)
    file.buffer[10:14] = b"kept"
    file.sync()
    file.close()
    again = disk.open(f"{root}/f")
    assert again.size == 4096
    assert again.buffer[10:14] == b"kept"
    again.close()


def _empty_file_is_corrupt_and_a_missing_one_is_missing(disk: Disk, root: str) -> None:
    disk.replace(f"{root}/empty", b"")
    assert disk.read(f"{root}/empty") == b""
    with pytest.raises(CorruptLogError):
        disk.open(f"{root}/empty")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/missing")
    assert disk.read(f"{root}/missing") is None


def _view_outlives_close_and_removal(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 4096)
    file.buffer[0:4] = b"view"
    with memoryview(file.buffer) as view:
        file.close()
        disk.remove(f"{root}/f")
        assert bytes(view[:4]) == b"view"
    assert not disk.exists(f"{root}/f")
    disk.remove(f"{root}/f")


def _directories_are_listed_in_order(disk: Disk, root: str) -> None:
    for name, size in (("q/b/2", 8192), ("q/b/1", 4096), ("q/a/1", 4096), ("q/top", 4096)):
        disk.create(f"{root}/{name}", size).close()
    disk.create(f"{root}/q/b/unfinished.tmp", 4096).close()
    assert disk.list_files(f"{root}/q/b") == [("1", 4096), ("2", 8192)]
    assert disk.list_files(f"{root}/q") == [("top", 4096)]
    assert disk.list_directories(f"{root}/q") == ["a", "b"]
    assert disk.list_files(f"{root}/none") == []
    assert disk.list_files_with_times(f"{root}/none") == []
    assert disk.list_files_with_times(f"{root}/q/b") == [
        (name, size, disk.modified_ms(f"{root}/q/b/{name}"))
        for name, size in (("1", 4096), ("2", 8192))
    ]
    assert disk.list_directories(f"{root}/none") == []
    assert disk.exists(f"{root}/q/b/1")
    assert not disk.exists(f"{root}/q/b")
    disk.create(f"{root}/q/b/2.d/far/below", 4096).close()
    assert list(disk.list_trees(root)) == [
        *(("q", name, disk.list_files_with_times(f"{root}/q/{name}")) for name in "ab")
    ]
    assert list(disk.list_trees(f"{root}/q")) == [("b", "2.d", [])]
    assert list(disk.list_trees(root, lambda *names: names == ("q", "b"))) == [
        ("q", "b", disk.list_files_with_times(f"{root}/q/b"))
    ]
    assert list(disk.list_trees(f"{root}/none")) == []


def _only_an_empty_directory_is_removed(disk: Disk, root: str) -> None:
    disk.create(f"{root}/q/a/1", 4096).close()
    disk.create(f"{root}/q/b/1", 4096).close()
    disk.remove(f"{root}/q/b/1")
    for name in ("a", "b", "none"):
        disk.remove_directory(f"{root}/q/{name}")
    assert disk.list_directories(f"{root}/q") == ["a"]
    assert disk.exists(f"{root}/q/a/1")
    disk.create(f"{root}/q/b/1", 4096).close()


def _replace_writes_small_files_whole(disk: Disk, root: str) -> None:
    disk.replace(f"{root}/config/x.json", b"one")
    disk.replace(f"{root}/config/x.json", b"twenty-two")
    assert disk.read(f"{root}/config/x.json") == b"twenty-two"
    assert disk.list_files(f"{root}/config") == [("x.json", 10)]


def _what_is_changed_is_no_longer_kept(disk: Disk, root: str) -> None:
    names = ("replaced", "removed", "created", "moved", "moved/a/1", "moved/2", "left", "removed2")
    paths = [f"{root}/k/{name}" for name in names]
    for path in paths:
        if not path.endswith("moved"):
            disk.replace(path, b"x")
            keep(disk, path, b"x")
    assert disk.kept.below(root) == sorted(path for path in paths if not path.endswith("moved"))
    disk.replace(paths[0], b"y")
    disk.remove(paths[1])
    disk.create(paths[2], 4096).close()
    assert disk.rename(paths[3], f"{root}/k/target")
    assert disk.kept.below(f"{root}/k") == [paths[6], paths[7]]
    kept = disk.kept.of(paths[6])
    assert kept is not None
    kept.write_anew()
    assert disk.read(paths[6]) == b"x"
    assert disk.kept.of(paths[6]) is not None


def _rename_moves_files_and_directories(disk: Disk, root: str) -> None:
    disk.replace(f"{root}/q/a/1", b"one")
    disk.replace(f"{root}/q/2", b"two")
    assert disk.rename(f"{root}/q/a", f"{root}/new/place/a")
    assert disk.rename(f"{root}/q/2", f"{root}/new/place/2")
    assert not disk.rename(f"{root}/q/a", f"{root}/new/place/a")
    assert disk.read(f"{root}/new/place/a/1") == b"one"
    assert disk.read(f"{root}/new/place/2") == b"two"
    assert disk.list_directories(f"{root}/q") == []
    assert disk.list_files(f"{root}/q") == []
    for name in ("a/1", "2"):
        disk.replace(f"{root}/q/{name}", b"again")
    for name in ("a", "2"):
        with pytest.raises(DiskFailedError, match="exists"):
            disk.rename(f"{root}/q/{name}", f"{root}/new/place/{name}")
    assert disk.read(f"{root}/new/place/a/1") == b"one"
    assert disk.read(f"{root}/q/a/1") == b"again"


def _free_bytes_shrink_by_a_new_file(disk: Disk, root: str) -> None:
    disk.create(f"{root}/first", 4096).close()
    before = disk.free_bytes(root)
    disk.create(f"{root}/second", 1 << 20).close()
    assert _taken_bytes(disk, root, before) >= 1 << 20


def _write_through_the_file_shows_in_every_mapping(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 8192)
    again = disk.open(f"{root}/f")
    file.write(4090, memoryview(b"0123456789")[2:])
    assert file.buffer[4088:4100] == again.buffer[4088:4100] == bytes(2) + b"23456789" + bytes(2)
    file.close()
    again.close()


def _read_only_file_cannot_be_written_to(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 4096)
    file.buffer[0:4] = b"read"
    read_only = disk.open(f"{root}/f", read_only=True)
    assert (read_only.path, read_only.size) == (f"{root}/f", 4096)
    assert read_only.buffer[:5] == b"read\0"
    with pytest.raises(TypeError):
        read_only.buffer[0:1] = b"x"
    with pytest.raises(TypeError):
        struct.pack_into(">q", read_only.buffer, 0, 7)
    assert file.buffer[:5] == b"read\0"
    read_only.close()
    file.close()


def _files_age_from_their_last_sync(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 4096)
    created_ms = disk.modified_ms(f"{root}/f")
    file.buffer[0:1] = b"x"
    file.sync()
    assert disk.modified_ms(f"{root}/f") >= created_ms
    file.close()
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(f"{root}/missing")


def _space_moves_from_usable_to_used(disk: Disk, root: str) -> None:
    assert disk.space(f"{root}/missing") == DiskSpace(0, 0)
    disk.create(f"{root}/first", 4096).close()
    before = disk.space(root)
    disk.create(f"{root}/second", 1 << 20).close()
    after = disk.space(root)
    assert after.used_bytes > before.used_bytes + (1 << 19)
    assert after.usable_bytes < before.usable_bytes - (1 << 19)


def _buffers_of_nobody_are_zeros_and_writable(disk: Disk, root: str) -> None:
    buffer = disk.allocate_buffer(8192)
    assert buffer[:] == bytes(8192)
    struct.pack_into(">q", buffer, 4096, 77)
    buffer[0:3] = b"abc"
    assert buffer[:4] == b"abc\0"
    assert disk.allocate_buffer(8192)[:] == bytes(8192)


async def _locking_in_memory_changes_nothing(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 4096)
    file.buffer[0:4] = b"lock"
    await disk.lock_in_memory(file)
    assert file.buffer[:5] == b"lock\0"
    await disk.unlock_memory(file)
    await disk.unlock_memory(file)
    file.close()
    await disk.unlock_memory(file)


async def _sync_keeps_the_content(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/f", 4096)
    file.buffer[0:4] = b"sync"
    await disk.sync(file)
    assert disk.read(f"{root}/f") == b"sync" + bytes(4092)
    file.close()


async def _what_is_written_ahead_shows_once_it_is_put_there(disk: Disk, root: str) -> None:
    path, one, two, three = f"{root}/x.json", b"one", b"twenty-two", b""
    disk.will_replace(path, one)
    await disk.write_ahead()
    assert disk.read(path) is None
    assert disk.list_files(root) == []
    disk.replace(path, one)
    assert disk.read(path) == one
    disk.will_replace(path, two)
    await disk.write_ahead()
    assert disk.read(path) == one
    disk.replace(path, three)
    assert disk.read(path) == three
    disk.replace(path, two)
    assert disk.read(path) == two
    disk.will_replace(path, one)
    disk.replace(path, one)
    await disk.write_ahead()
    assert disk.read(path) == one
    disk.will_replace(path, two)
    await disk.write_ahead()
    disk.will_replace(path, three)
    await disk.write_ahead()
    disk.replace(path, three)
    assert disk.read(path) == three
    # Where that cannot be, `replace` makes the directory, or says what is wrong.
    disk.will_replace(f"{root}/new/x.json", one)
    await disk.write_ahead()
    disk.replace(f"{root}/new/x.json", one)
    assert disk.read(f"{root}/new/x.json") == one
    assert disk.list_files(root) == [("x.json", 0)]


async def _files_are_synced_together(disk: Disk, root: str) -> None:
    files = [disk.create(f"{root}/{name}/f", 4096, grows=True) for name in ("a", "b", "c")]
    for file in files:
        file.buffer[:1] = b"x"
    files[1].close()
    await disk.sync_together(files)
    await disk.sync_together([])
    disk.sync_names([root, f"{root}/a", f"{root}/missing"])
    for name in ("a", "b", "c"):
        again = disk.open(f"{root}/{name}/f", grows=True)
        assert again.buffer[:1] == b"x"
        again.close()


async def _many_files_are_synced_now_and_with_their_tree(disk: Disk, root: str) -> None:
    assert disk.many_files > 1
    assert not disk.sync_tree_now(f"{root}/store")  # nobody has locked it
    release = disk.lock(f"{root}/store/lock")
    files = [disk.create(f"{root}/store/{name}/f", 4096, grows=True) for name in ("a", "b")]
    for file in files:
        file.buffer[:1] = b"x"
    files[1].close()
    disk.sync_now(files)
    disk.sync_now([])
    disk.sync_closed_now([f"{root}/store/{name}/f" for name in ("a", "b")])
    disk.sync_closed_now([])
    with pytest.raises(FileNotFoundError):
        disk.sync_closed_now([f"{root}/store/none"])
    disk.read_ahead([f"{root}/store/{name}/f" for name in ("a", "b", "none")])
    # True or False: whether it can be done is the system's.
    for done in (disk.sync_tree_now(f"{root}/store"), await disk.sync_tree(f"{root}/store")):
        assert isinstance(done, bool)
    release()
    assert not await disk.sync_tree(f"{root}/store")
    assert not disk.sync_tree_now(f"{root}/elsewhere")
    files[0].close()


async def _create_in_background_leaves_an_existing_file_alone(disk: Disk, root: str) -> None:
    file = await disk.create_in_background(f"{root}/q/1", 4096)
    assert file is not None
    assert (file.size, file.buffer[:]) == (4096, bytes(4096))
    file.buffer[0:4] = b"mine"
    assert await disk.create_in_background(f"{root}/q/1", 4096) is None
    assert disk.list_files(f"{root}/q") == [("1", 4096)]
    again = disk.open(f"{root}/q/1")
    assert again.buffer[:4] == b"mine"
    again.close()
    file.close()


SIZES_AT_AN_EDGE: Final = (1, 4095, 4096, 4097, 8192)
"""Of files: one byte, and a page less one, whole, and one more."""


def _no_file_and_no_memory_has_no_bytes(disk: Disk, root: str) -> None:
    for size in (0, -1):
        for grows in (False, True):
            with pytest.raises(ValueError, match=f"a file of {size} bytes"):
                disk.create(f"{root}/f", size, grows=grows)
        with pytest.raises(ValueError, match=f"a file of {size} bytes"):
            disk.allocate_buffer(size)
    assert disk.list_files(root) == []
    assert disk.allocate_buffer(1)[:] == b"\0"


def _a_file_of_any_size_is_whole(disk: Disk, root: str) -> None:
    for size in SIZES_AT_AN_EDGE:
        path = f"{root}/{size}"
        file = disk.create(path, size)
        file.buffer[size - 1 : size] = b"x"
        for at in (size, size + 1):
            assert file.buffer[at:] == b""
            with pytest.raises(IndexError):
                file.buffer[at]
        with pytest.raises((IndexError, ValueError)):
            file.buffer[size : size + 1] = b"y"
        file.sync()
        file.close()
        for read_only in (False, True):
            again = disk.open(path, read_only=read_only)
            assert (again.size, again.allocated, len(again.buffer)) == (size, size, size)
            assert again.buffer[:] == bytes(size - 1) + b"x"
            again.close()
        assert disk.read(path) == bytes(size - 1) + b"x"


def _writes_stay_within_a_file(disk: Disk, root: str) -> None:
    for size in SIZES_AT_AN_EDGE:
        path = f"{root}/{size}"
        file = disk.create(path, size)
        for position in (0, size - 1, size):
            file.write(position, memoryview(b""))
        assert file.buffer[:] == bytes(size)
        file.write(0, memoryview(b"a" * size))
        file.write(0, memoryview(b"b"))
        file.write(size - 1, memoryview(b"c"))
        for position, count in ((-1, 1), (0, size + 1), (size - 1, 2), (size, 1), (size + 1, 0)):
            with pytest.raises(ValueError, match=f"{count} bytes from {position} on are not"):
                file.write(position, memoryview(bytes(count)))
        assert file.buffer[:] == disk.read(path) == (b"b" + b"a" * size)[: size - 1] + b"c"
        file.sync()
        file.close()
        assert disk.list_files(root)[-1][1] == len(disk.read(path) or b"") == size
        disk.remove(path)


def _blocks_are_had_up_to_the_last_byte_and_no_more(disk: Disk, root: str) -> None:
    for size in SIZES_AT_AN_EDGE:
        path = f"{root}/{size}"
        file = disk.create(path, size, grows=True)
        first = file.allocated
        assert first == min(size, 4096)
        for end in (-1, size + 1):
            with pytest.raises(
                ValueError, match=f"0 bytes from {end} on are not within its {size}"
            ):
                file.allocate(end)
        for end in (0, 1, first):
            file.allocate(end)
            assert file.allocated == first
        for end in (size - 1, size, size):
            file.allocate(end)
            assert file.allocated >= end
        file.buffer[size - 1 : size] = b"x"
        file.close()
        again = disk.open(path, grows=True)
        assert (again.size, again.allocated, again.buffer[-1:]) == (size, size, b"x")
        again.close()


def _small_files_of_any_size_are_whole(disk: Disk, root: str) -> None:
    for size in (0, *SIZES_AT_AN_EDGE, 0):
        disk.replace(f"{root}/f", b"x" * size)
        assert disk.read(f"{root}/f") == b"x" * size
        assert disk.list_files(root) == [("f", size)]
    assert disk.rename(f"{root}/f", f"{root}/g")
    assert disk.read(f"{root}/g") == b""
    for read_only in (False, True):
        with pytest.raises(CorruptLogError):
            disk.open(f"{root}/g", read_only=read_only)
        with pytest.raises(CorruptLogError):
            disk.open(f"{root}/g", read_only=read_only, grows=True)


SYNC_DISK_CONTRACTS: Final = {
    function.__name__.strip("_"): function
    for function in (
        _created_file_is_zeros_and_writable,
        _growing_file_has_its_length_and_gets_blocks_as_it_is_asked_to,
        _file_that_grew_has_all_blocks_when_it_is_opened_as_a_whole,
        _slices_are_bytes_and_the_size_is_fixed,
        _opened_file_shows_what_was_written,
        _empty_file_is_corrupt_and_a_missing_one_is_missing,
        _view_outlives_close_and_removal,
        _directories_are_listed_in_order,
        _only_an_empty_directory_is_removed,
        _replace_writes_small_files_whole,
        _what_is_changed_is_no_longer_kept,
        _rename_moves_files_and_directories,
        _free_bytes_shrink_by_a_new_file,
        _write_through_the_file_shows_in_every_mapping,
        _read_only_file_cannot_be_written_to,
        _files_age_from_their_last_sync,
        _space_moves_from_usable_to_used,
        _buffers_of_nobody_are_zeros_and_writable,
        _no_file_and_no_memory_has_no_bytes,
        _a_file_of_any_size_is_whole,
        _writes_stay_within_a_file,
        _blocks_are_had_up_to_the_last_byte_and_no_more,
        _small_files_of_any_size_are_whole,
    )
}


async def _pages_are_touched_up_to_the_end_and_not_after_it(disk: Disk, root: str) -> None:
    for size in SIZES_AT_AN_EDGE:
        file = disk.create(f"{root}/{size}", size)
        file.buffer[size - 1 : size] = b"x"
        pages = range(0, size + 1, 4096)
        for clean in (False, True):
            for start in pages:
                for count in {0, 1, size - start - 1, size - start} - {-1}:
                    if start + count <= size:
                        await disk.touch(file, start, count, clean=clean)
                with pytest.raises(ValueError, match="are not within"):
                    await disk.touch(file, start, size - start + 1, clean=clean)
            for start, count in ((-4096, 4096), (0, -1), (8192 + 4096, 0)):
                with pytest.raises(ValueError, match="are not within"):
                    await disk.touch(file, start, count, clean=clean)
            if size % 4096:
                with pytest.raises(ValueError, match="not where a page"):
                    await disk.touch(file, size, 0, clean=clean)
        assert file.buffer[:] == bytes(size - 1) + b"x"
        file.close()
        # What is closed is left alone, as it is deleted while its turn is to come.
        await disk.touch(file, 0, size)
        await disk.touch(file, 0, 0)


async def _files_of_any_size_are_synced_locked_and_made_beforehand(disk: Disk, root: str) -> None:
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"a file of {size} bytes"):
            await disk.create_in_background(f"{root}/f", size)
    assert disk.list_files(root) == []
    for size in SIZES_AT_AN_EDGE:
        file = await disk.create_in_background(f"{root}/{size}", size)
        assert file is not None
        assert (file.size, file.allocated, file.buffer[:]) == (size, size, bytes(size))
        await disk.lock_in_memory(file)
        file.buffer[size - 1 : size] = b"x"
        await disk.sync(file)
        await disk.unlock_memory(file)
        assert disk.read(f"{root}/{size}") == bytes(size - 1) + b"x"
        file.close()
        for call in (disk.lock_in_memory, disk.unlock_memory, disk.sync):
            await call(file)


async def _what_the_disk_has_is_read_up_to_the_end_of_a_file(disk: Disk, root: str) -> None:
    path = f"{root}/read/0"
    for size in (1, 4095, 4096, 4097, 100_000):
        file = disk.create(path, size)
        content = bytes(n % 251 + 1 for n in range(size))
        file.buffer[:] = content  # not synced
        assert await disk.read_from_disk(path, 0, size) == content
        assert await disk.read_from_disk(path, 0, 1) == content[:1]
        assert await disk.read_from_disk(path, 0, size + 5000) == content
        assert await disk.read_from_disk(path, 4096, 100) == content[4096:4196]
        file.close()
    with pytest.raises(FileNotFoundError):
        await disk.read_from_disk(f"{root}/read/none", 0, 1)


async def check_disk(name: str, disk: Disk, root: str) -> None:
    """Run the contract called `name` in the directory `root`."""
    if name in ASYNC_DISK_CONTRACTS:
        await ASYNC_DISK_CONTRACTS[name](disk, root)
    else:
        SYNC_DISK_CONTRACTS[name](disk, root)


ASYNC_DISK_CONTRACTS: Final = {
    function.__name__.strip("_"): function
    for function in (
        _sync_keeps_the_content,
        _what_is_written_ahead_shows_once_it_is_put_there,
        _files_are_synced_together,
        _many_files_are_synced_now_and_with_their_tree,
        _create_in_background_leaves_an_existing_file_alone,
        _locking_in_memory_changes_nothing,
        _pages_are_touched_up_to_the_end_and_not_after_it,
        _files_of_any_size_are_synced_locked_and_made_beforehand,
        _what_the_disk_has_is_read_up_to_the_end_of_a_file,
    )
}
DISK_CONTRACTS: Final = (*SYNC_DISK_CONTRACTS, *ASYNC_DISK_CONTRACTS)


def lock_is_exclusive_and_comes_back(disk: Disk, root: str) -> None:
    """For stand-ins only: a POSIX lock does not exclude its own process."""
    release = disk.lock(f"{root}/lock")
    assert disk.exists(f"{root}/lock")
    with pytest.raises(StoreLockedError):
        disk.lock(f"{root}/lock")
    release()
    disk.lock(f"{root}/lock")()


# --- network -----------------------------------------------------------------------------------


class Ends(NamedTuple):
    """A connection, both ends, and what was used to open it."""

    network: Network
    listener: Listener
    dialled: Stream
    accepted: Stream


async def open_ends(dialling: Network, listening: Network, host: str) -> Ends:
    """Listen at `host` with one network and dial it with the other."""
    listener = await listening.listen(host, 0)
    dialled = await dialling.connect(host, listener.port, source=None)
    return Ends(dialling, listener, dialled, await listener.accept())


async def _expect_lost(function: Callable[..., Awaitable[object]], *arguments: object) -> None:
    with pytest.raises(ConnectionLost):
        await function(*arguments)


async def keep_sending(stream: Stream) -> None:
    """Send a little every few milliseconds, until something stops it."""
    while True:
        await stream.send_all(b"anybody there?")
        await trio.sleep(0.005)


async def _receive_exactly(stream: Stream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        assert piece, f"ended after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


async def _bytes_arrive_in_order_both_ways(ends: Ends) -> None:
    text = bytes(range(256)) * 40
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.dialled.send_all, text)
        nursery.start_soon(ends.accepted.send_all, text[::-1])
        assert await _receive_exactly(ends.accepted, len(text)) == text
        assert await _receive_exactly(ends.dialled, len(text)) == text[::-1]


async def _never_more_than_asked_for(ends: Ends) -> None:
    await ends.dialled.send_all(b"abcdefgh")
    received = b""
    while len(received) < 8:
        piece = await ends.accepted.receive_some(3)
        assert 1 <= len(piece) <= 3
        received += piece
    assert received == b"abcdefgh"


async def _what_is_put_off_to_the_end_of_a_round_is_done(ends: Ends) -> None:
    taken: list[bytes] = []

    def take(data: bytes) -> Callable[[], bool]:
        def at_round_end() -> bool:
            taken.append(data)
            return sum(map(len, taken)) < 5

        return at_round_end

    await ends.dialled.send_all(b"abcdef")
    assert await ends.accepted.receive_some(1) == b"a"
    with trio.fail_after(PATIENCE_SECONDS):
        assert await ends.accepted.receive_while(2, take) is True
    assert b"".join(taken) == b"bcdef"


async def _peers_are_addresses_of_the_other_end(ends: Ends) -> None:
    assert ends.dialled.peer.port == ends.listener.port
    assert ends.accepted.peer.port not in (0, ends.listener.port)
    assert ends.accepted.peer.ip.startswith("127.")


async def _end_comes_after_the_bytes(ends: Ends) -> None:
    await ends.dialled.send_all(b"last words")
    await ends.dialled.aclose()
    assert await _receive_exactly(ends.accepted, 10) == b"last words"
    assert await ends.accepted.receive_some(100) == b""
    assert await ends.accepted.receive_some(100) == b""


async def _a_stream_fills_up_and_drains(ends: Ends) -> None:
    sent = 0
    block = bytes(range(256)) * 1024
    while taken := ends.dialled.send_nowait(memoryview(block)[sent % len(block) :]):
        sent += taken
        assert sent < 100_000_000
        await trio.lowlevel.checkpoint()
    # What the other end takes makes room again, at once or a moment later.
    tail = block[sent % len(block) :] + b"tail"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.dialled.send_all, tail)
        received = await _receive_exactly(ends.accepted, sent + len(tail))
    assert received == (block * (sent // len(block) + 2))[: sent + len(tail) - 4] + b"tail"


async def _sent_data_is_not_kept(ends: Ends) -> None:
    data = bytearray(b"before")
    taken = ends.dialled.send_nowait(memoryview(data))
    assert taken in range(1, 7)
    data[:] = b"after!"
    await ends.dialled.send_all(b"before"[taken:])
    assert await _receive_exactly(ends.accepted, 6) == b"before"


async def _cancelled_receive_loses_nothing(ends: Ends) -> None:
    received = bytearray()

    async def receive() -> None:
        received.extend(await ends.accepted.receive_some(10))

    with trio.move_on_after(0.01):
        await receive()
    await ends.dialled.send_all(b"x")
    # A stream may hand out what is there before it looks whether it was cancelled, or not.
    with trio.CancelScope() as scope:
        scope.cancel()
        await receive()
    await ends.dialled.send_all(b"y")
    while len(received) < 2:
        await receive()
    assert received == b"xy"


async def _own_close_is_connection_lost(ends: Ends) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect_lost, ends.dialled.receive_some, 1)
        await trio.testing.wait_all_tasks_blocked()
        ends.dialled.close_nowait()
    with pytest.raises(ConnectionLost):
        ends.dialled.send_nowait(b"x")
    with pytest.raises(ConnectionLost):
        await ends.dialled.send_all(b"x")
    with pytest.raises(ConnectionLost):
        await ends.dialled.receive_some(1)
    ends.dialled.close_nowait()
    await ends.dialled.aclose()


async def _sending_to_a_closed_end_fails_soon(ends: Ends) -> None:
    ends.accepted.close_nowait()
    with trio.fail_after(PATIENCE_SECONDS):
        await _expect_lost(keep_sending, ends.dialled)


async def _close_with_unread_bytes_is_a_reset(ends: Ends) -> None:
    await ends.dialled.send_all(b"never read")
    with trio.move_on_after(0.02):
        await ends.dialled.receive_some(1)
    ends.accepted.close_nowait()
    with pytest.raises(ConnectionLost), trio.fail_after(PATIENCE_SECONDS):
        await ends.dialled.receive_some(1)


async def _busy_port_is_named(ends: Ends) -> None:
    host = ends.dialled.peer.ip
    with pytest.raises(AddressInUseError, match=f"{host}:{ends.listener.port}"):
        await ends.network.listen(host, ends.listener.port)


async def _closed_listener_refuses_and_says_so(ends: Ends) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect_lost, ends.listener.accept)
        await trio.testing.wait_all_tasks_blocked()
        await ends.listener.aclose()
    with pytest.raises(ConnectionLost):
        await ends.listener.accept()
    with pytest.raises(ConnectionLost):
        await ends.network.connect(ends.dialled.peer.ip, ends.listener.port, source=None)
    await ends.listener.aclose()
    await _bytes_arrive_in_order_both_ways(ends)


async def _foreign_source_is_refused(ends: Ends) -> None:
    with pytest.raises(ConnectionLost):
        await ends.network.connect(ends.dialled.peer.ip, ends.listener.port, source="192.0.2.1")


NETWORK_CONTRACTS: Final[dict[str, Callable[[Ends], Awaitable[None]]]] = {
    function.__name__.strip("_"): function
    for function in (
        _bytes_arrive_in_order_both_ways,
        _never_more_than_asked_for,
        _what_is_put_off_to_the_end_of_a_round_is_done,
        _peers_are_addresses_of_the_other_end,
        _end_comes_after_the_bytes,
        _a_stream_fills_up_and_drains,
        _sent_data_is_not_kept,
        _cancelled_receive_loses_nothing,
        _own_close_is_connection_lost,
        _sending_to_a_closed_end_fails_soon,
        _close_with_unread_bytes_is_a_reset,
        _busy_port_is_named,
        _closed_listener_refuses_and_says_so,
        _foreign_source_is_refused,
    )
}
