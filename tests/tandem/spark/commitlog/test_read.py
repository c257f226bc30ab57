import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from tandem.spark.commitlog import log_files
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split
from tandem.spark.errors import LogDamagedError
from tandem.spark.record_batches import COLUMNS
from tests.support.log_builder import BORN_TIMESTAMP_MS, LogBuilder, blank

NAMES = tuple(COLUMNS)
FILE_BYTES = 65_536
SPLIT_BYTES = 16_384


@pytest.fixture(autouse=True)
def _no_second_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_LOOKS_MAX", 0)


def a_log(count: int = 600, body_bytes: int = 200) -> LogBuilder:
    """Three files, the last one a quarter full."""
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(count):
        log.put(
            topic=f"Topic{number % 4}",
            body=bytes([number % 251]) * body_bytes,
            queue_id=number % 3,
            keys=f"k{number}",
            tags=("new", "", "newer")[number % 3],
        )
    return log


def read(root: Path, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    options.setdefault("split_bytes", SPLIT_BYTES)
    chosen = ScanOptions(paths=(str(root),), **options)
    rows: list[dict[str, Any]] = []
    for split in plan_splits(chosen):
        travelled = pickle.loads(pickle.dumps(split))
        for batch in read_split(travelled, chosen, NAMES):
            rows += batch.to_pylist(maps_as_pydicts="strict")
    return rows


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in rows]


def errors(rows: list[dict[str, Any]]) -> dict[int, str]:
    return {row["physicalOffset"]: row["error"] for row in rows if row["error"] is not None}


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("split_bytes", [4096, 10_000, 1 << 26])
def test_every_record_is_read_once_and_in_order(
    tmp_path: Path, split_bytes: int, *, with_queues: bool
) -> None:
    log = a_log()
    root = log.write(tmp_path, consume_queues=with_queues)
    rows = read(root, split_bytes=split_bytes)
    assert offsets(rows) == [message.physical_offset for message in log.messages]
    assert [row["keys"] for row in rows] == [message.keys for message in log.messages]
    assert all(row["crcOk"] and row["store"] == str(root) for row in rows)


@pytest.mark.parametrize(
    ("options", "is_wanted"),
    [
        ({"topics": frozenset({"Topic1", "none"})}, lambda m: m.topic == "Topic1"),
        ({"topic_pattern": "Topic[12]"}, lambda m: m.topic in ("Topic1", "Topic2")),
        ({"topic_pattern": "Topic"}, lambda _: False),
        ({"queues": frozenset({0, 2})}, lambda m: m.queue_id != 1),
        ({"tags": frozenset({"new"})}, lambda m: m.tags == "new"),
        (
            {"tags": frozenset({"new", "newer"}), "topics": frozenset({"Topic1"})},
            lambda m: m.tags and m.topic == "Topic1",
        ),
        (
            {"start_ms": BORN_TIMESTAMP_MS + 50, "end_ms": BORN_TIMESTAMP_MS + 60},
            lambda m: BORN_TIMESTAMP_MS + 50 <= m.store_timestamp_ms < BORN_TIMESTAMP_MS + 60,
        ),
        (
            {"topics": frozenset({"Topic0"}), "queues": frozenset({1})},
            lambda m: m.topic == "Topic0" and m.queue_id == 1,
        ),
    ],
)
def test_what_is_asked_for_is_selected(
    tmp_path: Path,
    options: dict[str, Any],
    is_wanted: Any,  # noqa: ANN401
) -> None:
    log = a_log(200)
    rows = read(log.write(tmp_path), **options)
    wanted = [message.physical_offset for message in log.messages if is_wanted(message)]
    assert offsets(rows) == wanted


def test_several_stores_are_told_apart(tmp_path: Path) -> None:
    for name in "ab":
        a_log(3).write(tmp_path / name)
    options = ScanOptions(paths=(str(tmp_path / "a"), str(tmp_path / "b")))
    splits = plan_splits(options)
    stores = [split.store for split in splits]
    assert stores == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_a_log_that_starts_late_is_read_from_there(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES, start_offset=3 * FILE_BYTES)
    first = log.put()
    assert offsets(read(log.write(tmp_path))) == [first.physical_offset] == [3 * FILE_BYTES]


def test_a_store_without_a_record_is_empty_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert read(tmp_path) == []


def test_a_record_larger_than_a_window_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "WINDOW_BYTES", 4096)
    log = LogBuilder(file_bytes=FILE_BYTES)
    for size in (10, 30_000, 10, 20_000, 10):
        log.put(body=b"b" * size)
    assert [len(row["body"]) for row in read(log.write(tmp_path))] == [10, 30_000, 10, 20_000, 10]


def test_a_torn_last_record_fails_with_file_and_offset(tmp_path: Path) -> None:
    log = a_log(100)
    last = log.messages[-1]
    del log.log[last.physical_offset + 150 :]
    root = log.write(tmp_path)
    with pytest.raises(LogDamagedError) as caught:
        read(root)
    assert caught.value.kind == "torn"
    assert caught.value.physical_offset == last.physical_offset
    assert caught.value.file == str(root / "commitlog" / f"{0:020d}")
    assert str(last.physical_offset) in str(caught.value)


@pytest.mark.parametrize("left", [1, 3, 7, 39, 60, 87, 100, 250])
def test_a_torn_last_record_becomes_a_row_however_much_is_left_of_it(
    tmp_path: Path, left: int
) -> None:
    log = a_log(100)
    last = log.messages[-1]
    log.log[last.physical_offset + left] = 0xFF  # so that something is left, even of zeros
    del log.log[last.physical_offset + left + 1 :]
    rows = read(log.write(tmp_path), on_error="row")
    assert len(rows) == 100
    assert list(errors(rows)) == [last.physical_offset]
    assert errors(rows)[last.physical_offset].startswith("torn: ")


def test_a_last_record_without_its_body_is_torn(tmp_path: Path) -> None:
    """The header reached the disk, the body did not: all lengths fit, only the CRC does not."""
    log = a_log(100)
    last = log.messages[-1]
    log.log[last.physical_offset + 88 : last.physical_offset + 288] = bytes(200)
    rows = read(log.write(tmp_path), on_error="row")
    assert errors(rows)[last.physical_offset].startswith("torn: body CRC")
    assert rows[-1]["crcOk"] is False
    assert rows[-1]["keys"] == "k99"


def test_zeros_with_a_record_behind_them_are_corrupt(tmp_path: Path) -> None:
    log = a_log(100)
    lost = log.messages[50:52]
    start, end = lost[0].physical_offset, lost[1].physical_offset + lost[1].store_size
    log.log[start:end] = bytes(end - start)
    rows = read(log.write(tmp_path, consume_queues=False), on_error="row")
    assert len(rows) == 99
    assert list(errors(rows)) == [start]
    assert errors(rows)[start].startswith("corrupt: zeros")


@pytest.mark.slow
@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("at", [4, 8, 30, 84, 288])
def test_each_damaged_record_is_one_row_and_the_others_are_read(
    tmp_path: Path, at: int, *, with_queues: bool
) -> None:
    log = a_log()
    damaged = [log.messages[number] for number in (0, 77, 78, 300, 599)]
    for message in damaged:
        log.log[message.physical_offset + at] ^= 0x40
    root = log.write(tmp_path, consume_queues=with_queues)
    found = errors(read(root, on_error="row"))
    rows = read(root, on_error="row")
    if at == 8:
        assert offsets(rows) == [message.physical_offset for message in log.messages]
        assert list(found) == [message.physical_offset for message in damaged]
    else:
        # Two damaged neighbours are one hole: nothing says where the second one starts.
        expected = [message.physical_offset for message in damaged if message is not damaged[2]]
        assert list(found) == expected
        sound = [m.physical_offset for m in log.messages if m not in damaged]
        assert [row["physicalOffset"] for row in rows if row["error"] is None] == sound
    kinds = [error.split(":")[0] for error in found.values()]
    assert kinds == ["corrupt"] * (len(kinds) - 1) + ["torn"]
    with pytest.raises(LogDamagedError) as caught:
        read(root)
    assert caught.value.kind == "corrupt"


def test_damage_is_reported_whatever_is_selected(tmp_path: Path) -> None:
    log = a_log(100)
    log.log[log.messages[10].physical_offset + 4] ^= 1
    root = log.write(tmp_path)
    rows = read(root, on_error="row", topics=frozenset({"no such topic"}))
    assert list(errors(rows)) == [log.messages[10].physical_offset]
    with pytest.raises(LogDamagedError):
        read(root, topics=frozenset({"no such topic"}))


def test_only_bodies_of_selected_records_are_checked(tmp_path: Path) -> None:
    log = a_log(100)
    log.log[log.messages[10].physical_offset + 100] ^= 1
    root = log.write(tmp_path)
    assert len(read(root, topics=frozenset({"Topic1"}))) == 25
    assert len(read(root, check_crc=False)) == 100
    with pytest.raises(LogDamagedError) as caught:
        read(root, topics=frozenset({"Topic2"}))
    assert caught.value.physical_offset == log.messages[10].physical_offset


def test_a_missing_file_is_an_error_where_it_should_begin(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    (root / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    rows = read(root, on_error="row")
    assert list(errors(rows)) == [FILE_BYTES]
    assert "missing" in errors(rows)[FILE_BYTES]
    with pytest.raises(LogDamagedError) as caught:
        read(root)
    assert caught.value.physical_offset == FILE_BYTES


def test_a_full_file_that_ends_in_zeros_is_corrupt(tmp_path: Path) -> None:
    log = a_log()
    blank_at = max(
        m.physical_offset + m.store_size for m in log.messages if m.physical_offset < FILE_BYTES
    )
    log.log[blank_at:FILE_BYTES] = bytes(FILE_BYTES - blank_at)
    rows = read(log.write(tmp_path), on_error="row")
    assert list(errors(rows)) == [blank_at]
    assert errors(rows)[blank_at].startswith("corrupt: zeros")


def test_records_past_a_blank_of_the_wrong_size_in_the_last_file_are_read(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    for _ in range(9):
        log.put(topic="orders")
    changed = log.messages[4]
    log.log[changed.physical_offset + 4 : changed.physical_offset + 8] = blank(8)[4:]
    root = log.write(tmp_path)
    shutil.rmtree(root / "consumequeue")  # which know of records past it
    rows = read(root, on_error="row")
    assert list(errors(rows)) == [changed.physical_offset]
    assert errors(rows)[changed.physical_offset].startswith("corrupt: blank record of")
    assert len(rows) == 9


def test_a_blank_record_of_the_wrong_size_is_corrupt(tmp_path: Path) -> None:
    log = a_log()
    blank_at = max(
        m.physical_offset + m.store_size for m in log.messages if m.physical_offset < FILE_BYTES
    )
    log.log[blank_at + 3] ^= 1
    rows = read(log.write(tmp_path), on_error="row")
    assert list(errors(rows)) == [blank_at]
    assert "blank record of" in errors(rows)[blank_at]


def test_a_record_forged_inside_a_body_is_reported_when_a_cut_falls_for_it(
    tmp_path: Path,
) -> None:
    """Without consume queues a cut may land in a body that holds bytes made for this place."""
    log = LogBuilder(file_bytes=FILE_BYTES)
    while log.end_offset < SPLIT_BYTES - 2000:
        log.put(body=bytes(200))
    filler = SPLIT_BYTES - log.end_offset - 88
    forged = LogBuilder(start_offset=SPLIT_BYTES)
    forged.put(body=b"forged")
    cheat = log.put(body=bytes(filler) + bytes(forged.log))
    while log.end_offset < 2 * SPLIT_BYTES + 4000:
        log.put(body=bytes(200))
    honest = read(log.write(tmp_path / "with"))
    assert offsets(honest) == [message.physical_offset for message in log.messages]
    root = log.write(tmp_path / "without", consume_queues=False)
    found = errors(read(root, on_error="row"))
    assert cheat.physical_offset in found
    assert f"before {SPLIT_BYTES}, where another begins" in found[cheat.physical_offset]
    assert len(read(root, split_bytes=1 << 26)) == len(log.messages)


def test_what_is_written_after_planning_is_not_in_the_snapshot(tmp_path: Path) -> None:
    log = a_log(100)
    root = log.write(tmp_path)
    options = ScanOptions(paths=(str(root),), split_bytes=SPLIT_BYTES)
    splits = plan_splits(options)
    for _ in range(50):
        log.put(body=bytes(200))
    log.write(root)
    rows = sum(batch.num_rows for s in splits for batch in read_split(s, options, NAMES))
    assert rows == 100
    assert len(read(root)) == 150


def test_a_file_cut_short_after_planning_is_an_error(tmp_path: Path) -> None:
    log = a_log(100)
    root = log.write(tmp_path)
    options = ScanOptions(paths=(str(root),))
    (split,) = plan_splits(options)
    with Path(split.file.path).open("r+b") as file:
        file.truncate(log.messages[50].physical_offset)
    with pytest.raises(LogDamagedError) as caught:
        list(read_split(split, options, NAMES))
    assert caught.value.physical_offset == log.messages[50].physical_offset
    with Path(split.file.path).open("r+b") as file:
        file.truncate(log.messages[50].physical_offset - 10)
    with pytest.raises(LogDamagedError) as caught:
        list(read_split(split, options, NAMES))
    assert caught.value.physical_offset == log.messages[49].physical_offset


def test_an_error_survives_the_way_from_a_worker() -> None:
    error = LogDamagedError("commitlog/0", 4096, "torn", "half a record")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.physical_offset, copy.kind, str(copy)) == (4096, "torn", str(error))
