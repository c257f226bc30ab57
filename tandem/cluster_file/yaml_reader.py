"""YAML nodes into records, with every complaint collected instead of the first one raised.

A YAML file is composed into nodes and not loaded, because only nodes know their line. A record is a
`msgspec.Struct` whose field types carry their range (see `ranges`); the reader walks its fields, so
that no value can be read without being checked.

Anything may be in a file. Aliases are not expanded, and what nothing reads is never walked; the
limits below are far above what a cluster needs.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import yaml
from msgspec import Meta, Struct
from yaml.reader import ReaderError

from tandem.cluster_file.errors import ClusterConfigError
from tandem.wire.untrusted import UnreadableError, convert

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE_BYTES_MAX: Final = 1 << 20
"""A hundred nodes take 20 KiB."""

DEPTH_MAX: Final = 20
"""Blocks within blocks; no setting is deeper than four."""

VALUE_CHARACTERS_MAX: Final = 4_096

PROBLEMS_MAX: Final = 100

_PROBLEM_CHARACTERS_MAX: Final = 2_000
_SHOWN_CHARACTERS_MAX: Final = 80

_NOT_IN_ONE_LINE: Final = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
"""Control characters, line ends, and halves of a pair, which UTF-8 does not have."""

_TEXT_TAG: Final = "tag:yaml.org,2002:str"

_GUESSED_TAGS: Final = {
    f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "int", "null", "timestamp")
}
"""What YAML takes a plain value for by its looks: 123, no, 2001-01-01."""

_CONSTRUCTION_ERRORS: Final = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What PyYAML raises for a value that its tag does not fit, such as `!!bool perhaps`."""


def compose(file: Path) -> yaml.Node | None:
    """Parse a file into nodes that know their line; None if it is empty.

    Raises:
        ClusterConfigError: It cannot be read, or is not YAML.
    """
    text = _read_text(file)
    loader = None
    try:
        loader = _ShallowLoader(text)
        return loader.get_single_node()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ClusterConfigError(
            f"{file}:{line}: not valid YAML: character U+{error.character:04X} is not text;"
            " take it out"
        ) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        words, remedy = _explained(error)
        raise ClusterConfigError(f"{file}:{line}: not valid YAML: {words}; {remedy}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as source:
            data = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterConfigError(
            f"{file}: cannot be read: {reason}; give the path of a cluster file"
        ) from error
    if len(data) > FILE_BYTES_MAX:
        raise ClusterConfigError(
            f"{file}: is longer than {FILE_BYTES_MAX} bytes; give the path of a cluster file"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ClusterConfigError(
            f"{file}:{line}: is not UTF-8 text ({error}); save it as UTF-8"
        ) from error


class _ShallowLoader(yaml.SafeLoader):
    """Refuses what is nested deeper than any cluster file, before Python's stack is used up."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise yaml.composer.ComposerError(
                problem=f"nested deeper than {DEPTH_MAX} levels", problem_mark=self.get_mark()
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _explained(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    """Return what PyYAML found wrong, and the remedy."""
    problem = str(error.problem)
    if "nested deeper" in problem:
        return problem, "no setting is; take out brackets or indentation"
    if "another document" in problem:
        return "a second document begins", "take out the '---' before it"
    if "\\t" in problem:
        return problem, "indent with spaces"
    if "undefined alias" in problem:
        return problem, "put the text in quotes if it begins with '*'"
    return problem, "fix the indentation or quotes"


class _Problems:
    """Collects complaints in file order, the first `PROBLEMS_MAX` that are found."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: list[tuple[int, str]] = []

    @property
    def is_full(self) -> bool:
        """Whether further complaints are left out."""
        return len(self._found) >= PROBLEMS_MAX

    def add(self, node: yaml.Node | None, key: str, text: str) -> None:
        if self.is_full:
            return
        line = 1 if node is None else node.start_mark.line + 1
        words = _one_line(f"{_shown(key)}: {text}", _PROBLEM_CHARACTERS_MAX)
        self._found.append((line, f"{self._file}:{line}: {words}"))

    def raise_if_any(self) -> None:
        if not self._found:
            return
        texts = [text for _, text in sorted(self._found, key=lambda found: found[0])]
        if self.is_full:
            texts.append(f"{self._file}: there may be more; correct these {PROBLEMS_MAX} first")
        raise ClusterConfigError(*texts)


MISSING: Final = object()
"""What `Reader.value` returns after a complaint."""

_Settings = TypeVar("_Settings", bound=Struct)


class Reader:
    """Turns YAML nodes into records; remembers where each value was.

    Attributes:
        places: Path of a key (`nodes[0].port`) to the YAML node of its value.
        node_paths: Path (`nodes[0]`) of each entry of `nodes:` that could be read.
        all_nodes_read: Whether those are all.
    """

    def __init__(self, file: Path) -> None:
        self.problems = _Problems(file)
        self.places: dict[str, yaml.Node] = {}
        self.node_paths: list[str] = []
        self.all_nodes_read = True
        self._loader = yaml.SafeLoader("")

    def complain(self, key: str, text: str) -> None:
        """Note a problem at the line where `key` was read (1 if the file does not give it)."""
        self.problems.add(self.places.get(key), key, text)

    def mapping(self, node: yaml.Node | None, path: str) -> dict[str, yaml.Node]:
        """The entries of a mapping; an absent or empty one has none."""
        if node is None or is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            name = path or "the file"
            self.problems.add(node, name, "must be a block of 'key: value' lines")
            return {}
        entries: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                name = path or "the file"
                self.problems.add(key_node, name, "a list or a block is no key; give a word")
                continue
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
        if wrong := _not_of_one_line(node.value):
            self.problems.add(node, key, f"{wrong}; give {_wanted(kind)}")
            return MISSING
        try:
            return convert(self._loader.construct_object(node), kind)
        except (UnreadableError, *_CONSTRUCTION_ERRORS):
            remedy = f"give {_wanted(kind)}{_in_quotes(node, kind)}"
            self.problems.add(node, key, f"{_shown_value(node)} is not valid; {remedy}")
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
            if name not in known and not self.problems.is_full:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                remedy = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                self.problems.add(node, _join(path, name), f"unknown key; {remedy}")


def text_node(text: str, like: yaml.Node) -> yaml.ScalarNode:
    """Return a node for `text` at the line of another: a key that is checked as a value is."""
    return yaml.ScalarNode(_TEXT_TAG, text, like.start_mark)


def is_null(node: yaml.Node) -> bool:
    """Whether the value is empty, `~` or `null`."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _not_of_one_line(value: str) -> str:
    """Say what no setting may look like; empty if the value does not."""
    if len(value) > VALUE_CHARACTERS_MAX:
        return f"is {len(value)} characters long, more than {VALUE_CHARACTERS_MAX}"
    if found := _NOT_IN_ONE_LINE.search(value):
        return f"has a line end or a character that is not text (U+{ord(found[0]):04X}) in it"
    return ""


def _shown_value(node: yaml.ScalarNode) -> str:
    return repr(_shown(node.value))


def _shown(text: str) -> str:
    """As much of a text as a person needs to find it."""
    return _one_line(text, _SHOWN_CHARACTERS_MAX)


def _one_line(text: str, characters_max: int) -> str:
    """Shorten a text, and spell out what would break or hide its line."""
    if len(text) > characters_max:
        text = text[: characters_max - 3] + "..."
    return _NOT_IN_ONE_LINE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _in_quotes(node: yaml.ScalarNode, kind: Any) -> str:  # noqa: ANN401 - any type annotation
    """Say what helps if text was wanted, and YAML took it for a number, a flag or a date."""
    base = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    is_text = base is str or str in typing.get_args(base)
    looks_otherwise = node.style is None and node.value and node.tag in _GUESSED_TAGS
    return ", in quotes" if is_text and looks_otherwise else ""


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
