from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tandem.spark.errors import OptionError
from tandem.spark.source import PlannedReader, TandemDataSource


def test_the_format_has_the_name_of_the_project() -> None:
    assert TandemDataSource.name() == "tandem"


def test_the_schema_is_that_of_the_live_source() -> None:
    names = TandemDataSource({"nameservers": "h:1", "topic": "t"}).schema().names
    assert {"topic", "brokerName", "queueId", "queueOffset", "body", "properties"} <= set(names)


def test_an_archive_and_files_exclude_each_other() -> None:
    """Files would be left out in silence."""
    source = TandemDataSource(
        {"nameservers": "h:1", "topic": "t", "archive": "archive", "backfill": "data/broker-a-0"}
    )
    with pytest.raises(OptionError) as caught:
        source.reader(source.schema())
    assert caught.value.names == ("archive", "backfill")


class Planning(DataSourceReader):
    """A reader that plans one partition, and reads any."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


def test_a_reader_of_fewer_columns_reads_what_was_planned_before() -> None:
    reader = PlannedReader(Planning())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(7))) == [(7,)]
