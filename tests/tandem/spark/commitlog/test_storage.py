from pathlib import Path

import pytest
from pyarrow import fs

from tandem.spark.commitlog.queue_starts import QueueStarts
from tandem.spark.commitlog.storage import (
    REMOTE_BLOCK_BYTES,
    LocalStorage,
    RemoteStorage,
    Storage,
    local_part,
    root_of,
    shown,
    storage_at,
)
from tandem.spark.errors import NotAStoreError, StoreFault
from tests.support.log_builder import LogBuilder

SIZE = REMOTE_BLOCK_BYTES * 3 + 17


@pytest.fixture(params=["local", "remote"])
def storage(request: pytest.FixtureRequest) -> Storage:
    if request.param == "local":
        return LocalStorage()
    return RemoteStorage(fs.LocalFileSystem(), "")


def test_both_kinds_list_and_read_the_same(storage: Storage, tmp_path: Path) -> None:
    data = bytes(number * 7 % 251 for number in range(SIZE))
    (tmp_path / "file").write_bytes(data)
    (tmp_path / "folder").mkdir()
    found = {
        entry.name: (entry.is_directory, entry.size) for entry in storage.entries(str(tmp_path))
    }
    assert found == {"file": (False, SIZE), "folder": (True, 0)}
    assert storage.is_directory(str(tmp_path / "folder"))
    assert not storage.is_directory(str(tmp_path / "file"))
    buffer = bytearray(SIZE + 10)
    with storage.opened(str(tmp_path / "file")) as file:
        for position, size in [(0, 4), (SIZE - 3, 40), (5, SIZE), (SIZE + 5, 3), (70_000, 20)]:
            got = file.read_into(memoryview(buffer)[:size], position)
            assert bytes(buffer[:got]) == data[position : position + size]


@pytest.mark.parametrize("at", [0, 1, REMOTE_BLOCK_BYTES + 9, SIZE - 1])
def test_both_kinds_find_what_is_not_zero(storage: Storage, tmp_path: Path, at: int) -> None:
    data = bytearray(SIZE)
    data[at] = 1
    (tmp_path / "file").write_bytes(data)
    with storage.opened(str(tmp_path / "file")) as file:
        assert not file.only_zeros(0, SIZE + 100)
        assert file.only_zeros(at + 1, SIZE)
        assert file.only_zeros(0, at)


def test_both_kinds_say_what_is_missing(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        storage.entries(str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError), storage.opened(str(tmp_path / "nothing")):
        pass


def test_secrets_of_an_address_are_not_shown() -> None:
    address = "s3://key:secret@bucket/a/b?endpoint_override=localhost:9000&access_key=x"
    assert shown(address) == "s3://bucket/a/b"
    assert (
        root_of(address) == "s3://key:secret@bucket?endpoint_override=localhost:9000&access_key=x"
    )
    assert shown("data/a?b") == "data/a?b"


def test_a_file_address_is_of_this_machine() -> None:
    assert local_part("file:/data/a%20b") == "/data/a b"
    assert isinstance(storage_at("file:///data"), LocalStorage)
    assert isinstance(storage_at("data/a"), LocalStorage)


def test_an_address_that_nothing_can_read_is_refused_in_words() -> None:
    with pytest.raises(NotAStoreError, match="nonsense://") as caught:
        storage_at("nonsense://there/data")
    assert caught.value.fault is StoreFault.UNREACHABLE


def test_a_listing_gives_what_directories_give(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/empty").mkdir()
    (tmp_path / "a/b/file").write_bytes(b"12")
    (tmp_path / "beside").mkdir()
    listed = storage.listed(str(tmp_path / "a"))
    for name in ("a", "a/b", "a/empty", "beside"):
        at = str(tmp_path / name)
        assert listed.is_directory(at)
        assert set(listed.entries(at)) == set(storage.entries(at))
    with pytest.raises(FileNotFoundError):
        listed.entries(str(tmp_path / "a/c"))
    buffer = bytearray(2)
    with listed.opened(str(tmp_path / "a/b/file")) as file:
        assert file.read_into(memoryview(buffer), 0) == 2
    whole, below = listed.listed(str(tmp_path)), str(tmp_path / "a/b")
    assert set(whole.entries(below)) == set(storage.entries(below))
    nothing = str(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        storage.listed(nothing).entries(nothing)


class Counted(fs.FSSpecHandler):  # type: ignore[misc]
    """Counts what a file system is asked for."""

    listings = 0

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        self.listings += 1
        found: list[fs.FileInfo] = super().get_file_info_selector(selector)
        return found


def test_queues_of_an_object_store_are_listed_at_once(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    log = LogBuilder()
    for number in range(60):
        log.put(topic=f"Topic{number % 20}", queue_id=number // 20)
    root = log.write(tmp_path)
    handler = Counted(fsspec.filesystem("file"))
    storage = RemoteStorage(fs.PyFileSystem(handler), "")
    starts = QueueStarts(storage, str(root / "consumequeue"))
    assert starts.first_at(1) == log.messages[1].physical_offset
    assert handler.listings == 1


def test_an_empty_folder_is_listed_with_the_others_and_not_asked_for_again(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    (tmp_path / "a/empty").mkdir(parents=True)
    handler = Counted(fsspec.filesystem("file"))
    listed = RemoteStorage(fs.PyFileSystem(handler), "").listed(str(tmp_path / "a"))
    empty = str(tmp_path / "a/empty")
    assert listed.is_directory(empty)
    assert listed.entries(empty) == []
    assert handler.listings == 1
