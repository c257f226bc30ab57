"""The format `commitlog` as a session knows it: a name, and the way to `commitlog.source`.

What reads files brings pyarrow, numpy and some dozens of modules along. A session registers both
formats whether or not they are used, and Spark loads those it finds by name before any format that
is not its own; so that is imported when the format is asked something.
"""

# ruff: noqa: PLC0415 - see above
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from tandem.spark.commitlog.source import CommitLogDataSource


class RegisteredCommitLog(DataSource):
    """Asks `CommitLogDataSource`, which see."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "commitlog"

    @cached_property
    def _source(self) -> "CommitLogDataSource":
        from tandem.spark.commitlog.source import CommitLogDataSource

        return CommitLogDataSource(self.options)

    def schema(self) -> StructType:
        """All columns, or those of the option `columns` in their order."""
        return self._source.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a table."""
        return self._source.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Follow the logs."""
        return self._source.streamReader(schema)
