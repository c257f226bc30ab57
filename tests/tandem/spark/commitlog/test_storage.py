from pathlib import Path

import pytest
from pyarrow import fs

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
