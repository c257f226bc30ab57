"""Rows by columns and rows one by one are the same bytes."""

import random
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from tandem.client.cluster_access import ClusterAccess
from tandem.client.identity import UniqueKeys
from tandem.client.sending import Sendings, SendSettings
from tandem.spark.sink import packed_rows
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.packed_rows import PackedRows, RowPacker
from tandem.spark.sink.packer import Packer, unpacked
from tandem.spark.sink.rows import MessageMaker
from tandem.spark.sink.unique_key import RowKeys
from tests.tandem.client.fake_broker import IDENTITY

TEXTS = pa.string()
MAPS = pa.map_(pa.string(), pa.string())
LISTS = pa.list_(pa.string())


def options(topic: str = "t", **given: Any) -> SinkOptions:  # noqa: ANN401
    return SinkOptions(ClusterAccess("h:1"), topic, **given)


def packed(
    batch: pa.RecordBatch, chosen: SinkOptions, keys: RowKeys | None = None
) -> list[PackedRows] | None:
    names = tuple(batch.schema.names)
    columns = SinkColumns(names, "value" if "value" in names else "body")
    keys = keys or RowKeys("q", 0, 0)
    table = MessageMaker(chosen, columns, keys, "partition 0").table(batch)
    return RowPacker(chosen, columns).packed(table, batch.num_rows, keys)


def entries_of(found: list[PackedRows]) -> list[bytes]:
    return [
        bytes(rows.data[rows.bounds[row] : rows.bounds[row + 1]])
        for rows in found
        for row in range(len(rows.bounds) - 1)
    ]


def entries_one_by_one(batch: pa.RecordBatch, chosen: SinkOptions) -> list[bytes]:
    names = tuple(batch.schema.names)
    columns = SinkColumns(names, "value" if "value" in names else "body")
    maker = MessageMaker(chosen, columns, RowKeys("q", 0, 0), "partition 0")
    sendings = Sendings(SendSettings("g"), UniqueKeys(IDENTITY), lambda: 0.0, lambda: 0)
    packer = Packer(sendings, 1 << 30, lambda _: 4)
    messages = [
        message for some, _ in maker.slices(maker.table(batch), batch.num_rows) for message in some
    ]
    parcels = [*packer.add(messages), *packer.rest()]
    return [gathered.entry for parcel in parcels for gathered in parcel.gathered]


def random_batch(chance: random.Random, rows: int) -> pa.RecordBatch:
    def some(value: Any, odds: float = 0.3) -> Any:  # noqa: ANN401
        return None if chance.random() < odds else value

    def text(size: int = 6) -> str:
        return "".join(chance.choices("abcö€ \t", k=chance.randrange(size)))

    bodies = [chance.randbytes(chance.choice([0, 1, 30, 700])) for _ in range(rows)]
    columns: dict[str, pa.Array] = {"body": pa.array(bodies, pa.binary())}
    if chance.random() < 0.5:
        columns["flag"] = pa.array([some(chance.randrange(-5, 5)) for _ in bodies], pa.int32())
    kind = chance.randrange(3)
    if kind == 1:
        columns["keys"] = pa.array([some(text()) for _ in bodies], TEXTS)
    elif kind == 2:
        lists = [some([f"k{chance.randrange(9)}"] * chance.randrange(3)) for _ in bodies]
        columns["keys"] = pa.array(lists, LISTS)
    if chance.random() < 0.5:
        columns["tags"] = pa.array([some(text()) for _ in bodies], TEXTS)
    if chance.random() < 0.6:
        names = ["color", "größe", "UNIQ_KEY", "WAIT", "DELAY", "a"]
        maps = [
            some([(name, text()) for name in chance.sample(names, chance.randrange(4))])
            for _ in bodies
        ]
        columns["properties"] = pa.array(maps, MAPS)
    if chance.random() < 0.3:
        columns["uniqueKey"] = pa.array([some(text(), 0.5) for _ in bodies], TEXTS)
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("seed", range(60))
def test_the_bytes_are_those_of_rows_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(packed_rows, "SLICE_BYTES", chance.choice([100, 2000, 1 << 22]))
    batch = random_batch(chance, chance.choice([1, 2, 200]))
    if chance.random() < 0.5 and batch.num_rows > 20:  # offsets of columns that begin elsewhere
        batch = batch.slice(7, 150)
    found = packed(batch, options())
    assert found is not None
    assert entries_of(found) == entries_one_by_one(batch, options())
    assert sum(int(rows.body_bounds[-1]) for rows in found) == sum(
        len(body) for body in batch.column("body").to_pylist()
    )


def test_a_string_is_a_body_too_and_the_topic_may_be_a_column() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["ä", "b"], "topic": ["u", "u"]})
    found = packed(batch, options(""))
    assert found is not None
    assert [rows.topic for rows in found] == ["u"]
    assert entries_of(found) == entries_one_by_one(batch, options(""))


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": ["t", "u"]},
        {"topic": ["%RETRY%g", "%RETRY%g"]},
        {"topic": ["", ""]},
        {"shardingKey": ["a", None]},
        {"queueId": pa.array([1, None], pa.int32())},
        {"delayMs": pa.array([None, 5], pa.int64())},
        {"keys": pa.array([["a b"], ["c"]], LISTS)},
        {"keys": pa.array([["a", ""], ["c"]], LISTS)},
        {"keys": pa.array([["a", None], ["c"]], LISTS)},
        {"keys": ["a\x01", "b"]},
        {"tags": ["a", "b\x02"]},
        {"properties": pa.array([[("a", "b\x01")], []], MAPS)},
        {"properties": pa.array([[("a\x02", "b")], []], MAPS)},
        {"properties": pa.array([[("a", None)], []], MAPS)},
        {"properties": pa.array([[("", "b")], []], MAPS)},
        {"properties": pa.array([[("a", "b"), ("a", "c")], []], MAPS)},
        {"properties": pa.array([[("__SHARDINGKEY", "b")], []], MAPS)},
        {"properties": pa.array([[("_SYS_MSG_PRIORITY_", "3")], []], MAPS)},
        {"properties": pa.array([[("KEYS", "b")], []], MAPS), "keys": ["x", "y"]},
        {"properties": pa.array([[("a", "b" * 32_600)], []], MAPS)},
    ],
)
def test_an_unusual_row_is_left_to_others_and_takes_no_key(columns: dict[str, Any]) -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"one", b"two"], **columns})
    keys = RowKeys("q", 0, 0)
    assert packed(batch, options("" if "topic" in columns else "t"), keys) is None
    assert keys.take(1) == RowKeys("q", 0, 0).take(1)


def test_a_body_that_goes_alone_is_left_to_others() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 500, b""]})
    assert packed(batch, options(compress_over_bytes=500)) is None
    assert packed(batch, options(compress_over_bytes=501)) is not None
    assert packed(batch, options(batch_max_bytes=500)) is None
    assert packed(batch.slice(0, 0), options()) is None


def test_columns_without_a_value_are_not_unusual() -> None:
    nothing = pa.array([None, None], TEXTS)
    batch = pa.RecordBatch.from_pydict(
        {"body": [b"a", b"b"], "shardingKey": nothing, "keys": nothing, "uniqueKey": nothing}
    )
    found = packed(batch, options())
    assert found is not None
    assert entries_of(found) == entries_one_by_one(batch, options())


def test_requests_are_as_full_as_they_may_be_and_can_be_taken_apart() -> None:
    bodies = [b"%05d" % number for number in range(100)]
    batch = pa.RecordBatch.from_pydict({"body": bodies, "tags": ["new"] * 100})
    found = packed(batch, options())
    assert found is not None
    (rows,) = found
    parcels = list(rows.parcels(1000))
    size = len(entries_of(found)[0])
    assert {parcel.count for parcel in parcels[:-1]} == {1000 // size}
    assert b"".join(parcel.data for parcel in parcels) == bytes(rows.data)
    assert all(parcel.size == len(parcel.data) <= 1000 for parcel in parcels)
    assert sum(parcel.body_bytes for parcel in parcels) == 500
    alone = [one.gathered[0].message for parcel in parcels for one in unpacked(parcel)]
    assert [message.body for message in alone] == bodies
    assert [message.properties["UNIQ_KEY"] for message in alone] == RowKeys("q", 0, 0).take(100)
    assert {message.properties["TAGS"] for message in alone} == {"new"}


def test_keys_go_on_from_batch_to_batch() -> None:
    keys = RowKeys("q", 0, 0)
    batch = pa.RecordBatch.from_pydict({"body": [b""] * 70_000})
    assert packed(batch, options(), keys) is not None
    assert keys.take(1) == RowKeys("q", 0, 0).take(70_001)[-1:]


def test_neither_way_imports_pandas() -> None:
    """It is installed with the extra, and takes a worker a second of processor time."""
    rows = {
        "body": ["a", "b", "c"],
        "keys": [["k"], None, []],
        "tags": ["t", None, ""],
        "flag": pa.array([1, None, 3], pa.int32()),
        "properties": pa.array([[("a", "1"), ("DELAY", "1")], None, []], MAPS),
        "uniqueKey": ["u", None, ""],
    }
    batch = pa.RecordBatch.from_pydict(rows)
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, batch.schema) as stream:
        stream.write_batch(batch)
    program = """
import sys

import pyarrow as pa

from tandem.client.cluster_access import ClusterAccess
from tandem.spark.sink.writer import MessageMaker, RowKeys, RowPacker, SinkColumns, SinkOptions

(batch,) = pa.ipc.open_stream(sys.stdin.buffer.read())
columns = SinkColumns(tuple(batch.schema.names))
for topic in ("t", "%RETRY%t"):
    options, keys = SinkOptions(ClusterAccess("h:1"), topic), RowKeys("w", 0, 0)
    maker = MessageMaker(options, columns, keys, "partition 0")
    table = maker.table(batch)
    packed = RowPacker(options, columns).packed(table, 3, keys)
    assert (packed is None) == (topic != "t")
    assert [len(messages) for messages, _ in maker.slices(table, 3)] == [3]
assert "pandas" not in sys.modules
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=written.getvalue().to_pybytes(),
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
