"""Numbers of columns are for ever: in tables, in footers of files, and in what comes later."""

from pathlib import Path

import pytest
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType

from tandem.spark.archive.columns import ALL_COLUMNS, FIELD_IDS
from tandem.spark.archive.errors import ArchiveTableError, TableFault
from tandem.spark.archive.iceberg import schema, table
from tandem.spark.archive.iceberg.schema import ADDED, BASE, PARTITIONS, name_mapping, numbers
from tests.support.archive_tables import TABLE, plain_table
from tests.support.small_archive import SmallArchive


def test_a_new_table_gives_each_column_the_number_of_its_files() -> None:
    metadata = new_table_metadata(BASE, PARTITIONS, UNSORTED_SORT_ORDER, "file:///t", {})
    assert numbers(metadata.schema()) == {
        name: number for name, number in FIELD_IDS.items() if name not in ADDED
    }
    spec = metadata.spec()
    assert [(field.source_id, str(field.transform)) for field in spec.fields] == [
        (FIELD_IDS["topic"], "identity"),
        (FIELD_IDS["storeTimestamp"], "day"),
    ]


def test_every_column_has_a_number_and_none_is_used_twice() -> None:
    assert set(FIELD_IDS) == {*ALL_COLUMNS, *ADDED, "properties.key", "properties.value"}
    assert list(FIELD_IDS)[-len(ADDED) :] == list(ADDED)
    assert sorted(FIELD_IDS.values()) == list(range(1, len(FIELD_IDS) + 1))


def test_files_without_numbers_are_known_by_names() -> None:
    mapping = {field.names[0]: field for field in name_mapping(BASE).root}
    assert mapping["queueId"].field_id == FIELD_IDS["queueId"]
    inner = {field.names[0]: field.field_id for field in mapping["properties"].fields}
    assert inner["value"] == FIELD_IDS["properties.value"]


@pytest.mark.slow
def test_a_column_that_comes_later_is_added_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    number = len(FIELD_IDS) + 1
    for module in (schema, table):
        monkeypatch.setattr(module, "ADDED", ADDED | {"later": LongType()})
    monkeypatch.setattr(table, "FIELD_IDS", {**FIELD_IDS, "later": number})
    small.archive()
    small.archive()
    with plain_table(small.archive_path) as found:
        assert found.schema().find_field("later").field_id == number
        assert found.scan(selected_fields=("later", "topic")).to_arrow()["later"].null_count
        names = found.name_mapping()
        assert names is not None
        assert number in [field.field_id for field in names.root]


@pytest.mark.slow
def test_a_number_that_somebody_else_has_taken_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    with plain_table(small.archive_path) as found, found.update_schema() as change:
        change.add_column("theirs", LongType())
    for module in (schema, table):
        monkeypatch.setattr(module, "ADDED", ADDED | {"later": LongType()})
    monkeypatch.setattr(table, "FIELD_IDS", {**FIELD_IDS, "later": len(FIELD_IDS) + 1})
    with pytest.raises(ArchiveTableError) as caught:
        small.archive()
    assert caught.value.fault is TableFault.FOREIGN
