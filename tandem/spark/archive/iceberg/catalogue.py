"""The catalogue of a table: a file of SQLite in the archive, or what the settings name.

Every property is PyIceberg's, so REST, Hive, Glue or a database will do. Secrets come from its
environment, `PYICEBERG_CATALOG__TANDEM__...`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import requests
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    ValidationException,
)
from sqlalchemy.exc import SQLAlchemyError

from tandem.durable_file import make_directory
from tandem.spark.archive.errors import ArchiveTableError, TableFault
from tandem.spark.archive.iceberg.data_files import location_of
from tandem.spark.archive.iceberg.durable_io import IO_NAME
from tandem.spark.archive.table_note import TABLE_FOLDER, TableNote

CATALOGUE_NAME: Final = "tandem"
CATALOGUE_FILE: Final = "catalogue.db"

_REFUSALS: Final = (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    ValidationException,
    SQLAlchemyError,
    requests.RequestException,
)


@contextmanager
def open_catalogue(archive: Path, note: TableNote) -> Iterator[Catalog]:
    """Open the catalogue that a note names, for a while.

    Raises:
        ArchiveTableError: it does not answer, or does not know what it is asked for.
    """
    with asked(note):
        catalogue = load_catalog(CATALOGUE_NAME, **_properties(archive, note.catalogue))
        try:
            yield catalogue
        finally:
            catalogue.close()


@contextmanager
def asked(note: TableNote) -> Iterator[None]:
    """Say what a catalogue refuses in words of an archive."""
    try:
        yield
    except _REFUSALS as error:
        words = str(error).partition("\n")[0]
        raise ArchiveTableError(
            f"the catalogue of the table {note.name} refuses: {words}"
            " (the manifest of the archive is not affected; run the same command again)",
            TableFault.CATALOGUE,
        ) from error


def _properties(archive: Path, given: Mapping[str, str]) -> dict[str, str]:
    io = {"py-io-impl": IO_NAME}
    if given:
        return io | dict(given)
    folder = archive / TABLE_FOLDER
    make_directory(folder)
    return io | {
        "type": "sql",
        "uri": f"sqlite:///{folder / CATALOGUE_FILE}",
        "warehouse": location_of(folder),
    }
