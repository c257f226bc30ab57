"""YAML nodes into records, with every complaint collected instead of the first one raised.

A YAML file is composed into nodes and not loaded, because only nodes know their line. A record is a
`msgspec.Struct` whose field types carry their range (`Meta(ge=..., le=..., extra={"unit": ...})`);
the reader walks its fields, so that no value can be read without being checked.
"""

from __future__ import annotations

import difflib
import types
import typing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import yaml
from msgspec import Meta, Struct

from node.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_DAY_MS: Final = 86_400_000


def whole_number(minimum: int, maximum: int, unit: str) -> Meta:
    """The range of a number, both ends included, for the type of a record's field."""
    return Meta(ge=minimum, le=maximum, extra={"unit": unit})


def milliseconds(minimum: int, maximum: int = _DAY_MS) -> Meta:
    """The range of a time in milliseconds, both ends included."""
    return whole_number(minimum, maximum, "milliseconds")


def size_bytes(minimum: int, maximum: int) -> Meta:
    """The range of a size in bytes, both ends included."""
    return whole_number(minimum, maximum, "bytes")


def compose(file: Path) -> yaml.Node | None:
    """Parse a file into nodes that know their line; None if it is empty.

    Raises:
        ConfigError: It cannot be read, or is not YAML.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            [f"{file}: cannot be read: {reason}; give the path of a cluster file"]
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: is not UTF-8 text ({error}); save it as UTF-8"]) from error
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(
            [f"{file}:{line}: not valid YAML: {error.problem}; fix the indentation or quotes"]
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{file}: not valid YAML: {error}"]) from error


class _Problems:
    """Collects complaints in file order."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: list[tuple[int, str]] = []

    def add(self, node: yaml.Node | None, key: str, text: str) -> None:
        line = 1 if node is None else node.start_mark.line + 1
        self._found.append((line, f"{self._file}:{line}: {key}: {text}"))

    def raise_if_any(self) -> None:
        if self._found:
            raise ConfigError([text for _, text in sorted(self._found, key=lambda found: found[0])])


MISSING: Final = object()
"""What `Reader.value` returns after a complaint."""

_Settings = TypeVar("_Settings", bound=Struct)


class Reader:
    """Turns YAML nodes into records; remembers where each value stood.

    Attributes:
        places: Path of a key (`nodes[0].port`) to the YAML node of its value.
        node_entries: How many entries `nodes:` has, readable or not.
    """

    def __init__(self, file: Path) -> None:
        self.problems = _Problems(file)
        self.places: dict[str, yaml.Node] = {}
        self.node_entries = 0

    def complain(self, key: str, text: str) -> None:
        """Note a problem at the line where `key` was read (1 if the file does not give it)."""
        self.problems.add(self.places.get(key), key, text)

    def mapping(self, node: yaml.Node | None, path: str) -> dict[str, yaml.Node]:
        """The entries of a mapping; an absent or empty one has none."""
        if node is None or is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.problems.add(node, path, "must be a block of 'key: value' lines")
            return {}
        entries: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in entries:
                self.problems.add(key_node, _join(path, key), "is given twice; remove one")
            entries[key] = value_node
            self.places[_join(path, key)] = value_node
        return entries

    def record(self, kind: type[_Settings], node: yaml.Node | None, path: str) -> _Settings | None:
        """Read one record; None if a key without a default is missing or wrong."""
        entries = self.mapping(node, path)
        fields = msgspec.structs.fields(kind)
        self.unknown_keys(entries, [field.name for field in fields], path)
        values: dict[str, Any] = {}
        complete = True
        for field in fields:
            key = _join(path, field.name)
            if field.name not in entries:
                if field.required:
                    self.problems.add(node, key, "is missing; add it")
                    complete = False
                continue
            value = self.value(entries[field.name], field.type, key)
            if value is not MISSING:
                values[field.name] = value
            elif field.required:
                complete = False
        return kind(**values) if complete else None

    def value(self, node: yaml.Node, kind: Any, key: str) -> Any:  # noqa: ANN401 - any setting
        """Read one value as the type its record declares; `MISSING` after a complaint."""
        if kind == list[str]:
            return self._texts(node, key)
        if kind == dict[str, str]:
            return self._text_by_name(node, key)
        if not isinstance(node, yaml.ScalarNode):
            self.problems.add(node, key, f"must be a single value: {_wanted(kind)}")
            return MISSING
        try:
            return msgspec.convert(yaml.SafeLoader("").construct_object(node), kind)
        except (msgspec.ValidationError, yaml.YAMLError):
            self.problems.add(node, key, f"{node.value!r} is not valid; give {_wanted(kind)}")
            return MISSING

    def _texts(self, node: yaml.Node, key: str) -> Any:  # noqa: ANN401 - or MISSING
        if is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.problems.add(node, key, "must be a list: [one, two] or '- one' lines")
            return MISSING
        found = [self.value(entry, str, f"{key}[{at}]") for at, entry in enumerate(node.value)]
        return MISSING if MISSING in found else found

    def _text_by_name(self, node: yaml.Node, key: str) -> Any:  # noqa: ANN401 - or MISSING
        entries = self.mapping(node, key)
        found = {name: self.value(entry, str, f"{key}.{name}") for name, entry in entries.items()}
        return MISSING if MISSING in found.values() else found

    def unknown_keys(self, entries: dict[str, yaml.Node], known: Sequence[str], path: str) -> None:
        """Complain about keys that nothing reads, and guess what was meant."""
        for name, node in entries.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                remedy = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                self.problems.add(node, _join(path, name), f"unknown key; {remedy}")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def is_null(node: yaml.Node) -> bool:
    """Whether the value is empty, `~` or `null`."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _wanted(kind: Any) -> str:  # noqa: ANN401 - any type annotation
    """Say in words what a setting of this type may be."""
    if typing.get_origin(kind) is Annotated:
        base, meta = typing.get_args(kind)
        return _wanted_in_range(base, meta)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_wanted(part) for part in typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return " or ".join(member.value for member in kind)
    return {bool: "true or false", int: "a whole number", str: "text", type(None): "null"}[kind]


def _wanted_in_range(base: type, meta: Meta) -> str:
    extra = meta.extra or {}
    if base is str:
        return str(extra["form"])
    return f"a whole number from {meta.ge} to {meta.le} ({extra['unit']})"
