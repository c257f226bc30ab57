"""What is set for consumer groups, and what each may not do, as a replicated table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from node.tables.deleted import Deleted
from node.tables.node_table import NodeTable, TableFiles
from node.tables.subscription_group_table import SYSTEM_GROUPS, SubscriptionGroupTable
from node.tables.table_part import BASE_FORMAT_VERSION, Content, Field, FieldKind, TablePart
from tandem.wire.subscription_group import ForbiddenTable, SubscriptionGroupConfig


class GroupsChanged(msgspec.Struct, frozen=True, tag="groups"):
    """Consumer groups that are new or different, and what groups may not do from now on."""

    groups: list[SubscriptionGroupConfig]
    forbidden: ForbiddenTable = {}
    version: int = BASE_FORMAT_VERSION


class GroupsPart(TablePart):
    """The groups by name, and by group and topic what is forbidden."""

    record = GroupsChanged
    also = (Deleted,)
    fields: ClassVar = (
        Field("groups", list[SubscriptionGroupConfig], FieldKind.ROWS, [], place=3),
        Field("forbidden", ForbiddenTable, FieldKind.MAP, {}, place=4),
    )
    version = BASE_FORMAT_VERSION

    def __init__(
        self,
        groups: dict[str, SubscriptionGroupConfig] | None = None,
        forbidden: ForbiddenTable | None = None,
    ) -> None:
        self.groups = groups or {}
        self.forbidden = forbidden or {}

    def apply(self, record: GroupsChanged | Deleted) -> None:
        """See `TablePart`."""
        if isinstance(record, GroupsChanged):
            self.groups.update({config.group_name: config for config in record.groups})
            self.forbidden.update(record.forbidden)
            self.forbidden = {group: each for group, each in self.forbidden.items() if each}
            return
        for group in record.groups:
            self.groups.pop(group, None)
            self.forbidden.pop(group, None)

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        self.groups.update({config.group_name: config for config in content["groups"]})
        self.forbidden.update(content["forbidden"])

    def content(self) -> Content:
        """See `TablePart`."""
        return {"groups": list(self.groups.values()), "forbidden": self.forbidden}

    def copy(self) -> GroupsPart:
        """See `TablePart`."""
        return GroupsPart(dict(self.groups), dict(self.forbidden))


class GroupsTable(NodeTable[GroupsPart]):
    """A node's consumer groups: `subscriptionGroup.json`, as RocketMQ has it."""

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        self.table = SubscriptionGroupTable(
            files.file("subscriptionGroup.json"),
            files.wall_clock_ms,
            is_copy=files.is_copy,
            auto_create=files.auto_create_groups,
        )

    def as_part(self) -> GroupsPart:
        """See `NodeTable`. The groups of the system are there without a record."""
        configs = self.table.configs
        groups = {
            name: config
            for name, config in configs.subscription_group_table.items()
            if name not in SYSTEM_GROUPS
        }
        return GroupsPart(groups, dict(configs.forbidden_table))

    def show(self, confirmed: GroupsPart, records: Sequence[GroupsChanged] | None) -> None:
        """See `NodeTable`."""
        self.table.replace_groups(confirmed.groups, confirmed.forbidden)

    def take(self, record: GroupsChanged | Deleted) -> None:
        """See `NodeTable`."""
        if isinstance(record, GroupsChanged):
            self.table.update(*record.groups)
            for group, topics in record.forbidden.items():
                self.table.set_forbidden(group, topics)
            return
        for group in record.groups:
            self.table.delete(group)

    def save_in_steps(self) -> Iterator[None]:
        """See `NodeTable`."""
        return self.table.save_in_steps()
