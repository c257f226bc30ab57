"""The columns of the source `tandem`: those of a record, and where it was read."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tandem.spark.record_batches import COLUMNS

_OF_FILES = ("store", "error")
"""Columns that only say something of log files."""

OF_BROKERS: Final = {"brokerName": pa.string(), "clusterName": pa.string()}
"""What a record does not say of itself."""


def _types() -> dict[str, pa.DataType]:
    of_records = {name: kind for name, (kind, _) in COLUMNS.items() if name not in _OF_FILES}
    topic = of_records.pop("topic")
    return {"topic": topic, **OF_BROKERS, **of_records}


TYPES: Final[dict[str, pa.DataType]] = _types()
"""Every column, in the order of the schema."""

SCHEMA: Final[StructType] = from_arrow_schema(pa.schema(list(TYPES.items())))


def every_column(of_bodies: Mapping[str, pa.DataType]) -> StructType:
    """Return the schema of all columns, and of those that are made of bodies."""
    return StructType([*SCHEMA.fields, *from_arrow_schema(pa.schema([*of_bodies.items()]))])


def schema_of(names: Sequence[str], of_bodies: Mapping[str, pa.DataType]) -> StructType:
    """Return the schema of the columns called `names`, all of which exist."""
    every = every_column(of_bodies)
    return StructType([every[name] for name in names])
