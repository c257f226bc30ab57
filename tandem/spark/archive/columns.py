"""The columns of an archive: those of the log, by broker instead of by store directory.

`topic` and the date are in the path of a file, as Spark and Hive have it. What only says how a log
was read (`store`, `crcOk`, `error`) is left out: damaged records are not archived.
"""

from typing import Final

import pyarrow as pa

from tandem.spark.record_batches import COLUMNS

BROKER: Final = "brokerName"

FILE_COLUMNS: Final[tuple[str, ...]] = (
    BROKER,
    *(name for name in COLUMNS if name not in ("topic", "crcOk", "store", "error")),
)
"""In every data file, in this order."""

ALL_COLUMNS: Final[tuple[str, ...]] = ("topic", *FILE_COLUMNS)

FILE_SCHEMA: Final = pa.schema(
    [(name, pa.string() if name == BROKER else COLUMNS[name][0]) for name in FILE_COLUMNS]
)

DICTIONARY_COLUMNS: Final = [
    BROKER,
    "queueId",
    "bornHost",
    "storeHost",
    "tags",
    "flag",
    "sysFlag",
    "version",
    "reconsumeTimes",
    "properties.key_value.key",
]
"""Columns of few values. For the others a dictionary costs time and saves nothing."""


def file_batch(batch: pa.RecordBatch, broker: str) -> pa.RecordBatch:
    """Return records of the log as an archive has them."""
    arrays = [
        pa.repeat(pa.scalar(broker, pa.string()), len(batch))
        if name == BROKER
        else batch.column(name)
        for name in FILE_COLUMNS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=FILE_SCHEMA)
