"""A node's own side of a replicated table: what its handlers read, and the file it is kept in.

The journal shows it what is confirmed. A classic group changes it alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from node.errors import RequestError
from node.tables.table_part import P, TablePart, Written
from store.delayed_delivery import JournaledProgress, delay_offset_table
from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.machine.table_file import TableFile
from tandem.wire.response_code import ResponseCode


class TableFiles:
    """The files of the tables of one node.

    Attributes:
        wall_clock_ms: For their versions.
        is_copy: The journal says what counts: the files are written late, for other programs.
        auto_create_groups: A group that nobody set up has the defaults.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        wall_clock_ms: Callable[[], int],
        *,
        is_copy: bool = False,
        is_needed: bool = True,
        auto_create_groups: bool = True,
    ) -> None:
        """Without `is_needed` another file says the same: what cannot be read is written anew."""
        self.wall_clock_ms = wall_clock_ms
        self.is_copy = is_copy
        self.auto_create_groups = auto_create_groups
        self._disk = disk
        self._directory = directory
        self._is_needed = is_needed

    def file(self, name: str) -> TableFile:
        """The file of a table in the directory `config`."""
        return TableFile(self._disk, f"{self._directory}/config/{name}", is_needed=self._is_needed)

    @cached_property
    def progress(self) -> JournaledProgress:
        """How far the deliveries of a fenced group have got.

        Raises:
            TableFileError: their file is damaged.
        """
        return JournaledProgress(
            delay_offset_table(
                self._disk, self._directory, self.wall_clock_ms, is_needed=self._is_needed
            )
        )


class RecordWriter(Protocol):
    """What a master writes records with."""

    record_bytes_max: int

    def write(self, record: msgspec.Struct) -> None:
        """Put one record.

        Raises:
            RequestError: the store does not take it; nothing was written.
        """

    def written(self, kind: type[P]) -> P:
        """Return a table as it will be when everything written so far is confirmed."""

    def wake(self) -> None:
        """Look at the deadline of what is gathered."""


class Gathering:
    """Changes that a master gathers for a moment, to write them together. This one has none.

    Attributes:
        deadline: When they are due, in trio's time; infinity without any.
    """

    deadline: float = math.inf

    def write(self) -> None:
        """Put what is gathered.

        Raises:
            RequestError: the store does not take it. The rest is forgotten.
        """

    def wrote(self, record: msgspec.Struct) -> None:
        """A record was put: what was gathered before does not undo it."""

    def close(self, trouble: str) -> None:
        """Answer the callers that wait: nothing is written any more."""


class NodeTable(ABC, Generic[P]):
    """One table of a node.

    Attributes:
        shows_own_at_once: Whether a master shows its changes when it writes them; else when they
            are confirmed, as every other node does.
    """

    shows_own_at_once: bool = True

    @abstractmethod
    def as_part(self) -> P:
        """Return what its file says."""

    @abstractmethod
    def show(self, confirmed: P, records: Sequence[Any] | None) -> None:
        """Show what was confirmed: these records of the table, or all there is if None."""

    @abstractmethod
    def take(self, record: Any) -> None:  # noqa: ANN401 - one of the part's records
        """Show a change of this node's own, which is written already if there is a journal.

        Raises:
            RequestError: the file cannot be written; nothing is changed.
        """

    def take_up(self, confirmed: P) -> None:
        """This node is the master from now on."""

    def progress(self, written: Written, log_end: int) -> msgspec.Struct | None:
        """Return what a master is to write, if it is asked now and then; None if nothing is new.

        Args:
            written: Looks up tables as they will be once all is confirmed.
            log_end: Where in the log the record will be, or before it.
        """
        return None

    def gather(self, writer: RecordWriter) -> Gathering:
        """Begin to gather changes: this node is the master from now on."""
        return Gathering()

    def save_in_steps(self) -> Iterator[None]:
        """Write the file if anything changed since the last time.

        Raises:
            StoreError: it cannot be written.
        """
        yield from ()


class PartTable(NodeTable[P]):
    """A node's table that is like its part: `config/TAG.json` has what a state file has of it.

    Attributes:
        part: For reading.
        revision: Another number after each change.
    """

    def __init__(self, kind: type[P], files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        self._is_copy = files.is_copy
        self._is_saved = True
        self.revision = 0
        self._file = files.file(f"{kind.tag()}.json")
        self.part = kind()
        content = {field.name: field.empty for field in kind.fields}
        saved = self._file.load(_file_type(kind))
        if saved is not None:
            content |= {
                name: value
                for name, value in msgspec.structs.asdict(saved).items()
                if value is not msgspec.UNSET
            }
            self.part.add(content)

    def as_part(self) -> P:
        """See `NodeTable`."""
        return self.part.copy()

    def show(self, confirmed: P, records: Sequence[Any] | None) -> None:
        """See `NodeTable`."""
        self._is_saved = False
        self.revision += 1
        if records is None:
            self.part = confirmed.copy()
            return
        for record in records:
            self.part.apply(record)

    def take(self, record: Any) -> None:  # noqa: ANN401 - see above
        """See `NodeTable`."""
        self.revision += 1
        if self._is_copy:
            self.part.apply(record)
            self._is_saved = False
            return
        part = self.part.copy()
        part.apply(record)
        try:
            self._file.save(part.content())
        except StoreError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the table {self.part.tag()} cannot be saved: {error}"
            ) from error
        self.part = part

    def save_in_steps(self) -> Iterator[None]:
        """See `NodeTable`. Changes meanwhile are written the next time."""
        if self._is_saved:
            return
        content = self.part.copy().content()
        self._is_saved = True
        try:
            yield from self._file.save_in_steps(content)
        except BaseException:  # also where it is stopped midway
            self._is_saved = False
            raise


def _file_type(kind: type[TablePart]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        f"{kind.__name__}File",
        [(field.name, field.type | msgspec.UnsetType, msgspec.UNSET) for field in kind.fields],
        frozen=True,
    )


T = TypeVar("T", bound="NodeTable[Any]")


class NodeTables:
    """All replicated tables of one node."""

    def __init__(self, tables: dict[type[TablePart], NodeTable[Any]]) -> None:
        self.by_kind = tables

    def of(self, table: type[T]) -> T:
        """Return the one that is of this type."""
        return next(each for each in self.by_kind.values() if isinstance(each, table))

    def part_table(self, kind: type[P]) -> PartTable[P]:
        """Return the table of a part that has no type of its own."""
        found: PartTable[P] = self.by_kind[kind]  # type: ignore[assignment]
        return found

    def changed_by(self, record: msgspec.Struct) -> list[tuple[type[TablePart], NodeTable[Any]]]:
        """Return those that a record changes."""
        return [item for item in self.by_kind.items() if type(record) in item[0].records()]


class Replicated(NamedTuple):
    """A table that the journal and the plain files carry."""

    part: type[TablePart]
    opened: Callable[[TableFiles], NodeTable[Any]] | None = None
    """Reads the node's own side; a `PartTable` if None."""


def open_tables(registered: Iterable[Replicated], files: TableFiles) -> NodeTables:
    """Read the files of tables.

    Raises:
        TableFileError: one of them is damaged.
    """
    return NodeTables(
        {
            part: PartTable(part, files) if opened is None else opened(files)
            for part, opened in registered
        }
    )
