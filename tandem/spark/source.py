"""The format `tandem`: topics of a live cluster, read and written, as a batch or as a stream.

    spark.read.format("tandem").options(nameServers="127.0.0.1:9876", subscribe="orders").load()

What reads is in `tandem.spark.live`, and is imported when it is used; so is what writes.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType


class TandemDataSource(DataSource):
    """`spark.dataSource.register(TandemDataSource)`, then `format("tandem")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tandem"

    def schema(self) -> StructType:
        """All columns of what is read."""
        from tandem.spark.live.columns import SCHEMA  # noqa: PLC0415 - see the module's docstring

        return SCHEMA
