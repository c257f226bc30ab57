"""The table of an archive: every publish of the manifest is one snapshot of it, exactly once.

    1  data files get their names     2  the unit is written down      (archive.publish)
    3  the table takes the files of the unit: one commit of the catalogue, which has
           the snapshot, with the name of the publish in its summary, and
           the property `tandem-end-GROUP`, the physical offset up to which the table has the group
    4  `version-hint.text` names the metadata, for readers without a catalogue

A job that dies between 2 and 3 leaves a unit that the table lacks: the next one sees it by the
property, which no expiry of snapshots takes away. After 3 the property says that it is there. Of a
unit before that offset, which fills a gap of the manifest, the table is asked for its rows as long
as the unit is not verified. The manifest stays what it is, and a table can be made from it anew at
any time.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tandem.spark.archive.columns import BROKER, FIELD_IDS
from tandem.spark.archive.disk import Disk
from tandem.spark.archive.errors import ArchiveTableError, TableFault
from tandem.spark.archive.iceberg.catalogue import asked, open_catalogue
from tandem.spark.archive.iceberg.data_files import data_files, location_of, path_of
from tandem.spark.archive.iceberg.lineage import lineage
from tandem.spark.archive.iceberg.schema import ADDED, BASE, PARTITIONS, name_mapping, numbers
from tandem.spark.archive.manifest import Unit, UnitState
from tandem.spark.archive.table_note import TABLE_FOLDER, TableNote, read_note

PUBLISH: Final = "tandem-publish"
END: Final = "tandem-end-"
"""Before the name of a group: the physical offset up to which the table has its log."""

FILLED: Final = "tandem-filled-"
"""Before the name of a group: the offset from which a snapshot has what those before it lack."""

_OURS: Final = "tandem-archive"
_PROPERTIES: Final = {
    "format-version": "2",
    _OURS: "1",
    # Other engines must not delete data files: they belong to the manifest, too.
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
    # Bounds of these would be of no use to a query.
    "write.metadata.metrics.column.body": "counts",
    "write.metadata.metrics.column.properties.key": "counts",
    "write.metadata.metrics.column.properties.value": "counts",
}


class TableState(msgspec.Struct, frozen=True):
    """What a table says of itself. `ends` is by group; times are in milliseconds."""

    name: str
    metadata: str
    snapshots: int
    snapshot_id: int | None
    published: str
    rows: int
    files: int
    ends: dict[str, int]


class ArchiveTable:
    """The open table of an archive. The job that writes to it holds the archive."""

    def __init__(self, archive: Path, note: TableNote, catalogue: Catalog, disk: Disk) -> None:
        self._archive = archive
        self._note = note
        self._catalogue = catalogue
        self._disk = disk
        self._table: Table | None = None

    @property
    def iceberg(self) -> Table:
        """The table as PyIceberg has it.

        Raises:
            ArchiveTableError: the catalogue has none, or another one of that name.
        """
        if self._table is None:
            with asked(self._note):
                try:
                    self._table = self._load()
                except NoSuchTableError as error:
                    raise ArchiveTableError(
                        f"the catalogue has no table {self._note.name}; `tandem archive rebuild`"
                        " makes it anew from the manifest, also where it was ended before",
                        TableFault.NONE,
                    ) from error
            self._check(self._table)
        return self._table

    def prepare(self) -> None:
        """Make the table if there is none, and give it the columns that it lacks."""
        with asked(self._note):
            try:
                table = self._load()
            except NoSuchTableError:
                table = self._create()
            self._check(table)
            known = numbers(table.schema())
            missing = [name for name in ADDED if name not in known]
            if missing:
                with table.update_schema() as change:
                    for name in missing:
                        change.add_column(name, ADDED[name])
        if numbers(table.schema()) != FIELD_IDS:
            raise ArchiveTableError(
                f"the table {self._note.name} has other columns than this version writes, or under"
                " other numbers; `tandem archive rebuild` makes it anew from the manifest",
                TableFault.FOREIGN,
            )
        self._table = table
        self.note_version()

    def ends(self) -> dict[str, int]:
        """Return by group the physical offset up to which the table has its log."""
        return {
            name.removeprefix(END): int(value)
            for name, value in self.iceberg.properties.items()
            if name.startswith(END)
        }

    def append(self, units: Iterable[Unit]) -> list[Unit]:
        """Take the files of units of one group in one snapshot; return which were new.

        Raises:
            ArchiveTableError: it has some rows of a unit, in files that have others, too.
        """
        ends = self.ends()
        old: list[DataFile] = []
        new: list[Unit] = []
        for unit in units:
            if (stale := self._stale(unit, ends.get(unit.group, 0))) is not None:
                old += stale
                new.append(unit)
        if not new:
            return []
        last = max(new, key=lambda unit: unit.end)
        end = ends.get(last.group, 0)
        ends[last.group] = max(end, last.end)
        marks = {f"{END}{group}": str(end) for group, end in ends.items()}
        names = {PUBLISH: last.name, "tandem-publish-first": new[0].name}
        first = min(unit.first for unit in new)
        if first < end:
            names[f"{FILLED}{last.group}"] = str(first)
        parts = [part for unit in new for part in unit.files]
        with asked(self._note), self.iceberg.transaction() as change:
            files = data_files(self._archive, parts, change.table_metadata)
            change.set_properties(marks)
            update = change.update_snapshot(snapshot_properties=marks | names)
            snapshot = update.overwrite() if old else update.merge_append()
            for file in old:
                snapshot.delete_data_file(file)
            for file in files:
                snapshot.append_data_file(file)
            snapshot.commit()
        self.note_version()
        return new

    def _stale(self, unit: Unit, end: int) -> list[DataFile] | None:
        """Return which files those of a unit take the places of; None if the table has the unit.

        `end` is where the table ends. What is verified was in the table before; of a unit before
        that end, which was removed and archived again, or never was there, it is asked.
        """
        if unit.first >= end:
            return []
        if unit.end <= end and unit.state is UnitState.VERIFIED:
            return None
        rows = And(
            EqualTo(BROKER, unit.group),  # type: ignore[arg-type, call-arg] # as documented
            GreaterThanOrEqual("physicalOffset", unit.first),  # type: ignore[arg-type, call-arg]
            LessThan("physicalOffset", unit.end),  # type: ignore[arg-type, call-arg]
        )
        scan = self.iceberg.scan(rows)
        parts = {self._archive / part.path: part for part in unit.files}
        own: list[DataFile] = []
        others: list[DataFile] = []
        for task in scan.plan_files():
            (own if path_of(task.file.file_path) in parts else others).append(task.file)
        # Files of the unit are already the new ones where they are, and all their rows are its.
        named = [parts[path_of(file.file_path)] for file in own]
        own_rows = sum(part.rows for part in named)
        other_rows = scan.count() - own_rows if others else 0
        if own_rows + other_rows == unit.rows and all(
            (file.file_size_in_bytes, file.record_count) == (part.size_bytes, part.rows)
            for file, part in zip(own, named, strict=True)
        ):
            return None
        if not other_rows:
            return own
        if sum(file.record_count for file in others) != other_rows:
            raise ArchiveTableError(
                f"the table {self._note.name} has other rows of {unit.name} than the manifest, in"
                " files with those of other units; `tandem archive rebuild` makes the table anew"
                " from the manifest",
                TableFault.OTHER_ROWS,
            )
        return own + others

    def catch_up(self, units: Sequence[Unit]) -> list[Unit]:
        """Take what the manifest has and the table lacks, in one snapshot a group."""
        groups = sorted({unit.group for unit in units})
        return [
            unit
            for group in groups
            for unit in self.append(unit for unit in units if unit.group == group)
        ]

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Put files in the places of others that have the same rows, in one snapshot."""
        marks = {f"{END}{group}": str(end) for group, end in self.ends().items()}
        with asked(self._note), self.iceberg.transaction() as change:
            snapshot = change.update_snapshot(snapshot_properties=marks).overwrite()
            for file in old:
                snapshot.delete_data_file(file)
            for file in new:
                snapshot.append_data_file(file)
            snapshot.commit()
        self.note_version()

    def forget(self, snapshot_ids: list[int]) -> None:
        """Take snapshots out of the metadata. What they name stays until orphans are removed."""
        with asked(self._note):
            self.iceberg.maintenance.expire_snapshots().by_ids(snapshot_ids).commit()
        self.note_version()

    def drop(self) -> None:
        """Take the table out of the catalogue. Its files stay.

        Raises:
            ArchiveTableError: it is that of something else, or of an archive that is still there.
        """
        self._table = None
        with asked(self._note):
            try:
                table = self._catalogue.load_table(self._note.name)
            except NoSuchTableError:
                return
            except FileNotFoundError:
                table = None  # the archive was moved, and its catalogue with it
            if table is not None and not self._may_go(table):
                raise ArchiveTableError(
                    f"the table {self._note.name} belongs to what is at {table.location()};"
                    " give this archive another table",
                    TableFault.FOREIGN,
                )
            self._catalogue.drop_table(self._note.name)

    def state(self) -> TableState:
        """Return what the table says of itself."""
        table = self.iceberg
        snapshot = table.current_snapshot()
        summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary
        published = next(
            (
                each.summary[PUBLISH]
                for each in reversed(lineage(table))
                if each.summary is not None and each.summary.get(PUBLISH)
            ),
            "",
        )
        return TableState(
            name=self._note.name,
            metadata=str(path_of(table.metadata_location)),
            snapshots=len(table.metadata.snapshots),
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            published=published or "",
            rows=int(summary.get("total-records") or 0),
            files=int(summary.get("total-data-files") or 0),
            ends=self.ends(),
        )

    def note_version(self) -> None:
        """Name the metadata in `version-hint.text`, as readers without a catalogue look for it."""
        metadata = path_of(self.iceberg.metadata_location)
        hint = metadata.parent / "version-hint.text"
        name = metadata.name.removesuffix(".metadata.json").encode()
        if not hint.is_file() or hint.read_bytes() != name:
            self._disk.write(hint, name)

    def _load(self) -> Table:
        try:
            return self._catalogue.load_table(self._note.name)
        except FileNotFoundError as error:
            raise ArchiveTableError(
                f"the metadata of the table {self._note.name} is not where the catalogue says:"
                f" {error}. Was {self._archive} moved or copied? `tandem archive rebuild` makes"
                " the table anew from the manifest",
                TableFault.MOVED,
            ) from error

    def _may_go(self, table: Table) -> bool:
        """Say whether a table is ours, and not that of an archive that is still there."""
        place = path_of(table.location())
        is_elsewhere = place != self._archive / TABLE_FOLDER and place.exists()
        return _OURS in table.properties and not is_elsewhere

    def _create(self) -> Table:
        namespace = self._note.name.rpartition(".")[0]
        self._catalogue.create_namespace_if_not_exists(namespace)
        return self._catalogue.create_table(
            self._note.name,
            BASE,
            location=location_of(self._archive / TABLE_FOLDER),
            partition_spec=PARTITIONS,
            properties=_PROPERTIES
            | {"schema.name-mapping.default": name_mapping(BASE).model_dump_json()},
        )

    def _check(self, table: Table) -> None:
        """See that it is the table of this archive, at this place."""
        if _OURS not in table.properties:
            raise ArchiveTableError(
                f"the table {self._note.name} was not made by an archive; name another one",
                TableFault.FOREIGN,
            )
        place = location_of(self._archive / TABLE_FOLDER)
        if table.location() != place:
            raise ArchiveTableError(
                f"the table {self._note.name} is at {table.location()}, and the archive at"
                f" {self._archive}: was it moved or copied? `tandem archive rebuild` makes the"
                " table anew from the manifest",
                TableFault.MOVED,
            )


@contextmanager
def archive_table(archive: Path, disk: Disk) -> Iterator[ArchiveTable]:
    """Open the table of an archive.

    Raises:
        ArchiveTableError: it has none, or the catalogue does not answer.
    """
    place = archive.resolve()
    note = read_note(place)
    if note is None:
        raise ArchiveTableError(
            f"{archive} has no table; `tandem pipeline archive --set table=NAMESPACE.NAME` gives"
            " it one",
            TableFault.NONE,
        )
    with open_catalogue(place, note) as catalogue:
        yield ArchiveTable(place, note, catalogue, disk)
