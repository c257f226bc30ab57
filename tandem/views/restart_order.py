"""In which order the nodes of a cluster are restarted, so that its groups go on taking messages.

Group after group, and in each the master last: it is taken off its place before it stops, and those
that were restarted before are whole again by then.
"""

from collections.abc import Collection, Sequence

import msgspec

from tandem.views.cluster_look import ClusterLook
from tandem.views.group_view import DOWN, MASTER


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """One step. `successor` is made master before; "" if the node is none, or nobody can be."""

    node: str
    group: str
    address: str
    role: str
    successor: str = ""
    stops_group: bool = False
    """Whether the group takes no messages while this node is away."""


def restart_order(seen: ClusterLook, wanted: Collection[str] = ()) -> list[Restart]:
    """Return the steps for the nodes that are wanted; for all, if none is named."""
    steps: list[Restart] = []
    for group in seen.groups:
        nodes = sorted(group.nodes, key=lambda node: node.node == group.master)
        chosen = [node for node in nodes if not wanted or node.node in wanted]
        whole = [node.node for node in nodes if node.node in group.in_sync and node.role != DOWN]
        for node in chosen:
            is_master = node.node == group.master
            others = [name for name in whole if name != node.node]
            steps.append(
                Restart(
                    node=node.node,
                    group=group.group,
                    address=node.address,
                    role=node.role,
                    successor=others[0] if is_master and others else "",
                    stops_group=len(others) < group.min_isr,
                )
            )
    rows = sorted(seen.classic_nodes, key=lambda row: (row.group, row.role == MASTER))
    steps += [
        Restart(
            node=row.node,
            group=row.group,
            address=row.address,
            role=row.role,
            stops_group=row.role == MASTER,
        )
        for row in rows
        if not wanted or row.node in wanted
    ]
    return steps


def unknown_nodes(seen: ClusterLook, wanted: Sequence[str]) -> list[str]:
    """Return the names among those that are wanted that no node has."""
    known = {node.node for group in seen.groups for node in group.nodes}
    known |= {row.node for row in seen.classic_nodes}
    return [name for name in wanted if name not in known]
