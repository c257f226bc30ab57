"""The rows of a log that an audit needs: where the topic's records are, and what is damaged."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.read import read_split
from tandem.spark.commitlog.split import LogSplit

RECORDS: Final = pa.schema(
    [
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("keys", pa.string()),
        ("body_crc", pa.int32()),
    ]
)
_COLUMNS: Final = ("queueId", "queueOffset", "physicalOffset", "keys", "bodyCrc")
_READ: Final = ("topic", *_COLUMNS, "error")


class LogRows(msgspec.Struct, frozen=True, eq=False):
    """Some rows of a log in its order: the topic's `records`; `damaged` ones of every topic.

    `damaged` has the columns queue_id, queue_offset (null in a hole), physical_offset and error.
    """

    records: pa.Table
    damaged: pa.Table


def scan_options(store: str, split_bytes: int | None = None) -> ScanOptions:
    """How an audit reads a log: all of it, the broker's own records too, with its damage.

    Also what the checkpoint does not know to be confirmed: a node that was killed wrote it up to a
    second before, and what was acknowledged in that second is there.
    """
    options = ScanOptions(
        paths=(store,), on_error="row", with_system_topics=True, with_unconfirmed=True
    )
    if split_bytes is None:
        return options
    return msgspec.structs.replace(options, split_bytes=split_bytes)


def rows_of_split(split: LogSplit, options: ScanOptions, topic: str) -> Iterator[LogRows]:
    """Yield the rows of a split, in the order of the log."""
    for batch in read_split(split, options, _READ):
        ours = pc.fill_null(pc.equal(batch.column("topic"), topic), fill_value=False)
        records = pa.Table.from_batches([batch.select(_COLUMNS)]).rename_columns(RECORDS.names)
        error = batch.column("error")
        broken = records.select(RECORDS.names[:3]).append_column("error", error)
        yield LogRows(records.filter(ours), broken.filter(error.is_valid()))
