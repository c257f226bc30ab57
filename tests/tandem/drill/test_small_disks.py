import os
import shutil
from pathlib import Path

import pytest

from tandem.drill import small_disks as module
from tandem.drill.scenario import NodeFailedError, NotPossibleError
from tandem.drill.small_disks import Disks, small_disks
from tests.support.log_builder import LogBuilder


def a_store(folder: Path) -> LogBuilder:
    log = LogBuilder(file_bytes=8192)
    for number in range(10):
        log.put(body=b"body %d" % number)
    log.write(folder)
    return log


def log_of(folder: Path) -> bytes:
    return next((folder / "commitlog").iterdir()).read_bytes()


def test_the_end_of_a_log_is_cut_or_garbled_and_nothing_else(tmp_path: Path) -> None:
    log = a_store(tmp_path)
    before, end = log_of(tmp_path), len(log.log)
    disks = Disks({"a": tmp_path})

    disks.damage_tail("a", 20, cut=False)
    garbled = log_of(tmp_path)
    assert garbled[: end - 20] == before[: end - 20]
    assert all(a != b for a, b in zip(garbled[end - 20 : end], before[end - 20 : end], strict=True))

    shutil.rmtree(tmp_path / "commitlog")
    a_store(tmp_path)
    disks.damage_tail("a", 7, cut=True)
    assert log_of(tmp_path)[end - 7 : end] == bytes(7)


def test_more_than_there_is_cannot_be_damaged(tmp_path: Path) -> None:
    a_store(tmp_path)
    with pytest.raises(NodeFailedError, match="fewer than 999999 bytes"):
        Disks({"a": tmp_path}).damage_tail("a", 999_999, cut=True)
    with pytest.raises(NodeFailedError):
        Disks({"a": tmp_path / "nothing"}).damage_tail("a", 1, cut=True)


def test_a_disk_of_everybody_is_never_filled(tmp_path: Path) -> None:
    with pytest.raises(NotPossibleError):
        Disks({"a": tmp_path}).fill("a")
    assert list(tmp_path.iterdir()) == []


def test_without_root_it_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with (
        small_disks({"a": tmp_path / "a"}) as disks,
        pytest.raises(NotPossibleError, match="only root can mount one"),
    ):
        disks.fill("a")


def test_a_small_disk_is_filled_freed_and_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DISK_MIB", 2)
    store = tmp_path / "a"
    with small_disks({"a": store}) as disks:
        try:
            disks.fill("a")
        except NotPossibleError as error:
            pytest.skip(str(error))
        with pytest.raises(OSError, match="No space left"):
            (store / "file").write_bytes(bytes(4096))
        disks.free("a")
        (store / "file").write_bytes(b"kept")
    assert not store.is_mount()
    assert (store / "file").read_bytes() == b"kept"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_lost_disk_is_empty_and_another_node_keeps_its_own(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "config").mkdir(parents=True)
        (tmp_path / name / "file").touch()
    Disks({"a": tmp_path / "a", "b": tmp_path / "b"}).lose("a")

    assert list((tmp_path / "a").iterdir()) == []
    assert (tmp_path / "b" / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_the_disk_of_a_coordinator_is_filled_and_freed_and_its_files_stay(tmp_path: Path) -> None:
    directory = tmp_path / "coordinator"
    with small_disks({"a": tmp_path / "a"}, coordinator=directory) as disks:
        disks.add_coordinator(directory)
        (directory / "journal").write_bytes(b"1")
        disks.fill("coordinator")
        with pytest.raises(OSError, match="No space"):
            (directory / "more").write_bytes(bytes(8192))
        disks.free("coordinator")
        (directory / "more").write_bytes(bytes(8192))
    assert (directory / "journal").read_bytes() == b"1"
