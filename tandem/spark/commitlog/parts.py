"""What a task can be given of a log, and how each is read."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from tandem.spark.bodies.columns import with_bodies
from tandem.spark.commitlog.data_loss import read_lost, read_scan
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.queue_read import read_queue_split
from tandem.spark.commitlog.split import LogSplit, LostRange, QueueSplit

_OF_BODIES: Final = frozenset({"body", "crcOk", "error"})
"""Columns that say something about bodies: for none of them, no CRC is worth its time."""

Part: TypeAlias = LogSplit | QueueSplit | LostRange


def read_part(
    part: Part | None, options: ScanOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of a part in log order, with the columns called `names`.

    Those of the option `bodySchema` are made here. None is what Spark makes up where there is no
    part.

    Raises:
        LogDamagedError: a record is torn or corrupt and `options.on_error` is `fail`.
        DataLossError: a file is gone and `options.fail_on_data_loss` is true.
    """
    yield from with_bodies(lambda stored: _read(part, options, stored), names, options.body_schema)


def _read(
    part: Part | None, options: ScanOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    if options.check_crc and _OF_BODIES.isdisjoint(names):
        options = msgspec.structs.replace(options, check_crc=False)
    match part:
        case LogSplit():
            yield from read_scan(part, options, names)
        case QueueSplit():
            yield from read_queue_split(part, options, names)
        case LostRange():
            yield from read_lost(part, options, names)
