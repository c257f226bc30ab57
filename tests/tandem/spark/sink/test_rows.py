from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tandem.client.cluster_access import ClusterAccess
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.errors import RowError
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.rows import NOT_COPIED, SLICE_ROWS, MessageMaker, Slice
from tandem.spark.sink.unique_key import RowKeys, key_of
from tandem.wire.message import Message

KEYS = RowKeys("query", 0, 0).take(5000)


def maker(*names: str, topic: str = "t", body: str = "body", **options: int) -> MessageMaker:
    return MessageMaker(
        SinkOptions(ClusterAccess("h:1"), topic, **options),  # type: ignore[arg-type]
        SinkColumns(names, body),
        RowKeys("query", 0, 0),
        "partition 0",
    )


def made(batch: pa.RecordBatch, topic: str = "t", **options: int) -> list[Message]:
    names = batch.schema.names
    body = "value" if "value" in names else "body"
    of = maker(*names, topic=topic, body=body, **options)
    return [message for messages, _ in slices(of, batch) for message in messages]


def slices(of: MessageMaker, batch: pa.RecordBatch) -> Iterator[Slice]:
    return of.slices(of.table(batch), batch.num_rows)


def batch_of(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


MAP = pa.map_(pa.string(), pa.string())


def test_a_row_is_a_message() -> None:
    (message,) = made(
        batch_of(
            topic=["orders"],
            body=[b"hello"],
            keys=["a b"],
            tags=["new"],
            properties=pa.array([[("colour", "red")]], MAP),
            flag=pa.array([7], pa.int32()),
            shardingKey=["ada"],
            delayTimeLevel=pa.array([3], pa.int8()),
        ),
        topic="",
    )
    assert message == Message(
        "orders",
        b"hello",
        "a b",
        "new",
        7,
        {"colour": "red", "UNIQ_KEY": KEYS[0]},
        delay_time_level=3,
        sharding_key="ada",
    )


def test_what_is_null_is_left_out() -> None:
    (message,) = made(
        batch_of(
            body=[b""],
            keys=pa.array([None], pa.string()),
            tags=pa.array([None], pa.string()),
            properties=pa.array([None], MAP),
            flag=pa.array([None], pa.int32()),
            delayMs=pa.array([None], pa.int64()),
            shardingKey=pa.array([None], pa.string()),
            uniqueKey=pa.array([None], pa.string()),
        )
    )
    assert message == Message("t", b"", properties={"UNIQ_KEY": KEYS[0]})


def test_texts_lists_and_times_are_taken_as_they_are_meant() -> None:
    first, second = made(
        batch_of(
            value=["grün", "b"],
            keys=pa.array([["a", "b"], []], pa.list_(pa.string())),
            deliverTimeMs=pa.array([1_700_000_000_123_999, None], pa.timestamp("us", "UTC")),
        )
    )
    assert (first.body, first.keys, first.deliver_time_ms) == (
        "grün".encode(),
        "a b",
        1700000000123,
    )
    assert (second.body, second.keys, second.deliver_time_ms) == (b"b", "", 0)


def test_the_option_topic_wins_over_the_column() -> None:
    assert made(batch_of(topic=["a"], body=[b""]))[0].topic == "t"
    assert made(batch_of(topic=["a"], body=[b""]), topic="")[0].topic == "a"


def test_keys_go_on_over_slices_and_batches() -> None:
    of = maker("body")
    bodies = [b"%d" % number for number in range(SLICE_ROWS + 10)]
    messages = [
        message
        for part in (bodies, bodies[:5])
        for some, _ in slices(of, batch_of(body=part))
        for message in some
    ]
    assert [message.body for message in messages] == bodies + bodies[:5]
    assert [message.properties["UNIQ_KEY"] for message in messages] == KEYS[: len(messages)]


def test_a_key_of_a_row_is_independent_of_its_place() -> None:
    there = made(batch_of(body=[b"x", b"y"], uniqueKey=["one", "two"]))
    back = made(batch_of(body=[b"y", b"x"], uniqueKey=["two", "one"]))
    assert {m.body: m.properties for m in there} == {m.body: m.properties for m in back}
    assert there[0].properties == {"UNIQ_KEY": key_of("one")}


def test_what_belongs_to_the_message_that_was_read_is_not_copied() -> None:
    pairs = [(name, "1") for name in sorted(NOT_COPIED)]
    pairs += [("colour", "red"), ("TAGS", "t"), ("KEYS", "k"), ("__SHARDINGKEY", "s")]
    (message,) = made(batch_of(body=[b""], properties=pa.array([pairs], MAP)))
    assert message.property_map() == {
        "colour": "red",
        "TAGS": "t",
        "KEYS": "k",
        "__SHARDINGKEY": "s",
        "UNIQ_KEY": KEYS[0],
    }
    assert message.sharding_key == "s"


def test_queue_ids_come_beside_the_messages() -> None:
    batch = batch_of(body=[b"a", b"b"], queueId=pa.array([3, None], pa.int32()))
    ((_, queue_ids),) = slices(maker("body", "queueId"), batch)
    assert queue_ids == [3, None]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": [b"", None]}, r"column body is null: .*filter"),
        ({"body": [b"", b"12345"]}, "column body has more than 4 bytes"),
        (
            {"body": [b"", b""], "queueId": pa.array([0, -1], pa.int32())},
            "queueId is negative",
        ),
        ({"body": [b"", b""], "keys": [["a"], ["b c"]]}, "must not hold a blank"),
        (
            {"body": [b"", b""], "properties": pa.array([[], [("a", None)]], MAP)},
            "'a' is null; .*map_filter",
        ),
        (
            {
                "body": [b"", b""],
                "delayMs": pa.array([0, 1], pa.int64()),
                "delayTimeLevel": pa.array([0, 1], pa.int32()),
            },
            "has only one of",
        ),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(RowError, match=said) as caught:
        made(batch_of(**columns), message_max_bytes=4)
    assert caught.value.row == 1


def test_a_topic_is_neither_null_nor_empty() -> None:
    with pytest.raises(RowError, match="topic is null"):
        made(batch_of(topic=["a", None], body=[b"", b""]), topic="")
    with pytest.raises(RowError, match="topic is empty"):
        made(batch_of(topic=["a", ""], body=[b"", b""]), topic="")


def test_rows_are_counted_over_batches() -> None:
    of = maker("body")
    list(slices(of, batch_of(body=[b""] * 3000)))
    with pytest.raises(RowError, match="row 3002 of partition 0: ") as caught:
        list(slices(of, batch_of(body=[b"", b"", None])))
    assert caught.value.row == 3002
