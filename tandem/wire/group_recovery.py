"""What `recover-group` writes when the coordinator's records and the logs no longer fit.

It is needed when the record `state` is lost or older than the logs (a coordinator restored from a
backup), or when no member of the in-sync set will ever come back. An operator then decides which
log is the truth: the longest by (epoch, end) of the nodes that are registered.

    next epoch = the highest epoch anybody knows of + 1
    in-sync set = the chosen node alone; the others join when they have copied its log

It is refused while a member of the in-sync set can be elected, and, unless loss is accepted, where
acknowledged messages may be missing from the log that is chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tandem.wire.group_state import EPOCH_MAX, GroupState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tandem.wire.group_state import LeaderRecord, NodeRecord


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, or why not. The write compares `state`, `leader` and all nodes as read."""

    state: GroupState | None
    """None if it is refused."""
    text: str
    """What it does, or why it is refused, in words and numbers."""
    lost_bytes: int = 0
    """How many bytes of log may be lost at most; what they held cannot be known."""


def plan_recovery(
    *,
    group: str,
    state: GroupState | None,
    leader: LeaderRecord | None,
    nodes: Mapping[str, NodeRecord],
    members: Collection[str],
    min_isr: int,
    accept_loss: bool = False,
) -> Recovery:
    """Decide how a group goes on.

    Args:
        group: its name, for texts.
        state: the record as it is; None if there is none.
        leader: the record of the present master; there must be none.
        nodes: the records of the nodes that are registered now.
        members: names of all configured nodes of the group.
        min_isr: as configured; only written down.
        accept_loss: do it although messages may be lost.
    """
    if leader is not None:
        return _refused(
            f"{leader.node} is master of {group} (epoch {leader.epoch}): there is nothing to"
            " recover. If it hangs, stop it first"
        )
    sound = {name: node for name, node in nodes.items() if not node.trouble}
    if not sound:
        troubles = "; ".join(f"{name}: {node.trouble}" for name, node in nodes.items())
        return _refused(
            f"no node of {group} is registered and sound{f' ({troubles})' if troubles else ''}:"
            " start the nodes first"
        )
    current = state if state is not None and _is_current(state, nodes) else None
    electable = _electable(current, sound)
    if electable:
        return _refused(
            f"{', '.join(electable)} can be elected in {group} without your help; see `tandem ha"
            " status` for what they wait for"
        )
    best = max(sound.values(), key=lambda node: (node.epoch, node.end, node.node))
    absent = sorted(set(members) - set(sound))
    doubts = _doubts(best, current, sound, absent)
    facts = (
        f"{best.node} has the longest log (epoch {best.epoch}, {best.end} bytes, confirmed up to"
        f" {best.confirm})"
    )
    lost_bytes = _missing_bytes(best, sound)
    if doubts and not accept_loss:
        text = f"{facts}, but {'; '.join(doubts)}. Start the missing nodes, or say --accept-loss"
        return Recovery(state=None, text=text, lost_bytes=lost_bytes)
    epoch = 1 + max(
        state.epoch if state else 0,
        *(max(node.epoch, node.promised, node.seen_epoch) for node in nodes.values()),
    )
    if epoch > EPOCH_MAX:
        return _refused(f"epoch {EPOCH_MAX} is the last: copy the messages to a new group")
    recovered = GroupState(
        epoch=epoch,
        master="",
        isr={best.node: best.incarnation},
        min_isr=min_isr,
        reason=f"an operator recovered {group} with the log of {best.node}",
        previous_master=state.master if state else "",
    )
    loss = f", accepting that {'; '.join(doubts)}" if doubts else ""
    text = f"{facts}; {group} goes on from it at epoch {epoch}{loss}"
    return Recovery(state=recovered, text=text, lost_bytes=lost_bytes)


def _refused(why: str) -> Recovery:
    return Recovery(state=None, text=why)


def _electable(state: GroupState | None, sound: Mapping[str, NodeRecord]) -> list[str]:
    isr = state.isr if state else {}
    return sorted(name for name, node in sound.items() if isr.get(name) == node.incarnation)


def _is_current(state: GroupState, nodes: Mapping[str, NodeRecord]) -> bool:
    """True if no node has seen a newer epoch than the record knows of, or a newer record."""
    return all(
        n.epoch <= state.epoch
        and n.promised <= state.epoch + 1
        and (n.seen_epoch, n.seen_version) <= state.age
        for n in nodes.values()
    )


def _missing_bytes(best: NodeRecord, sound: Mapping[str, NodeRecord]) -> int:
    """Return how many bytes were confirmed somewhere and are not in the chosen log."""
    return max(0, max(node.confirm for node in sound.values()) - best.end)


def _doubts(
    best: NodeRecord,
    current: GroupState | None,
    sound: Mapping[str, NodeRecord],
    absent: list[str],
) -> list[str]:
    """Return why acknowledged messages may be missing from the chosen log; empty if they cannot.

    With every node there, the log of the newest epoch that is longest has all that was ever
    acknowledged: the master that wrote that epoch had everything before it, and the longer of two
    logs of one epoch contains the other.
    """
    doubts = []
    if absent:
        doubts.append(
            f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not registered, or not"
            " sound, and may hold messages that it lacks (how many cannot be known from here)"
        )
    missing = _missing_bytes(best, sound)
    if missing:
        doubts.append(f"up to {missing} bytes of confirmed messages are only in other logs")
    if current is not None:
        doubts.append(
            f"it is not in the in-sync set ({', '.join(sorted(current.isr))}) and may lack what was"
            f" acknowledged past {best.confirm}"
        )
    return doubts
