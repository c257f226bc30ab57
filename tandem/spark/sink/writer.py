"""Spark's classes of the sink `tandem`: a batch, and a stream.

A task sends the rows of its partition while they arrive, and is good when every one is stored as
asked for. What was sent cannot be taken back, and need not be, for a row that is sent again has the
same UNIQ_KEY. With `skipCommittedBatches` a stream's `commit` notes the number of the micro-batch,
and a micro-batch that is made again after that sends nothing.
"""

import dataclasses
import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tandem.client.async_shell import StreamOpener
from tandem.spark.errors import OptionError, SparkSourceError
from tandem.spark.sink.columns import SinkColumns, read_columns
from tandem.spark.sink.committed import CommittedBatches
from tandem.spark.sink.kept import KeptClients, SinkClient, lent_client
from tandem.spark.sink.options import WHOSE, SinkOptions, option_reader, read_options
from tandem.spark.sink.outbox import Outbox
from tandem.spark.sink.packed_rows import RowPacker
from tandem.spark.sink.packer import UnfitError
from tandem.spark.sink.rows import MessageMaker
from tandem.spark.sink.unique_key import RowKeys

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What one task has sent: messages, and bytes of their bodies; of a stream also its query."""

    messages: int
    body_bytes: int
    query: str = ""


class TandemWriter(DataSourceArrowWriter):
    """Writes a batch. Made on the driver: all tries of its tasks have one id of the write."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one partition.

        Raises:
            RowError: a row cannot be a message.
            SendFailedError: a message could not be stored as asked for.
        """
        partition = _task().partitionId()
        keys = RowKeys(self._write_id, 0, partition)
        return send_partition(
            self._options, self._columns, keys, f"partition {partition}", iterator
        )


class TandemStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one partition of a micro-batch.

        Raises:
            RowError: a row cannot be a message.
            SendFailedError: a message could not be stored as asked for.
        """
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SparkSourceError(
                f"{WHOSE}: this Spark does not say which query and micro-batch a task belongs to,"
                f" so its rows would have no lasting keys ({QUERY_ID}, {BATCH_ID} are missing)"
            )
        partition = task.partitionId()
        where = f"partition {partition} of micro-batch {batch}"
        if self._options.skip_committed:
            with lent_client(self._options) as thread:
                written = CommittedBatches(self._options, query, thread).count()
            if is_written_before(int(batch), written, where):
                rows = sum(each.num_rows for each in iterator)
                _log.warning("%s was written before: %d rows are not sent again", where, rows)
                return Sent(0, 0, query)
        keys = RowKeys(self._options.write_id or query, int(batch), partition)
        sent = send_partition(self._options, self._columns, keys, where, iterator)
        return dataclasses.replace(sent, query=query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Note that a micro-batch is written, if that is asked for.

        Raises:
            SparkSourceError: it could not be noted.
        """
        queries = {each.query for each in messages if isinstance(each, Sent)}
        if self._options.skip_committed and queries:
            with lent_client(self._options) as thread:
                for query in queries:
                    CommittedBatches(self._options, query, thread).record(batchId)


def is_written_before(batch: int, written: int, where: str) -> bool:
    """Whether a micro-batch is the last of so many written ones, which Spark makes again as it was.

    Raises:
        SparkSourceError: it is an older one, and may have other rows now.
    """
    if batch < written - 1:
        raise SparkSourceError(
            f"{WHOSE}: {where} is older than the last that is written, {written - 1}: its"
            " checkpoint was put back, or somebody has set the offset of the query's"
            " group, so it is not known to be the batch that was written then; begin with"
            " a new checkpoint, or send it with skipCommittedBatches=false"
        )
    return batch == written - 1


def batch_writer(schema: StructType, raw: Mapping[str, str], *, overwrite: bool) -> TandemWriter:
    """Return what writes a batch.

    Raises:
        OptionError: with everything that is wrong with options, columns and save mode.
    """
    options, columns = _checked(schema, raw, overwrite=overwrite)
    if options.skip_committed:
        raise OptionError(
            f"{WHOSE}: skipCommittedBatches is about streams: leave it out of a batch",
            ["skipCommittedBatches"],
        )
    return TandemWriter(options, columns)


def stream_writer(schema: StructType, raw: Mapping[str, str]) -> TandemStreamWriter:
    """Return what writes a stream.

    Raises:
        OptionError: with everything that is wrong with options and columns.
    """
    return TandemStreamWriter(*_checked(schema, raw, overwrite=False))


def _checked(
    schema: StructType, raw: Mapping[str, str], *, overwrite: bool
) -> tuple[SinkOptions, SinkColumns]:
    given = option_reader(raw)
    if overwrite:
        given.refuse('a topic is never overwritten: write with mode("append")', "mode")
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    columns = read_columns(fields, given.refuse, topic_given="topic" in given)
    options = read_options(given)
    given.finish()
    return options, columns


def send_partition(
    options: SinkOptions,
    columns: SinkColumns,
    keys: RowKeys,
    where: str,
    batches: Iterator[pa.RecordBatch],
    kept: KeptClients | None = None,
    open_stream: StreamOpener | None = None,
) -> Sent:
    """Send the rows of one partition; return when all are stored as asked for.

    In a worker, by the client that is `kept` there.

    Raises:
        RowError: a row cannot be a message.
        SendFailedError: a message could not be stored as asked for.
    """
    with lent_client(options, kept, open_stream) as thread:
        sending = PartitionSending(options, columns, keys, where, thread.client)
        # This thread blocks while Spark has no rows; the client's sends and receives meanwhile.
        for batch in batches:
            thread.run(sending.take, batch)
        return thread.run(sending.finish)


class PartitionSending:
    """The rows of one partition on their way, in the event loop of a client that is open."""

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        keys: RowKeys,
        where: str,
        client: SinkClient,
    ) -> None:
        self._maker = MessageMaker(options, columns, keys, where)
        self._row_packer = RowPacker(options, columns)
        self._outbox = Outbox(options, where, client)
        self._batch_max_bytes = options.batch_max_bytes
        self._keys = keys
        self._client = client

    async def take(self, batch: pa.RecordBatch) -> None:
        """Send rows; return as soon as there is room for the next ones.

        Raises:
            RowError: a row cannot be a message.
            SendFailedError: a message could not be stored as asked for.
        """
        maker, outbox = self._maker, self._outbox
        table = maker.table(batch)
        packed = self._row_packer.packed(table, batch.num_rows, self._keys)
        if packed is not None:
            maker.passed(batch.num_rows)
            for rows in packed:
                for request in rows.parcels(self._batch_max_bytes):
                    await outbox.put(request)
            return
        for messages, queue_ids in maker.slices(table, batch.num_rows):
            await outbox.know({each.topic for each in messages if each.sharding_key})
            try:
                for parcel in outbox.packer.add(messages, queue_ids):
                    await outbox.put(parcel)
            except UnfitError as error:
                raise maker.error(error.index, error) from error

    async def finish(self) -> Sent:
        """Wait until all is stored; then the client has the routes of these rows and no other.

        Raises:
            SendFailedError: a message could not be stored as asked for.
        """
        outbox = self._outbox
        for parcel in outbox.packer.rest():
            await outbox.put(parcel)
        await outbox.finish()
        self._client.forget_routes(but=outbox.topics)
        return Sent(outbox.messages, outbox.body_bytes)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise OptionError(f"{WHOSE}: rows are written in a task of Spark only", ())
    return task
