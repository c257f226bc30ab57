"""What a drill showed of each group of a cluster that has several. Pure.

The counts of the group that was hurt are those of the drill's own summary; here is what is to be
compared between groups, and all that the others have.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tandem.drill.evidence import PROMISES
from tandem.drill.judgement import crawls
from tandem.drill.ledger import LedgerEntry
from tandem.drill.lost_leases import lost_leases
from tandem.drill.outcomes import STATUSES
from tandem.drill.plan import Plan
from tandem.drill.recording import Recording
from tandem.drill.undisturbed import Calm, look_at_calm
from tandem.spark.audit.rules import AuditSummary

DISTURBED: Final = "disturbed"
NOT_AUDITED: Final = "not_audited"


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a drill with several. Counts of the audit are None where there was none."""

    name: str
    group_kind: str
    is_hurt: bool
    """Whether it is the one that scenarios mean where they name none."""
    nodes: list[str]
    sends: int
    sends_by_status: dict[str, int]
    slowest_ms: float
    sync_acknowledged: int | None
    sync_lost: int | None
    async_lost: int | None
    byte_identical: bool | None
    messages_read: int
    elections: int
    calm: Calm | None
    """What became of it while others were hurt; None where it never was so."""
    broken: dict[str, int]
    """Counts above 0 that must be 0; of the one that is hurt, what is of no other place."""
    excused: int = 0
    """Disturbances that a machine which was too slow explains."""


def summarise_group(
    plan: Plan,
    whole: Recording,
    entries: Iterable[LedgerEntry],
    *,
    slower_than_ms: float,
    audit: AuditSummary | None,
) -> GroupSummary:
    """Put together what is known of a group, from its ledger, its audit and what was seen of it.

    `whole` is what was seen of the group that was hurt, and of the others.
    """
    recording = whole.beside.get(plan.group.name, whole)
    is_hurt = recording is whole
    lease_seconds = plan.coordinator.lease_ttl_ms / 1000
    seen = _Seen()
    calm = None
    if recording.calm:
        calm = look_at_calm(
            seen.through(entries),
            recording.calm,
            started_ms=recording.clock.started_ms,
            slower_than_ms=slower_than_ms,
            history=recording.history,
            lost=[
                lease
                for each in (whole, *whole.beside.values())
                for lease in lost_leases(
                    each.history, each.timeline.faults, whole.lateness, lease_seconds
                )
            ],
            lateness=whole.lateness,
            crawls=crawls(whole, lease_seconds),
        )
    else:
        deque(seen.through(entries), maxlen=0)
    broken = {} if is_hurt else dict(_broken(recording, audit, is_whole=not whole.stopped_because))
    if calm is not None and calm.disturbed:
        broken[DISTURBED] = calm.disturbed
    return GroupSummary(
        name=plan.group.name,
        group_kind=plan.group.kind,
        is_hurt=is_hurt,
        nodes=[node.name for node in plan.group.nodes],
        sends=seen.statuses.total(),
        sends_by_status={each: seen.statuses[each] for each in STATUSES if seen.statuses[each]},
        slowest_ms=round(seen.slowest_ms, 1),
        sync_acknowledged=None if audit is None else audit.sync_acknowledged,
        sync_lost=None if audit is None else audit.sync_lost,
        async_lost=None if audit is None else audit.async_lost,
        byte_identical=None if audit is None else audit.byte_identical,
        messages_read=sum(phase.messages_read for phase in recording.timeline.phases),
        elections=sum(change.kind == "epoch" for change in recording.history),
        calm=calm,
        broken=broken,
        excused=0 if calm is None else calm.excused,
    )


class _Seen:
    """What is counted of all sends while they pass by: a ledger may be longer than the memory."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.slowest_ms = 0.0

    def through(self, entries: Iterable[LedgerEntry]) -> Iterator[LedgerEntry]:
        for entry in entries:
            self.statuses[entry.status] += 1
            self.slowest_ms = max(self.slowest_ms, entry.latency_ms)
            yield entry


def _broken(
    recording: Recording, audit: AuditSummary | None, *, is_whole: bool
) -> Mapping[str, int]:
    counts = {"read_out_of_order": len(recording.disorder)}
    if audit is None:
        counts[NOT_AUDITED] = 1
    else:
        counts |= {name: int(getattr(audit, name)) for name in PROMISES}
        if not is_whole:
            counts["slaves_not_identical"] -= len(audit.shorter_slaves)
    return {name: count for name, count in counts.items() if count > 0}


def broken_of(groups: Iterable[GroupSummary]) -> list[tuple[str, int]]:
    """The counts above 0 that must be 0, with the names of their groups."""
    return [
        (f"{group.name}: {name}", count) for group in groups for name, count in group.broken.items()
    ]


def examples_of(groups: Iterable[GroupSummary]) -> list[str]:
    """In words, what disturbed groups that nobody hurt."""
    return [
        f"{group.name}: {words}"
        for group in groups
        if group.calm is not None
        for words in group.calm.examples
    ]
