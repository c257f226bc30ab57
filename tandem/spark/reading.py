"""Tables and streams whose options, topics, stores and servers are looked at before Spark is asked.

    orders = read_table(spark, "tandem", nameServers=servers, subscribe="orders")
    log = read_stream(spark, "commitlog", "data/broker-a-0", topic="orders")

They are `spark.read.format(...).options(...).load()` and the same of `readStream`. What is wrong
comes as an error of ours, as one sentence: Spark would put its own and the traceback of a worker
around it. What goes wrong later comes from Spark.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tandem.spark.commitlog.confirmed import confirmed_end
from tandem.spark.commitlog.options import parse_options as parse_scan_options
from tandem.spark.commitlog.places import find_places
from tandem.spark.commitlog.source import CommitLogDataSource
from tandem.spark.commitlog.topics import check_topics
from tandem.spark.live.cluster import Cluster
from tandem.spark.live.options import parse_options as parse_live_options
from tandem.spark.source import TandemDataSource

Source: TypeAlias = Literal["commitlog", "tandem"]
Option: TypeAlias = str | int | bool

ASKED_MS: Final = 10_000
"""How long name servers are asked at most, before Spark is: a group may be between two masters."""

_SOURCES: Final[dict[str, type[DataSource]]] = {
    "commitlog": CommitLogDataSource,
    "tandem": TandemDataSource,
}


def read_table(
    spark: SparkSession,
    source: Source,
    path: str | Sequence[str] | None = None,
    *,
    schema: StructType | None = None,
    **options: Option,
) -> DataFrame:
    """Return a table of a source, with its options by their names.

    Raises:
        SparkSourceError: see `check`.
    """
    given = _texts(path, options)
    check(source, given, schema=schema)
    reader = spark.read.format(source).options(**given)
    return (reader if schema is None else reader.schema(schema)).load()


def read_stream(
    spark: SparkSession,
    source: Source,
    path: str | Sequence[str] | None = None,
    *,
    schema: StructType | None = None,
    **options: Option,
) -> DataFrame:
    """Return a stream of a source, with its options by their names.

    Raises:
        SparkSourceError: see `check`.
    """
    given = _texts(path, options)
    check(source, given, schema=schema, is_stream=True)
    reader = spark.readStream.format(source).options(**given)
    return (reader if schema is None else reader.schema(schema)).load()


def check(
    source: Source,
    options: dict[str, str],
    *,
    schema: StructType | None = None,
    is_stream: bool = False,
) -> None:
    """Look at what can be looked at without Spark.

    Raises:
        OptionError: an option, or a column of the schema, is wrong.
        NotAStoreError: a path is something else.
        UnknownTopicError: nothing knows a topic.
        SparkSourceError: no name server answers.
    """
    chosen = _SOURCES[source](options)
    columns = chosen.schema() if schema is None else schema
    assert isinstance(columns, StructType), "our sources have no other"
    if is_stream:
        chosen.streamReader(columns)
    else:
        chosen.reader(columns)
    if source == "commitlog":
        _check_stores(options)
    else:
        _check_cluster(options)


def _check_stores(given: dict[str, str]) -> None:
    options = parse_scan_options(given)
    places = find_places(options.paths, options.commit_log_directories)
    if not options.with_unconfirmed:
        for place in places:
            confirmed_end(place)
    if not options.ignore_missing_topics:
        check_topics(options.topics, places)


def _check_cluster(given: dict[str, str]) -> None:
    options = parse_live_options({k: v for k, v in given.items() if k.lower() != "archive"})
    is_archived = any(name.lower() == "archive" for name in given)
    asked = msgspec.structs.replace(options, retry_ms=min(options.retry_ms, ASKED_MS))
    with Cluster(asked) as cluster:
        # A topic that brokers have deleted may be in an archive still.
        cluster.queues(unknown_is_error=not is_archived)


def _texts(path: str | Sequence[str] | None, options: dict[str, Option]) -> dict[str, str]:
    """Return options as Spark hands them over."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    if isinstance(path, str):
        given["path"] = path
    elif path is not None:
        given["paths"] = msgspec.json.encode(list(path)).decode()
    return given
