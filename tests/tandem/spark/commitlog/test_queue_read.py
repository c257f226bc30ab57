"""Reading through consume queues gives what a scan gives, whatever is done to queues and log."""

import pickle
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tandem.spark.commitlog import log_files, queue_read
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import open_logs
from tandem.spark.commitlog.queue_plan import plan_store
from tandem.spark.commitlog.queue_read import read_queue_split
from tandem.spark.commitlog.read import read_split
from tandem.spark.commitlog.split import QueueSplit
from tandem.spark.errors import LogDamagedError
from tandem.spark.record_batches import COLUMNS
from tandem.wire.message import Host, MessageExt
from tests.support.log_builder import BORN_TIMESTAMP_MS, V6, LogBuilder

NAMES = tuple(COLUMNS)
PREPARED = 4
COMPRESSED = 1


@pytest.fixture(autouse=True)
def _no_second_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_LOOKS_MAX", 0)
    monkeypatch.setattr(queue_read, "WINDOW_BYTES", 3000)


def a_log(seed: int, count: int = 700, start_offset: int = 0) -> LogBuilder:
    chance = random.Random(seed)
    log = LogBuilder(file_bytes=16_384, start_offset=start_offset)
    for number in range(count):
        kind = chance.choice([0] * 18 + [PREPARED, COMPRESSED])
        body = chance.randbytes(chance.choice([0, 1, 50, 200, 900]))
        long_name = "L" * 130 if chance.random() < 0.02 else f"Topic{chance.randrange(5)}"
        log.put(
            topic=long_name,
            body=zlib.compress(body) if kind == COMPRESSED else body,
            sys_flag=kind,
            queue_id=chance.randrange(3),
            born_host=V6 if chance.random() < 0.1 else Host("10.1.2.3", 1),
            keys=f"k{number}",
            tags=("", "new", "paid")[number % 3],
        )
    return log


def is_shown(message: MessageExt) -> bool:
    """Whether a consumer can get it."""
    return message.sys_flag != PREPARED


def read(root: Path, **options: Any) -> tuple[list[dict[str, Any]], int]:  # noqa: ANN401
    """The rows, and how many splits went through queues."""
    options.setdefault("split_bytes", 6000)
    options.setdefault("consume_queues", "always")
    chosen = ScanOptions(paths=(str(root),), **options)
    rows: list[dict[str, Any]] = []
    through_queues = 0
    for log in open_logs(chosen):
        for split in plan_store(log, chosen):
            travelled = pickle.loads(pickle.dumps(split))
            if isinstance(travelled, QueueSplit):
                through_queues += 1
                batches = read_queue_split(travelled, chosen, NAMES)
            else:
                batches = read_split(travelled, chosen, NAMES)
            for batch in batches:
                rows += as_numbers(batch).to_pylist(maps_as_pydicts="strict")
    return rows, through_queues


def as_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With times as numbers: a damaged one may be past the year 9999."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in rows]


SELECTIONS: list[tuple[dict[str, Any], Callable[[MessageExt], bool]]] = [
    ({"topics": frozenset({"Topic1"})}, lambda m: m.topic == "Topic1"),
    ({"topics": frozenset({"L" * 130})}, lambda m: m.topic == "L" * 130),
    ({"topic_pattern": "Topic[03]"}, lambda m: m.topic in ("Topic0", "Topic3")),
    (
        {"topics": frozenset({"Topic1", "Topic2"}), "queues": frozenset({2})},
        lambda m: m.topic in ("Topic1", "Topic2") and m.queue_id == 2,
    ),
    ({"queues": frozenset({1})}, lambda m: m.queue_id == 1),
    (
        {
            "topics": frozenset({"Topic4"}),
            "start_ms": BORN_TIMESTAMP_MS + 200,
            "end_ms": BORN_TIMESTAMP_MS + 500,
            "margin_ms": 0,
        },
        lambda m: (
            m.topic == "Topic4"
            and BORN_TIMESTAMP_MS + 200 <= m.store_timestamp_ms < BORN_TIMESTAMP_MS + 500
        ),
    ),
    (
        {"topics": frozenset({"Topic1", "Topic3"}), "tags": frozenset({"paid", "none"})},
        lambda m: m.topic in ("Topic1", "Topic3") and m.tags == "paid",
    ),
]


@pytest.mark.parametrize("selection", range(len(SELECTIONS)))
@pytest.mark.parametrize("start_offset", [0, 5 * 16_384])
@pytest.mark.thorough
def test_queues_give_the_rows_of_a_scan(tmp_path: Path, selection: int, start_offset: int) -> None:
    options, is_wanted = SELECTIONS[selection]
    log = a_log(selection, start_offset=start_offset)
    root = log.write(tmp_path, queue_file_bytes=740)
    rows, through_queues = read(root, **options)
    assert through_queues > 0
    assert offsets(rows) == [
        m.physical_offset for m in log.messages if is_wanted(m) and is_shown(m)
    ]
    assert rows == read(root, consume_queues="never", **options)[0]
    for others in ({"decompress": True}, {"with_system_topics": True}, {"check_crc": False}):
        through = read(root, **options, **others)[0]
        assert through == read(root, consume_queues="never", **options, **others)[0]
        assert through != rows or selection != len(SELECTIONS) - 3


def damage_queues(root: Path, chance: random.Random) -> None:
    """Do one of the things that happen to queue files."""
    files = sorted((root / "consumequeue").glob("*/*/*"))
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    what = chance.randrange(8)
    at = chance.randrange(len(data))
    if what == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif what == 1:
        units = len(data.rstrip(b"\0")) // 20
        if units < 2:
            return
        at = chance.randrange(units - 1) * 20  # not the last one: the queue would seem to lag
        data[at - at % 20 : at - at % 20 + 20] = bytes(20)
    elif what == 2:
        data[at : at + 200] = chance.randbytes(len(data[at : at + 200]))
    elif what == 3:
        del data[at:]
    elif what == 4:
        first, second = at - at % 20, chance.randrange(len(data) // 20) * 20
        data[first : first + 20], data[second : second + 20] = (
            data[second : second + 20],
            data[first : first + 20],
        )
    elif what == 5:
        data = data[20:] + bytes(20)
    elif what == 6:
        file.unlink()
        return
    else:
        for early in sorted(file.parent.iterdir())[: chance.randrange(1, 3)]:
            early.unlink()
        return
    file.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_damaged_queues_change_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = a_log(seed, 300)
    root = log.write(tmp_path, queue_file_bytes=400)
    options, is_wanted = SELECTIONS[seed % len(SELECTIONS)]
    expected = [m.physical_offset for m in log.messages if is_wanted(m) and is_shown(m)]
    for _ in range(3):
        damage_queues(root, chance)
        assert offsets(read(root, **options)[0]) == expected


@pytest.mark.parametrize("lag", [1, 3, 40, 299, 300])
def test_what_no_queue_names_yet_is_scanned(tmp_path: Path, lag: int) -> None:
    log = a_log(lag, 300)
    behind = LogBuilder(file_bytes=log.file_bytes)
    behind.messages = log.messages[: 300 - lag]
    root = log.write(tmp_path, consume_queues=False)
    behind._write_consume_queues(root / "consumequeue", 400)
    expected = [m.physical_offset for m in log.messages if m.topic == "Topic1" and is_shown(m)]
    assert offsets(read(root, topics=frozenset({"Topic1"}))[0]) == expected


@pytest.mark.parametrize("seed", range(8))
def test_damage_of_the_log_hides_no_sound_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = a_log(seed, 300)
    for _ in range(chance.randrange(1, 6)):
        message = chance.choice(log.messages)
        at = message.physical_offset + chance.randrange(message.store_size)
        log.log[at] ^= 1 << chance.randrange(8)
    root = log.write(tmp_path, queue_file_bytes=400)
    options, _ = SELECTIONS[seed % len(SELECTIONS)]
    scanned, _ = read(root, consume_queues="never", on_error="row", **options)
    rows, _ = read(root, on_error="row", **options)
    assert [row for row in rows if row["topic"]] == [row for row in scanned if row["topic"]]
    assert set(offsets(rows)) <= set(offsets(scanned))


@pytest.mark.slow
def test_a_wrong_body_of_a_selected_record_is_reported(tmp_path: Path) -> None:
    log = a_log(1)
    wanted = [m for m in log.messages if m.topic == "Topic1" and m.body and is_shown(m)]
    log.log[wanted[20].physical_offset + 88] ^= 1
    root = log.write(tmp_path)
    topic = frozenset({"Topic1"})
    with pytest.raises(LogDamagedError) as caught:
        read(root, topics=topic)
    assert caught.value.kind == "corrupt"
    assert caught.value.physical_offset == wanted[20].physical_offset
    rows, through_queues = read(root, topics=topic, on_error="row")
    assert rows == read(root, topics=topic, on_error="row", consume_queues="never")[0]
    assert through_queues
    assert len(read(root, topics=frozenset({"Topic2"}))[0]) > 50


def test_a_queue_file_deleted_after_planning_is_scanned_for(tmp_path: Path) -> None:
    log = a_log(1)
    root = log.write(tmp_path)
    options = ScanOptions(paths=(str(root),), topics=frozenset({"Topic1"}), consume_queues="always")
    splits = plan_store(open_logs(options)[0], options)
    for path in (root / "consumequeue" / "Topic1").glob("*/*"):
        path.unlink()
    found = [
        offset
        for split in splits
        if isinstance(split, QueueSplit)
        for batch in read_queue_split(split, options, ("physicalOffset",))
        for offset in batch.column(0).to_pylist()
    ]
    assert found == [m.physical_offset for m in log.messages if m.topic == "Topic1" and is_shown(m)]


def test_a_unit_of_another_queue_offset_is_not_believed(tmp_path: Path) -> None:
    """A range that lacks its first unit, so that each names the record after its own."""
    log = a_log(1)
    options = ScanOptions(
        paths=(str(log.write(tmp_path)),), topics=frozenset({"Topic1"}), consume_queues="always"
    )
    splits = plan_store(open_logs(options)[0], options)
    (split,) = [each for each in splits if isinstance(each, QueueSplit)]
    piece = split.queues[0].pieces[0]
    shifted = msgspec.structs.replace(piece, position=piece.position + 20, count=piece.count - 1)
    queue = msgspec.structs.replace(split.queues[0], pieces=(shifted,))
    wrong = msgspec.structs.replace(split, queues=(queue, *split.queues[1:]))
    found = [
        offset
        for batch in read_queue_split(wrong, options, ("physicalOffset",))
        for offset in batch.column(0).to_pylist()
    ]
    wanted = [m for m in log.messages if m.topic == "Topic1" and is_shown(m)]
    assert found == [m.physical_offset for m in wanted]


def one_queue(root: Path, file_bytes: int = 3000) -> tuple[LogBuilder, list[Path], list[int]]:
    """A store, the files of a queue in it, and where its records are: in many small splits."""
    log = LogBuilder(file_bytes=4096)
    for number in range(400):
        log.put(topic=f"Topic{number % 3}", body=bytes(100))
    log.write(root, queue_file_bytes=file_bytes)
    files = sorted((root / "consumequeue" / "Topic1" / "0").iterdir())
    return log, files, [m.physical_offset for m in log.messages if m.topic == "Topic1"]


@pytest.mark.slow
def test_a_lost_unit_loses_no_row_wherever_it_is(tmp_path: Path) -> None:
    _, files, expected = one_queue(tmp_path)
    whole = files[0].read_bytes()
    for at in (360, 740, 1120, 1500):  # where the bisecting looks first
        files[0].write_bytes(whole[:at] + bytes(20) + whole[at + 20 :])
        rows, _ = read(tmp_path, topics=frozenset({"Topic1"}), split_bytes=4096)
        assert offsets(rows) == expected


def test_what_precedes_the_first_unit_left_is_scanned(tmp_path: Path) -> None:
    _, files, expected = one_queue(tmp_path, file_bytes=360)
    files[0].unlink()
    rows, through_queues = read(tmp_path, topics=frozenset({"Topic1"}), split_bytes=4096)
    assert through_queues
    assert offsets(rows) == expected
