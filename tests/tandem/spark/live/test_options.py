import json

import pytest

from tandem.client.results import MessageQueue
from tandem.spark.bodies.columns import types_of
from tandem.spark.errors import OptionError
from tandem.spark.live.columns import SCHEMA, TYPES, every_column
from tandem.spark.live.options import (
    ANY_BROKER,
    Bound,
    LiveOptions,
    check_batch,
    check_schema,
    check_stream,
    parse_options,
)
from tandem.spark.row_filter import EVERY_ROW, RowFilter

A0 = MessageQueue("t", "a", 0)


def options(**given: str | None) -> LiveOptions:
    raw = {"nameServers": "h1:9876;h2:9876", "subscribe": "t", **given}
    # As Spark hands them over.
    return parse_options({name.lower(): value for name, value in raw.items() if value is not None})


def test_the_defaults_are_those_of_kafkas_source() -> None:
    found = options()
    assert found.access.addresses == ("h1:9876", "h2:9876")
    assert found.topics == frozenset({"t"})
    assert found.fail_on_data_loss
    assert found.delay_ms_max == 900_000
    assert found.columns == tuple(TYPES)
    assert (found.starting, found.ending, found.group) == (None, None, None)
    assert not found.with_system_topics


def test_the_old_connectors_word_for_name_servers_counts_too() -> None:
    found = parse_options({"nameserver": "h:1, g:2", "topic": "t"})
    assert found.access.addresses == ("h:1", "g:2")
    assert found.topics == frozenset({"t"})


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", Bound("earliest")),
        (" Latest", Bound("latest")),
        ('{"t": {"a": {"0": 23}}}', Bound("offsets", {A0: 23})),
        ('{"t": {"a": {"0": -2}}}', Bound("offsets", {A0: -2})),
    ],
)
def test_starting_offsets(text: str, bound: Bound) -> None:
    assert options(startingOffsets=text).starting == bound


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("2026-01-31T12:00:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31", 1_769_817_600_000),
    ],
)
def test_times_are_milliseconds_or_iso(text: str, time_ms: int) -> None:
    assert options(startingTimestamp=text).starting == Bound("time", time_ms=time_ms)
    assert options(endingTimestamp=text).ending == Bound("time", time_ms=time_ms)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500", 500), ("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("2 minutes", 120_000),
     ("1h", 3_600_000), ("10 seconds", 10_000), ("3 Hours", 10_800_000), ("5min", 300_000)],
)  # fmt: skip
def test_the_delay_of_a_trigger(text: str, ms: int) -> None:
    assert options(minOffsetsPerTrigger="5", maxTriggerDelay=text).delay_ms_max == ms


def test_queues_are_assigned_at_every_broker_or_at_one() -> None:
    found = parse_options(
        {"nameservers": "h:1", "assign": '{"t": [0, 1], "u": {"a": [2]}}'}
    ).assigned
    assert found == {"t": {ANY_BROKER: [0, 1]}, "u": {"a": [2]}}


def test_rows_are_chosen_by_queue_tag_and_time() -> None:
    found = options(
        queues="0, 2", tags="new || paid", startingTimestamp="5", endingTimestamp="1970-01-02"
    )
    assert found.queues == frozenset({0, 2})
    assert found.rows == RowFilter(frozenset({"new", "paid"}), 5, 86_400_000)
    assert options(startingOffsets="earliest").rows == EVERY_ROW


def test_files_for_every_broker_or_by_broker_name() -> None:
    assert options(backfill="/data/a").backfill == {ANY_BROKER: "/data/a"}
    assert options(backfill='{"a": "s3://b/x"}').backfill == {"a": "s3://b/x"}


def test_properties_can_be_left_out() -> None:
    assert "properties" not in options(includeProperties="false").columns
    assert options(columns="body, topic").columns == ("body", "topic")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"nameServers": ""}, ["nameServers"]),
        ({"nameServers": "host"}, ["nameServers"]),
        ({"nameServers": "h:99999"}, ["nameServers"]),
        ({"nameServer": "h:1"}, ["nameServers", "nameServer"]),
        ({"subscribe": ","}, ["subscribe"]),
        ({"subscribePattern": "t"}, ["subscribe", "subscribePattern"]),
        ({"assign": "{}"}, ["subscribe", "assign"]),
        ({"subscribePattern": "(", "subscribe": None}, ["subscribePattern"]),
        ({"assign": "[1]", "subscribe": None}, ["assign"]),
        ({"assign": '{"t": [-1]}', "subscribe": None}, ["assign"]),
        ({"startingOffsets": "first"}, ["startingOffsets"]),
        (
            {"startingOffsets": "{}", "startingTimestamp": "1"},
            ["startingOffsets", "startingTimestamp"],
        ),
        ({"endingOffsets": "earliest"}, ["endingOffsets"]),
        ({"endingOffsets": '{"t": {"a": {"0": -2}}}'}, ["endingOffsets"]),
        ({"startingTimestamp": "yesterday"}, ["startingTimestamp"]),
        ({"startingTimestamp": "9" * 5000}, ["startingTimestamp"]),
        ({"endingTimestamp": "-5"}, ["endingTimestamp"]),
        ({"startingOffsetsByTimestampStrategy": "first"}, ["startingOffsetsByTimestampStrategy"]),
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger"]),
        ({"maxOffsetsPerTrigger": "many"}, ["maxOffsetsPerTrigger"]),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            ["minOffsetsPerTrigger", "maxOffsetsPerTrigger"],
        ),
        ({"maxTriggerDelay": "5s"}, ["maxTriggerDelay", "minOffsetsPerTrigger"]),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, ["maxTriggerDelay"]),
        ({"minPartitions": "0"}, ["minPartitions"]),
        ({"maxRecordsPerPartition": "-1"}, ["maxRecordsPerPartition"]),
        ({"failOnDataLoss": "maybe"}, ["failOnDataLoss"]),
        ({"groupId": ""}, ["groupId"]),
        ({"columns": "topic,topic"}, ["columns"]),
        ({"columns": "topic,value"}, ["columns"]),
        ({"columns": "topic", "includeProperties": "true"}, ["columns", "includeProperties"]),
        ({"readFrom": "anywhere"}, ["readFrom"]),
        ({"retryTimeoutMs": "0"}, ["retryTimeoutMs"]),
        ({"backfill": "{1}"}, ["backfill"]),
        ({"backfill": "{[[["}, ["backfill"]),
        ({"backfillSeam": "files"}, ["backfillSeam", "backfill"]),
        ({"backfillSeam": "sea", "backfill": "/x"}, ["backfillSeam"]),
        ({"backfill": "/x", "startingTimestamp": "5"}, ["startingTimestamp", "backfill"]),
        ({"queues": "0,one"}, ["queues"]),
        ({"tags": "*"}, ["tags"]),
        (
            {"queues": "0", "assign": '{"t": [0]}', "subscribe": None},
            ["queues", "assign"],
        ),
        (
            {"startingTimestamp": "5", "endingTimestamp": "4"},
            ["endingTimestamp", "startingTimestamp"],
        ),
        ({"accessKey": "me"}, ["accessKey", "secretKey"]),
        ({"signatures": "none"}, ["signatures"]),
        ({"kafka.bootstrap.servers": "h:1"}, ["kafka.bootstrap.servers"]),
        ({"startingOffset": "earliest"}, ["startingoffset"]),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str | None], names: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        options(**given)
    assert sorted(caught.value.names) == sorted(names)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"nameServers": "host"}, '"host:port"'),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "30s, 15m or 1h"),
        ({"backfill": "/x", "startingTimestamp": "5"}, "begin at startingOffsets"),
    ],
)
def test_what_would_be_right_is_said(given: dict[str, str], remedy: str) -> None:
    with pytest.raises(OptionError, match=remedy):
        options(**given)


def test_every_problem_is_said_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        parse_options({"minpartitions": "x", "startingoffsets": "y", "colums": "z"})
    names = {"nameServers", "subscribe", "minPartitions", "startingOffsets", "colums"}
    assert set(raised.value.names) == names
    assert all(name in str(raised.value) for name in names)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "5"),
        ("minOffsetsPerTrigger", "5"),
        ("groupId", "g"),
        ("startingOffsets", "latest"),
    ],
)
def test_a_batch_refuses_what_is_about_streams(name: str, value: str) -> None:
    found = options(**{name: value})
    check_stream(found)
    with pytest.raises(OptionError) as caught:
        check_batch(found)
    assert caught.value.names == (name,)


@pytest.mark.parametrize(
    ("name", "value"),
    [("endingOffsets", "latest"), ("endingOffsets", json.dumps({}))],
)
def test_a_stream_refuses_what_is_about_batches(name: str, value: str) -> None:
    found = options(**{name: value})
    check_batch(found)
    with pytest.raises(OptionError) as caught:
        check_stream(found)
    assert caught.value.names == (name,)


def test_a_schema_of_the_user_is_a_selection_of_ours() -> None:
    check_schema([("body", SCHEMA["body"].dataType), ("topic", SCHEMA["topic"].dataType)])
    for name in ("body", "value"):
        with pytest.raises(OptionError) as caught:
            check_schema([(name, SCHEMA["topic"].dataType)])
        assert caught.value.names == (name,)


def test_a_schema_of_bodies_adds_columns_that_may_be_chosen() -> None:
    schema = "order long"
    assert options(bodySchema=schema).columns == (*TYPES, "value", "bodyError")
    assert options(bodySchema=schema, columns="value,topic").columns == ("value", "topic")
    with pytest.raises(OptionError) as caught:
        options(columns="value")
    assert caught.value.names == ("columns",)
    value = every_column(types_of(schema))["value"].dataType
    check_schema([("value", value)], schema)
    with pytest.raises(OptionError):
        check_schema([("value", value)], "order string")


@pytest.mark.parametrize(
    "chosen",
    [{"subscribe": "a,b"}, {"subscribepattern": "a|b"}, {"assign": '{"a": [0], "b": [0]}'}],
)
def test_a_body_schema_is_of_topics_that_are_read(chosen: dict[str, str]) -> None:
    for topics, is_good in (("ab", True), ("ac", False)):
        schema = json.dumps(dict.fromkeys(topics, "n long"))
        raw = {"nameservers": "h:1", "bodyschema": schema, **chosen}
        if is_good:
            assert parse_options(raw).body_schema == schema
            continue
        with pytest.raises(OptionError) as caught:
            parse_options(raw)
        assert caught.value.names == ("bodySchema",)
