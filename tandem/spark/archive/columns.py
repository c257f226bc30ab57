"""The columns of an archive: those of the log, by broker instead of by store directory.

`topic` and the date are in the path of a file, as Spark and Hive have it, and our readers take them
from there. What only says how a log was read (`store`, `crcOk`, `error`) is left out: damaged
records are not archived.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from tandem.spark.archive.derived import DERIVED_SCHEMA
from tandem.spark.record_batches import COLUMNS

BROKER: Final = "brokerName"

FILE_COLUMNS: Final[tuple[str, ...]] = (
    BROKER,
    *(name for name in COLUMNS if name not in ("topic", "crcOk", "store", "error")),
)
"""In every data file, in this order; what is derived from them comes after them."""

ALL_COLUMNS: Final[tuple[str, ...]] = ("topic", *FILE_COLUMNS)

FILE_SCHEMA: Final = pa.schema(
    [(name, pa.string() if name == BROKER else COLUMNS[name][0]) for name in FILE_COLUMNS]
)

FIELD_IDS: Final[Mapping[str, int]] = {
    "topic": 1,
    BROKER: 2,
    "queueId": 3,
    "queueOffset": 4,
    "physicalOffset": 5,
    "storeSize": 6,
    "flag": 7,
    "sysFlag": 8,
    "bornTimestamp": 9,
    "storeTimestamp": 10,
    "bornHost": 11,
    "storeHost": 12,
    "reconsumeTimes": 13,
    "preparedTransactionOffset": 14,
    "keys": 15,
    "tags": 16,
    "properties": 17,
    "body": 18,
    "bodyCrc": 19,
    "version": 20,
    "properties.key": 21,
    "properties.value": 22,
    "uniqueKey": 23,
    "kind": 24,
    "consumerGroup": 25,
    "originTopic": 26,
    "originMessageId": 27,
}
"""By what readers of tables know a column, whatever it is called. A number is never used again."""

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
    "topic",
    "kind",
    "consumerGroup",
    "originTopic",
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


def _with_id(field: pa.Field, name: str) -> pa.Field:
    kind = field.type
    if pa.types.is_map(kind):
        kind = pa.map_(
            _with_id(kind.key_field, f"{name}.key"), _with_id(kind.item_field, f"{name}.value")
        )
    number = str(FIELD_IDS[name])
    return pa.field(field.name, kind, field.nullable, {"PARQUET:field_id": number})


WRITTEN_SCHEMA: Final = pa.schema(
    [_with_id(field, field.name) for field in (*FILE_SCHEMA, *DERIVED_SCHEMA)]
)
"""What a data file has, with the number of each column, as they are in its footer."""
