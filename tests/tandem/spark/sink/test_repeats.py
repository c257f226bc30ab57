"""What readers drop. Repeats of the sink's own are in test_writer.py."""

from typing import TYPE_CHECKING

import pytest

from tandem.spark.sink.repeats import drop_repeats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Columns:
    """As much of a DataFrame as is looked at before a plan is made."""

    isStreaming = True  # noqa: N815 - Spark's

    def __init__(self, *columns: str) -> None:
        self.columns = columns


def test_columns_that_are_missing_are_named() -> None:
    table = Columns("topic", "properties", "brokerName", "queueId", "queueOffset", "body")
    with pytest.raises(ValueError, match="storeTimestamp is missing: drop repeats first"):
        drop_repeats(table)  # type: ignore[arg-type]
    table.isStreaming = False
    table.columns = table.columns[1:]
    with pytest.raises(ValueError, match="topic is missing"):
        drop_repeats(table)  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_the_same_key_in_another_topic_and_messages_without_one_are_no_repeats(
    spark: "SparkSession",
) -> None:
    table = spark.sql(
        """select * from values
        ('a', map('UNIQ_KEY', 'k'), 'broker', 0, 0), ('a', map('UNIQ_KEY', 'k'), 'broker', 1, 0),
        ('b', map('UNIQ_KEY', 'k'), 'broker', 0, 0), ('a', map('UNIQ_KEY', 'l'), 'broker', 0, 1),
        ('a', map('TAGS', ''), 'broker', 0, 2), ('a', map('TAGS', ''), 'broker', 1, 2),
        ('a', map('TAGS', ''), 'broker', 0, 3), ('a', map('TAGS', ''), 'other', 0, 2)
        as messages (topic, properties, brokerName, queueId, queueOffset)"""
    )
    kept = drop_repeats(table).select("topic", "brokerName", "queueOffset").collect()
    assert sorted(map(tuple, kept)) == [
        *(("a", "broker", 0), ("a", "broker", 1), ("a", "broker", 2), ("a", "broker", 2)),
        *(("a", "broker", 3), ("a", "other", 2), ("b", "broker", 0)),
    ]
    stream = spark.readStream.format("rate").load()
    stream = stream.selectExpr(
        *("'a' as topic", "map('UNIQ_KEY', 'k') as properties", "'broker' as brokerName"),
        *("0 as queueId", "value as queueOffset", "timestamp as storeTimestamp"),
    )
    plan = drop_repeats(stream)._jdf.queryExecution().analyzed().toString()
    assert "DeduplicateWithinWatermark [topic#" in plan
