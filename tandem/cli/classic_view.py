"""How the nodes of classic groups replicate, as they say themselves: one row a node."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from tandem.cli.formats import Column, Section
from tandem.cli.output import human_bytes

if TYPE_CHECKING:
    from tandem.cluster.spec import ClusterSpec, NodeSpec
    from tandem.wire.request_headers import HARuntimeInfo


class NodeReplication(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the answer. Offsets are bytes of log, -1 if unknown."""

    node: str
    group: str
    role: str
    address: str
    log_end: int = -1
    """Of a slave: what it has acknowledged or, while its master is silent, what it holds."""
    lag_bytes: int = -1
    """How much of the master's log a slave lacks."""
    state: Literal["master", "in sync", "behind", "down", "alone"]
    """`alone`: a slave that answers while its master does not."""
    reason: str = ""
    damage: str = ""
    """Which bytes of its log are bad, in words; empty if none is known to be."""


def classic_nodes(spec: "ClusterSpec") -> "list[NodeSpec]":
    """Return the nodes of groups whose masters are written in the file."""
    return [node for node in spec.nodes if node.role != "NODE"]


def replication(
    spec: "ClusterSpec", answers: "dict[str, HARuntimeInfo | str]"
) -> list[NodeReplication]:
    """Join what the nodes of classic groups say, by node name.

    An answer that is text says why there is none.
    """
    nodes = classic_nodes(spec)
    masters = {node.group: node for node in nodes if node.role == "MASTER"}
    rows = [
        _master_row(node, answers[node.name])
        if node.role == "MASTER"
        else _slave_row(node, answers[masters[node.group].name], answers[node.name])
        for node in nodes
    ]
    return [_with_damage(row, answers[row.node]) for row in rows]


def _with_damage(row: NodeReplication, answer: "HARuntimeInfo | str") -> NodeReplication:
    damage = "" if isinstance(answer, str) else answer.damage
    return msgspec.structs.replace(row, damage=damage) if damage else row


def _master_row(node: "NodeSpec", answer: "HARuntimeInfo | str") -> NodeReplication:
    if isinstance(answer, str):
        return _row(node, "down", reason=answer)
    log_end = answer.master_commit_log_max_offset
    return _row(node, "master", log_end=log_end, reason=answer.refusal)


def _slave_row(
    node: "NodeSpec", master: "HARuntimeInfo | str", own: "HARuntimeInfo | str"
) -> NodeReplication:
    if isinstance(master, str):
        if isinstance(own, str):
            return _row(node, "down", reason=own)
        held = own.ha_client_runtime_info.max_offset
        return _row(node, "alone", log_end=held, reason="its master does not answer")
    for slave in master.ha_connection_info:
        if slave.name == node.name or slave.addr.rpartition(":")[0] == node.address:
            down = isinstance(own, str)
            return _row(
                node,
                "in sync" if slave.in_sync else "down" if down else "behind",
                log_end=slave.slave_ack_offset,
                lag_bytes=slave.diff,
                reason=slave.reason,
            )
    if isinstance(own, str):
        return _row(node, "down", reason=own)
    held = own.ha_client_runtime_info.max_offset
    lag = max(-1, master.master_commit_log_max_offset - held)  # -1: it has more, so who knows
    reason = "not connected to its master"
    return _row(node, "behind", log_end=held, lag_bytes=lag, reason=reason)


def _row(
    node: "NodeSpec",
    state: Literal["master", "in sync", "behind", "down", "alone"],
    *,
    log_end: int = -1,
    lag_bytes: int = -1,
    reason: str = "",
) -> NodeReplication:
    return NodeReplication(
        node=node.name,
        group=node.group,
        role=node.role,
        address=node.client_address,
        log_end=log_end,
        lag_bytes=lag_bytes,
        state=state,
        reason=reason,
    )


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
