"""A replicated table as a part: what the journal and the plain files carry, whatever is in it.

A part says how its records look, what they change, and what of it is in a snapshot. The journal's
applier, writer, snapshot and state file know parts, and none of them by name. One file defines a
table, and one line of `node/tables/replicated_tables.py` registers it.

No I/O.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
)

import msgspec

BASE_FORMAT_VERSION: Final = 2
"""Of the journal as it was before tables were parts. A newer table has a larger `version`."""

LAST_PLACE: Final = 1_000

_encode: Final = msgspec.json.Encoder().encode

Content: TypeAlias = "dict[str, Any]"
"""What a snapshot or a state file says of a table: by name of the field."""


class FieldKind(enum.Enum):
    """How a snapshot in several parts cuts a field."""

    ROWS = "rows"
    """A list; each part has some of it."""
    MAP = "map"
    """A dictionary; each part has some of it."""
    WHOLE = "whole"
    """Anything; the first part has it."""


class Field(NamedTuple):
    """What a snapshot and the state file say under one name."""

    name: str
    type: Any
    kind: FieldKind
    default: Any = msgspec.UNSET
    """For what does not say it. UNSET, for a table that is newer than the format: it is left out
    while it is empty, so that nodes of older versions take the rest."""
    place: int = LAST_PLACE
    """Where in the record it is. New ones come last."""

    @property
    def empty(self) -> Any:  # noqa: ANN401 - of whatever type the field is
        """What a part of a snapshot has of it that has nothing of it."""
        if self.kind is FieldKind.ROWS:
            return []
        if self.kind is FieldKind.MAP:
            return {}
        if self.default is msgspec.NODEFAULT:
            return {}
        return None if self.default is msgspec.UNSET else self.default


class TablePart(ABC):
    """One table as far as the journal was applied. Made without arguments, it is empty.

    Attributes:
        record: What changes it: a frozen `msgspec.Struct` with a tag, and `version` as last field.
            Its other fields have the names of fields of the table if a change may be too large
            for one record: then it is cut like a snapshot.
        also: Records of others that change it as well.
        fields: What a snapshot and the state file say of it.
        version: The first version of the format that has it.
        is_in_plain_files: Whether a classic group has it too.
        has_places_in_log: Whether it means nothing once the log has lost its end.
    """

    record: ClassVar[type[msgspec.Struct]]
    also: ClassVar[tuple[type[msgspec.Struct], ...]] = ()
    fields: ClassVar[tuple[Field, ...]]
    version: ClassVar[int]
    is_in_plain_files: ClassVar[bool] = True
    has_places_in_log: ClassVar[bool] = False

    @classmethod
    def tag(cls) -> str:
        """The name of its record in the journal, and of a file that only holds this table."""
        return str(cls.record.__struct_config__.tag)

    @classmethod
    def records(cls) -> tuple[type[msgspec.Struct], ...]:
        """All that change it."""
        return (cls.record, *cls.also)

    @abstractmethod
    def apply(self, record: Any) -> None:  # noqa: ANN401 - one of `records`
        """Take in one record, one of `records`: set what it names, and leave the rest."""

    @abstractmethod
    def add(self, content: Mapping[str, Any]) -> None:
        """Take in what a part of a snapshot, or the state file, says: all `fields`."""

    @abstractmethod
    def content(self) -> Content:
        """Say everything, as the state file has it: all `fields`."""

    def content_in_steps(self) -> Generator[None, None, Content]:
        """Say the same in steps, between which others have their turn and nothing changes this."""
        yield
        return self.content()

    @abstractmethod
    def copy(self) -> Self:
        """Return one of the same content that changes on its own."""


P = TypeVar("P", bound=TablePart)


class Written(Protocol):
    """Where the tables of a master are looked up as they will be once all is confirmed."""

    def __call__(self, kind: type[P], /) -> P:
        """Return a part that changes on its own."""


def empty_content(fields: Iterable[Field]) -> Content:
    """What a part of a snapshot says that has nothing of some fields."""
    return {field.name: field.empty for field in fields}


def split_content(
    fields: Sequence[Field], content: Mapping[str, Any], bytes_max: int
) -> Iterator[Content]:
    """Cut rows and maps into pieces of at most this many bytes as JSON, or of one large entry.

    There is always at least one piece, even if it is empty. A whole field is in none.
    """
    piece, size = empty_content(fields), 0
    for field in fields:
        if field.kind is FieldKind.WHOLE:
            continue
        found, is_map = content[field.name], field.kind is FieldKind.MAP
        into = piece[field.name]
        for entry in found.items() if is_map else found:
            entry_bytes = len(_encode(entry)) + 1
            if size and size + entry_bytes > bytes_max:
                yield piece
                piece, size = empty_content(fields), 0
                into = piece[field.name]
            if is_map:
                into[entry[0]] = entry[1]
            else:
                into.append(entry)
            size += entry_bytes
    yield piece


def split_change(
    kind: type[TablePart], change: msgspec.Struct, body_bytes_max: int
) -> Iterator[msgspec.Struct]:
    """Cut a record of a table into records whose bodies are not larger than asked for.

    One that fits, and one of other fields than the table has, stays as it is.
    """
    names = set(change.__struct_fields__)
    fields = [field for field in kind.fields if field.name in names]
    if type(change) is not kind.record or names - {"version"} != {each.name for each in fields}:
        yield change
        return
    head = type(change)(**empty_content(fields))
    content = {field.name: getattr(change, field.name) for field in fields}
    for piece in split_content(fields, content, body_bytes_max - len(_encode(head))):
        yield type(change)(**piece)
