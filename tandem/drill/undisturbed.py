"""Whether a group was disturbed by what was done to another one. Pure.

A fault at one group of a cluster is none of the others': while it lasts, each of their sends is
acknowledged, none takes longer than one attempt may, and none of them elects another master.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tandem.drill.ledger import LedgerEntry
from tandem.drill.lost_leases import Late, LostLease
from tandem.drill.outcomes import SEND_OK
from tandem.drill.watched_group import Change

EXAMPLES_MAX: Final = 5

LATE_SHARE: Final = 0.1
"""A drill that did not run for this share of the time of a send shows nothing by it: the nodes had
no more of the machine than it had."""


class CalmTime(msgspec.Struct, frozen=True):
    """A time in which another group was hurt and this one was not. Seconds of the drill."""

    scenario: str
    from_seconds: float
    until_seconds: float

    def has(self, at_seconds: float) -> bool:
        """Whether a moment is in it."""
        return self.from_seconds <= at_seconds <= self.until_seconds


class Calm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a group while others were hurt."""

    seconds: float
    sends: int
    slower_than_ms: float
    slowest_ms: float
    failed: int
    """Sends without SEND_OK."""
    slow: int
    elections: int
    excused: int
    """How many of these a machine that was too slow explains."""
    examples: list[str]

    @property
    def disturbed(self) -> int:
        """Everything that must be 0, together, and that nothing explains."""
        return self.failed + self.slow + self.elections - self.excused


class _Found(msgspec.Struct, frozen=True):
    kind: str
    words: str
    is_excused: bool


def look_at_calm(
    entries: Iterable[LedgerEntry],
    times: Sequence[CalmTime],
    *,
    started_ms: float,
    slower_than_ms: float,
    history: Sequence[Change],
    lost: Sequence[LostLease],
    lateness: Sequence[Late],
    crawls: bool = False,
) -> Calm:
    """Judge the sends and elections of a group by its ledger, in the times when others were hurt.

    `started_ms` is when the drill started. `lost` are leases of any group that ended although
    nothing had been done, `lateness` when the drill itself did not get to run. `crawls`: the
    machine is too slow for everything. Those explain what they come before.
    """
    excuses = _Excuses(times, lost, lateness, crawls=crawls)
    found: list[_Found] = []
    sends, slowest_ms = 0, 0.0
    for entry in entries:
        at_seconds = (entry.sent_at_ms - started_ms) / 1000
        if not any(time.has(at_seconds) for time in times):
            continue
        sends += 1
        slowest_ms = max(slowest_ms, entry.latency_ms)
        found += _of_send(entry, at_seconds, slower_than_ms, excuses)
    found += _elections(times, history, excuses)
    kinds = [each.kind for each in found]
    return Calm(
        seconds=round(sum(time.until_seconds - time.from_seconds for time in times), 3),
        sends=sends,
        slower_than_ms=slower_than_ms,
        slowest_ms=round(slowest_ms, 1),
        failed=kinds.count("failed"),
        slow=kinds.count("slow"),
        elections=kinds.count("election"),
        excused=sum(each.is_excused for each in found),
        examples=[each.words for each in found[:EXAMPLES_MAX]],
    )


class _Excuses:
    """What a machine that was too slow explains."""

    def __init__(
        self,
        times: Sequence[CalmTime],
        lost: Sequence[LostLease],
        lateness: Sequence[Late],
        *,
        crawls: bool,
    ) -> None:
        self._times = times
        self._lost_at = [each.at_seconds for each in lost if each.machine_was_slow]
        self._lateness = lateness
        self._crawls = crawls

    def explain(self, since: float, until: float) -> bool:
        """Whether they explain something that began at one time and was seen at another."""
        begun = max((time.from_seconds for time in self._times if time.has(since)), default=since)
        if self._crawls or any(begun <= at <= until for at in self._lost_at):
            return True
        late = sum(each.seconds for each in self._lateness if since <= each.at_seconds <= until)
        return until > since and late >= LATE_SHARE * (until - since)


def _of_send(
    entry: LedgerEntry, at_seconds: float, slower_than_ms: float, excuses: _Excuses
) -> Iterator[_Found]:
    if entry.status == SEND_OK and entry.latency_ms <= slower_than_ms:
        return
    seconds = entry.latency_ms / 1000
    kind = "slow" if entry.status == SEND_OK else "failed"
    reason = f" ({entry.reason})" if entry.reason else ""
    words = f"{entry.send_id} at {at_seconds:.1f} s: {entry.status}{reason} after {seconds:.2f} s"
    yield _Found(kind, words, excuses.explain(at_seconds, at_seconds + seconds))


def _elections(
    times: Sequence[CalmTime], history: Sequence[Change], excuses: _Excuses
) -> Iterator[_Found]:
    for change in history:
        at_seconds = change.at_seconds
        if change.kind == "epoch" and any(time.has(at_seconds) for time in times):
            words = f"{change.node} was elected at {at_seconds:.1f} s, epoch {change.epoch}"
            yield _Found("election", words, excuses.explain(at_seconds, at_seconds))
