from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tandem.spark.bodies import columns
from tandem.spark.bodies.columns import types_of, with_bodies

SCHEMA = '{"orders": "order long, price decimal(4,2)"}'
TYPES = {
    "topic": pa.string(),
    "sysFlag": pa.int32(),
    "body": pa.binary(),
    "queueOffset": pa.int64(),
}
ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "sysFlag": 0, "body": b'{"order": 7, "price": 1.5}', "queueOffset": 0},
    {"topic": "orders", "sysFlag": 0, "body": b'{"order": "7"}', "queueOffset": 1},
    {"topic": "orders", "sysFlag": 0, "body": b'{"price": 1.555}', "queueOffset": 2},
    {"topic": "orders", "sysFlag": 1, "body": b'{"order": 7}', "queueOffset": 3},
    {"topic": "orders", "sysFlag": 0, "body": b"", "queueOffset": 4},
    {"topic": "other", "sysFlag": 0, "body": b'{"order": 7}', "queueOffset": 5},
    {"topic": None, "sysFlag": None, "body": None, "queueOffset": None},
]


class Reader:
    """Yields `ROWS`, and notes which columns it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.asked = list(names)
        schema = pa.schema([(name, TYPES[name]) for name in names])
        yield pa.RecordBatch.from_pylist(
            [{name: row[name] for name in names} for row in ROWS], schema
        )


def read(names: Sequence[str], option: str | None = SCHEMA) -> tuple[list[dict[str, Any]], Reader]:
    reader = Reader()
    (batch,) = with_bodies(reader, names, option)
    assert batch.schema.names == list(names)
    return batch.to_pylist(), reader


def test_a_body_is_a_struct_or_has_an_error_and_no_row_is_left_out() -> None:
    rows, reader = read(["bodyError", "queueOffset", "value"])
    assert set(reader.asked) == {"queueOffset", "topic", "sysFlag", "body"}
    assert [row["queueOffset"] for row in rows] == [row["queueOffset"] for row in ROWS]
    assert str(rows[0]["value"]["price"]) == "1.50"
    assert rows[0]["bodyError"] is None
    assert all(row["value"] is None for row in rows[1:])
    why = [row["bodyError"] for row in rows[1:-1]]
    assert None not in why
    assert len(set(why)) == len(why)
    assert rows[-1] == {"bodyError": None, "queueOffset": None, "value": None}


def test_a_body_that_is_too_large_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(limit: int) -> dict[str, Any]:
        monkeypatch.setattr(columns, "BODY_BYTES_MAX", limit)
        batches = with_bodies(Reader(), ["value", "bodyError"], SCHEMA)
        rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
        assert len(rows) == len(ROWS)
        return rows[0]

    size = len(ROWS[0]["body"])
    assert first(size)["bodyError"] is None
    assert "too many" in first(size - 1)["bodyError"]


def test_the_body_is_kept_where_it_is_asked_for() -> None:
    rows, reader = read(["body", "value"])
    assert [row["body"] for row in rows] == [row["body"] for row in ROWS]
    assert sorted(reader.asked) == ["body", "sysFlag", "topic"]


def test_nothing_is_parsed_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str) -> None:
        raise AssertionError(text)

    monkeypatch.setattr(columns, "bodies_of", fails)
    for option in (SCHEMA, None):
        _, reader = read(["queueOffset"], option)
        assert reader.asked == ["queueOffset"]


def test_the_columns_have_the_types_of_the_schema() -> None:
    assert types_of(None) == {}
    types = types_of(SCHEMA)
    assert types["value"] == pa.struct([("order", pa.int64()), ("price", pa.decimal128(4, 2))])
    assert types["bodyError"] == pa.string()
