"""The format `tandem`: topics of a live cluster, read and written, as a batch or as a stream.

    servers = "127.0.0.1:9876;127.0.0.2:9876;127.0.0.3:9876"
    spark.read.format("tandem").options(nameServers=servers, subscribe="orders").load()

What reads is in `tandem.spark.live`, and is imported when it is used; so is what writes.
"""

# ruff: noqa: PLC0415 - see above
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tandem.spark.worker_words import in_one_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tandem.spark.live.options import LiveOptions


class PlannedReader(DataSourceReader):
    """Reads what another reader of the same `load` planned, with fewer columns; see `pruning`."""

    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        """Nothing: tasks get what was planned before."""
        return []

    def read(
        self, partition: InputPartition
    ) -> "Iterator[tuple[object, ...]] | Iterator[pa.RecordBatch]":
        """Yield the Arrow batches of one task."""
        return self._reader.read(partition)


class TandemDataSource(DataSource):
    """`spark.dataSource.register(TandemDataSource)`, then `format("tandem")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tandem"

    @cached_property
    def _live_options(self) -> "LiveOptions":
        from tandem.spark.live.options import parse_options

        given = {name: text for name, text in self.options.items() if name.lower() != "archive"}
        return parse_options(given)

    @property
    def _archive(self) -> str | None:
        return next(
            (text for name, text in self.options.items() if name.lower() == "archive"), None
        )

    @in_one_sentence
    def schema(self) -> StructType:
        """The columns of what is read.

        Raises:
            OptionError: an option is wrong. This is the first thing Spark asks for.
        """
        from tandem.spark.bodies.columns import types_of
        from tandem.spark.live.columns import schema_of

        options = self._live_options
        return schema_of(options.columns, types_of(options.body_schema))

    @in_one_sentence
    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a batch, with our schema or a selection of it that the user gave.

        Raises:
            OptionError: an option or a column is wrong.
        """
        from tandem.spark.live.options import check_batch, check_schema
        from tandem.spark.live.reader import LiveReader
        from tandem.spark.pruning import is_pruned

        options = self._live_options
        check_schema([(field.name, field.dataType) for field in schema.fields], options.body_schema)
        check_batch(self._live_options)
        reader: DataSourceReader
        if self._archive is not None:
            from tandem.spark.archive_and_live import ArchiveAndLiveReader
            from tandem.spark.errors import OptionError

            if options.backfill is not None:
                raise OptionError(
                    "source tandem: archive and backfill exclude each other: an archive has what"
                    " the files had, so give one of them",
                    ["archive", "backfill"],
                )
            reader = ArchiveAndLiveReader(self._archive, self._live_options, schema.names)
        else:
            reader = LiveReader(self._live_options, schema.names)
        return PlannedReader(reader) if is_pruned(schema) else reader

    @in_one_sentence
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Read a stream, with our schema or a selection of it that the user gave.

        Raises:
            OptionError: an option or a column is wrong.
        """
        from tandem.spark.live.options import check_schema, check_stream
        from tandem.spark.live.stream import LiveStreamReader

        options = self._live_options
        check_schema([(field.name, field.dataType) for field in schema.fields], options.body_schema)
        check_stream(self._live_options)
        if self._archive is not None:
            from tandem.spark.errors import OptionError

            raise OptionError(
                "source tandem: archive is about batches: a stream reads brokers from"
                " startingOffsets on",
                ["archive"],
            )
        return LiveStreamReader(self._live_options, schema.names)

    @in_one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Write a batch: each row is a message.

        Raises:
            OptionError: an option, a column or the save mode is wrong.
        """
        from tandem.spark.sink.writer import batch_writer

        return batch_writer(schema, self.options, overwrite=overwrite)

    @in_one_sentence
    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - of mode complete: every result is sent
    ) -> DataSourceStreamWriter:
        """Write a stream: each row of each micro-batch is a message.

        Raises:
            OptionError: an option or a column is wrong.
        """
        from tandem.spark.sink.writer import stream_writer

        return stream_writer(schema, self.options)
