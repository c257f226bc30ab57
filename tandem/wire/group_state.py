"""What a fenced group keeps in its coordinator: three kinds of records, as JSON.

    /tandem/<cluster>/<group>/state          GroupState     no lease; survives everybody
    /tandem/<cluster>/<group>/leader         LeaderRecord   lease of the master's node
    /tandem/<cluster>/<group>/node/<name>    NodeRecord     lease of that node; advisory

Who may write what is decided by the compares of a transaction, never by the records themselves:

- `state.isr` only by the master, comparing the revision of `state` and that `leader` is its own;
- `state.epoch` and `state.master` only by a candidate, comparing the revision of `state` and that
  there is no `leader`;
- both by an operator's `recover-group`, comparing the revision of `state`.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from tandem.wire.errors import WireError

Record = TypeVar("Record")

ROOT: Final = "/tandem"


class MalformedGroupRecordError(WireError):
    """A record of the coordinator cannot be read: another program wrote it, or a newer version."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The one record that decides: who is master of which epoch, and who must have everything."""

    epoch: int
    """Rises by one per election; each number has one master for ever."""
    master: str
    """Node that won `epoch`; "" after a recovery that has not elected yet."""
    isr: dict[str, str]
    """The in-sync replicas, by node name: the incarnation that holds everything acknowledged."""
    min_isr: int
    preferred: str = ""
    """Node an operator wants to win the next election; others hold back for a second."""
    reason: str = ""
    """Why the last change of master happened, in words."""
    switched_at_ms: int = 0
    """Wall clock of the master that won, milliseconds since 1970."""
    previous_master: str = ""
    version: int = 0
    """Rises by one with each change of the in-sync set within an epoch."""

    @property
    def age(self) -> tuple[int, int]:
        """What tells an older record from a newer one: an older set may lack who must win."""
        return self.epoch, self.version


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who is master now. Its absence is what starts an election."""

    node: str
    session: str
    epoch: int


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node that lives. Elections are decided by `GroupState`; this says only for whom to wait."""

    node: str
    session: str
    """Random, new for each life of the process: two processes of one node cannot be one."""
    incarnation: str
    epoch: int
    """Of the last entry of its epoch file; 0 for an empty log."""
    end: int
    """Where its log ended when this was written, in bytes."""
    confirm: int = 0
    promised: int = 0
    """No link or frame of a lower epoch is taken by it any more."""
    seen_epoch: int = 0
    seen_version: int = 0
    """The newest `state` that it has ever read, by epoch and version."""
    trouble: str = ""
    """Why it must not become master (disk, quarantine), in words; empty if it may."""
    client_address: str = ""
    """`host:port` for clients."""
    replication_address: str = ""
    """`host:port` on which it serves followers when it is master."""


class GroupKeys:
    """The keys of one group."""

    def __init__(self, cluster: str, group: str) -> None:
        self.prefix = f"{ROOT}/{cluster}/{group}/"
        self.state = f"{self.prefix}state"
        self.leader = f"{self.prefix}leader"
        self.nodes = f"{self.prefix}node/"

    def node(self, name: str) -> str:
        """Return the key of a node's record."""
        return f"{self.nodes}{name}"


def encode_record(record: GroupState | LeaderRecord | NodeRecord) -> bytes:
    """Return the JSON of a record."""
    return msgspec.json.encode(record)


def decode_state(value: bytes) -> GroupState:
    """Read a `state` record.

    Raises:
        MalformedGroupRecordError: it is not one.
    """
    return _decode(value, GroupState)


def decode_leader(value: bytes) -> LeaderRecord:
    """Read a `leader` record; see `decode_state`."""
    return _decode(value, LeaderRecord)


def decode_node(value: bytes) -> NodeRecord:
    """Read a `node/<name>` record; see `decode_state`."""
    return _decode(value, NodeRecord)


def _decode(value: bytes, kind: type[Record]) -> Record:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise MalformedGroupRecordError(
            f"{value[:80]!r} is not a {kind.__name__} of this version: {error}"
        ) from error
