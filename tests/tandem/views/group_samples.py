"""A fenced group of three nodes, a, b and c, as its nodes and its coordinator describe it."""

from typing import Any

from tandem.views.group_view import (
    GroupRecords,
    GroupView,
    Member,
    group_view,
)
from tandem.wire.group_state import (
    GroupState,
    LeaderRecord,
)
from tandem.wire.ha_status import FencedStatus, ReplicaStatus

MEMBERS = [Member(name, f"10.0.0.{place}:10911") for place, name in enumerate("abc", start=1)]
NO_ANSWER = "no answer in 3 s"


def status(node: str, **changes: Any) -> FencedStatus:  # noqa: ANN401  fields of a record
    facts: dict[str, Any] = {
        "node": node,
        "group": "g",
        "role": "FOLLOWER",
        "epoch": 7,
        "log_epoch": 7,
        "master": "a",
        "incarnation": f"incarnation-{node}",
        "promised": 7,
        "log_start": 0,
        "log_end": 900,
        "flushed": 800,
        "confirm": 850,
        "min_isr": 2,
        "ack_level": "written",
        "isr": ["a", "b"],
        "lease_left_ms": 0,
        "refusal": "not master: a is",
    }
    return FencedStatus(**{**facts, **changes})


def master(node: str = "a", **changes: Any) -> FencedStatus:  # noqa: ANN401  fields of a record
    replicas = [
        ReplicaStatus(
            name="b", connected=True, in_sync=True, written=900, flushed=0, lag_bytes=100
        ),
        ReplicaStatus(name="c", connected=True, written=300, lag_bytes=700, trouble="is behind"),
    ]
    facts = {"role": "MASTER", "log_end": 1000, "lease_left_ms": 4200, "refusal": ""}
    return status(node, **{"replicas": replicas, **facts, **changes})


def records(leader: str | None = "a", **changes: Any) -> GroupRecords:  # noqa: ANN401
    facts: dict[str, Any] = {
        "epoch": 7,
        "master": "a",
        "isr": {"a": "incarnation-a", "b": "incarnation-b"},
        "min_isr": 2,
        "reason": "the lease of c ended",
        "cause": "lease-ended",
        "switched_at_ms": 1_700_000_000_000,
        "previous_master": "c",
    }
    state = GroupState(**{**facts, **changes})
    held = LeaderRecord(node=leader, session="s", epoch=7) if leader else None
    return GroupRecords(state, held, {})


HEALTHY = {"a": master(), "b": status("b"), "c": status("c", log_end=300)}


def view(
    answers: dict[str, FencedStatus | str] | None = None,
    said: GroupRecords | str | None = None,
) -> GroupView:
    return group_view("g", MEMBERS, answers or dict(HEALTHY), records() if said is None else said)
