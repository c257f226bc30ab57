"""What a fenced group keeps in its coordinator: four kinds of records, as JSON.

    /tandem/<cluster>/<group>/state          GroupState     no lease; survives everybody
    /tandem/<cluster>/<group>/leader         LeaderRecord   lease of the master's node
    /tandem/<cluster>/<group>/node/<name>    NodeRecord     lease of that node; advisory
    /tandem/<cluster>/<group>/life/<name>    LifeRecord     no lease; what its disk must have

Who may write what is decided by the compares of a transaction, never by the records themselves:

- `state.isr` only by the master, comparing the revision of `state` and that `leader` is its own;
- `state.epoch` and `state.master` only by a candidate, comparing the revision of `state` and that
  there is no `leader`;
- both by an operator's `recover-group`, comparing the revision of `state`;
- `life` only by the registered process of that node, comparing that its `node` record is its own.

From feature level 2 on `state` is in an envelope, which says first what a node needs to read it:

    {"needs": "TandemMQ 0.1.0 or later, ...", "level": 2, "state": {...}}

A version that does not know the level reads no further, and one from before levels finds no
`GroupState` there and shows the beginning of what it found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar

import msgspec

from tandem.wire.errors import WireError
from tandem.wire.feature_level import LEVEL_MAX, LEVEL_MIN, needed_for
from tandem.wire.untrusted import UnreadableError, decode_json, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Record = TypeVar("Record")

ROOT: Final = "/tandem"

EPOCH_MAX: Final = 2**31 - 1
"""An epoch has 4 bytes in a frame. There is no election after it."""

Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of bytes, changes or nodes."""

Level: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
"""A feature level, known here or not."""

TimeMs: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_REMEDIES: Final = {
    "GroupState": "restore the coordinator's records from a backup, or delete this key and run"
    " `tandem ha recover-group`",
    "LeaderRecord": "delete this key: the group then elects a master",
    "NodeRecord": "delete this key: the node writes it anew",
    "LifeRecord": "delete this key: its node then runs for master again after the next election",
}


class MalformedGroupRecordError(WireError):
    """A record of the coordinator cannot be read: another program wrote it, or a newer version.

    The text says what to do. `key` is the record's, "" if it is not known; `kind` is the name of
    the class that was expected.
    """

    def __init__(self, text: str, key: str, kind: str) -> None:
        super().__init__(text, key, kind)
        self.key = key
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class GroupLevelError(MalformedGroupRecordError):
    """The group is at a feature level that this node does not know.

    Attributes:
        level: That of the group.
        level_max: The highest one that this node knows.
        needs: What a node has to be, in words of who raised the level.
    """

    def __init__(self, key: str, level: int, level_max: int, needs: str) -> None:
        super().__init__(
            f"the group is at feature level {level}, and this node knows no level above"
            f" {level_max}: it takes no part. Install {needs}, and start it again;"
            " see docs/upgrades.md",
            key,
            "GroupState",
        )
        self.level = level
        self.level_max = level_max
        self.needs = needs


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The one record that decides: who is master of which epoch, and who must have everything."""

    epoch: Epoch
    """Rises by one per election; each number has one master for ever."""
    master: str
    """Node that won `epoch`; "" after a recovery that has not elected yet."""
    isr: dict[str, str]
    """The in-sync replicas, by node name: the incarnation that holds everything acknowledged."""
    min_isr: Count
    preferred: str = ""
    """Node an operator wants to win the next election; others hold back for a second."""
    reason: str = ""
    """Why the last change of master happened, in words."""
    cause: str = ""
    """The same as a value of `SwitchCause`; "" in a record of an older version."""
    has_stepped_down: bool = False
    """The master is none any more: `reason` and `cause` are of its end, and of the next change."""
    switched_at_ms: TimeMs = 0
    """Wall clock of the master that won, milliseconds since 1970."""
    previous_master: str = ""
    version: Count = 0
    """Rises by one with each change of the in-sync set within an epoch."""
    epoch_id: str = ""
    """Random, drawn by the master that won `epoch`: two masters of one number cannot be one. A
    coordinator that was set back gives a number a second time."""
    loss_accepted: Epoch = 0
    """An operator has accepted the loss of what only logs of this epoch or older have: what nodes
    with such logs have confirmed keeps nobody from being master any more. 0: no such thing."""
    recoveries: Count = 0
    """Rises by one with each `recover-group`: nodes in quarantine then look at their log anew."""
    level: Level = LEVEL_MIN
    """The group's feature level: what its members write. An operator raises it."""

    @property
    def age(self) -> tuple[int, int]:
        """What tells an older record from a newer one: an older set may lack who must win."""
        return self.epoch, self.version

    @property
    def accounts_needed(self) -> int:
        """How many members have to account for their logs where none is certain to be complete.

        Every member has what was acknowledged, and there were `min_isr` of them at least. Before
        the first master nothing was.
        """
        return max(1, min(self.min_isr, len(self.isr))) if self.epoch else 1


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who is master now. Its absence is what starts an election."""

    node: str
    session: str
    epoch: Epoch


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node that lives. Elections are decided by `GroupState`; this says only for whom to wait."""

    node: str
    session: str
    """Random, new for each life of the process: two processes of one node cannot be one."""
    incarnation: str
    epoch: Epoch
    """Of the last entry of its epoch file; 0 for an empty log."""
    data_epoch: Epoch = 0
    """In which the last byte of its log was written; less than `epoch` if that one is idle."""
    end: Count
    """Where its log ended when this was written, in bytes."""
    confirm: Count = 0
    promised: Epoch = 0
    """No link or frame of a lower epoch is taken by it any more."""
    seen_epoch: Epoch = 0
    seen_version: Count = 0
    """The newest `state` that it has ever read, by epoch and version."""
    is_complete: bool = False
    """Its process has seen that its log has everything acknowledged: it has had the whole log of a
    master, under this incarnation, since it began. The directory cannot be an older copy then."""
    coordinator_is_old: bool = False
    """It has seen that the coordinator was set back."""
    trouble: str = ""
    """Why it must not become master (disk, quarantine), in words; empty if it may."""
    damage: str = ""
    """Which bytes of its log are bad, in words; empty if none is known to be. A member whose log
    is whole goes first."""
    quarantined: bool = False
    """The trouble is a log that contradicts the master's, not a disk: an operator may choose it."""
    client_address: str = ""
    """`host:port` for clients."""
    replication_address: str = ""
    """`host:port` on which it serves followers when it is master."""
    program: str = ""
    """Its version of TandemMQ; "" of one from before feature levels."""
    level: Level = LEVEL_MIN
    """The highest feature level at which it has seen its group."""
    level_max: Level = LEVEL_MIN
    """The highest one that it knows."""


class LifeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a node while it does not live, to tell its disk from an older copy."""

    node: str
    life: Count
    """How many times a process of this node has registered with a store of its own."""
    token: str
    """Random, of that process: two copies of a directory cannot have the same life."""
    incarnation: str
    epoch: Epoch
    """Of the last entry of its epoch file when this was written."""
    confirm: Count
    """Everything below it was confirmed when this was written, and the node had it."""
    failed: str = ""
    """The incarnation of which a sync failed, so that what it acknowledged may be lost; a disk that
    failed may not have taken the note of it. Older versions write none and read none."""


class GroupKeys:
    """The keys of one group."""

    def __init__(self, cluster: str, group: str) -> None:
        self.prefix = f"{ROOT}/{cluster}/{group}/"
        self.state = f"{self.prefix}state"
        self.leader = f"{self.prefix}leader"
        self.nodes = f"{self.prefix}node/"
        self.lives = f"{self.prefix}life/"

    def node(self, name: str) -> str:
        """Return the key of a node's record."""
        return f"{self.nodes}{name}"

    def life(self, name: str) -> str:
        """Return the key of what is remembered of a node."""
        return f"{self.lives}{name}"


def confirmed_elsewhere(
    state: GroupState | None,
    nodes: Mapping[str, NodeRecord],
    lives: Mapping[str, LifeRecord],
    *,
    but: str,
) -> tuple[int, str]:
    """Return up to where another node than `but` has confirmed, and which; (0, "") for nobody.

    A member of the in-sync set has everything that any node ever confirmed, so a log that ends
    below this is an older copy, or a disk has lost its end. What an operator has accepted to lose
    does not count.
    """
    accepted = state.loss_accepted if state else 0
    found = [(r.confirm, n) for n, r in nodes.items() if n != but and r.epoch > accepted]
    found += [(r.confirm, n) for n, r in lives.items() if n != but and r.epoch > accepted]
    return max(found, default=(0, ""))


def accounted_for(
    state: GroupState,
    nodes: Mapping[str, NodeRecord],
    lives: Mapping[str, LifeRecord],
    *,
    name: str,
    epoch: int,
    end: int,
    final: Collection[str],
) -> set[str]:
    """Return the members that have no more than the log of `name`, or have lost what they had.

    That log ends at `end`, in `epoch`, the last of its list; what is recorded of the nodes in
    `final` is where their logs end for good. Every member that has lost nothing has everything
    acknowledged. So if one of these has lost nothing, the log of `name` has everything, too: of two
    logs the one with the newer epoch, or the longer one of the same, has all of the other but what
    a later master did without. A member that came back under another incarnation, or whose log
    ends below what others have confirmed, is known to have lost what it had: it counts as one of
    those that may have lost something.
    """
    found = {name} & set(state.isr)
    for other, incarnation in state.isr.items():
        node = nodes.get(other)
        if node is None or other == name:
            continue
        if node.incarnation != incarnation:
            found.add(other)
        elif other in final:
            is_short = confirmed_elsewhere(state, nodes, lives, but=other)[0] > node.end
            if is_short or (node.epoch, node.end) <= (epoch, end):
                found.add(other)
    return found


class _Envelope(msgspec.Struct, frozen=True):
    """What is around a `state` from feature level 2 on. Its form is that of all later levels."""

    needs: str = ""
    level: Level = LEVEL_MIN
    state: msgspec.Raw = msgspec.Raw(b"")


def encode_record(record: GroupState | LeaderRecord | NodeRecord | LifeRecord) -> bytes:
    """Return the JSON of a record."""
    said = msgspec.json.encode(record)
    if not isinstance(record, GroupState) or record.level == LEVEL_MIN:
        return said
    return msgspec.json.encode(_Envelope(needed_for(record.level), record.level, msgspec.Raw(said)))


def decode_state(value: bytes, key: str = "", level_max: int = LEVEL_MAX) -> GroupState:
    """Read a `state` record; `key` is for the text of an error.

    Raises:
        MalformedGroupRecordError: it is not one.
        GroupLevelError: it is of a feature level above `level_max`.
    """
    envelope = _decode(value, _Envelope, key, GroupState.__name__)
    if envelope.level > level_max:
        raise GroupLevelError(
            key, envelope.level, level_max, envelope.needs or needed_for(envelope.level)
        )
    return _decode(bytes(envelope.state) or value, GroupState, key)


def decode_leader(value: bytes, key: str = "") -> LeaderRecord:
    """Read a `leader` record; see `decode_state`."""
    return _decode(value, LeaderRecord, key)


def decode_node(value: bytes, key: str = "") -> NodeRecord:
    """Read a `node/<name>` record; see `decode_state`."""
    return _decode(value, NodeRecord, key)


def decode_life(value: bytes, key: str = "") -> LifeRecord:
    """Read a `life/<name>` record; see `decode_state`."""
    return _decode(value, LifeRecord, key)


def _decode(value: bytes, kind: type[Record], key: str, named: str = "") -> Record:
    name = named or kind.__name__
    try:
        return decode_json(value, kind)
    except UnreadableError as error:
        raise MalformedGroupRecordError(
            f"{key or 'a record'} in the coordinator holds {shown(value)}, which is not a"
            f" {name} of this version ({error}): if no newer version wrote it,"
            f" {_REMEDIES[name]}",
            key,
            name,
        ) from error
