from pathlib import Path

import pytest

from tandem.spark.audit import log_compare
from tandem.spark.audit.log_compare import (
    first_difference,
    known_confirmed,
    logs_differ_at,
    open_extent,
    pieces,
)
from tests.support.fenced_store import note_confirmed
from tests.support.log_builder import LogBuilder

FILE_BYTES = 65_536


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_compare, "PIECE_BYTES", 30_000)
    monkeypatch.setattr(log_compare, "_CHUNK_BYTES", 7_000)


def a_log() -> LogBuilder:
    """Four files."""
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(500):
        log.put(body=b"%d" % number * 120)
    return log


def difference(master: Path, slave: Path, since: int = 0) -> int | None:
    ours, theirs = open_extent(str(master)), open_extent(str(slave))
    found = [first_difference(piece) for piece in pieces(ours, theirs)]
    return logs_differ_at(ours, theirs, [at for at in found if at is not None], since)


def test_equal_logs_do_not_differ(tmp_path: Path) -> None:
    log = a_log()
    master, slave = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    (slave / "commitlog" / f"{10 * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    assert difference(master, slave) is None
    assert open_extent(str(master)).end == log.end_offset


@pytest.mark.parametrize("at", [0, 6_999, 7_000, 30_000, 65_535, 65_536, 90_000])
def test_the_first_different_byte_is_found(tmp_path: Path, at: int) -> None:
    log = a_log()
    master = log.write(tmp_path / "a")
    slave = log.write(tmp_path / "b")
    for place in (at, at + 1, at + 20_000):
        file = slave / "commitlog" / f"{place // FILE_BYTES * FILE_BYTES:020d}"
        data = bytearray(file.read_bytes())
        data[place % FILE_BYTES] ^= 0x10
        file.write_bytes(data)
    assert difference(master, slave) == at
    assert difference(slave, master) == at


def test_a_log_that_ends_early_differs_there(tmp_path: Path) -> None:
    log = a_log()
    master = log.write(tmp_path / "a")
    last = log.messages[-1].physical_offset
    del log.log[last:]
    slave = log.write(tmp_path / "b")
    assert difference(master, slave) == difference(slave, master) == last


def test_no_log_at_all_differs_at_the_start(tmp_path: Path) -> None:
    assert difference(a_log().write(tmp_path / "a"), tmp_path / "missing") == 0
    assert difference(tmp_path / "missing", tmp_path / "missing") is None


def test_a_log_that_starts_late_is_not_the_same(tmp_path: Path) -> None:
    log = a_log()
    master, slave = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    (slave / "commitlog" / f"{0:020d}").unlink()
    assert difference(master, slave) == 0


def test_what_came_before_may_start_anywhere_and_has_to_be_the_same(tmp_path: Path) -> None:
    log = a_log()
    master, slave = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    (slave / "commitlog" / f"{0:020d}").unlink()
    assert difference(master, slave, since=FILE_BYTES) is None
    assert difference(slave, master, since=FILE_BYTES) is None
    assert difference(master, slave, since=FILE_BYTES - 1) == 0, "a part of that is not there"

    second = slave / "commitlog" / f"{FILE_BYTES:020d}"
    second.write_bytes(b"x" + second.read_bytes()[1:])
    assert difference(master, slave, since=2 * FILE_BYTES) == FILE_BYTES
    assert difference(master, tmp_path / "missing", since=FILE_BYTES) == 0


def test_a_missing_file_in_the_middle_is_a_difference(tmp_path: Path) -> None:
    log = a_log()
    master, slave = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    (slave / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    assert difference(master, slave) == FILE_BYTES
    (master / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    assert difference(master, slave) == FILE_BYTES


def test_a_torn_tail_counts_as_bytes(tmp_path: Path) -> None:
    log = a_log()
    del log.log[log.messages[-1].physical_offset + 100 :]
    master = log.write(tmp_path / "a")
    assert difference(master, log.write(tmp_path / "b")) is None
    log.log[-1] ^= 1
    slave = log.write(tmp_path / "c")
    assert difference(master, slave) == log.end_offset - 1


def test_what_any_node_knows_to_be_confirmed_counts(tmp_path: Path) -> None:
    stores = {name: tmp_path / name for name in "abc"}
    for name in "ab":
        a_log().write(stores[name])
    assert known_confirmed(stores) is None
    note_confirmed(stores["a"], 500)
    note_confirmed(stores["b"], 700)
    assert known_confirmed(stores) == 700
