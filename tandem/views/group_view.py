"""What the nodes and the coordinator say about a fenced group, joined for a person. Pure.

No source knows everything: a node that hangs says nothing, an old master believes in itself, and
the coordinator knows who may decide but not what is in a log. So each fact is taken from the source
that knows it best, and what is unknown is -1 or empty:

    epoch, master, in-sync set     the coordinator; without it the master, or the newest node
    what a node has                the node itself; if it is silent, its master
    lag, in sync, why not          the master
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

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
from tandem.wire.ha_status import FencedStatus, HealedPart, ReplicaStatus

MASTER: Final = "MASTER"
DOWN: Final = "down"


class Member(msgspec.Struct, frozen=True):
    """A node of the group, as configured."""

    name: str
    address: str


class GroupRecords(msgspec.Struct, frozen=True):
    """What the coordinator holds of a group. `revisions`: of each key, for a compare."""

    state: GroupState | None = None
    leader: LeaderRecord | None = None
    nodes: Mapping[str, NodeRecord] = {}
    lives: Mapping[str, LifeRecord] = {}
    revisions: Mapping[str, int] = {}


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the group. Offsets are bytes of log, -1 if unknown."""

    node: str
    address: str
    role: str
    """As in FencedStatus, or `down` if it does not answer."""
    in_sync: bool = False
    epoch: int = -1
    incarnation: str = ""
    written: int = -1
    flushed: int = -1
    confirm: int = -1
    lag_bytes: int = -1
    lease_left_ms: int = -1
    """Of the master: how long it may go on without an answer of the coordinator."""
    is_damaged: bool = False
    """Bytes of its log are bad; `trouble` says which."""
    bad_bytes: int = 0
    health: list[str] = []
    """What it says of the health of its log, in words, each its own: see FencedStatus."""
    healed: list[HealedPart] = []
    """What was bad in its log and is whole again, the newest last."""
    program: str = ""
    """Its version of TandemMQ; empty if it is unknown, or one from before feature levels."""
    level_max: int = -1
    """The highest feature level that it knows; -1 if that is unknown."""
    late_keep_alives: int = 0
    """How many were late because its process was not run, since that began."""
    too_slow: str = ""
    """Why its machine is too slow for its lease, in words; empty if it is not."""
    trouble: str = ""


class Switch(msgspec.Struct, frozen=True):
    """The last change of master: why, when (ms since 1970, 0: never or unknown), and who was.

    `cause` is a value of `SwitchCause`; "" if it is not known.
    """

    reason: str = ""
    at_ms: int = 0
    previous_master: str = ""
    cause: str = ""


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A fenced group, as far as it can be known now."""

    group: str
    epoch: int
    """-1 if unknown."""
    master: str
    """Empty if there is none that answers and may decide."""
    takes_messages: bool
    reasons: list[str]
    """Why it takes none, in words; each node's own."""
    min_isr: int
    ack_level: str
    in_sync: list[str]
    preferred: str = ""
    """Node that an operator wants to be master."""
    last_switch: Switch
    coordinator_trouble: str = ""
    """Why its coordinator could not be asked; empty if it could."""
    level: int = -1
    """The feature level; -1 if it is unknown."""
    nodes: list[NodeView]


def decode_records(keys: GroupKeys, values: Mapping[str, tuple[bytes, int]]) -> GroupRecords:
    """Read what the coordinator holds: by key its value and its revision.

    Raises:
        MalformedGroupRecordError: a record cannot be read.
    """
    nodes, lives = {}, {}
    for key, (value, _) in values.items():
        if key.startswith(keys.nodes):
            nodes[key.removeprefix(keys.nodes)] = decode_node(value, key)
        elif key.startswith(keys.lives):
            lives[key.removeprefix(keys.lives)] = decode_life(value, key)
    state = values.get(keys.state)
    leader = values.get(keys.leader)
    return GroupRecords(
        decode_state(state[0], keys.state) if state else None,
        decode_leader(leader[0], keys.leader) if leader else None,
        nodes,
        lives,
        {key: revision for key, (_, revision) in values.items()},
    )


def group_view(
    group: str,
    members: Sequence[Member],
    answers: Mapping[str, FencedStatus | str],
    records: GroupRecords | str,
) -> GroupView:
    """Join what was said. Text in place of an answer says why there is none."""
    said = {name: answer for name, answer in answers.items() if isinstance(answer, FencedStatus)}
    newest = max(said.values(), key=lambda status: status.epoch, default=None)
    trouble = records if isinstance(records, str) else ""
    known = GroupRecords() if isinstance(records, str) else records
    master = _master(said, known, has_coordinator=not trouble)
    state = known.state
    in_sync = sorted(state.isr if state else _in_sync_as_told(master, newest))
    source = master or newest
    return GroupView(
        group=group,
        epoch=max(state.epoch if state else -1, newest.epoch if newest else -1),
        master=master.node if master else "",
        takes_messages=master is not None and not master.refusal,
        reasons=_reasons(members, answers, known, master),
        min_isr=state.min_isr if state else source.min_isr if source else -1,
        ack_level=source.ack_level if source else "",
        in_sync=in_sync,
        preferred=state.preferred if state else "",
        last_switch=_last_switch(state, source),
        coordinator_trouble=trouble,
        level=_level(state, said.values()),
        nodes=[
            _node_view(member, answers.get(member.name, "not asked"), master, in_sync, known)
            for member in members
        ],
    )


def _last_switch(state: GroupState | None, source: FencedStatus | None) -> Switch:
    if state is not None and state.reason:
        return Switch(state.reason, state.switched_at_ms, state.previous_master, state.cause)
    if source is None:
        return Switch()
    return Switch(
        source.last_switch_reason,
        source.last_switch_at_ms,
        source.previous_master,
        source.last_switch_cause,
    )


def _level(state: GroupState | None, said: Iterable[FencedStatus]) -> int:
    """As recorded; without the record the highest that a node has seen."""
    return state.level if state else max([-1, *(status.level for status in said)])


def _in_sync_as_told(master: FencedStatus | None, newest: FencedStatus | None) -> list[str]:
    source = master or newest
    return source.isr if source else []


def _master(
    said: Mapping[str, FencedStatus], known: GroupRecords, *, has_coordinator: bool
) -> FencedStatus | None:
    """The node that is master and knows it: not one that only believes it."""
    claims = [status for status in said.values() if status.role == MASTER]
    if has_coordinator:
        leader = known.leader
        claims = [each for each in claims if leader is not None and each.node == leader.node]
    return max(claims, key=lambda status: status.epoch, default=None)


def _reasons(
    members: Sequence[Member],
    answers: Mapping[str, FencedStatus | str],
    known: GroupRecords,
    master: FencedStatus | None,
) -> list[str]:
    if master is not None:
        return [f"{master.node}: {master.refusal}"] if master.refusal else []
    reasons = []
    for member in members:
        answer = answers.get(member.name, "not asked")
        record = known.nodes.get(member.name)
        own = answer if isinstance(answer, str) else answer.refusal
        trouble = record.trouble if record else ""
        words = "; ".join(dict.fromkeys(text for text in (own, trouble) if text))
        reasons.append(f"{member.name}: {words or 'gives no reason'}")
    return reasons


def _node_view(
    member: Member,
    answer: FencedStatus | str,
    master: FencedStatus | None,
    in_sync: Sequence[str],
    known: GroupRecords,
) -> NodeView:
    seen = _as_seen_by(master, member.name)
    record = known.nodes.get(member.name)
    registered = record.incarnation if record else ""
    if isinstance(answer, str):
        return NodeView(
            node=member.name,
            address=member.address,
            role=DOWN,
            in_sync=member.name in in_sync,
            incarnation=registered or seen.incarnation,
            written=seen.written,
            flushed=seen.flushed,
            lag_bytes=seen.lag_bytes,
            program=record.program if record else "",
            level_max=record.level_max if record else -1,
            trouble=answer,
        )
    incarnation = answer.incarnation
    required = known.state.isr.get(member.name, incarnation) if known.state else incarnation
    return NodeView(
        node=member.name,
        address=member.address,
        role=answer.role,
        in_sync=member.name in in_sync and required == incarnation,
        epoch=answer.log_epoch,
        incarnation=incarnation,
        written=answer.log_end,
        flushed=answer.flushed,
        confirm=answer.confirm,
        lag_bytes=_lag_bytes(answer, master, seen),
        lease_left_ms=answer.lease_left_ms if answer.role == MASTER else -1,
        is_damaged=bool(answer.damage),
        bad_bytes=answer.bad_bytes,
        health=_health(answer),
        healed=answer.healed,
        program=answer.program,
        level_max=answer.level_max,
        late_keep_alives=answer.late_keep_alives,
        too_slow=answer.too_slow,
        trouble=_trouble(answer, master, seen, record, required),
    )


def _health(answer: FencedStatus) -> list[str]:
    """What a node says of its log, for people."""
    words = [f"cannot be healed yet: {why}" for why in answer.not_healed]
    words += [f"an operator has to decide: {why}" for why in answer.undecided]
    if answer.scrub:
        words.append(f"scrub: {answer.scrub}")
    if answer.healed:
        last = answer.healed[-1]
        more = f", and {len(answer.healed) - 1} before" if len(answer.healed) > 1 else ""
        words.append(
            f"healed from {last.start} to {last.end} with the bytes of {last.source}"
            f" ({last.reason}){more}"
        )
    return words


def _as_seen_by(master: FencedStatus | None, name: str) -> ReplicaStatus:
    replicas = master.replicas if master else []
    return next((each for each in replicas if each.name == name), ReplicaStatus(name=name))


def _lag_bytes(answer: FencedStatus, master: FencedStatus | None, seen: ReplicaStatus) -> int:
    if master is None:
        return -1
    if answer.node == master.node:
        return 0
    if seen.lag_bytes >= 0:
        return seen.lag_bytes
    # A log that is longer than the master's is not known to be equal to it: no lag of 0.
    return max(-1, master.log_end - answer.log_end)


def _trouble(
    answer: FencedStatus,
    master: FencedStatus | None,
    seen: ReplicaStatus,
    record: NodeRecord | None,
    required_incarnation: str,
) -> str:
    words = []
    if answer.role == MASTER and (master is None or master.node != answer.node):
        words.append("believes to be master, but the coordinator knows of another or of none")
    if required_incarnation != answer.incarnation:
        words.append("does not have all it once acknowledged: not counted until it has caught up")
    is_away = master is not None and answer.node != master.node and not seen.connected
    if is_away and not seen.trouble:
        words.append("not connected to the master")
    words += [seen.trouble, record.trouble if record else "", answer.damage]
    if answer.node == (master.node if master else "") or answer.role == "QUARANTINED":
        words.append(answer.refusal)
    return "; ".join(dict.fromkeys(word for word in words if word))
