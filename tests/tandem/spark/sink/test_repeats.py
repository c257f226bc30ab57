"""What readers drop. Through Spark it is in test_writer.py, where there are repeats."""

import pytest

from tandem.spark.sink.repeats import drop_repeats


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
