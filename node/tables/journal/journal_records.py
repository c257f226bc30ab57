"""The form of a fenced group's journal, made from the tables that it carries. No I/O.

Each record is the JSON body of one message of `rmq_sys_TANDEM_JOURNAL`. All but the parts of a
snapshot set what they name and leave the rest. The parts of a snapshot follow one another; the
last one replaces everything by what they hold together. A row of parts that is not finished (its
master died) means nothing.

A table that this version does not know is never passed over, be it in a record, in a part of a
snapshot or in the state file. It would be lost on this node, and with this node as master for all.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final, Union

import msgspec

from node.errors import NodeError
from node.tables.node_table import Replicated
from node.tables.replicated_tables import REPLICATED_TABLES
from node.tables.table_part import (
    BASE_FORMAT_VERSION,
    Content,
    Field,
    FieldKind,
    P,
    TablePart,
    split_content,
)
from tandem.wire.remoting_command import Int64
from tandem.wire.untrusted import UnreadableError, json_decoder


class JournalFormatError(NodeError):
    """A record of the journal, or its state file, cannot be read by this version."""


class SnapshotPart(msgspec.Struct, frozen=True):
    """Part `part` (from 0) of `parts` of all tables; their fields and `version` follow."""

    part: int
    parts: int


class JournalState(msgspec.Struct, frozen=True):
    """The state file; the fields of all tables follow.

    `position` is the queue offset of the first record not applied.
    """

    position: Int64


class JournalFormat:
    """What the journal can say with some tables.

    Attributes:
        parts: The tables.
        version: Of the format: that of the newest table.
        snapshot_type: A `SnapshotPart` with the fields of all tables.
        state_type: A `JournalState` with the same.
    """

    def __init__(self, registered: Iterable[Replicated]) -> None:
        """Take tables of any kind.

        Raises:
            ValueError: two of them have one name for a record, or for a field.
        """
        self.parts = tuple(part for part, _ in registered)
        self.version = max(BASE_FORMAT_VERSION, *(part.version for part in self.parts))
        self._parts_of: dict[type[msgspec.Struct], list[type[TablePart]]] = {}
        for part in self.parts:
            for record in part.records():
                self._parts_of.setdefault(record, []).append(part)
        fields = [field for part in self.parts for field in part.fields]
        taken = {"type", "part", "parts", "position", "version"}
        _check_unique([*taken, *(field.name for field in fields)], "field")
        tags = [str(record.__struct_config__.tag) for record in self._parts_of]
        _check_unique(["snapshot", *tags], "record")
        fields.sort(key=lambda field: field.place)
        columns = [_column(field) for field in fields]
        self.snapshot_type = msgspec.defstruct(
            "SnapshotPart",
            [*columns, ("version", int, BASE_FORMAT_VERSION)],
            bases=(SnapshotPart,),
            tag="snapshot",
            frozen=True,
            forbid_unknown_fields=True,
        )
        self.state_type = msgspec.defstruct(
            "JournalState", columns, bases=(JournalState,), frozen=True, forbid_unknown_fields=True
        )
        self._decode = json_decoder(Union[(*self._parts_of, self.snapshot_type)])

    def parts_of(self, record: msgspec.Struct) -> list[type[TablePart]]:
        """The tables that a record changes; none of a part of a snapshot."""
        return self._parts_of.get(type(record), [])

    def decode_record(self, body: bytes) -> msgspec.Struct:
        """Read the body of a message of the journal.

        Raises:
            JournalFormatError: another version wrote it.
        """
        try:
            record: Any = self._decode(body)
        except UnreadableError as error:
            raise _unreadable(body, str(error)) from error
        if record.version > self.version:
            raise _unreadable(body, f"version {record.version}")
        return record  # type: ignore[no-any-return]


def _check_unique(names: Sequence[str], what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two tables of the journal have a {what} {', '.join(twice)}: rename one")


def _column(field: Field) -> tuple[str, Any, Any]:
    is_new = field.default is msgspec.UNSET
    kind = Union[field.type, msgspec.UnsetType] if is_new else field.type  # noqa: UP007 - of values
    return (field.name, kind, field.default)


def _unreadable(body: bytes, why: str) -> JournalFormatError:
    return JournalFormatError(
        f"the group's journal holds {body[:80]!r}, which this version cannot read ({why});"
        " run the version of the other nodes"
    )


JOURNAL_FORMAT: Final = JournalFormat(REPLICATED_TABLES)
"""That of this version."""


def encode_journal_record(record: msgspec.Struct) -> bytes:
    """Return the body of the record's message."""
    return msgspec.json.encode(record)


class GroupTables:
    """All tables as far as the journal was applied."""

    def __init__(
        self, form: JournalFormat = JOURNAL_FORMAT, parts: Iterable[TablePart] = ()
    ) -> None:
        """Take some parts; all others are empty."""
        self.form = form
        self._parts: dict[type[TablePart], TablePart] = {kind: kind() for kind in form.parts}
        self._parts.update({type(part): part for part in parts})
        self._coming: GroupTables | None = None
        """What the parts of a snapshot hold together, so far."""
        self._coming_count = 0

    def of(self, kind: type[P]) -> P:
        """One of the tables."""
        return self._parts[kind]  # type: ignore[return-value]

    @property
    def is_inside_snapshot(self) -> bool:
        """Whether the last record was a part of a snapshot that goes on."""
        return self._coming is not None

    def copy(self) -> GroupTables:
        """Return tables of the same content that change on their own."""
        return GroupTables(self.form, [part.copy() for part in self._parts.values()])

    def without_places(self) -> GroupTables:
        """Return those that mean something though the log has lost its end."""
        kept = [part for part in self._parts.values() if not part.has_places_in_log]
        return GroupTables(self.form, kept)

    def apply(self, record: msgspec.Struct) -> bool:
        """Take in one record; return whether it completed a snapshot."""
        if isinstance(record, SnapshotPart):
            return self._take_part(record)
        self.interrupt_snapshot()
        for kind in self.form.parts_of(record):
            self._parts[kind].apply(record)
        return False

    def interrupt_snapshot(self) -> None:
        """Records are missing from here on: what follows may be parts of another snapshot."""
        self._coming, self._coming_count = None, 0

    def _take_part(self, part: SnapshotPart) -> bool:
        if part.part == 0:
            self.interrupt_snapshot()
        if part.part != self._coming_count:
            self.interrupt_snapshot()  # its beginning was in files that are gone
            return False
        # Now, and not with the last part: all of a large group at once would take long.
        coming = self._coming = self._coming or GroupTables(self.form)
        self._coming_count += 1
        coming.add(part)
        if self._coming_count < part.parts:
            return False
        self.interrupt_snapshot()
        self._parts = coming._parts  # noqa: SLF001 - one of our own
        return True

    def add(self, said: msgspec.Struct) -> None:
        """Take in the fields of a part of a snapshot, or of a state file."""
        for part in self._parts.values():
            content = {field.name: getattr(said, field.name) for field in part.fields}
            if not all(value is msgspec.UNSET for value in content.values()):
                part.add({field.name: _or_empty(content, field) for field in part.fields})

    def content(self) -> Content:
        """All fields, as the state file has them."""
        content: Content = {}
        for part in self._parts.values():
            content |= _without_empty(part.fields, part.content())
        return content

    def content_in_steps(self) -> Generator[None, None, Content]:
        """Say the same in steps, between which others have their turn and nothing changes it."""
        content: Content = {}
        for part in self._parts.values():
            found = yield from part.content_in_steps()
            content |= _without_empty(part.fields, found)
        return content

    def snapshot(self, body_bytes_max: int) -> list[SnapshotPart]:
        """Return everything as parts whose bodies are not larger than asked for."""
        fields = [field for part in self._parts.values() for field in part.fields]
        content: Content = {}
        for part in self._parts.values():
            content |= part.content()
        whole = {field.name: content[field.name] for field in _whole(fields)}
        version = max(BASE_FORMAT_VERSION, *self._versions())
        form: Any = self.form.snapshot_type
        head = {field.name: _widest(field) for field in fields}
        head_bytes = len(msgspec.json.encode(form(10**9, 10**9, **head)))
        in_first = [each for each in whole.values() if _is_counted_in_first(each)]
        room = body_bytes_max - head_bytes - len(msgspec.json.encode(in_first))
        pieces = list(split_content(fields, content, room))
        return [
            form(
                at,
                len(pieces),
                **_without_empty(fields, piece | (whole if at == 0 else {})),
                version=version,
            )
            for at, piece in enumerate(pieces)
        ]

    def _versions(self) -> Iterator[int]:
        """Of the tables with something in them: older versions have to know no more of them."""
        for kind, part in self._parts.items():
            if any(
                each is not msgspec.UNSET
                for each in _without_empty(kind.fields, part.content()).values()
            ):
                yield kind.version


def _without_empty(fields: Iterable[Field], content: Content) -> Content:
    """Leave out what is empty of newer tables."""
    return {
        field.name: (
            content[field.name]
            if content[field.name] or field.default is not msgspec.UNSET
            else msgspec.UNSET
        )
        for field in fields
    }


def _whole(fields: Iterable[Field]) -> Iterator[Field]:
    return (field for field in fields if field.kind is FieldKind.WHOLE)


def _or_empty(content: Content, field: Field) -> Any:  # noqa: ANN401 - of whatever type it is
    value = content[field.name]
    return field.empty if value is msgspec.UNSET else value


def _widest(field: Field) -> Any:  # noqa: ANN401 - see above
    """What takes the most room of an empty field: a number has many digits."""
    return 2**63 - 1 if field.type is Int64 else field.empty


def _is_counted_in_first(value: object) -> bool:
    return not isinstance(value, int) and value is not msgspec.UNSET
