"""The columns and partitions of the table of an archive.

A table is made with the columns of `BASE`. What came later is added, a column at a time and in this
order, to new tables and to old ones: so each column has the same number in every table, which is
the one in the footers of data files. Columns that somebody else has added stay.
"""

from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from tandem.spark.archive.columns import BROKER, FIELD_IDS
from tandem.spark.archive.derived import DERIVED_SCHEMA

_TYPES: Final[dict[str, IcebergType]] = {
    "topic": StringType(),
    BROKER: StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "physicalOffset": LongType(),
    "storeSize": IntegerType(),
    "flag": IntegerType(),
    "sysFlag": IntegerType(),
    "bornTimestamp": TimestamptzType(),
    "storeTimestamp": TimestamptzType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "reconsumeTimes": IntegerType(),
    "preparedTransactionOffset": LongType(),
    "keys": StringType(),
    "tags": StringType(),
    "properties": MapType(
        FIELD_IDS["properties.key"],
        StringType(),
        FIELD_IDS["properties.value"],
        StringType(),
        value_required=False,
    ),
    "body": BinaryType(),
    "bodyCrc": IntegerType(),
    "version": IntegerType(),
}

BASE: Final = Schema(
    *(NestedField(FIELD_IDS[name], name, kind, required=False) for name, kind in _TYPES.items())
)

ADDED: Final[dict[str, IcebergType]] = {
    name: StringType() for name in DERIVED_SCHEMA.names if name not in _TYPES
}
"""Columns that came after the first version, in the order in which they came."""

PARTITIONS: Final = PartitionSpec(
    PartitionField(FIELD_IDS["topic"], 1000, IdentityTransform(), "topic"),
    PartitionField(FIELD_IDS["storeTimestamp"], 1001, DayTransform(), "storeTimestamp_day"),
)
"""A data file has one topic and one UTC day, so it is in one partition as it is."""


def name_mapping(schema: Schema) -> NameMapping:
    """Return how columns of files without numbers are known: by their names."""
    return schema.name_mapping


def numbers(schema: Schema) -> dict[str, int]:
    """Return the number of each column that we know, as a table has it."""
    found = {}
    for name in (*_TYPES, *ADDED, "properties.key", "properties.value"):
        try:
            found[name] = schema.find_field(name).field_id
        except ValueError:
            continue
    return found
