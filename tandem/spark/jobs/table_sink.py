"""The Iceberg table of an archive, for the job that writes it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.spark.archive.disk import Disk
from tandem.spark.archive.table_note import need_iceberg, read_note, write_note

if TYPE_CHECKING:
    from tandem.spark.archive.iceberg.table import ArchiveTable


@contextmanager
def opened_table(
    archive: Path, name: str, catalogue: Mapping[str, str], disk: Disk
) -> "Iterator[ArchiveTable | None]":
    """Open the table `name`, and make it if need be; without a name the one that there is, or None.

    Raises:
        ArchiveTableError: the archive is another table, or its catalogue does not answer.
    """
    if not name and read_note(archive) is None:
        yield None
        return
    need_iceberg()
    from tandem.spark.archive.iceberg.table import archive_table  # noqa: PLC0415 - an extra

    if name:
        write_note(archive, name, catalogue, disk)
    with archive_table(archive, disk) as table:
        table.prepare()
        yield table
