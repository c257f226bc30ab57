"""The options of the `commitlog` source, checked once on the driver.

    path, paths           where: store roots (with `commitlog` in them) or commitlog directories,
                          also patterns such as data/broker-*, and addresses such as s3://…
    commitLogDirectories  those of a log that is spread over several, separated by commas
    topic, subscribe      topics, separated by commas
    subscribePattern      regular expression that a whole topic name has to match
    queues                queue ids, separated by commas
    tags                  tags, separated by commas or ||
    startingTimestamp     store time in ms or ISO 8601, included
    endingTimestamp       the same, not included
    consumeQueues         auto (default): read topics through their consume queues where that is
                          cheaper (`queue_plan`); never; always: wherever queues can be relied on
    timestampMargin       by how many ms a store time may be before that of an earlier record
                          (default 600000), for clocks that were set back; see `time_window`
    startingOffsets       earliest (default of a table), latest (default of a stream), or JSON with
                          physical offsets by store, included
    endingOffsets         latest (default), or such JSON, not included; of a table only
    maxBytesPerTrigger    how much log a micro-batch takes, over all stores
    failOnDataLoss        true (default): what is no longer there to be read ends the query; false:
                          it is logged, and with onError=row a row
    includeUnconfirmed    false (default): the log of a node of a fenced group is read as far as it
                          is confirmed (`confirmed`); true: to its end, which a switch may cut off
    ignoreMissingTopics   false (default): a topic that no store knows is an error; true: it has no
                          rows
    columns               which columns, separated by commas, in this order
    bodySchema            fields of bodies, JSON or Avro: adds the columns value and bodyError
                          (`tandem.spark.bodies.schemas`)
    onError               fail (default): the first torn or corrupt record ends the query with its
                          file and offset; row: it becomes a row that only says so
    decompress            false (default): bodies as they are stored, one row a record; true: as a
                          consumer gets them, also the messages of inner batches (`plain_bodies`)
    includeSystemTopics   false (default): without what brokers keep for themselves, unless its
                          topic is named; true: with it (`internal_records`)
    checkCrc              true (default): compare each selected body with its CRC
    splitSizeBytes        cut files into pieces of about this size (default 64 MiB)

The names follow Spark's Kafka source and the old RocketMQ connector. There is no filter pushdown:
Spark 4.3 gives wrong answers with it when a table is read twice (docs/spark.md).
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, cast

import msgspec

from tandem.spark.bodies.schemas import chosen_by, read_bodies
from tandem.spark.commitlog.offsets import Position, read_position
from tandem.spark.commitlog.time_window import MARGIN_MS_DEFAULT
from tandem.spark.option_reader import OptionReader
from tandem.spark.row_filter import check_times, read_queues, read_tags
from tandem.wire.untrusted import UnreadableError, decode_json

OnError = Literal["fail", "row"]
ConsumeQueues = Literal["auto", "never", "always"]

SPLIT_BYTES_DEFAULT: Final = 64 * 1024 * 1024
SPLIT_BYTES_MIN: Final = 4096
"""Small enough for tests; anything below 64 MiB costs more in tasks than it gains."""

OPTIONS: Final = (
    "path",
    "paths",
    "commitLogDirectories",
    "topic",
    "subscribe",
    "subscribePattern",
    "queues",
    "tags",
    "startingTimestamp",
    "endingTimestamp",
    "timestampMargin",
    "consumeQueues",
    "startingOffsets",
    "endingOffsets",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "includeUnconfirmed",
    "ignoreMissingTopics",
    "columns",
    "bodySchema",
    "decompress",
    "includeSystemTopics",
    "onError",
    "checkCrc",
    "splitSizeBytes",
)


class ScanOptions(msgspec.Struct, frozen=True):
    """What to read. None means "all". Times are store times in ms, the end excluded."""

    paths: tuple[str, ...]
    commit_log_directories: tuple[str, ...] = ()
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[int] | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    margin_ms: int = MARGIN_MS_DEFAULT
    consume_queues: ConsumeQueues = "auto"
    starting: Position | None = None
    ending: Position | None = None
    trigger_bytes: int | None = None
    fail_on_data_loss: bool = True
    with_unconfirmed: bool = False
    ignore_missing_topics: bool = False
    columns: tuple[str, ...] | None = None
    decompress: bool = False
    with_system_topics: bool = False
    on_error: OnError = "fail"
    check_crc: bool = True
    split_bytes: int = SPLIT_BYTES_DEFAULT
    tags: frozenset[str] | None = None
    body_schema: str | None = None


def parse_options(raw: Mapping[str, str]) -> ScanOptions:
    """Return the checked options; Spark hands them over with lower-case names.

    Raises:
        OptionError: with every problem there is, not just the first.
    """
    given = OptionReader("commitlog source", OPTIONS, raw)
    start_ms = given.time_ms("startingTimestamp")
    end_ms = given.time_ms("endingTimestamp")
    check_times(given, start_ms, end_ms)
    margin_ms = given.integer("timestampMargin", at_least=0)
    topics, pattern = _topics(given), _pattern(given)
    options = ScanOptions(
        paths=_paths(given),
        commit_log_directories=tuple(given.names("commitLogDirectories") or ()),
        topics=topics,
        topic_pattern=pattern,
        queues=read_queues(given),
        tags=read_tags(given),
        body_schema=read_bodies(given, chosen_by(topics, pattern)),
        start_ms=start_ms,
        end_ms=end_ms,
        margin_ms=MARGIN_MS_DEFAULT if margin_ms is None else margin_ms,
        consume_queues=cast(
            "ConsumeQueues", given.choice("consumeQueues", ("auto", "never", "always"))
        ),
        starting=read_position(given, "startingOffsets", ("earliest", "latest")),
        ending=read_position(given, "endingOffsets", ("latest",)),
        trigger_bytes=given.integer("maxBytesPerTrigger", at_least=1),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        with_unconfirmed=given.flag("includeUnconfirmed", default=False),
        ignore_missing_topics=given.flag("ignoreMissingTopics", default=False),
        columns=_columns(given),
        decompress=given.flag("decompress", default=False),
        with_system_topics=given.flag("includeSystemTopics", default=False),
        on_error=cast("OnError", given.choice("onError", ("fail", "row"))),
        check_crc=given.flag("checkCrc", default=True),
        split_bytes=given.integer("splitSizeBytes", at_least=SPLIT_BYTES_MIN)
        or SPLIT_BYTES_DEFAULT,
    )
    given.finish()
    return options


def _paths(given: OptionReader) -> tuple[str, ...]:
    one = given.text("path")
    several = given.text("paths")
    paths: tuple[str, ...] = (one,) if one else ()
    if several is not None:
        try:
            paths = tuple(decode_json(several, list[str]))
        except UnreadableError as error:
            given.refuse(f"paths is no JSON list of directories ({error})", "paths")
            paths = ()
    if not paths and "commitLogDirectories" not in given:
        given.refuse("no path: call load() with one or more store directories", "path")
    return paths


def _topics(given: OptionReader) -> frozenset[str] | None:
    named = [name for name in ("topic", "subscribe", "subscribePattern") if name in given]
    if len(named) > 1:
        given.refuse(f"{' and '.join(named)} exclude each other: give one", *named)
    topics = given.names("topic") or given.names("subscribe")
    return None if topics is None else frozenset(topics)


def _pattern(given: OptionReader) -> str | None:
    pattern = given.text("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            given.refuse(f"subscribePattern {pattern!r}: {error}", "subscribePattern")
            return None
    return pattern


def _columns(given: OptionReader) -> tuple[str, ...] | None:
    columns = given.names("columns")
    if columns is None:
        return None
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        given.refuse(f"columns names {', '.join(twice)} more than once: name each once", "columns")
    return tuple(columns)
