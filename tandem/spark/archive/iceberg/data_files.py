"""Data files as a table knows them: where they are, their partition, and what footers say."""

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from tandem.spark.archive.manifest import DataFilePart

_EPOCH: Final = date(1970, 1, 1)
_SCHEME: Final = re.compile(r"^file:(?://)?(?=/)")


def location_of(place: Path) -> str:
    """Return a path as tables name it: literally, with nothing escaped."""
    return f"file://{place}"


def path_of(location: str) -> Path:
    """Return the path that a location of this machine names. Hadoop writes `file:/`."""
    return Path(_SCHEME.sub("", location))


def data_files(
    archive: Path, parts: Sequence[DataFilePart], metadata: TableMetadata
) -> list[DataFile]:
    """Return files of an archive, with their statistics, as files of a table.

    Raises:
        OSError: one of them is not there.
    """
    schema = metadata.schema()
    plan = compute_statistics_plan(schema, metadata.properties)
    numbers = parquet_path_to_id_mapping(schema)
    found = []
    for part in parts:
        place = archive / part.path
        with pq.ParquetFile(place) as file:
            statistics = data_file_statistics_from_parquet_metadata(file.metadata, plan, numbers)
        day = (date.fromisoformat(part.date) - _EPOCH).days
        found.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=location_of(place),
                file_format=FileFormat.PARQUET,
                partition=Record(part.topic, day),
                file_size_in_bytes=part.size_bytes,
                sort_order_id=None,
                spec_id=metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )
    return found
