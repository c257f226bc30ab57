"""The batch source `commitlog`: store directories as a Spark table.

    spark.read.format("commitlog").option("topic", "orders").load("data/broker-a-0")

One row a record, with every field; see `record_batches.COLUMNS`, and `options` for what can be
asked for. `load` takes one path or a list. The table is a snapshot: the end of each log is where it
was when Spark planned the query, also when a node goes on writing.

Damage is never skipped silently. `onError` decides between an exception and a row that has
only `physicalOffset`, `store` and `error`. Precisely:

    end       sound records are followed by zeros to the end of the last file, or by its blank
              record: no error
    torn      anything else in the last file that holds data, with no record after it
    corrupt   anything else with a record after it, or in an earlier file; a body that its CRC
              does not fit; a blank record of the wrong size; a file missing between two others

A record whose body fails its CRC can still be told from its neighbours: with `onError=row` it is
a full row with `crcOk` false and `error` set (and `torn` if nothing follows it). Only bodies of
selected records are checked, and only where `body`, `crcOk` or `error` is read; the structure of
the log is checked whatever is selected.

Deliberately without `pushFilters`: see `options`.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tandem.spark.bodies.columns import types_of
from tandem.spark.commitlog.data_loss import looking_again
from tandem.spark.commitlog.options import ScanOptions, parse_options
from tandem.spark.commitlog.parts import read_part
from tandem.spark.commitlog.stream import CommitLogStream, from_json, to_json
from tandem.spark.commitlog.table import plan_table
from tandem.spark.errors import OptionError
from tandem.spark.pruning import is_pruned
from tandem.spark.record_batches import COLUMNS
from tandem.spark.worker_words import end_quietly, in_one_sentence, rows_in_one_sentence

SCHEMA: StructType = from_arrow_schema(
    pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
)


class CommitLogDataSource(DataSource):
    """`spark.dataSource.register(CommitLogDataSource)`, then `format("commitlog")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "commitlog"

    @cached_property
    def _scan_options(self) -> ScanOptions:
        return parse_options(self.options)

    @cached_property
    def _every_column(self) -> StructType:
        """The columns of records, and those of `bodySchema`."""
        of_bodies = types_of(self._scan_options.body_schema)
        return StructType([*SCHEMA.fields, *from_arrow_schema(pa.schema([*of_bodies.items()]))])

    @in_one_sentence
    def schema(self) -> StructType:
        """All columns, or those of the option `columns` in their order.

        Raises:
            OptionError: an option is wrong. This is the first thing Spark asks for.
        """
        every = self._every_column
        names = self._scan_options.columns or every.names
        unknown = [name for name in names if name not in every.names]
        if unknown:
            raise OptionError(
                f"commitlog source: no column {', '.join(unknown)}; there are"
                f" {', '.join(every.names)}",
                ["columns"],
            )
        return StructType([every[name] for name in names])

    @in_one_sentence
    def reader(self, schema: StructType) -> DataSourceReader:
        """Read with our schema or a selection of it that the user gave.

        Raises:
            OptionError: the schema has a column that we do not have, or one of another type; or
                damage should become rows and there is no column to say so in.
        """
        pruned = is_pruned(schema)
        self._check(schema, may_lack_error=pruned)
        if self._scan_options.trigger_bytes is not None:
            text = "commitlog source: maxBytesPerTrigger is for streams; leave it out"
            raise OptionError(text, ["maxBytesPerTrigger"])
        return CommitLogReader(self._scan_options, schema.names, is_planned=pruned)

    @in_one_sentence
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Follow the logs with our schema or a selection of it that the user gave.

        Raises:
            OptionError: as `reader`; or the stream has an end.
        """
        self._check(schema)
        if self._scan_options.ending is not None:
            raise OptionError(
                "commitlog source: endingOffsets is for tables; a stream ends with"
                " trigger(availableNow=True)",
                ["endingOffsets"],
            )
        return CommitLogStreamReader(self._scan_options, schema.names)

    def _check(self, schema: StructType, *, may_lack_error: bool = False) -> None:
        every = self._every_column
        for field in schema.fields:
            if field.name not in every.names or every[field.name].dataType != field.dataType:
                raise OptionError(
                    f"commitlog source: column {field.simpleString()} of the schema given is not"
                    f" one of {every.simpleString()}",
                    [field.name],
                )
        as_rows = self._scan_options.on_error == "row" and not may_lack_error
        if as_rows and "error" not in schema.names:
            text = "commitlog source: onError=row needs the column error; add it"
            raise OptionError(text, ["onError", "error"])


class CommitLogReader(DataSourceReader):
    """Plans on the driver, reads in the tasks. Travels to them pickled: options and names only.

    If it `is_planned`, tasks get what another reader of the same `load` planned; see `pruning`.
    """

    def __init__(
        self, options: ScanOptions, names: Sequence[str], *, is_planned: bool = False
    ) -> None:
        self._options = options
        self._names = names
        self._is_planned = is_planned

    @in_one_sentence
    def partitions(self) -> list[InputPartition]:
        """One partition a split; Spark asks once per `load`."""
        if self._is_planned:
            return []
        return [InputPartition(part) for part in plan_table(self._options)]

    @rows_in_one_sentence
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of one split."""
        yield from read_part(partition.value, self._options, self._names)


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Looks at the logs on the driver for every batch, and reads in the tasks.

    What it knows is in the offsets that Spark keeps; see `stream`.
    """

    def __init__(self, options: ScanOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._stream = CommitLogStream(options)

    @in_one_sentence
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Where a stream without a checkpoint starts."""
        return to_json(looking_again(self._stream.initial))

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Read what there is now, in as many batches as it takes, and no more."""
        looking_again(self._stream.stop_at_what_is_there)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """What `maxBytesPerTrigger` says."""
        limit_bytes = self._options.trigger_bytes
        return ReadAllAvailable() if limit_bytes is None else ReadMaxBytes(limit_bytes)

    @in_one_sentence
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends."""
        limit_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        marks = from_json(start)
        return to_json(looking_again(lambda: self._stream.next_end(marks, limit_bytes)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's
        """How far the logs were at the last look, for the query's progress."""
        return to_json(self._stream.ends) or None

    @in_one_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition a split."""
        marks = from_json(start), from_json(end)
        parts = looking_again(lambda: self._stream.splits(*marks))
        return [InputPartition(part) for part in parts]

    @rows_in_one_sentence
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of one split."""
        yield from read_part(partition.value, self._options, self._names)

    def stop(self) -> None:
        """Nothing is open between two batches."""
        end_quietly()
