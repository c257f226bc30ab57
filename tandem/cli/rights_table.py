"""Entries of users' rules as rows, and arguments as entries."""

from collections.abc import Sequence

import msgspec
import typer

from tandem.cli.formats import Column
from tandem.wire.access_control import (
    AclError,
    PolicyEntryInfo,
    PolicyInfo,
    PolicyType,
    parse_entry,
    parse_policy_type,
)


class EntryRow(msgspec.Struct, frozen=True):
    """One entry of a user."""

    decision: str
    rights: list[str]
    resource: str
    source_ips: list[str]
    policy: str


def entry_rows(policies: Sequence[PolicyInfo]) -> list[EntryRow]:
    """Return the entries, those first that are looked at first."""
    rows: list[tuple[tuple[int, int, bool], EntryRow]] = []
    for policy in policies:
        is_custom = _policy_type(policy) is PolicyType.CUSTOM
        for info in policy.entries or []:
            row = EntryRow(
                info.decision or "",
                info.actions or [],
                info.resource or "",
                info.source_ips or [],
                "" if is_custom else "default",
            )
            try:
                exactness, length, denies = parse_entry(info).rank
            except AclError:
                exactness, length, denies = 0, 0, False
            rows.append(((int(is_custom) * 10 + exactness, length, denies), row))
    rows.sort(key=lambda each: each[0], reverse=True)
    return [row for _, row in rows]


def _policy_type(policy: PolicyInfo) -> PolicyType | None:
    try:
        return parse_policy_type(policy.policy_type)
    except AclError:
        return None


def entry_columns() -> list[Column[EntryRow]]:
    """Return the columns of a table of entries."""
    return [
        Column("decision", lambda row: row.decision, {"Deny": "red", "Allow": "green"}),
        Column("rights", lambda row: ", ".join(row.rights), folds_at=", "),
        Column("resource", lambda row: row.resource),
        Column("from", lambda row: ", ".join(row.source_ips) or "anywhere", folds_at=", "),
        Column("policy", lambda row: row.policy or "custom"),
    ]


def entry_of(
    decision: str, rights: str, resource: str, networks: list[str] | None
) -> PolicyEntryInfo:
    """Return the entry that arguments name.

    Raises:
        typer.BadParameter: There cannot be such a one.
    """
    actions = [word.strip() for word in rights.split(",") if word.strip()]
    info = PolicyEntryInfo(resource, actions, networks or None, decision)
    try:
        parse_entry(info)
    except AclError as error:
        raise typer.BadParameter(str(error)) from error
    return info
