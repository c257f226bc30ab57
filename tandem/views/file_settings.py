"""The settings of a cluster file, each with its value, its default, and whether they differ."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tandem.cluster_file.catalogue import Setting
from tandem.cluster_file.cluster_config import ClusterConfig


class Value(msgspec.Struct, frozen=True):
    """One setting and what a file has for it. Values are as JSON has them."""

    name: str
    value: Any
    default: Any
    is_needed: bool

    @property
    def is_changed(self) -> bool:
        """Whether the file has another value than it would have by itself."""
        return not self.is_needed and bool(self.value != self.default)


def values_of(settings: Iterable[Setting], loaded: ClusterConfig) -> list[tuple[Setting, Value]]:
    """Return what a file has for settings: of each group and node its own."""
    values = []
    for setting in settings:
        for name, owner in _owners(setting, loaded).items():
            value = msgspec.to_builtins(getattr(owner, setting.key))
            default = None if setting.is_needed else msgspec.to_builtins(setting.default)
            name_of_one = f"{name}.{setting.key}"
            found = Value(name_of_one, value, default, setting.is_needed)
            values.append((setting, found))
    return values


def _owners(setting: Setting, loaded: ClusterConfig) -> dict[str, object]:
    """Return the records of a file that have a setting, by where they are."""
    if setting.section == "groups.NAME":
        return {f"groups.{name}": group for name, group in loaded.groups.items()}
    if setting.section == "nodes[]":
        return {f"nodes.{node.name}": node for node in loaded.nodes}
    return {setting.section: getattr(loaded, setting.section)}
