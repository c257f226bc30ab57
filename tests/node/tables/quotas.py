"""A replicated table that no product module knows: one file, as CONTRIBUTING.md has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from node.tables.table_part import Content, Field, FieldKind, TablePart


class QuotasChanged(msgspec.Struct, frozen=True, tag="quotas"):
    """What groups may pull in a second, from now on; 0 is no limit."""

    quotas: dict[str, int]
    version: int = 5


class QuotasPart(TablePart):
    """Bytes a second by group."""

    record = QuotasChanged
    fields: ClassVar = (Field("quotas", dict[str, int], FieldKind.MAP),)
    version = 5

    def __init__(self, quotas: dict[str, int] | None = None) -> None:
        self.quotas = quotas or {}

    def apply(self, record: QuotasChanged) -> None:
        self.quotas.update(record.quotas)
        self.quotas = {group: each for group, each in self.quotas.items() if each}

    def add(self, content: Mapping[str, Any]) -> None:
        self.quotas.update(content["quotas"])

    def content(self) -> Content:
        return {"quotas": self.quotas}

    def copy(self) -> QuotasPart:
        return QuotasPart(dict(self.quotas))
