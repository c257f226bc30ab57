from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import LongType

from tandem.spark.archive.columns import FIELD_IDS
from tandem.spark.archive.iceberg.data_files import data_files, location_of, path_of
from tests.support.archive_tables import TABLE, our_table
from tests.support.small_archive import SmallArchive


@pytest.mark.parametrize("name", ["a", "topic=%25RETRY%25g", "a b", "übung"])
def test_a_location_is_the_path_as_it_is(tmp_path: Path, name: str) -> None:
    assert location_of(tmp_path / name) == f"file://{tmp_path}/{name}"
    assert path_of(location_of(tmp_path / name)) == tmp_path / name
    # As Hadoop's file system writes it.
    assert path_of(f"file:{tmp_path}/{name}") == tmp_path / name


@pytest.mark.slow
def test_a_file_has_its_partition_its_size_and_its_bounds(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    with our_table(small.archive_path) as table:
        parts = small.unit().files
        found = data_files(small.archive_path, parts, table.iceberg.metadata)
    for file, part in zip(found, parts, strict=True):
        assert file.record_count == part.rows
        assert file.file_size_in_bytes == (small.archive_path / part.path).stat().st_size
        day = (date.fromisoformat(part.date) - date(1970, 1, 1)).days
        assert (file.partition[0], file.partition[1]) == (part.topic, day)
        offsets = pq.read_table(small.archive_path / part.path)["physicalOffset"].to_pylist()
        number = FIELD_IDS["physicalOffset"]
        assert from_bytes(LongType(), file.lower_bounds[number]) == min(offsets)
        assert from_bytes(LongType(), file.upper_bounds[number]) == max(offsets)
        assert FIELD_IDS["body"] not in file.lower_bounds
