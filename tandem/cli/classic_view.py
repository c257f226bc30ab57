"""The table of the nodes of classic groups."""

from collections.abc import Sequence

from tandem.cli.formats import Column, Section
from tandem.cli.output import human_bytes
from tandem.views.classic_nodes import NodeReplication


def classic_section(rows: Sequence[NodeReplication]) -> Section[NodeReplication]:
    """The table of these nodes; with reasons only if there is one."""
    states = ("behind", "alone")
    styles = {"in sync": "green", "master": "green", "down": "bold red"}
    columns: list[Column[NodeReplication]] = [
        Column("node", lambda row: row.node),
        Column("role", lambda row: row.role),
        Column("address", lambda row: row.address, rank=1),
        Column("state", lambda row: row.state, styles | dict.fromkeys(states, "yellow")),
        Column("log end / acked", _log_end, is_number=True),
        Column("lag", _lag, is_number=True),
    ]
    if any(map(_reason, rows)):
        columns.append(Column("reason", _reason, folds_at=" "))
    return Section(rows, columns)


def _log_end(row: NodeReplication) -> str:
    return f"{row.log_end:,}" if row.log_end >= 0 else "?"


def _reason(row: NodeReplication) -> str:
    return "; ".join(filter(None, (row.reason, _damage(row))))


def _damage(row: NodeReplication) -> str:
    if not row.damage:
        return ""
    return f"{row.damage}: stop it and run `tandem log repair DIR --from OTHER_DIRECTORY --write`"


def _lag(row: NodeReplication) -> str:
    if row.role == "MASTER":
        return ""
    if row.lag_bytes < 0:
        return "?"
    exact = f" ({row.lag_bytes:,})" if row.lag_bytes >= 1024 else ""
    return human_bytes(row.lag_bytes) + exact
