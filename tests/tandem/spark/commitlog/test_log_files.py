from pathlib import Path

import pytest

from tandem.data_file import DataFile
from tandem.spark.commitlog import log_files
from tandem.spark.commitlog.log_files import (
    LogTail,
    commit_log_folder,
    cut_file,
    list_log_files,
    local_path,
    log_tail,
    next_record,
    scan_windows,
)
from tandem.spark.commitlog.queue_starts import QueueStarts
from tandem.spark.commitlog.storage import LocalStorage
from tandem.spark.errors import NotAStoreError, StoreFault
from tandem.wire.record_rule import ScanStop
from tests.support.log_builder import LogBuilder

FILE_BYTES = 65_536


def a_log(count: int = 100, body_bytes: int = 200) -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(count):
        log.put(body=bytes([number % 251]) * body_bytes, queue_id=number % 3)
    return log


def only_file(root: Path) -> DataFile:
    (file,) = list_log_files(root / "commitlog")
    return file


def queue_starts(root: Path) -> QueueStarts:
    return QueueStarts(LocalStorage(), str(root / "consumequeue"))


def test_a_store_root_and_a_commitlog_directory_are_both_accepted(tmp_path: Path) -> None:
    root = a_log(1).write(tmp_path / "store")
    elsewhere = (root / "commitlog").rename(tmp_path / "log")
    assert commit_log_folder(elsewhere) == elsewhere
    (root / "commitlog").mkdir()
    assert commit_log_folder(root) == root / "commitlog"
    assert commit_log_folder(root / "commitlog") == root / "commitlog"


def test_any_other_path_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match=str(tmp_path)) as caught:
        commit_log_folder(tmp_path)
    assert caught.value.fault is StoreFault.NO_LOG
    with pytest.raises(NotAStoreError) as caught:
        commit_log_folder(tmp_path / "missing")
    assert caught.value.fault is StoreFault.NO_DIRECTORY


def test_a_file_address_is_a_path() -> None:
    assert local_path("file:/data/a%20b") == Path("/data/a b")
    assert local_path("file:///data/a") == Path("/data/a")
    assert local_path("data/a") == Path("data/a")


def test_files_that_wait_to_be_written_to_are_left_out(tmp_path: Path) -> None:
    log = a_log(500)
    folder = log.write(tmp_path) / "commitlog"
    names = sorted(log.files())
    (folder / f"{len(names) * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    (folder / f"{(len(names) + 1) * FILE_BYTES:020d}").touch()
    (folder / "not-a-log-file").touch()
    files = list_log_files(folder)
    assert [Path(file.path).name for file in files] == names
    assert files[1].offset == files[0].end_offset == FILE_BYTES


def test_a_store_that_was_never_written_to_has_no_files(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(100))
    assert list_log_files(tmp_path) == []


@pytest.mark.parametrize("at", [0, 1, 4_999_999, None])
def test_zeros_are_told_from_bytes_wherever_they_are(tmp_path: Path, at: int | None) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as sparse:
        sparse.truncate(5_000_000)
        if at is not None:
            sparse.seek(at)
            sparse.write(b"\x01")
    file = DataFile(str(path), 0, 5_000_000)
    with LocalStorage().opened(file.path) as opened:
        assert opened.only_zeros(0, file.size) is (at is None)
        assert opened.only_zeros(2, 4_999_999) is True


@pytest.mark.parametrize("window_bytes", [64, 300, 1000, 1 << 20])
def test_windows_of_any_size_find_every_record(
    tmp_path: Path, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "WINDOW_BYTES", window_bytes)
    log = a_log(50)
    log.put(body=bytes(5000))
    log.put()
    file = only_file(log.write(tmp_path))
    found: list[int] = []
    stop = None
    with LocalStorage().opened(file.path) as opened:
        for window in scan_windows(opened, file, 0, file.size):
            found += window.scan.columns.physical_offset.tolist()
            stop = window.scan.check.stop
    assert found == [message.physical_offset for message in log.messages]
    assert stop is ScanStop.ZEROS


def test_a_mad_length_does_not_make_the_window_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "WINDOW_BYTES", 1000)
    log = a_log(3)
    third = log.messages[2].physical_offset
    log.log[third : third + 4] = (50_000).to_bytes(4, "big")
    log.log[third + 28 : third + 36] = bytes(8)
    file = only_file(log.write(tmp_path))
    with LocalStorage().opened(file.path) as opened:
        windows = list(scan_windows(opened, file, 0, file.size))
    assert windows[-1].end == third
    assert all(len(window.data) == 1000 for window in windows)


def test_the_end_of_a_clean_log_is_where_zeros_begin(tmp_path: Path) -> None:
    log = a_log()
    assert log_tail(only_file(log.write(tmp_path))) == LogTail(log.end_offset, clean=True)
    start = log.messages[40].physical_offset
    assert log_tail(only_file(tmp_path), start).end == log.end_offset


def test_a_closed_file_ends_at_its_blank_record(tmp_path: Path) -> None:
    log = a_log()
    end = log.end_offset
    log.roll()
    assert log_tail(only_file(log.write(tmp_path))) == LogTail(end, clean=True)


def test_a_blank_record_of_the_wrong_size_ends_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_LOOK_INTERVAL_SECONDS", 0)
    log = a_log()
    end = log.end_offset
    log.roll()
    log.log[end + 3] ^= 1
    assert log_tail(only_file(log.write(tmp_path))) == LogTail(end, clean=False)


@pytest.mark.parametrize("behind", [0, 1000])
def test_a_torn_last_record_makes_the_tail_unclean(
    tmp_path: Path, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_LOOK_INTERVAL_SECONDS", 0)
    log = a_log()
    last = log.messages[-1]
    if behind:
        log.log[last.physical_offset : last.physical_offset + 100] = bytes(100)
    else:
        del log.log[last.physical_offset + 100 :]
        log.log[last.physical_offset + 95] = 0xFF
        log.log[last.physical_offset + 84 : last.physical_offset + 88] = bytes(4)
    tail = log_tail(only_file(log.write(tmp_path)))
    assert tail == LogTail(last.physical_offset, clean=False)


def test_a_record_that_becomes_whole_while_we_look_was_a_running_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log()
    file = only_file(log.write(tmp_path))
    last = log.messages[-1]
    whole = Path(file.path).read_bytes()
    half = bytearray(whole)
    half[last.physical_offset : last.physical_offset + 40] = bytes(40)
    Path(file.path).write_bytes(half)

    def write_the_rest(_: float) -> None:
        Path(file.path).write_bytes(whole)

    monkeypatch.setattr("tandem.spark.commitlog.log_files.time.sleep", write_the_rest)
    assert log_tail(file) == LogTail(last.physical_offset, clean=True)


def test_the_next_record_is_found_across_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "WINDOW_BYTES", 100)
    log = a_log(20)
    file = only_file(log.write(tmp_path))
    starts = [message.physical_offset for message in log.messages]
    with LocalStorage().opened(file.path) as opened:
        for position in range(0, log.end_offset, 7):
            expected = next((start for start in starts if start >= position), None)
            assert next_record(opened, file, position, file.size) == expected


@pytest.mark.parametrize("with_queues", [True, False])
def test_files_are_cut_at_record_starts(tmp_path: Path, *, with_queues: bool) -> None:
    log = a_log(190)
    root = log.write(tmp_path, consume_queues=with_queues)
    file = only_file(root)
    cuts = cut_file(LocalStorage(), file, 0, log.end_offset, 8192, queue_starts(root))
    starts = {message.physical_offset for message in log.messages}
    assert cuts[0] == 0
    assert set(cuts) <= starts
    pieces = [end - start for start, end in zip(cuts, [*cuts[1:], log.end_offset], strict=True)]
    assert all(8192 <= piece <= 8192 * 9 / 8 + 400 for piece in pieces[:-1])
    assert pieces[-1] <= 8192 * 1.2


def test_a_consume_queue_is_believed_only_where_the_log_agrees(tmp_path: Path) -> None:
    log = a_log(190)
    root = log.write(tmp_path)
    for path in (root / "consumequeue").glob("*/*/*"):
        units = bytearray(path.read_bytes())
        for at in range(0, 64 * 20, 20):
            units[at + 7] ^= 1
        path.write_bytes(units)
    cuts = cut_file(LocalStorage(), only_file(root), 0, log.end_offset, 8192, queue_starts(root))
    assert set(cuts) <= {message.physical_offset for message in log.messages}
    assert len(cuts) > 5
