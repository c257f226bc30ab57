import os
import subprocess
import sys
from pathlib import Path

import pytest

from store.machine.real_disk import RealDisk
from tandem.data_file import is_locked
from tandem.log.errors import NoStore, NotAStoreError, UnreadableFileError
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tests.store.store_world import open_store
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, our_store


def test_a_name_that_is_no_offset_is_a_stray_file(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "commitlog" / ("9" * 20)).write_bytes(b"x" * 8192)
    (root / "index" / ("9" * 20)).touch()
    store = open_store_directory(root)
    assert [Path(stray.path).name for stray in store.strays] == ["9" * 20] * 2
    assert all(file.offset < 8192 * 3 for file in store.commit_log)
    assert verify_store(store, jobs=1).damage_count == 0


@pytest.mark.parametrize(
    ("name", "cause"), [("none", NoStore.NOT_THERE), ("config", NoStore.NO_DIRECTORY)]
)
def test_a_directory_of_the_log_that_is_named_must_be_there(
    tmp_path: Path, name: str, cause: NoStore
) -> None:
    root = copy_of("basic", tmp_path)
    (root / "config").write_text("")
    with pytest.raises(NotAStoreError) as caught:
        open_store_directory(root, commit_log_directories=[root / name])
    assert (caught.value.path, caught.value.cause) == (str(root / name), cause)


@pytest.mark.parametrize("name", NAMES)
def test_the_sizes_of_a_store_are_found_out_from_its_files(name: str) -> None:
    store = open_store_directory(GOLDEN / name)
    assert store.log_file_bytes == 8192
    assert [file.size for queue in store.queues for file in queue.files] == [200] * len(
        store.queues
    )
    assert store.checkpoint is not None
    assert store.is_settled
    assert store.strays == ()


def test_queues_and_their_ext_files_belong_together() -> None:
    (queue,) = open_store_directory(GOLDEN / "ext").queues
    assert (queue.topic, queue.queue_id, queue.is_batch) == ("T", 0, False)
    assert [file.offset for file in queue.ext_files] == [0, 100]


def test_a_commitlog_alone_is_a_store_without_anything_beside() -> None:
    store = open_store_directory(GOLDEN / "basic" / "commitlog")
    assert [file.offset for file in store.commit_log] == [0]
    assert store.queues == ()
    assert store.checkpoint is None


def test_a_log_may_lie_in_several_places(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    elsewhere = tmp_path / "second"
    elsewhere.mkdir()
    (root / "commitlog" / f"{8192:020d}").rename(elsewhere / f"{8192:020d}")
    store = open_store_directory(root, commit_log_directories=[root / "commitlog", elsewhere])
    offsets = [file.offset for file in store.commit_log]
    assert offsets == sorted(offsets)
    assert 8192 in offsets


def test_what_is_no_store_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, cause in (
        (tmp_path, NoStore.NO_LOG),
        (tmp_path / "missing", NoStore.NOT_THERE),
        (tmp_path / "file", NoStore.NO_DIRECTORY),
    ):
        with pytest.raises(NotAStoreError, match="give a store root") as caught:
            open_store_directory(path)
        assert (caught.value.path, caught.value.cause) == (str(path), cause)


def test_files_that_no_store_has_are_named(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "commitlog" / "notes.txt").touch()
    (root / "consumequeue" / "TopicA" / "x").mkdir()
    (root / "index" / "notes").touch()
    (root / "commitlog" / "next.tmp").touch()  # what a crash leaves of a file being made
    strays = [os.path.basename(stray.path) for stray in open_store_directory(root).strays]  # noqa: PTH119
    assert sorted(strays) == ["notes", "notes.txt", "x"]


def test_a_checkpoint_cut_short_is_none(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "checkpoint").write_bytes(b"short")
    store = open_store_directory(root)
    assert (store.checkpoint, store.checkpoint_bytes) == (None, 5)


def test_an_abort_file_says_that_the_store_was_not_closed(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "abort").touch()
    assert not open_store_directory(root).is_settled


def test_a_store_open_in_this_process_is_live_and_stays_locked(tmp_path: Path) -> None:
    root = our_store(tmp_path, 3)
    assert not open_store_directory(root).is_live
    with open_store(RealDisk(), str(root)):
        assert open_store_directory(root).is_live
        assert open_store_directory(root).is_live  # looking has not dropped the lock
        code = (
            "import sys; from tandem.log import open_store_directory as opened;"
            "print(opened(sys.argv[1]).is_live)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(root)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == "True"
    assert not is_locked(root / "lock")


def test_a_directory_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_of("basic", tmp_path)

    def refuse(path: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UnreadableFileError, match="run as the user who owns the store") as caught:
        open_store_directory(root)
    assert caught.value.path == str(root / "commitlog")
    assert isinstance(caught.value.error, PermissionError)
