from pathlib import Path

import pytest

from tandem.spark.archive.iceberg.lineage import lineage
from tandem.spark.archive.iceberg.upkeep import expire
from tests.support.archive_tables import TABLE, plain_table
from tests.support.small_archive import SmallArchive


@pytest.mark.slow
def test_snapshots_are_in_order_and_end_where_one_is_forgotten(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    with plain_table(small.archive_path) as table:
        known = [snapshot.snapshot_id for snapshot in lineage(table)]
        assert known == [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    expire(small.archive_path, 1 << 45, keep=2)
    with plain_table(small.archive_path) as table:
        assert [snapshot.snapshot_id for snapshot in lineage(table)] == known[-2:]
