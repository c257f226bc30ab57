from pathlib import Path

import pytest

from tandem.spark.archive.errors import ArchiveTableError, TableFault
from tandem.spark.archive.iceberg.catalogue import CATALOGUE_FILE, open_catalogue
from tandem.spark.archive.iceberg.durable_io import IO_NAME
from tandem.spark.archive.table_note import TableNote
from tests.support.archive_tables import TABLE, rows_of_manifest
from tests.support.loopback import own_network
from tests.support.small_archive import SmallArchive


def test_without_properties_it_is_a_file_in_the_archive(tmp_path: Path) -> None:
    with open_catalogue(tmp_path, TableNote(TABLE)) as catalogue:
        catalogue.create_namespace("logs")
        assert catalogue.properties["py-io-impl"] == IO_NAME
    assert (tmp_path / "table" / CATALOGUE_FILE).is_file()
    with open_catalogue(tmp_path, TableNote(TABLE)) as catalogue:
        assert catalogue.list_namespaces() == [("logs",)]


@pytest.mark.slow
def test_another_place_will_do(tmp_path: Path) -> None:
    catalogue = {"type": "sql", "uri": f"sqlite:///{tmp_path}/elsewhere.db"}
    small = SmallArchive(tmp_path, 60).archive(table=TABLE, catalogue=catalogue)
    assert small.report.table_rows == len(rows_of_manifest(small.manifest))
    assert (tmp_path / "elsewhere.db").exists()
    assert not (small.archive_path / "table" / CATALOGUE_FILE).exists()


@pytest.mark.parametrize(
    "catalogue",
    [
        {"type": "sql", "uri": "sqlite:////nowhere/at/all.db"},
        {"type": "rest", "uri": f"http://{own_network()}.1:1"},
    ],
)
def test_one_that_does_not_answer_is_an_error(tmp_path: Path, catalogue: dict[str, str]) -> None:
    with (
        pytest.raises(ArchiveTableError) as caught,
        open_catalogue(tmp_path, TableNote(TABLE, catalogue)) as opened,
    ):
        opened.load_table(TABLE)
    assert caught.value.fault is TableFault.CATALOGUE


def test_a_table_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(ArchiveTableError) as caught,
        open_catalogue(tmp_path, TableNote(TABLE)) as catalogue,
    ):
        catalogue.load_table(TABLE)
    assert caught.value.fault is TableFault.CATALOGUE
