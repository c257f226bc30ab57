"""How the nodes of classic groups replicate, as they say themselves: one row a node. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from tandem.cluster.spec import ClusterSpec, NodeSpec
    from tandem.wire.request_headers import HARuntimeInfo


class ClassicNode(Protocol):
    """A node of a classic group, as in a cluster file."""

    @property
    def name(self) -> str:
        """Its own."""

    @property
    def group(self) -> str:
        """That of its group."""

    @property
    def role(self) -> str:
        """MASTER or SLAVE."""

    @property
    def address(self) -> str:
        """Its host."""

    @property
    def client_address(self) -> str:
        """`host:port` for clients."""


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
    nodes: Sequence[ClassicNode], answers: "dict[str, HARuntimeInfo | str]"
) -> list[NodeReplication]:
    """Join what the nodes of classic groups say, by node name.

    An answer that is text says why there is none.
    """
    masters = {node.group: answers[node.name] for node in nodes if node.role == "MASTER"}
    unknown = "its master is not known"
    rows = [
        _master_row(node, answers[node.name])
        if node.role == "MASTER"
        else _slave_row(node, masters.get(node.group, unknown), answers[node.name])
        for node in nodes
    ]
    return [_with_damage(row, answers[row.node]) for row in rows]


def _with_damage(row: NodeReplication, answer: "HARuntimeInfo | str") -> NodeReplication:
    damage = "" if isinstance(answer, str) else answer.damage
    return msgspec.structs.replace(row, damage=damage) if damage else row


def _master_row(node: ClassicNode, answer: "HARuntimeInfo | str") -> NodeReplication:
    if isinstance(answer, str):
        return _row(node, "down", reason=answer)
    log_end = answer.master_commit_log_max_offset
    return _row(node, "master", log_end=log_end, reason=answer.refusal)


def _slave_row(
    node: ClassicNode, master: "HARuntimeInfo | str", own: "HARuntimeInfo | str"
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
    node: ClassicNode,
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
