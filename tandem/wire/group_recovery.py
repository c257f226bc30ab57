"""What `recover-group` writes when the coordinator's records and the logs no longer fit.

It is needed when the record `state` is lost or older than the logs (a coordinator restored from a
backup), when no member of the in-sync set will ever come back, or when what is left of it lacks
what others have confirmed (a directory restored from a backup). An operator then decides which log
is the truth: of the nodes that are registered, one that reaches all that anybody has confirmed, if
there is one; of those the one of the newest epoch; of those the longest.

    epoch         the highest that anybody knows of; the next master gets the number after it
    in-sync set   the chosen node alone; the others join when they have copied its log

A node in quarantine may be chosen: its log contradicts a master's, and that one may be the older.
All nodes in quarantine look at their logs anew afterwards.

It is refused while a member of the in-sync set can be elected: one that knows, or of which enough
others show, that it has everything acknowledged. And, unless loss is accepted, where acknowledged
messages may be missing from the log that is chosen.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

import msgspec

from tandem.wire.feature_level import LEVEL_MIN
from tandem.wire.group_state import (
    EPOCH_MAX,
    GroupState,
    LeaderRecord,
    LifeRecord,
    NodeRecord,
    accounted_for,
    confirmed_elsewhere,
)
from tandem.wire.switch_cause import SwitchCause


class LogRange(msgspec.Struct, frozen=True):
    """Bytes of the log of `node`, from `start` to `end`."""

    node: str
    start: int
    end: int


class Refusal(enum.Enum):
    """Why a group is not recovered."""

    HAS_MASTER = enum.auto()
    """Of `nodes`, one is master."""
    NO_NODE = enum.auto()
    """No node is registered and sound."""
    CAN_ELECT = enum.auto()
    """`nodes` can be elected without help."""
    MAY_LOSE = enum.auto()
    """Acknowledged messages may be missing from the best log; see `doubts`."""
    LAST_EPOCH = enum.auto()
    """There is no number for a next epoch."""


class Doubt(enum.Enum):
    """Why acknowledged messages may be missing from the best log."""

    ABSENT = enum.auto()
    """Nodes are not registered, or not sound."""
    CONFIRMED_ELSEWHERE = enum.auto()
    """Another node has confirmed more than this log has."""
    NEWER_EPOCH = enum.auto()
    """Nodes may have confirmed messages of an epoch that this log lacks."""
    OUTSIDE = enum.auto()
    """Its node is not in the in-sync set."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, or why not. The write compares `state`, `leader` and all nodes as read."""

    state: GroupState | None
    """None if it is refused."""
    refusal: Refusal | None = None
    """Why; None if it is not."""
    nodes: tuple[str, ...] = ()
    """Whom a refusal is about; else the node with the best log."""
    doubts: tuple[Doubt, ...] = ()
    """Of the best log."""
    text: str
    """What it does, or why it is refused, in words and numbers."""
    lost_bytes: int = 0
    """How many bytes of log may be lost at most."""
    lost: tuple[LogRange, ...] = ()
    """Where they can be looked at: of nodes that are registered."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All that is decided by."""

    name: str
    state: GroupState | None
    """The record as it is; None if there is none."""
    leader: LeaderRecord | None
    """The record of the present master; there must be none."""
    nodes: Mapping[str, NodeRecord]
    """The records of the nodes that are registered now."""
    lives: Mapping[str, LifeRecord] = {}
    """What is remembered of nodes, whether they live or not."""
    members: Collection[str]
    """Names of all configured nodes of the group."""


def plan_recovery(group: Group, *, min_isr: int, accept_loss: bool = False) -> Recovery:
    """Decide how a group goes on.

    Args:
        group: What is known of it.
        min_isr: As configured; only written down.
        accept_loss: Do it although messages may be lost.
    """
    state, nodes = group.state, group.nodes
    sound = {name: node for name, node in nodes.items() if not node.trouble or node.quarantined}
    current = state if state is not None and _is_current(state, nodes) else None
    refused = _needless_or_hopeless(group, current, sound)
    if refused is not None:
        return refused
    best = max(sound.values(), key=lambda node: _rank(group, node))
    lost = _lost_ranges(best, sound)
    lost_bytes = max([0, *(part.end - part.start for part in lost)])
    reasons = _doubts(group, best, current, sound)
    doubts, words = tuple(reasons), "; ".join(reasons.values())
    facts = (
        f"{best.node} has the best log (epoch {best.data_epoch}, {best.end} bytes, confirmed up to"
        f" {best.confirm})"
    )
    if doubts and not accept_loss:
        text = f"{facts}, but {words}. Start the missing nodes, or say --accept-loss"
        return Recovery(
            state=None,
            refusal=Refusal.MAY_LOSE,
            nodes=(best.node,),
            doubts=doubts,
            text=text,
            lost_bytes=lost_bytes,
            lost=lost,
        )
    epoch = _newest_epoch(group)
    if epoch >= EPOCH_MAX:
        text = f"epoch {EPOCH_MAX} is the last: copy the messages to a new group"
        return _refused(Refusal.LAST_EPOCH, text)
    recovered = GroupState(
        epoch=epoch,
        master="",
        isr={best.node: best.incarnation},
        min_isr=min_isr,
        reason=f"an operator recovered {group.name} with the log of {best.node}",
        cause=SwitchCause.RECOVERED,
        previous_master=state.master if state else "",
        version=1 + _newest_version(group, epoch),
        loss_accepted=epoch if doubts else state.loss_accepted if state else 0,
        recoveries=1 + (state.recoveries if state else 0),
        level=_level(group),
    )
    loss = f", accepting that {words}" if doubts else ""
    text = f"{facts}; {group.name} goes on from it, with epoch {epoch + 1}{loss}"
    return Recovery(
        state=recovered,
        nodes=(best.node,),
        doubts=doubts,
        text=text,
        lost_bytes=lost_bytes,
        lost=lost,
    )


def _level(group: Group) -> int:
    """Return the feature level: the record's, or what the nodes have seen if that was lost."""
    seen = [group.state.level] if group.state else []
    return max([LEVEL_MIN, *seen, *(node.level for node in group.nodes.values())])


def _needless_or_hopeless(
    group: Group, current: GroupState | None, sound: Mapping[str, NodeRecord]
) -> Recovery | None:
    """Return why there is nothing to decide, None if there is."""
    if group.leader is not None:
        why = _why_leader(group, group.leader)
        return _refused(Refusal.HAS_MASTER, why, group.leader.node)
    if not sound:
        troubles = "; ".join(f"{name}: {node.trouble}" for name, node in group.nodes.items())
        return _refused(
            Refusal.NO_NODE,
            f"no node of {group.name} is registered and sound{f' ({troubles})' if troubles else ''}"
            ": start the nodes first",
            *group.nodes,
        )
    electable = _electable(group, current)
    if electable:
        return _refused(
            Refusal.CAN_ELECT,
            f"{', '.join(electable)} can be elected in {group.name} without your help; see `tandem"
            " ha status` for what they wait for",
            *electable,
        )
    return None


def _refused(refusal: Refusal, why: str, *nodes: str) -> Recovery:
    return Recovery(state=None, refusal=refusal, nodes=nodes, text=why)


def _why_leader(group: Group, leader: LeaderRecord) -> str:
    why = (
        f"{leader.node} is master of {group.name} (epoch {leader.epoch}): there is nothing to"
        " recover. If it hangs, stop it first"
    )
    quarantined = sorted(name for name, node in group.nodes.items() if node.quarantined)
    if not quarantined:
        return why
    names = ", ".join(quarantined)
    return (
        f"{why}. In quarantine: {names}. To go on with the log of {leader.node}, give up theirs:"
        f" `tandem ha rejoin NODE` says what that costs. To go on with one of theirs, stop"
        f" {leader.node} and run this again"
    )


def _electable(group: Group, state: GroupState | None) -> list[str]:
    """Return who can win without help: a member that lacks nothing, and knows or is shown so."""
    if state is None:
        return []
    return sorted(
        name
        for name, node in group.nodes.items()
        if state.isr.get(name) == node.incarnation
        and not node.trouble
        and node.end >= _confirmed_by_others(group, name)
        and (node.is_complete or _is_accounted_for(state, group, node))
    )


def _is_accounted_for(state: GroupState, group: Group, node: NodeRecord) -> bool:
    """True if enough members have, or will soon have, shown that they have no more than `node`."""
    found = accounted_for(
        state,
        group.nodes,
        group.lives,
        name=node.node,
        epoch=node.epoch,
        end=node.end,
        final=[name for name, other in group.nodes.items() if not other.trouble],
    )
    return len(found) >= state.accounts_needed


def _confirmed_by_others(group: Group, name: str) -> int:
    return confirmed_elsewhere(group.state, group.nodes, group.lives, but=name)[0]


def _rank(group: Group, node: NodeRecord) -> tuple[bool, int, int, str]:
    has_all = node.end >= _confirmed_by_others(group, node.node)
    return has_all, node.data_epoch, node.end, node.node


def _is_current(state: GroupState, nodes: Mapping[str, NodeRecord]) -> bool:
    """True if no node has seen a newer epoch than the record knows of, or a newer record."""
    return all(
        n.epoch <= state.epoch
        and n.promised <= state.epoch + 1
        and (n.seen_epoch, n.seen_version) <= state.age
        and not n.coordinator_is_old
        for n in nodes.values()
    )


def _newest_epoch(group: Group) -> int:
    """Return the newest epoch that may have had a master. A promise is of the one after it."""
    known = [group.state.epoch if group.state else 0]
    known += [max(n.epoch, n.promised - 1, n.seen_epoch) for n in group.nodes.values()]
    return max(known + [life.epoch for life in group.lives.values()])


def _newest_version(group: Group, epoch: int) -> int:
    """Return the newest version of the group's record of this epoch that anybody has seen."""
    seen = [(n.seen_epoch, n.seen_version) for n in group.nodes.values()]
    seen += [group.state.age] if group.state else []
    return max((version for of_epoch, version in seen if of_epoch == epoch), default=0)


def _lost_ranges(best: NodeRecord, sound: Mapping[str, NodeRecord]) -> tuple[LogRange, ...]:
    """Return what was confirmed and is, as far as offsets show, not in the chosen log."""
    return tuple(
        LogRange(name, best.end, node.confirm)
        for name, node in sorted(sound.items())
        if node.confirm > best.end
    )


def _doubts(
    group: Group,
    best: NodeRecord,
    current: GroupState | None,
    sound: Mapping[str, NodeRecord],
) -> dict[Doubt, str]:
    """Return why acknowledged messages may be missing from the chosen log; empty if they cannot.

    With every node there, the log of the newest epoch that is longest has all that was ever
    acknowledged: the master that wrote that epoch had everything before it, and the longer of two
    logs of one epoch contains the other.
    """
    doubts = {}
    absent = sorted(set(group.members) - set(sound))
    if absent:
        doubts[Doubt.ABSENT] = (
            f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not registered, or not"
            " sound, and may hold messages that it lacks (how many cannot be known from here)"
        )
    confirm, name = confirmed_elsewhere(group.state, sound, group.lives, but=best.node)
    if confirm > best.end:
        doubts[Doubt.CONFIRMED_ELSEWHERE] = (
            f"up to {confirm - best.end} bytes of confirmed messages are only in other logs"
            f" ({name} has confirmed everything below {confirm})"
        )
    newer = sorted(
        node.node for node in sound.values() if node.data_epoch > best.data_epoch and node.confirm
    )
    if newer:
        doubts[Doubt.NEWER_EPOCH] = (
            f"{', '.join(newer)} may have confirmed messages of a newer epoch that it lacks"
        )
    if current is not None and current.isr.get(best.node) != best.incarnation:
        doubts[Doubt.OUTSIDE] = (
            f"it is not in the in-sync set ({', '.join(sorted(current.isr))}) and may lack what was"
            f" acknowledged past {best.confirm}"
        )
    return doubts
