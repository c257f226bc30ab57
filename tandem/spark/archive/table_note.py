"""Which table an archive is, as a note in the archive: `_tandem/table.json`.

Whoever opens the archive later finds its table by this note. It has no secrets: PyIceberg reads
those from its own environment, `PYICEBERG_CATALOG__TANDEM__TOKEN` and the like.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from tandem.spark.archive.disk import Disk
from tandem.spark.archive.errors import (
    ArchiveDamagedError,
    ArchiveFault,
    ArchiveTableError,
    TableFault,
)
from tandem.spark.archive.manifest import META
from tandem.wire.untrusted import UnreadableError, decode_json

TABLE_FOLDER: Final = "table"
"""Under the archive: metadata, the catalogue if it is a file, and what was merged."""

_PACKAGES: Final = ("pyiceberg", "pyarrow", "sqlalchemy")
_SECRETS: Final = re.compile(
    r"token|credential|password|secret|session|account-key|connection-string|authorization|\bauth\b",
    re.IGNORECASE,
)
_PASSWORD_IN_URI: Final = re.compile(
    r"^[a-z0-9+._-]+://[^/@]*:[^@]+@|[?&;](?:password|token)=", re.IGNORECASE
)
_NOT_IN_A_LOCATION: Final = re.compile(r"[?#]")


class TableNote(msgspec.Struct, frozen=True):
    """The table `name` in a catalogue; without properties it is a file of SQLite in the archive."""

    name: str
    catalogue: dict[str, str] = {}


def note_place(archive: Path) -> Path:
    """Return where the note of an archive is."""
    return archive / META / "table.json"


def read_note(archive: Path) -> TableNote | None:
    """Return which table an archive is; None if it is none.

    Raises:
        ArchiveDamagedError: the note cannot be read.
    """
    place = note_place(archive)
    try:
        data = place.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return decode_json(data, TableNote)
    except UnreadableError as error:
        raise ArchiveDamagedError(
            f"{place} is damaged ({error}); remove it, and name the table again in the settings"
            " of the archive job",
            ArchiveFault.UNREADABLE,
        ) from error


def write_note(archive: Path, name: str, catalogue: Mapping[str, str], disk: Disk) -> TableNote:
    """Say which table an archive is, or see that it is the one that was said.

    Raises:
        ArchiveTableError: the archive is another table, or there is a secret in `catalogue`.
    """
    note = TableNote(name, dict(catalogue))
    known = read_note(archive)
    if known is not None:
        if known != note:
            raise ArchiveTableError(
                f"{archive} is the table {known.name} in {known.catalogue or 'its own catalogue'};"
                f" name that one in the settings, or remove {note_place(archive)} to begin another",
                TableFault.OTHER_TABLE,
            )
        return known
    for key, value in catalogue.items():
        if _SECRETS.search(key) or _PASSWORD_IN_URI.search(value):
            variable = re.sub(r"[.-]", lambda found: "__" if found[0] == "." else "_", key)
            raise ArchiveTableError(
                f"catalogue: {key} holds a secret, and the archive would keep it in plain text;"
                f" leave it out, and set PYICEBERG_CATALOG__TANDEM__{variable.upper()}",
                TableFault.SECRET,
            )
    if _NOT_IN_A_LOCATION.search(str(archive)):
        raise ArchiveTableError(
            f"{archive}: a table cannot be at a path with ? or #; name another directory",
            TableFault.PLACE,
        )
    disk.write(note_place(archive), msgspec.json.format(msgspec.json.encode(note)))
    return note


def need_iceberg() -> None:
    """See that the packages for tables are there.

    Raises:
        ArchiveTableError: they are not.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ArchiveTableError(
            f"the Python package {missing[0]} is missing: pip install 'tandem-mq[iceberg]'",
            TableFault.NOT_INSTALLED,
        )
