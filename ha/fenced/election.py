"""Who may become master, and when: decisions over what the coordinator said last.

This is a state machine with no I/O and no clock in it. A follower asks `decide` whenever the
group's keys have changed or time has passed:

    a leader of the recorded epoch             Follow
    no leader, and this node may win           Run: promise, fix the log's end, publish it; then
                                               `turn` says when to ask the coordinator
    no leader, but it is not its turn yet      Show: promise, fix the log's end, publish it; wait
    no `state`: all nodes are there and empty  Bootstrap
    no `state`, but there is a log; or a
    record that is older than what is on disk  Refuse, until an operator runs recover-group
    a node has confirmed what this one lacks   Show: this log is an older copy, or has lost its end
    this log is damaged, a member's is whole   Show: the other goes first
    the leader record is ours, but we are
    no master (a late success)                 Disown: delete it

Only a member of the recorded in-sync set, under its recorded incarnation, runs: it has everything
that was ever acknowledged. Which of them wins is a matter of taste; the longest log goes first, so
that as little as possible of what was *not* acknowledged is cut.

That a member has everything is certain if its process has seen so: it has had the whole log of a
master since it began, or was master itself. A directory may be a copy of a moment ago, and a
process that began after the last acknowledgement cannot know that. It runs only when as many
members as an acknowledgement needs, itself among them, have shown that they have no more than it
has: see `accounted_for`. So it takes that many copies to lose a message. Where that is one, with
`min_isr` 1, the others are waited for a moment all the same: that is a courtesy.

A group begins when all its nodes are registered and empty. With less than all, a coordinator that
has lost its records could make a new, empty node the beginning of a new history while the nodes
that hold the old one are down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from ha.fenced.group_view import GroupView, OwnFacts
from ha.fenced.wholeness import WHOLE_FIRST_SECONDS, whole_members
from tandem.wire.group_state import (
    EPOCH_MAX,
    GroupState,
    LeaderRecord,
    NodeRecord,
    accounted_for,
    confirmed_elsewhere,
)
from tandem.wire.switch_cause import SwitchCause

RANK_SECONDS: Final = 0.15
"""How much later each replica with a shorter log runs."""
RANK_SECONDS_MAX: Final = 0.3
SHOWING_SECONDS: Final = 1.0
"""How long one that began after the last master waits for others where it needs none."""
PREFERRED_SECONDS: Final = 1.0
"""How long others leave the field to the node that an operator wants."""
NOBODY_WINS_SECONDS: Final = 3.0
"""Without a leader for so long, one that has resigned runs again."""


class Follow(msgspec.Struct, frozen=True):
    """Take the log of `master`, which leads `epoch`."""

    master: str
    epoch: int
    epoch_id: str = ""


class Run(msgspec.Struct, frozen=True):
    """Try to become master of `epoch`."""

    epoch: int


class Show(msgspec.Struct, frozen=True):
    """Promise `epoch` and publish where the log ends, once; do not run before that is decided.

    `until` is when to ask again although nothing has changed.
    """

    epoch: int
    why: str
    until: float | None = None


class Bootstrap(msgspec.Struct, frozen=True):
    """Begin the group with this record if no key it was made from has changed."""

    state: GroupState


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do now."""

    why: str


class Refuse(msgspec.Struct, frozen=True):
    """Nothing to do until an operator has decided."""

    why: str


class Disown(msgspec.Struct, frozen=True):
    """Delete the leader record: it is ours, and we are not master."""


Decision: TypeAlias = Follow | Run | Show | Bootstrap | Wait | Refuse | Disown


class Won(msgspec.Struct, frozen=True, kw_only=True):
    """An election that was won. Revisions are those of the coordinator's keys."""

    state: GroupState
    state_revision: int
    leader_revision: int
    log_end: int
    """Where this node's log ended when it ran; the epoch starts here."""

    @property
    def epoch(self) -> int:
        """The epoch that was won."""
        return self.state.epoch


class Election:
    """The decisions of one node that is not master."""

    def __init__(self) -> None:
        self._leaderless_since: float | None = None
        self._stands_back_until = 0.0

    def resigned(self, until: float) -> None:
        """This node has given up mastership; others shall try first."""
        self._stands_back_until = until

    def decide(self, view: GroupView | None, own: OwnFacts, now: float) -> Decision:
        """Return what to do. `now` in seconds of any clock that does not go back.

        `view` is None as long as nothing is known of the group.
        """
        if view is None:
            return Wait("the coordinator has not answered yet")
        self._note_leader(view, now)
        state = view.state
        if state is None:
            return _without_state(view, own)
        too_old = _why_too_old(state, own)
        knows_more = who_knows_more(view)
        if too_old is None and view.leader is None and knows_more is not None:
            too_old = f"{knows_more}. Run `tandem ha recover-group`"
        if too_old is not None:
            return Refuse(too_old)
        if view.leader is not None:
            return _with_leader(view.leader, state, own)
        why_not = why_not_electable(state, own.name, own.incarnation)
        if own.trouble is not None:
            why_not = f"this node must not become master: {own.trouble}"
        if why_not is not None:
            return Wait(why_not)
        return self._hold_back(view, state, own, now) or Run(state.epoch + 1)

    def turn(self, view: GroupView, own: OwnFacts, since: float) -> float:
        """Return when a candidate may ask the coordinator, which published its end at `since`."""
        if view.state is None or view.state.preferred == own.name:
            return since
        ranks = ranked(view.state, view.nodes)
        rank = ranks.index(own.name) if own.name in ranks else 0
        return since + min(rank * RANK_SECONDS, RANK_SECONDS_MAX)

    def _note_leader(self, view: GroupView, now: float) -> None:
        if view.leader is not None:
            self._leaderless_since = None
        elif self._leaderless_since is None:
            self._leaderless_since = now

    def _hold_back(
        self, view: GroupView, state: GroupState, own: OwnFacts, now: float
    ) -> Show | None:
        """Return why another has to run first, or should, if so."""
        for why, until in self._reasons_to_hold_back(view, state, own, now):
            if why is not None and (until is None or now < until):
                return Show(state.epoch + 1, why, until)
        return None

    def _reasons_to_hold_back(
        self, view: GroupView, state: GroupState, own: OwnFacts, now: float
    ) -> Iterator[tuple[str | None, float | None]]:
        """Yield reasons, or None, and until when each counts at most; None for as long as it is."""
        since = now if self._leaderless_since is None else self._leaderless_since
        yield _why_lacking(view, own), None
        yield _why_uncertain(view, state, own), None
        missing = ", ".join(_not_shown(view, state, own))
        if missing:
            yield f"waits a moment for the logs of {missing}", since + SHOWING_SECONDS
        whole = ", ".join(whole_members(state.isr, view.nodes, but=own.name))
        if own.damage and whole:
            yield f"{own.damage}; {whole} with a whole log goes first", since + WHOLE_FIRST_SECONDS
        preferred = state.preferred
        if preferred == own.name:
            return
        until = min(self._stands_back_until, since + NOBODY_WINS_SECONDS)
        yield "this node has resigned and leaves the field to others", until
        if preferred in ranked(state, view.nodes):
            yield f"an operator wants {preferred} to be master", since + PREFERRED_SECONDS


def why_not_electable(state: GroupState, name: str, incarnation: str) -> str | None:
    """Return why a node cannot win, in words; None if it can."""
    if state.epoch == EPOCH_MAX:
        return f"epoch {EPOCH_MAX} is the last: copy the messages to a new group"
    if name not in state.isr:
        members = ", ".join(sorted(state.isr))
        return f"{name} is not in the in-sync set ({members}): it may lack acknowledged messages"
    if state.isr[name] != incarnation:
        return (
            f"{name} has lost what it had acknowledged (it is replica {incarnation} now, the"
            f" in-sync set knows {state.isr[name]}): it has to copy the log first"
        )
    return None


def ranked(state: GroupState, nodes: dict[str, NodeRecord]) -> list[str]:
    """Return who can win and lives: whole logs first, of these the longest first."""
    able = [
        node
        for name, node in nodes.items()
        if not node.trouble and why_not_electable(state, name, node.incarnation) is None
    ]
    return [n.node for n in sorted(able, key=_rank)]


def _rank(node: NodeRecord) -> tuple[bool, int, int, str]:
    return bool(node.damage), -node.epoch, -node.end, node.node


def state_if_won(
    state: GroupState,
    nodes: dict[str, NodeRecord],
    own: OwnFacts,
    *,
    why: tuple[SwitchCause | str, str],
    wall_clock_ms: int,
    epoch_id: str = "",
) -> GroupState:
    """Return the record with which this node asks to be master; `epoch_id` is new and random.

    `why` there is a new master: see `why_switched`.

    Members that do not live leave the set, so that nobody waits for them, but never below
    `min_isr`: those still hold everything acknowledged, and can be elected when they are back.
    """
    isr = {own.name: own.incarnation}
    others = [name for name in sorted(state.isr) if name != own.name]
    lives = [n for n in others if n in nodes and nodes[n].incarnation == state.isr[n]]
    for name in lives:
        isr[name] = state.isr[name]
    for name in others:
        if len(isr) < own.min_isr and name not in isr:
            isr[name] = state.isr[name]
    cause, reason = why
    return GroupState(
        epoch=state.epoch + 1,
        master=own.name,
        isr=isr,
        min_isr=own.min_isr,
        reason=reason,
        cause=cause,
        switched_at_ms=wall_clock_ms,
        previous_master=state.master or state.previous_master,
        epoch_id=epoch_id,
        loss_accepted=state.loss_accepted,
        recoveries=state.recoveries,
        level=state.level,
    )


def why_switched(state: GroupState, winner: str) -> tuple[SwitchCause | str, str]:
    """Return why there is a new master: the cause, and in words for people to read later."""
    if not state.master:
        return state.cause or SwitchCause.FIRST, state.reason or "the group's first master"
    if state.preferred == winner:
        return SwitchCause.PROMOTED, f"an operator promoted {winner}"
    if state.has_stepped_down:
        return state.cause, state.reason
    return SwitchCause.LEASE_ENDED, f"the lease of {state.master} ended"


def farewell(
    state: GroupState, reason: str, cause: SwitchCause = SwitchCause.STEPPED_DOWN
) -> GroupState:
    """Return the record of a group whose master steps down: its successor says why."""
    because = f"{state.master} stepped down: {reason}"
    return msgspec.structs.replace(state, reason=because, cause=cause, has_stepped_down=True)


def what_is_lacking(view: GroupView | None, name: str, log_end: int) -> str | None:
    """Return what the log of `name`, which ends at `log_end`, lacks of what others have confirmed.

    In words; None if nothing is known of. The in-sync set has everything that was ever confirmed,
    so this can only be a log that went back in time: a directory that was restored, a disk that has
    lost its end.
    """
    if view is None:
        return None
    confirm, other = confirmed_elsewhere(view.state, view.nodes, view.lives, but=name)
    if confirm <= log_end:
        return None
    return (
        f"{other} has confirmed everything below {confirm}, and this log ends at {log_end}: it is"
        " an older copy, or has lost its end"
    )


def who_knows_more(view: GroupView) -> str | None:
    """Return which node has seen a newer record than the present one, in words; None for nobody.

    All records of a view are of one revision, so only a coordinator that was set back shows that.
    """
    state = view.state
    if state is None:
        return None
    for name, node in sorted(view.nodes.items()):
        if (node.seen_epoch, node.seen_version) > state.age or node.promised > state.epoch + 1:
            newest = max(node.seen_epoch, node.promised - 1)
            return (
                f"the coordinator says epoch {state.epoch}, change {state.version}, but {name} has"
                f" seen change {node.seen_version} of epoch {newest}: it was set back to a backup"
            )
    return None


def why_no_longer_master(view: GroupView, own: GroupState, session_id: str) -> str | None:
    """Return what the coordinator has that ends a mastership; None if nothing does.

    `own` is the newest record that this master has made, or has seen to be its own.
    """
    state, leader = view.state, view.leader
    if state is None or (state.epoch, state.master) != (own.epoch, own.master):
        return f"the group's record says epoch {state.epoch if state else 'none'}"
    knows_more = who_knows_more(view)
    if knows_more is not None:
        return knows_more
    if state.age < own.age:
        return (
            f"the coordinator says change {state.version} of the in-sync set, this master has"
            f" made change {own.version}: the coordinator was set back"
        )
    if leader is None:
        return "its leader record is gone"
    if (leader.session, leader.epoch) != (session_id, own.epoch):
        return f"{leader.node} is master"
    return None if own.master in state.isr else "it is no longer in the in-sync set"


def _why_lacking(view: GroupView, own: OwnFacts) -> str | None:
    """Return why this node must wait for another, in words; None if it need not."""
    lacking = what_is_lacking(view, own.name, own.log_end)
    remedy = "if the other node is gone for good, run `tandem ha recover-group`"
    return None if lacking is None else f"{lacking}; {remedy}"


def _accounted_for(view: GroupView, state: GroupState, own: OwnFacts) -> set[str]:
    """Return the members that have shown that they have no more than this node, or can have none.

    A member that has promised the next epoch acknowledges nothing of this one any more: its end is
    final.
    """
    return accounted_for(
        state,
        view.nodes,
        view.lives,
        name=own.name,
        epoch=own.log_epoch,
        end=own.log_end,
        final=[name for name, node in view.nodes.items() if node.promised > state.epoch],
    )


def _why_uncertain(view: GroupView, state: GroupState, own: OwnFacts) -> str | None:
    """Return why it is not known whether this log has everything, in words; None if it is."""
    if own.is_complete:
        return None
    found = _accounted_for(view, state, own)
    if len(found) >= state.accounts_needed:
        return None
    others = ", ".join(sorted(set(state.isr) - found))
    return (
        "this process began after the last acknowledgement, so its log may be an older copy:"
        f" {state.accounts_needed} members of the in-sync set ({', '.join(sorted(state.isr))}) have"
        f" to show that they have no more than it has, {len(found)} did. Start {others}; what is"
        " gone for good is given up with `tandem ha recover-group`"
    )


def _not_shown(view: GroupView, state: GroupState, own: OwnFacts) -> list[str]:
    """Return the other members that may say where their logs end, where that is a courtesy."""
    if own.is_complete or not state.epoch or state.accounts_needed > 1:
        return []
    return [
        name
        for name in sorted(set(state.isr) - {own.name})
        if name not in view.nodes
        or (
            view.nodes[name].incarnation == state.isr[name]
            and view.nodes[name].promised <= state.epoch
            and not view.nodes[name].trouble
        )
    ]


def _why_too_old(state: GroupState, own: OwnFacts) -> str | None:
    """Return why the coordinator's record cannot be trusted, in words; None if it can."""
    if own.coordinator_is_old is not None:
        return (
            f"the coordinator's records are older than this node's directory:"
            f" {own.coordinator_is_old} (restored from a backup?). Run `tandem ha recover-group`"
        )
    if own.log_epoch <= state.epoch and own.promised <= state.epoch + 1:
        if own.seen <= state.age:
            return None
        return (
            f"the coordinator says epoch {state.epoch}, change {state.version} of the in-sync set,"
            f" but {own.name} has seen change {own.seen[1]} of epoch {own.seen[0]}: its records are"
            " older than that (restored from a backup?). Run `tandem ha recover-group`"
        )
    return (
        f"the coordinator says epoch {state.epoch}, but {own.name} has seen epoch"
        f" {max(own.log_epoch, own.promised)}: its records are older than this log (restored from"
        " a backup?). Run `tandem ha recover-group`"
    )


def _with_leader(leader: LeaderRecord, state: GroupState, own: OwnFacts) -> Decision:
    if leader.node == own.name:
        if leader.session == own.session_id:
            return Disown()
        return Wait("an earlier life of this node is recorded as master until its lease ends")
    if leader.epoch != state.epoch or leader.node != state.master:
        return Wait(
            f"the records do not fit: {leader.node} leads epoch {leader.epoch}, the group is at"
            f" epoch {state.epoch} with {state.master or 'no master'}"
        )
    if leader.epoch < own.promised:
        return Wait(f"epoch {leader.epoch} is over for this node, which promised {own.promised}")
    return Follow(leader.node, leader.epoch, state.epoch_id)


def _without_state(view: GroupView, own: OwnFacts) -> Decision:
    remedy = "Run `tandem ha recover-group`"
    if own.log_epoch or own.log_end or own.promised:
        return Refuse(
            f"the coordinator has no record of this group, but {own.name} has a log of"
            f" {own.log_end} bytes (epoch {max(own.log_epoch, own.promised)}). {remedy}"
        )
    missing = [name for name in own.members if name not in view.nodes]
    if missing:
        return Wait(
            f"waiting for {', '.join(missing)} to register: a new group starts when all its nodes"
            " are there"
        )
    for name in own.members:
        node = view.nodes[name]
        if node.epoch or node.end or node.promised:
            return Refuse(
                f"the coordinator has no record of this group, but {name} has a log of"
                f" {node.end} bytes (epoch {max(node.epoch, node.promised)}). {remedy}"
            )
    return Bootstrap(
        GroupState(
            epoch=0,
            master="",
            isr={name: view.nodes[name].incarnation for name in own.members},
            min_isr=own.min_isr,
            reason="the group's first master",
            cause=SwitchCause.FIRST,
            level=min(view.nodes[name].level_max for name in own.members),
        )
    )
