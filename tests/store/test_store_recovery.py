"""Damaged, foreign and missing files: a torn tail is cut off, anything else a person must see."""

import shutil
from pathlib import Path

import pytest

from store import CorruptLogError, DiskFailedError, StoreError, StoreLockedError
from store.disk import RealDisk
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    DIRECTORY,
    GOLDEN,
    check_store,
    files_of,
    log_messages,
    number_of,
    open_store,
    put_many,
)
from tests.support.simulated_disk import SimulatedDisk


def killed_store(count: int) -> SimulatedDisk:
    """Return the disk of a store killed with nothing synced: all of it may be torn."""
    disk = SimulatedDisk()
    put_many(open_store(disk), count)
    return disk.crashed()


def stopped_store(count: int) -> SimulatedDisk:
    """Return the disk of a store that was closed: all of it is on disk."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        put_many(store, count)
    return disk


def log_file(offset: int) -> str:
    return f"{DIRECTORY}/commitlog/{offset - offset % COMMIT_LOG_BYTES:020d}"


def ends_of(disk: SimulatedDisk) -> list[int]:
    """Return where each record ends."""
    messages = log_messages(open_store(disk.crashed()))
    return [m.physical_offset + m.store_size for m in messages]


def test_recovery_cuts_a_torn_last_record_at_any_byte(caplog: pytest.LogCaptureFixture) -> None:
    start = killed_store(15)
    ends = ends_of(start)
    for kept in range(1, ends[-1] - ends[-2], 7):
        disk = start.crashed()
        cut = ends[-2] + kept
        file = disk.open(log_file(cut))
        at = cut % COMMIT_LOG_BYTES
        torn = bytes(file.buffer[ends[-2] % COMMIT_LOG_BYTES : at])
        file.buffer[at:] = bytes(COMMIT_LOG_BYTES - at)
        caplog.clear()
        store = open_store(disk)
        assert [number_of(m) for m in check_store(store)] == list(range(14))
        aside = disk.read(f"{DIRECTORY}/torn/{ends[-2]:020d}")
        assert (aside or b"") == torn.rstrip(b"\0")
        if torn.strip(b"\0"):
            assert f"commit log ends at {ends[-2]}" in caplog.text


def test_nothing_is_set_aside_and_nothing_logged_when_nothing_was_torn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = killed_store(20)
    caplog.set_level("WARNING")
    open_store(disk)
    assert not disk.list_files(f"{DIRECTORY}/torn")
    assert caplog.text == ""


@pytest.mark.parametrize("record", [0, 7, 13, 14])
@pytest.mark.parametrize("abort", ["clean", "killed"])
def test_a_changed_byte_in_what_was_on_disk_is_an_error_that_changes_nothing(
    record: int, abort: str
) -> None:
    """RocketMQ cuts the log there, and with it every message behind.

    The last record is no torn one either: it had been synced.
    """
    disk = stopped_store(15)
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    ends = ends_of(disk)
    start = ends[record - 1] if record else 0
    file = disk.open(log_file(start))
    file.buffer[start % COMMIT_LOG_BYTES + 200] ^= 1
    before = files_of(disk)
    with pytest.raises(CorruptLogError, match="Nothing was changed") as caught:
        open_store(disk)
    assert caught.value.offset == start
    assert caught.value.path == log_file(start)
    assert str(start) in str(caught.value)
    assert "another node" in str(caught.value)
    assert files_of(disk) == before
    disk.open(log_file(start)).buffer[start % COMMIT_LOG_BYTES + 200] ^= 1
    assert len(check_store(open_store(disk))) == 15


def test_damage_that_only_times_give_away_is_an_error_too() -> None:
    """A store of RocketMQ has no confirm offset to go by, but when its last message was synced."""
    disk = stopped_store(15)
    checkpoint = disk.open(f"{DIRECTORY}/checkpoint")
    checkpoint.buffer[32:40] = bytes(8)
    disk.open(log_file(0)).buffer[300] ^= 1
    with pytest.raises(CorruptLogError, match="was on disk before the last stop"):
        open_store(disk)


@pytest.mark.parametrize("which", ["first", "middle", "last", "all"])
def test_a_missing_log_file_is_an_error_unless_it_is_the_oldest(which: str) -> None:
    disk = stopped_store(60)
    names = [name for name, _ in disk.list_files(f"{DIRECTORY}/commitlog")]
    assert len(names) == 4
    gone = {"first": names[:1], "middle": names[1:2], "last": names[-1:], "all": names}[which]
    for name in gone:
        disk.remove(f"{DIRECTORY}/commitlog/{name}")
    if which == "first":  # that is what deleting expired files looks like
        with open_store(disk) as store:
            assert number_of(log_messages(store)[-1]) == 59
        return
    before = files_of(disk)
    with pytest.raises(CorruptLogError, match=r"another node|move the whole directory"):
        open_store(disk)
    assert files_of(disk) == before


@pytest.mark.parametrize("size", [1, 100, COMMIT_LOG_BYTES - 1, COMMIT_LOG_BYTES + 1])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/TopicA/0"])
def test_a_file_of_another_length_is_named_with_a_remedy(folder: str, size: int) -> None:
    """MappedFileQueue.doLoad."""
    disk = stopped_store(20)
    name = disk.list_files(f"{DIRECTORY}/{folder}")[-1][0]
    path = f"{DIRECTORY}/{folder}/{name}"
    disk.replace(path, b"x" * size)
    with pytest.raises(CorruptLogError, match="restore it from another node") as caught:
        open_store(disk)
    assert caught.value.path == path
    assert f"{path}: the file has {size} bytes" in str(caught.value)
    assert disk.read(path) == b"x" * size


def test_a_last_file_of_no_length_is_what_a_crash_leaves_and_goes() -> None:
    """MappedFileQueue.doLoad."""
    disk = stopped_store(20)
    path = log_file(COMMIT_LOG_BYTES * 2)
    disk.replace(path, b"")
    with open_store(disk) as store:
        assert len(check_store(store)) == 20
    assert not disk.exists(path)
    disk.replace(log_file(0), b"")
    with pytest.raises(CorruptLogError, match="has 0 bytes"):
        open_store(disk)


@pytest.mark.parametrize(
    "name", ["notes.txt", "0000000000000000819x", "8192", "00000000000000008192.bak"]
)
def test_a_foreign_file_is_named_with_a_remedy(name: str) -> None:
    disk = stopped_store(20)
    disk.replace(f"{DIRECTORY}/commitlog/{name}", bytes(COMMIT_LOG_BYTES))
    with pytest.raises(CorruptLogError, match="move it out of this directory") as caught:
        open_store(disk)
    assert name in str(caught.value)


@pytest.mark.parametrize("size", [0, 8, 39, 4095, 5000])
def test_a_checkpoint_of_another_length_is_named_with_a_remedy(size: int) -> None:
    disk = stopped_store(20)
    disk.replace(f"{DIRECTORY}/checkpoint", bytes(size))
    with pytest.raises(CorruptLogError, match="delete it") as caught:
        open_store(disk)
    assert f"{DIRECTORY}/checkpoint" in str(caught.value)
    disk.remove(f"{DIRECTORY}/checkpoint")
    assert len(check_store(open_store(disk))) == 20


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/TopicA", "consumequeue/TopicA/0"])
@pytest.mark.parametrize("abort", ["clean", "killed"])
def test_lost_queues_are_built_anew(lost: str, abort: str) -> None:
    disk = stopped_store(100)
    for path in list(files_of(disk)):
        if path.startswith(f"{DIRECTORY}/{lost}/"):
            disk.remove(path)
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    with open_store(disk) as store:
        assert [number_of(m) for m in check_store(store)] == list(range(100))


def test_a_wrong_file_size_in_the_settings_is_told(tmp_path: Path) -> None:
    root = shutil.copytree(GOLDEN / "basic", tmp_path / "basic")
    with pytest.raises(CorruptLogError, match="start with the size it was written with"):
        open_store(RealDisk(), str(root), commit_log_bytes=65536)


def test_a_directory_that_may_not_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file is in the way")
    with pytest.raises(StoreError, match="store"):
        open_store(RealDisk(), str(tmp_path / "store"))


def test_a_disk_that_fails_while_opening_is_an_error_of_the_store() -> None:
    disk = killed_store(5)
    for path in files_of(disk):
        if "/commitlog/" in path:
            disk.open(path).sync = _raise_io_error  # type: ignore[method-assign]
    with pytest.raises(DiskFailedError, match="Input/output error"):
        open_store(disk)


def test_a_disk_that_fails_while_closing_leaves_the_stop_unclean() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 5)
    for path in files_of(disk):
        disk.open(path).sync = _raise_io_error  # type: ignore[method-assign]
    with pytest.raises(DiskFailedError, match="Input/output error"):
        store.close()
    assert disk.exists(f"{DIRECTORY}/abort")
    assert len(check_store(open_store(disk.crashed()))) == 5


def _raise_io_error() -> None:
    raise OSError(5, "Input/output error")


def test_a_store_that_is_open_elsewhere_is_left_alone() -> None:
    disk = SimulatedDisk()
    with open_store(disk), pytest.raises(StoreLockedError, match="another process"):
        open_store(disk)
    open_store(disk).close()


def test_a_store_that_did_not_open_gives_its_lock_back() -> None:
    disk = stopped_store(20)
    disk.replace(log_file(0), b"short")
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            open_store(disk)
