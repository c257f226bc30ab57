"""Readers of the Iceberg table of an archive that know nothing of ours, and catalogues that die."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow.dataset as ds
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.iceberg.durable_io import DurableFileIO
from tandem.spark.archive.iceberg.table import ArchiveTable, archive_table
from tandem.spark.archive.manifest import Manifest
from tandem.spark.archive.read import plan_archive, read_piece
from tests.support.small_archive import CrashError

TABLE = "logs.messages"
SELECTED = ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "keys", "body")
Row = tuple[Any, ...]


def catalogue_file(archive: Path) -> str:
    """Where the catalogue of an archive is, as an address: in it, or beside it."""
    beside = archive.parent / "catalogue.db"
    return f"sqlite:///{beside if beside.exists() else archive / 'table' / 'catalogue.db'}"


@contextmanager
def plain_table(archive: Path) -> Iterator[Table]:
    """Open the table as any program with PyIceberg does."""
    catalogue: Catalog = load_catalog("tandem", type="sql", uri=catalogue_file(archive))
    try:
        yield catalogue.load_table(TABLE)
    finally:
        catalogue.close()


@contextmanager
def our_table(archive: Path) -> Iterator[ArchiveTable]:
    """Open the table as our commands do."""
    with archive_table(archive, LocalDisk()) as table:
        yield table


def rows_of_manifest(manifest: Manifest) -> list[Row]:
    """The rows that the manifest counts."""
    return sorted(
        tuple(row[name] for name in SELECTED)
        for piece in plan_archive(manifest)
        for batch in read_piece(piece, SELECTED)
        for row in batch.to_pylist()
    )


def rows_of_pyiceberg(archive: Path, snapshot_id: int | None = None) -> list[Row]:
    """The rows that PyIceberg reads."""
    with plain_table(archive) as table:
        found = table.scan(selected_fields=SELECTED, snapshot_id=snapshot_id).to_arrow()
    return sorted(tuple(row[name] for name in SELECTED) for row in found.to_pylist())


def files_of_table(archive: Path) -> list[str]:
    """The data files that the table has now."""
    with plain_table(archive) as table:
        return sorted(
            task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()
        )


def rows_of_duckdb(archive: Path) -> list[Row]:
    """The rows that DuckDB's own reader of Parquet finds in the files of the table."""
    names = ", ".join(SELECTED)
    with duckdb.connect() as connection:
        query = f"SELECT {names} FROM read_parquet($files, hive_partitioning = false)"
        found = connection.execute(query, {"files": files_of_table(archive)}).fetchall()
    return sorted(found)


def rows_of_pyarrow(archive: Path) -> list[Row]:
    """The rows that a dataset of pyarrow finds in the files of the table."""
    dataset = ds.dataset(files_of_table(archive))
    found = dataset.to_table(columns=list(SELECTED))
    return sorted(tuple(row[name] for name in SELECTED) for row in found.to_pylist())


class DyingIO(DurableFileIO):
    """Ends the world instead of writing a file of the table."""

    left: ClassVar[int] = 1 << 30

    def new_output(self, location: str) -> PyArrowFile:
        """See `DurableFileIO`."""
        DyingIO.left -= 1
        if DyingIO.left < 0:
            raise CrashError
        return super().new_output(location)


class DyingCatalogue(SqlCatalog):
    """Ends the world before a commit, or after it: then it has been done, and nobody knows."""

    before: ClassVar[int] = 1 << 30
    after: ClassVar[int] = 1 << 30

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """See `Catalog`."""
        DyingCatalogue.before -= 1
        if DyingCatalogue.before < 0:
            raise CrashError
        answer = super().commit_table(table, requirements, updates)
        DyingCatalogue.after -= 1
        if DyingCatalogue.after < 0:
            raise CrashError
        return answer


def dying_catalogue(archive: Path) -> dict[str, str]:
    """The properties of a catalogue of SQLite with the two above."""
    return {
        "py-catalog-impl": f"{__name__}.DyingCatalogue",
        "py-io-impl": f"{__name__}.DyingIO",
        "uri": f"sqlite:///{archive.parent / 'catalogue.db'}",
    }
