"""Whether a node is well, and whether its group is: rules without I/O.

live    its loop goes on: to answer is the proof. Nothing else counts, no peer and no disk
ready   it serves as what it should be: a master that takes messages, or a follower of one
group   it has a master that takes messages, and every node of it is in sync, as this node knows
"""

from __future__ import annotations

from typing import Final

import msgspec

from node.figures.node_report import NodeReport
from node.figures.sources import Sources

BEHIND_BYTES_MAX: Final = 64 << 20
"""A follower that lacks more is not ready: it would not be elected, and readers would wait."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered. `why` says in words what is wrong, one reason each."""

    ok: bool
    role: str | None = None
    """None while the store is closed."""
    in_sync: int | None = None
    needed: int | None = None
    why: list[str] = []


def live() -> Health:
    """Whether the loop goes on: who reads this knows."""
    return Health(ok=True)


def ready(report: NodeReport) -> Health:
    """Whether this node serves as what it should be."""
    if report.is_stopping:
        return Health(ok=False, why=["the node is stopping"])
    if report.sources is None:
        return Health(ok=False, why=["the store is closed, or being opened"])
    replication = report.sources.replication
    standing = replication.replica_standing()
    why = _why_not_ready(report.sources)
    return Health(
        ok=not why, role=standing.role, in_sync=standing.in_sync, needed=standing.needed, why=why
    )


def _why_not_ready(sources: Sources) -> list[str]:
    replication = sources.replication
    standing = replication.replica_standing()
    if replication.is_quarantined:
        return [replication.why_not_served()]
    if replication.is_master:
        return [] if sources.why_refused is None else [sources.why_refused]
    if not standing.follows:
        return [f"it is {standing.role}, and gets no log from a master"]
    if standing.behind_bytes is not None and standing.behind_bytes > BEHIND_BYTES_MAX:
        return [f"it is {standing.behind_bytes} bytes behind its master"]
    return []


def group_ready(report: NodeReport) -> Health:
    """Whether the group takes messages, and how safe they are, as far as this node knows.

    Only the master knows who is in sync. Any other node that follows one knows that there is one.
    """
    own = ready(report)
    if not own.ok or report.sources is None or not report.sources.replication.is_master:
        return own
    others = report.sources.replication.runtime_info().ha_connection_info
    why = [
        f"{each.name or each.addr} is not in sync: {each.reason or 'nobody knows why'}"
        for each in others
        if not each.in_sync
    ]
    return msgspec.structs.replace(own, ok=not why, why=why)
