"""A data source in Python that does nothing: what Spark itself takes for any source in Python.

It has the columns of the source `tandem` and rows as wide as those of the comparison. A worker
makes the rows once and gives the same ones each time; nothing is asked of anybody.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

COLUMNS: Final = (
    "topic string, brokerName string, clusterName string, queueId int, queueOffset bigint,"
    " physicalOffset bigint, storeSize int, flag int, sysFlag int, bornTimestamp timestamp,"
    " storeTimestamp timestamp, bornHost string, storeHost string, reconsumeTimes int,"
    " preparedTransactionOffset bigint, keys string, tags string, properties map<string,string>,"
    " body binary, bodyCrc int, crcOk boolean, version int"
)


@functools.cache
def rows_of(count: int, body_bytes: int) -> pa.RecordBatch:
    """Return rows, each a message with three properties."""
    texts = ["a-topic", "broker-a", "a-cluster"]
    times = [pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", "UTC"))] * 2
    hosts = [pa.array(["127.0.0.1:40000"] * count)] * 2
    properties = [("UNIQ_KEY", "7F0000010A2B18B4AAC2A5C1D2E30001"), ("WAIT", "true"), ("C", "c")]
    arrays = [
        *(pa.array([word] * count) for word in texts),
        pa.array([1] * count, pa.int32()),
        *(pa.array(range(count), pa.int64()) for _ in range(2)),
        *(pa.array([1] * count, pa.int32()) for _ in range(3)),
        *(*times, *hosts, pa.array([0] * count, pa.int32()), pa.array([0] * count, pa.int64())),
        *(pa.nulls(count, pa.string()) for _ in range(2)),
        pa.array([properties] * count, pa.map_(pa.string(), pa.string())),
        pa.array([b"x" * body_bytes] * count),
        *(pa.array([7] * count, pa.int32()), pa.array([True] * count)),
        pa.array([1] * count, pa.int32()),
    ]
    names = [each.split()[0] for each in COLUMNS.split(", ")]
    return pa.RecordBatch.from_arrays(arrays, names)


class NullDataSource(DataSource):
    """`spark.dataSource.register(NullDataSource)`, then `format("null_python")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "null_python"

    def schema(self) -> str:
        """The columns."""
        return COLUMNS

    def _rows(self) -> int:
        return int(self.options.get("maxOffsetsPerTrigger", 1000))

    def _body_bytes(self) -> int:
        return int(self.options.get("bodyBytes", 1000))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a batch."""
        return NullReader(self._rows(), self._body_bytes())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Read a stream without end."""
        return NullStreamReader(self._rows(), self._body_bytes())


class NullReader(DataSourceReader):
    """One task with these many rows."""

    def __init__(self, rows: int, body_bytes: int) -> None:
        self._given = rows, body_bytes

    def partitions(self) -> list[InputPartition]:
        """One task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield rows_of(*self._given)


class NullStreamReader(DataSourceStreamReader):
    """Always as many rows more."""

    def __init__(self, rows: int, body_bytes: int) -> None:
        self._given = rows, body_bytes

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """No rows."""
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """As the others in the comparison."""
        return ReadMaxRows(self._given[0])

    def latestOffset(  # noqa: N802 - Spark's
        self,
        start: dict[str, Any],
        limit: ReadLimit,
    ) -> dict[str, Any]:
        """A batch more."""
        return {"rows": start["rows"] + self._given[0]}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's
        """Nothing to say."""
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One task, as of the other for so few rows."""
        return [InputPartition((start["rows"], end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield rows_of(*self._given)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do."""
