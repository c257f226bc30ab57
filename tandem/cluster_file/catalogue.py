"""All settings of a cluster file: their names, what they may be, and what the example says of them.

Names, types and defaults come from the records of the sections, and the words from the comments of
the example, so there is one source of each. A setting without a comment of its own is described by
the one above it, with which it belongs together.

    catalogue(example_text)["store.flush_disk_type"].description
"""

from __future__ import annotations

import enum
import re
import types
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    LoggingSettings,
    NodeSettings,
    ReplicationSettings,
    SecuritySettings,
    TLSSettings,
)
from tandem.cluster_file.store_settings import StoreSettings

SECTIONS: Final[dict[str, type[Struct]]] = {
    "cluster": ClusterSettings,
    "store": StoreSettings,
    "replication": ReplicationSettings,
    "broker": BrokerSettings,
    "coordinator": CoordinatorSettings,
    "logging": LoggingSettings,
    "security": SecuritySettings,
    "tls": TLSSettings,
    "groups.NAME": GroupSettings,
    "nodes[]": NodeSettings,
}
"""Where each record is in a file; the last two are there once for each group and each node."""

_KEY: Final = re.compile(r"^(\s*)(?:- )?([a-z][a-z0-9_]*):(?:\s+(.*?))?\s*$")


class Setting(Struct, frozen=True):
    """One setting. `name` is `section.key`."""

    name: str
    kind: str
    """What it may be, in words: `1 to 86,400,000 milliseconds`."""
    default: Any
    is_needed: bool
    """Whether it has to be given; it has no default then."""
    description: str

    @property
    def section(self) -> str:
        """Where it is."""
        return self.name.rpartition(".")[0]

    @property
    def key(self) -> str:
        """Its name in the section."""
        return self.name.rpartition(".")[2]

    @property
    def rocketmq_name(self) -> str:
        """Its key in the way RocketMQ spells it, without the unit."""
        words = re.sub(r"_(ms|bytes|hours)$", "", self.key).split("_")
        return words[0] + "".join(word.capitalize() for word in words[1:])


def catalogue(example: str) -> dict[str, Setting]:
    """Return all settings by their names, in the order of the records; `example` is its text."""
    comments = _comments(example)
    found = {}
    for section, record in SECTIONS.items():
        hints = get_type_hints(record, include_extras=True)
        for field in msgspec.structs.fields(record):
            name = f"{section}.{field.name}"
            is_needed = field.default is msgspec.NODEFAULT and (
                field.default_factory is msgspec.NODEFAULT
            )
            default = None if field.default is msgspec.NODEFAULT else field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            found[name] = Setting(
                name,
                _kind(hints[field.name]),
                default,
                is_needed,
                comments.get(name, ""),
            )
    return found


def _kind(hint: Any) -> str:  # noqa: ANN401  a type
    """Return what a value of this type may be, in words."""
    metas = [each for each in get_args(hint)[1:] if isinstance(each, Meta)]
    of = get_args(hint)[0] if metas else hint
    if get_origin(of) in (Union, types.UnionType):
        parts = [part for part in get_args(of) if part is not type(None)]
        return " or ".join([*map(_kind, parts), "null"])
    if metas:
        extra = metas[0].extra or {}
        if metas[0].ge is not None and metas[0].le is not None:
            return f"{metas[0].ge:,} to {metas[0].le:,} {extra.get('unit', '')}".strip()
        return str(extra.get("form", "text"))
    if isinstance(of, type) and issubclass(of, enum.Enum):
        return " or ".join(str(each.value) for each in of)
    names = {bool: "true or false", int: "a whole number", str: "text"}
    if of in names:
        return names[of]
    return "a list" if get_origin(of) is list else "names and values"


def _comments(example: str) -> dict[str, str]:
    """Return the words of each setting by its name."""
    found: dict[str, str] = {}
    section = ""
    above: list[str] = []
    last = ""
    for line in example.splitlines():
        if line.lstrip().startswith("#"):
            if section:
                above.append(line.lstrip("# ").rstrip())
            continue
        match = _KEY.match(line)
        if match is None:
            above = []
            continue
        indent, key, rest = match[1], match[2], match[3] or ""
        if not indent and not line.startswith("- "):
            section, above, last = _section(key), [], ""
            continue
        _, mark, beside = f" {rest}".partition(" #")
        words = " ".join([*above, beside.strip() if mark else ""]).strip()
        above = []
        if section in ("groups.NAME", "nodes[]") and not words and not rest:
            continue  # the name of a group
        if words and not words.startswith("..."):
            last = words
        continued = words.removeprefix("... ")
        found.setdefault(
            f"{section}.{key}", last if words == last else f"{last} {continued}".strip()
        )
    return found


def _section(key: str) -> str:
    return {"groups": "groups.NAME", "nodes": "nodes[]"}.get(key, key)
