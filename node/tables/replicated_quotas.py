"""The bounds that users have of their own, as a replicated table.

A user who is not in it has those of the cluster file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from node.tables.node_table import TableFiles
from node.tables.replicated_users import AllUsers, ConfirmedTable, UsersDeleted
from node.tables.table_part import Content, Field, FieldKind, TablePart
from tandem.wire.route import decode_json_body
from tandem.wire.user_quota import OF_THE_FILE, UserQuota

QUOTAS_VERSION: Final = 4
"""Of the journal's format: nodes of older versions do not read a journal with bounds."""


class QuotasChanged(msgspec.Struct, frozen=True, tag="userQuotas"):
    """The bounds of users from now on, by name; an empty one: those of the cluster file."""

    user_quotas: dict[str, UserQuota]
    version: int = QUOTAS_VERSION


class AllUsersAndQuotas(AllUsers, frozen=True):
    """Body of the answer to GET_ALL_USERS. A master of an older version says nothing of bounds."""

    user_quotas: dict[str, UserQuota] = msgspec.field(default_factory=dict)


class QuotasPart(TablePart):
    """The bounds by the name of their user."""

    record = QuotasChanged
    also = (UsersDeleted,)
    fields: ClassVar = (Field("user_quotas", dict[str, UserQuota], FieldKind.MAP),)
    version = QUOTAS_VERSION

    def __init__(self, quotas: dict[str, UserQuota] | None = None) -> None:
        self.quotas = quotas or {}

    def apply(self, record: QuotasChanged | UsersDeleted) -> None:
        """See `TablePart`."""
        if isinstance(record, UsersDeleted):
            for name in record.names:
                self.quotas.pop(name, None)
            return
        self.quotas.update(record.user_quotas)
        self.quotas = {name: each for name, each in self.quotas.items() if each != OF_THE_FILE}

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        self.quotas.update(content["user_quotas"])

    def content(self) -> Content:
        """See `TablePart`."""
        return {"user_quotas": self.quotas}

    def copy(self) -> QuotasPart:
        """See `TablePart`."""
        return QuotasPart(dict(self.quotas))


class QuotasTable(ConfirmedTable[QuotasPart]):
    """The bounds of a node's users: `config/userQuotas.json`."""

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        super().__init__(QuotasPart, files)


def quota_changes(quotas: QuotasPart, body: bytes) -> Iterator[QuotasChanged]:
    """Yield what makes a table say what a master's does, by its answer to GET_ALL_USERS.

    Raises:
        MalformedFrameError: that is none.
    """
    wanted = decode_json_body(body, AllUsersAndQuotas).user_quotas
    ended = {name: OF_THE_FILE for name in quotas.quotas if name not in wanted}
    other = {name: each for name, each in wanted.items() if quotas.quotas.get(name) != each}
    if ended or other:
        yield QuotasChanged(ended | other)
