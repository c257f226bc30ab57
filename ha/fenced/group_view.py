"""What an election is decided by: the group's keys, and what a node knows of itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tandem.coordinator.interface import Snapshot
from tandem.wire.feature_level import LEVEL_MAX
from tandem.wire.group_state import (
    GroupKeys,
    GroupState,
    LeaderRecord,
    LifeRecord,
    NodeRecord,
    decode_leader,
    decode_life,
    decode_node,
    decode_state,
)


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The group's keys at one revision. Revisions of keys are 0 where there is no such key."""

    revision: int
    state: GroupState | None = None
    state_revision: int = 0
    leader: LeaderRecord | None = None
    leader_revision: int = 0
    nodes: dict[str, NodeRecord] = {}
    node_revisions: dict[str, int] = {}
    lives: dict[str, LifeRecord] = {}
    life_revisions: dict[str, int] = {}


def read_view(snapshot: Snapshot, keys: GroupKeys, level_max: int = LEVEL_MAX) -> GroupView:
    """Decode a snapshot of the group's keys.

    Raises:
        MalformedGroupRecordError: a record is not one of ours.
        GroupLevelError: the group is at a feature level above `level_max`.
    """
    state = snapshot.values.get(keys.state)
    leader = snapshot.values.get(keys.leader)
    nodes = {
        key.removeprefix(keys.nodes): entry
        for key, entry in snapshot.values.items()
        if key.startswith(keys.nodes)
    }
    lives = {
        key.removeprefix(keys.lives): entry
        for key, entry in snapshot.values.items()
        if key.startswith(keys.lives)
    }
    return GroupView(
        revision=snapshot.revision,
        state=decode_state(state.value, keys.state, level_max) if state else None,
        state_revision=state.mod_revision if state else 0,
        leader=decode_leader(leader.value, keys.leader) if leader else None,
        leader_revision=leader.mod_revision if leader else 0,
        nodes={name: decode_node(entry.value, entry.key) for name, entry in nodes.items()},
        node_revisions={name: entry.mod_revision for name, entry in nodes.items()},
        lives={name: decode_life(entry.value, entry.key) for name, entry in lives.items()},
        life_revisions={name: entry.mod_revision for name, entry in lives.items()},
    )


class OwnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of itself. `log_end` in bytes."""

    name: str
    session_id: str
    incarnation: str
    log_epoch: int
    """Of the last entry of its epoch file; 0 if there is none."""
    log_end: int
    promised: int
    seen: tuple[int, int] = (0, 0)
    """The newest record of the group that it has ever read, by epoch and version."""
    coordinator_is_old: str | None = None
    """How this node's directory shows that the coordinator was set back; None if it does not."""
    is_complete: bool = False
    """See `NodeRecord`."""
    trouble: str | None = None
    """Why it must not become master; None if it may."""
    damage: str = ""
    """Which bytes of its log are bad, in words: then a member with a whole log goes first."""
    members: tuple[str, ...]
    """All nodes of the group as configured, this one among them."""
    min_isr: int


def who_else_may_win(view: GroupView | None, recorded: Mapping[str, str], name: str) -> list[str]:
    """Return the members other than `name` that live, as recorded, and can win without help."""
    nodes = view.nodes if view else {}
    return [
        other
        for other, incarnation in sorted(recorded.items())
        if other != name
        and other in nodes
        and nodes[other].incarnation == incarnation
        and nodes[other].is_complete
        and not nodes[other].trouble
    ]


def whose_epoch_is_over(
    view: GroupView | None, recorded: Mapping[str, str], epoch: int
) -> str | None:
    """Return which recorded member will never follow the master of `epoch`, in words.

    It has promised a later one. A coordinator that was set back to a backup may have given `epoch`
    twice: then nobody refuses its master, and nobody follows. The next election is of a later one.
    """
    for name, node in sorted((view.nodes if view else {}).items()):
        if recorded.get(name) == node.incarnation and node.promised > epoch:
            return (
                f"{name} has promised epoch {node.promised} and never follows one of {epoch}: the"
                " coordinator was set back to a backup, and gave it twice"
            )
    return None
