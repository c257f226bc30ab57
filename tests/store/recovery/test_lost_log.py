import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from store import StoreConfig
from store.recovery.lost_log import why_log_is_lost
from store.recovery.truncation import set_aside, want_set_aside
from tests.store.store_world import COMMIT_LOG_BYTES, DIRECTORY, open_store, put_many

CONFIG = StoreConfig(directory=DIRECTORY, mapped_file_size_commit_log_bytes=COMMIT_LOG_BYTES)
LOG = f"{DIRECTORY}/commitlog"


def _closed() -> SimulatedDisk:
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 60)
    store.close()
    return disk


def _remove_all(disk: SimulatedDisk, directory: str) -> None:
    for name, _ in disk.list_files(directory):
        disk.remove(f"{directory}/{name}")


def test_a_store_with_a_log_or_that_never_had_one_has_lost_none() -> None:
    assert why_log_is_lost(CONFIG, _closed()) is None
    disk = SimulatedDisk()
    assert why_log_is_lost(CONFIG, disk) is None
    open_store(disk).close()
    assert why_log_is_lost(CONFIG, disk) is None


@pytest.mark.parametrize("left", ["checkpoint", "log-start.json", "consumequeue"])
def test_whatever_is_left_says_that_there_was_a_log(left: str) -> None:
    disk = _closed()
    _remove_all(disk, LOG)
    disk.replace(f"{LOG}/{0:020d}", b"")  # what a crash leaves of a file that was being made
    for name in {"checkpoint", "log-start.json"} - {left}:
        disk.remove(f"{DIRECTORY}/{name}")
    if left != "consumequeue":
        for topic in disk.list_directories(f"{DIRECTORY}/consumequeue"):
            for queue in disk.list_directories(f"{DIRECTORY}/consumequeue/{topic}"):
                _remove_all(disk, f"{DIRECTORY}/consumequeue/{topic}/{queue}")

    assert why_log_is_lost(CONFIG, disk) is not None


def test_a_last_file_that_is_left_is_a_log() -> None:
    disk = _closed()
    *first, _ = [name for name, _ in disk.list_files(LOG)]
    for name in first:
        disk.remove(f"{LOG}/{name}")
    assert why_log_is_lost(CONFIG, disk) is None


def test_a_log_in_several_directories_is_lost_only_in_all_of_them() -> None:
    config = msgspec.structs.replace(
        CONFIG, store_path_commit_log=("/a", "/b"), read_only_commit_log_store_paths=("/c",)
    )
    disk = _closed()
    for name, _ in disk.list_files(LOG):
        disk.rename(f"{LOG}/{name}", f"/c/{name}")
    assert why_log_is_lost(config, disk) is None
    _remove_all(disk, "/c")
    assert why_log_is_lost(config, disk) is not None


def test_a_store_that_is_set_aside_has_lost_nothing() -> None:
    disk = _closed()
    want_set_aside(disk, DIRECTORY, "other")
    _remove_all(disk, LOG)
    assert why_log_is_lost(CONFIG, disk) is None
    disk = _closed()
    set_aside(disk, DIRECTORY, "other")
    assert why_log_is_lost(CONFIG, disk) is None
    open_store(disk).close()
    assert why_log_is_lost(CONFIG, disk) is None
