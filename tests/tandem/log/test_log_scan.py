import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tandem.data_file import DataFile
from tandem.log import log_scan
from tandem.log.files import open_file
from tandem.log.log_scan import (
    FileScan,
    LogBreak,
    LogDamage,
    LogWindow,
    adds_up,
    log_extent,
    next_record,
    record_at,
    scan_log,
)
from tandem.log.store_directory import open_store_directory
from tandem.wire.message import decode_message
from tandem.wire.record_rule import ScanStop
from tests.support.log_builder import LogBuilder
from tests.tandem.log.vectors import overwrite

FILE_BYTES = 8192


def a_log(count: int = 60, body_bytes: int = 200, *, start_offset: int = 0) -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES, start_offset=start_offset)
    for number in range(count):
        log.put(body=bytes([number % 251]) * (body_bytes + number % 7), queue_id=number % 3)
    return log


def files_of(root: Path) -> tuple[DataFile, ...]:
    return open_store_directory(root).commit_log


def scanned(root: Path) -> tuple[list[int], list[LogDamage]]:
    offsets: list[int] = []
    damages: list[LogDamage] = []
    for item in scan_log(files_of(root)):
        if isinstance(item, LogDamage):
            damages.append(item)
        else:
            offsets += (item.base_offset + item.columns.start).tolist()
    return offsets, damages


@pytest.fixture(params=[512, 4 << 20])
def window_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Once with windows that hold a record or two, once with everything in one."""
    size: int = request.param
    monkeypatch.setattr(log_scan, "READ_BYTES", size)
    monkeypatch.setattr(log_scan, "_SEARCH_BYTES", max(size, 600))
    monkeypatch.setattr(log_scan, "_WINDOW_BYTES_MIN", min(size, 256))
    return size


@pytest.mark.usefixtures("window_bytes")
def test_every_record_of_every_file_is_met_in_order(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    assert scanned(root) == ([m.physical_offset for m in log.messages], [])


@pytest.mark.usefixtures("window_bytes")
def test_a_record_longer_than_a_window_is_held_whole(tmp_path: Path) -> None:
    log = a_log(3)
    log.put(body=b"x" * 6000)
    log.put(body=b"y")
    assert scanned(log.write(tmp_path)) == ([m.physical_offset for m in log.messages], [])


@pytest.mark.usefixtures("window_bytes")
def test_damage_in_the_middle_costs_the_records_that_are_damaged_and_no_more(
    tmp_path: Path,
) -> None:
    log = a_log()
    root = log.write(tmp_path)
    hurt = log.messages[7]
    overwrite(root / "commitlog" / f"{0:020d}", hurt.physical_offset + 4, b"\0\0\0\1")
    offsets, (damage,) = scanned(root)
    assert offsets == [m.physical_offset for m in log.messages if m is not hurt]
    assert (damage.kind, damage.offset) == ("corrupt", hurt.physical_offset)
    assert "magic 0x00000001" in str(damage)


@pytest.mark.usefixtures("window_bytes")
@pytest.mark.parametrize("change", [-1, 1, 200, 1000])
def test_a_wrong_length_does_not_hide_the_records_behind_it(tmp_path: Path, change: int) -> None:
    log = a_log()
    root = log.write(tmp_path)
    hurt = log.messages[7]
    size = (hurt.store_size + change).to_bytes(4, "big")
    overwrite(root / "commitlog" / f"{0:020d}", hurt.physical_offset, size)
    offsets, damages = scanned(root)
    assert offsets == [m.physical_offset for m in log.messages if m is not hurt]
    assert [damage.offset for damage in damages] == [hurt.physical_offset]


@pytest.mark.usefixtures("window_bytes")
def test_a_record_that_lies_in_the_wrong_place_is_none(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    for hurt in log.messages[7:9]:
        overwrite(root / "commitlog" / f"{0:020d}", hurt.physical_offset + 28, b"\0" * 7 + b"\1")
    offsets, damages = scanned(root)
    assert len(offsets) == len(log.messages) - 2
    assert {damage.kind for damage in damages} == {"corrupt"}
    assert damages[0].offset == log.messages[7].physical_offset


@pytest.mark.usefixtures("window_bytes")
def test_a_cut_last_record_is_torn(tmp_path: Path) -> None:
    log = a_log(5)
    last = log.messages[-1]
    del log.log[last.physical_offset + 60 :]
    offsets, (damage,) = scanned(log.write(tmp_path))
    assert len(offsets) == 4
    assert (damage.kind, damage.offset) == ("torn", last.physical_offset)
    assert "no record follows" in str(damage)


@pytest.mark.usefixtures("window_bytes")
def test_zeros_between_records_are_damage_and_at_the_end_they_are_none(tmp_path: Path) -> None:
    log = a_log(20)
    root = log.write(tmp_path)
    hurt = log.messages[3]
    overwrite(root / "commitlog" / f"{0:020d}", hurt.physical_offset, bytes(hurt.store_size))
    offsets, (damage,) = scanned(root)
    assert len(offsets) == 19
    assert (damage.kind, damage.offset) == ("corrupt", hurt.physical_offset)


def test_a_blank_of_the_wrong_size_is_damage(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    end = next(m for m in log.messages if m.physical_offset >= FILE_BYTES)
    before = log.messages[log.messages.index(end) - 1]
    blank = before.physical_offset + before.store_size
    overwrite(root / "commitlog" / f"{0:020d}", blank, (99).to_bytes(4, "big"))
    _, (damage,) = scanned(root)
    assert (damage.kind, damage.offset) == ("corrupt", blank)


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    root = a_log().write(tmp_path)
    (root / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    _, (damage,) = scanned(root)
    assert (damage.kind, damage.offset) == ("corrupt", FILE_BYTES)


def test_an_empty_file_at_the_end_is_none(tmp_path: Path) -> None:
    log = a_log(5)
    root = log.write(tmp_path)
    (root / "commitlog" / f"{FILE_BYTES:020d}").touch()
    assert scanned(root)[1] == []
    (root / "commitlog" / f"{FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    assert scanned(root)[1] == []


@pytest.mark.usefixtures("window_bytes")
def test_a_piece_owns_the_records_that_start_in_it(tmp_path: Path) -> None:
    log = a_log(20)
    (file,) = files_of(log.write(tmp_path))
    starts = [m.physical_offset for m in log.messages]
    with open_file(file.path) as descriptor:
        for stop in (starts[5], starts[5] + 1, starts[6] - 1):
            scan = FileScan(descriptor, file, starts[2], stop)
            found = [at for w in scan.windows() for at in (w.base_offset + w.columns.start)]
            expected = [at for at in starts if starts[2] <= at < stop]
            assert found == expected
            assert scan.end == starts[starts.index(expected[-1]) + 1]


def test_a_range_leaves_out_whole_files_and_later_records(tmp_path: Path) -> None:
    log = a_log()
    files = files_of(log.write(tmp_path))
    end = log.messages[50].physical_offset
    windows = [w for w in scan_log(files, FILE_BYTES, end) if isinstance(w, LogWindow)]
    offsets = np.concatenate([w.base_offset + w.columns.start for w in windows]).tolist()
    assert offsets == [
        m.physical_offset for m in log.messages if FILE_BYTES <= m.physical_offset < end
    ]


def test_the_extent_of_a_log_ends_behind_its_last_record(tmp_path: Path) -> None:
    log = a_log(start_offset=FILE_BYTES * 5)
    root = log.write(tmp_path)
    extent = log_extent(files_of(root))
    last = log.messages[-1]
    assert (extent.start, extent.end) == (FILE_BYTES * 5, log.end_offset)
    assert extent.last_record_offset == last.physical_offset
    assert extent.last_store_timestamp_ms == last.store_timestamp_ms
    assert log_extent(()).end == 0


def test_a_log_that_ends_with_a_blank_ends_behind_it(tmp_path: Path) -> None:
    log = a_log(5)
    log.roll()
    assert log_extent(files_of(log.write(tmp_path))).end == FILE_BYTES


def test_one_record_is_read_by_its_place(tmp_path: Path) -> None:
    log = a_log(5)
    (file,) = files_of(log.write(tmp_path))
    wanted = log.messages[3]
    with open_file(file.path) as descriptor:
        window = record_at(descriptor, file, wanted.physical_offset)
        assert window is not None
        assert decode_message(window.data)[0] == wanted
        assert record_at(descriptor, file, wanted.physical_offset + 1) is None
        assert next_record(descriptor, file, wanted.physical_offset + 1) == (
            log.messages[4].physical_offset
        )
        assert next_record(descriptor, file, log.messages[4].physical_offset + 1) == FILE_BYTES
        assert not adds_up(descriptor, file, FILE_BYTES - 20)


def test_a_record_that_claims_to_be_huge_is_not_held(tmp_path: Path) -> None:
    """Its lengths are looked at in place before any memory is taken for it."""
    log = a_log(1)
    file = log.write(tmp_path) / "commitlog" / f"{0:020d}"
    overwrite(file, 0, (100 << 20).to_bytes(4, "big"))
    with file.open("r+b") as sparse:
        sparse.truncate(1 << 40)
    _, (damage,) = scanned(tmp_path)
    assert damage.kind == "torn"


def test_a_file_that_shrinks_while_it_is_read_is_torn_there(tmp_path: Path) -> None:
    log = a_log(20)
    root = log.write(tmp_path)
    (file,) = files_of(root)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as cut:
        cut.truncate(1000)
    with open_file(file.path) as descriptor:
        windows = list(FileScan(descriptor, file).windows())
    (found,) = windows[-1].breaks
    assert isinstance(found, LogBreak)
    assert found.stop is ScanStop.TORN


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), window=st.sampled_from([300, 1000, 1 << 20]))
def test_whatever_is_done_to_a_log_only_sound_records_come_out(
    tmp_path: Path, seed: int, window: int
) -> None:
    random_ = random.Random(seed)
    log = a_log(40, 60)
    root = tmp_path / "mutated"
    shutil.rmtree(root, ignore_errors=True)
    log.write(root)
    for path in sorted((root / "commitlog").iterdir()):
        data = bytearray(path.read_bytes())
        for _ in range(random_.randrange(6)):
            at, size = random_.randrange(len(data)), random_.randrange(1, 90)
            source = random_.randrange(len(data))
            noise = random_.choice(
                [random_.randbytes(size), bytes(size), data[source : source + size]]
            )
            data[at : at + len(noise)] = noise
        path.write_bytes(data[: FILE_BYTES if random_.random() < 0.9 else 5000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_scan, "READ_BYTES", window)
        patch.setattr(log_scan, "_WINDOW_BYTES_MIN", 200)
        last = -1
        for item in scan_log(files_of(root)):
            if isinstance(item, LogDamage):
                continue
            for start in item.columns.start.tolist():
                message, _ = decode_message(item.data, start)
                assert message.physical_offset == item.base_offset + start > last
                last = message.physical_offset
