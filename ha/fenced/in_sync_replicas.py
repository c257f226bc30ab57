"""Who must have a message before it is confirmed, and who may stay in that set.

This is a state machine with no I/O and no clock in it; it belongs to the master of one epoch.

    recorded     members of the in-sync set as the coordinator has it: name -> incarnation
    outstanding  changes that were sent to the coordinator and may or may not have happened
    must have    recorded and all outstanding, united: confirm is the least any of these has

Rules:

- Acknowledgements count by node, incarnation and current connection. A member that is not
  connected, or has come back under another incarnation, has acknowledged nothing we may count;
  then the confirm offset does not move.
- A change is united with what is recorded in the same step in which it is sent. A removal helps
  only when it is known to have happened.
- A change without an answer stays outstanding until the record's revision is seen to have moved:
  every change compares that revision, so a revision that moved kills all changes that were sent
  before. Until then a change is sent again, even one that changes nothing.
- A node that joins has on its disk, too, what was acknowledged as being on every disk.
- The set never becomes smaller than `min_isr` by removing. A member may be exchanged for another
  node that has everything confirmed, and for its own new incarnation.
- Only acknowledgements keep a member in the set: it leaves when it has not reached, for
  `lag_seconds`, what the log's end was before. One whose process is gone leaves at once.
- A member that fell behind although its process lived comes back after `READD_PAUSE_SECONDS`,
  unless the group is short of members.

Confirm never falls. Offsets in bytes, times in seconds of the caller's clock.

Source: the rules are our own; Kafka's KIP-966 gave "never below the minimum by shrinking", its
replica manager the way of measuring lag. RocketMQ's AutoSwitchHAService counts connections,
refreshes the time of a replica by what was sent to it, and forgets a change whose answer was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ha.errors import LocalHAError
from tandem.cluster_file.choices import AckLevel

READD_PAUSE_SECONDS: Final = 30.0

UNKNOWN: Final = -1


class ReplicaProgress:
    """What the master knows of one other node by name. Offsets in bytes, -1 for unknown."""

    __slots__ = (
        "barred_until",
        "caught_up_at",
        "connected",
        "flushed",
        "incarnation",
        "target",
        "target_at",
        "trouble",
        "written",
    )

    def __init__(self, now: float) -> None:
        self.connected = False
        self.incarnation = ""
        self.written = self.flushed = UNKNOWN
        self.caught_up_at = now
        """It was seen to have all that was in the log at this time."""
        self.target = 0
        self.target_at = now
        """The log ended at `target` at `target_at`: once it has that, it was caught up then."""
        self.barred_until = 0.0
        self.trouble = ""
        """Why it was refused or left, until it acknowledges something again."""


class InSyncReplicas:
    """The in-sync set of one epoch, and how far each member is.

    Invariant: `confirm` and `flushed_everywhere` never fall, and were true of every member that
    must have it at some moment since each became one.
    """

    def __init__(
        self,
        *,
        name: str,
        incarnation: str,
        min_isr: int,
        ack_level: AckLevel,
        lag_seconds: float,
        epoch_start: int,
        confirm: int,
        recorded: Mapping[str, str],
        revision: int,
        now: float,
    ) -> None:
        """`recorded` and `revision` are of the state record that this node won with."""
        if recorded.get(name) != incarnation:
            raise LocalHAError(f"{name} is no member of the in-sync set it is to keep")
        self.name = name
        self.min_isr = min_isr
        self._by_flushed = ack_level is AckLevel.FLUSHED
        self._lag_seconds = lag_seconds
        self._epoch_start = epoch_start
        self._own_pair = (name, incarnation)
        self._started_at = now
        self._own_written = self._own_flushed = 0
        self._short_since: float | None = now
        self._alive: frozenset[str] | None = None
        self.replicas: dict[str, ReplicaProgress] = {}
        """Every other node that ever connected or is a member."""
        self.recorded: dict[str, str] = dict(recorded)
        self.outstanding: list[dict[str, str]] = []
        self.revision = revision
        """Of the state record, as far as it is known."""
        self.confirm = confirm
        self.flushed_everywhere = 0
        self.flush_asked = 0
        """The end of the last put that waits, or waited, for every disk."""
        self._must_have: frozenset[tuple[str, str]] = frozenset()
        self._count_members()

    # -- the links -------------------------------------------------------------------------------

    def replica_connected(self, name: str, incarnation: str, now: float) -> None:
        """A node dialled; whatever an older connection said is void."""
        replica = self._replica(name, now)
        replica.connected = True
        replica.incarnation = incarnation
        replica.written = replica.flushed = UNKNOWN

    def replica_acked(self, name: str, written: int, flushed: int, now: float) -> bool:
        """It has our log up to `written`, and up to `flushed` on disk. True if confirm rose."""
        replica = self._replica(name, now)
        if not replica.connected:
            raise LocalHAError(f"{name} acknowledged without a connection")
        replica.written, replica.flushed = written, flushed
        replica.trouble = ""
        self._note_progress(replica, now)
        return self._advance()

    def replica_lost(self, name: str, trouble: str, now: float) -> None:
        """Its connection ended; `trouble` says why if it is more than a lost wire."""
        replica = self._replica(name, now)
        replica.connected = False
        replica.written = replica.flushed = UNKNOWN
        replica.trouble = trouble or replica.trouble

    def own_log(self, written: int, flushed: int) -> bool:
        """Our own log ends at `written`, on disk at `flushed`. True if confirm rose."""
        self._own_written, self._own_flushed = written, flushed
        return self._advance()

    def nodes_alive(self, names: Iterable[str]) -> None:
        """These nodes have a record of their own in the coordinator: their processes live."""
        self._alive = frozenset(names)

    # -- the record ------------------------------------------------------------------------------

    def proposal(self, now: float) -> dict[str, str] | None:
        """Return the set to ask the coordinator for, or None if it is as it should be."""
        wanted = dict(self.recorded)
        for name in self._addable(now):
            wanted[name] = self.replicas[name].incarnation
        for name in self._removable(wanted, now):
            if len(wanted) <= max(1, self.min_isr):
                break
            del wanted[name]
        if wanted == self.recorded and not self.outstanding:
            return None
        return wanted

    def proposed(self, isr: Mapping[str, str]) -> None:
        """`isr` is about to be sent: from this step on its members must have everything, too.

        Raises:
            LocalHAError: it is smaller than allowed, or lacks this node.
        """
        if self._own_pair not in isr.items():
            raise LocalHAError("the master is always a member of the in-sync set")
        if len(isr) < min(self.min_isr, len(self.recorded)):
            raise LocalHAError(f"an in-sync set of {len(isr)} is below min_isr {self.min_isr}")
        if isr not in self.outstanding:
            self.outstanding.append(dict(isr))
        self._count_members()

    def record_seen(self, isr: Mapping[str, str], revision: int, now: float) -> bool:
        """The coordinator has `isr` at `revision`, seen in any way. True if that is news.

        Every change that was sent before compared an older revision, and so is settled.
        """
        if revision <= self.revision:
            return False
        for name in set(self.recorded) - set(isr):
            self._note_removal(name, now)
        self.recorded, self.revision = dict(isr), revision
        self.outstanding.clear()
        self._count_members()
        self._advance()
        return True

    # -- what is asked for every put -------------------------------------------------------------

    @property
    def own_end(self) -> int:
        """Where our own log ended when it was looked at last."""
        return self._own_written

    @property
    def must_have(self) -> frozenset[tuple[str, str]]:
        """(name, incarnation) of every node that must have a message before it is confirmed."""
        return self._must_have

    @property
    def is_alone(self) -> bool:
        """True if a message is confirmed as soon as this node has it."""
        return len(self._must_have) == 1

    def live_count(self, now: float) -> int:
        """Return how many certain members, this node among them, keep up with the log."""
        return 1 + sum(self._is_live_member(name, now) for name in self.recorded)

    def short_for(self, now: float) -> float:
        """Return for how many seconds fewer than `min_isr` members have been live."""
        if self.live_count(now) >= self.min_isr:
            self._short_since = None
            return 0.0
        if self._short_since is None:
            self._short_since = now
        return now - self._short_since

    def why_short(self, now: float) -> str | None:
        """Return who is missing, in words; None if enough members are live."""
        count = self.live_count(now)
        if count >= self.min_isr:
            return None
        missing = "; ".join(
            f"{name} {self.why_not_live(name, now)}"
            for name in self.recorded
            if name != self.name and not self._is_live_member(name, now)
        )
        return (
            f"{count} of at least {self.min_isr} in-sync replicas are live"
            f" ({missing or 'the in-sync set has no other member'})"
        )

    def why_not_live(self, name: str, now: float) -> str | None:
        """Return why a member is not live, in words; None if it is."""
        replica = self.replicas.get(name)
        if replica is None or not replica.connected:
            trouble = replica.trouble if replica else ""
            return f"is not connected: {trouble}" if trouble else "is not connected"
        if self.recorded.get(name, replica.incarnation) != replica.incarnation:
            return "has come back without what it had acknowledged"
        if replica.written == UNKNOWN:
            return "is connected but has acknowledged nothing yet"
        lag = now - replica.caught_up_at
        return f"is {lag:.1f} s behind" if lag > self._lag_seconds else None

    def acked(self, name: str) -> int:
        """Return how far another replica's log reaches, as its current connection said; or -1."""
        replica = self.replicas.get(name)
        return replica.written if replica and replica.connected else UNKNOWN

    def why_lacking(self, end: int, now: float) -> str | None:
        """Return which other members lack the log up to `end`, and why; None if none does."""
        lacking = [
            f"{name} {self.why_not_live(name, now) or f'has acknowledged {self.acked(name)}'}"
            for name, _ in sorted(self._must_have)
            if name != self.name and self.acked(name) < end
        ]
        return "; ".join(lacking) if lacking else None

    def tick(self, now: float) -> None:
        """Time has passed: a replica with the whole log is caught up although it said nothing."""
        for replica in self.replicas.values():
            if replica.connected and replica.written != UNKNOWN:
                self._note_progress(replica, now)
        self.short_for(now)

    # -- inside ----------------------------------------------------------------------------------

    def _replica(self, name: str, now: float) -> ReplicaProgress:
        if name not in self.replicas:
            self.replicas[name] = ReplicaProgress(now)
        return self.replicas[name]

    def _acked(self, replica: ReplicaProgress) -> int:
        return replica.flushed if self._by_flushed else replica.written

    def _note_progress(self, replica: ReplicaProgress, now: float) -> None:
        """Measure lag as the time since the log ended where the replica is now."""
        acked = self._acked(replica)
        end = self._own_written
        if acked >= end:
            replica.caught_up_at = now
        elif acked >= replica.target:
            replica.caught_up_at = max(replica.caught_up_at, replica.target_at)
        else:
            return
        replica.target, replica.target_at = end, now

    def _count_members(self) -> None:
        """Compute which nodes must have everything. A new member is measured from now on."""
        pairs = set(self.recorded.items())
        for isr in self.outstanding:
            pairs |= set(isr.items())
        self._must_have = frozenset(pairs)
        for name in self.recorded:
            if name != self.name:
                self._replica(name, self._started_at)

    def _advance(self) -> bool:
        """Raise what is confirmed, as far as every node has it that must have it."""
        written, flushed = self._own_written, self._own_flushed
        for pair in self._must_have:
            if pair == self._own_pair:
                continue
            replica = self.replicas.get(pair[0])
            if replica is None or not replica.connected or replica.incarnation != pair[1]:
                return False
            written = min(written, replica.written)
            flushed = min(flushed, replica.flushed)
        self.flushed_everywhere = max(self.flushed_everywhere, flushed)
        reached = flushed if self._by_flushed else written
        if reached <= self.confirm:
            return False
        self.confirm = reached
        return True

    def _is_live_member(self, name: str, now: float) -> bool:
        """True if another node is certainly a member, connected as such, and not too far behind."""
        replica = self.replicas.get(name)
        if name == self.name or replica is None or not replica.connected:
            return False
        incarnation = self.recorded.get(name)
        return (
            replica.incarnation == incarnation
            and all(isr.get(name) == incarnation for isr in self.outstanding)
            and replica.written != UNKNOWN
            and now - replica.caught_up_at <= self._lag_seconds
        )

    def _addable(self, now: float) -> list[str]:
        """Return the nodes that have all that was confirmed and are no members as they are."""
        is_short = self.live_count(now) < self.min_isr
        return [
            name
            for name, replica in self.replicas.items()
            if replica.connected
            and replica.incarnation
            and self.recorded.get(name) != replica.incarnation
            and self._acked(replica) >= max(self.confirm, self._epoch_start)
            and replica.flushed >= self._flush_promised
            and now - replica.caught_up_at <= self._lag_seconds
            and (is_short or now >= replica.barred_until)
        ]

    @property
    def _flush_promised(self) -> int:
        """Up to where puts may have been answered as flushed, by masters before this one too."""
        return max(self._epoch_start, min(self.flush_asked, self.flushed_everywhere))

    def _removable(self, wanted: Mapping[str, str], now: float) -> list[str]:
        """Return the members that may go, the one that is furthest behind first."""
        members = [name for name in wanted if name != self.name]
        lags = {name: self._removal_lag(name, wanted[name], now) for name in members}
        late = [name for name in members if lags[name] > self._lag_seconds]
        return sorted(late, key=lambda name: (-lags[name], name))

    def _removal_lag(self, name: str, incarnation: str, now: float) -> float:
        replica = self.replicas[name]
        if replica.connected and replica.incarnation == incarnation:
            return now - replica.caught_up_at
        is_gone = self._alive is not None and name not in self._alive
        other_came = replica.connected
        return float("inf") if is_gone or other_came else now - replica.caught_up_at

    def _note_removal(self, name: str, now: float) -> None:
        replica = self._replica(name, now)
        was_slow = now - replica.caught_up_at > self._lag_seconds
        if was_slow and (self._alive is None or name in self._alive):
            replica.barred_until = now + READD_PAUSE_SECONDS
