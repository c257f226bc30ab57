"""Whether what a drill did not see is the fault of the machine it was held on. Pure.

A drill is inconclusive if every single thing that failed is about time, and the machine had too
little of it, by the drill's own clock. Nothing else excuses anything.
One of which nothing failed is inconclusive as well if a fault did nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tandem.drill.evidence import held_to
from tandem.drill.lost_leases import LostLease, is_slow
from tandem.drill.outcomes import Verdict
from tandem.drill.recording import Recording
from tandem.drill.scenario import Expectation
from tandem.drill.stream_audit import StreamSummary
from tandem.spark.audit.rules import AuditSummary

NOTHING: Final[Mapping[str, str]] = {}

READS: Final = "read_out_of_order"
"""What consumers were given in another order, or not at all."""

READY_SECONDS_SLOW: Final = 15.0
"""A cluster takes a second or two to start, before anything is done to it. If it takes half of what
one node has for it later, and the drill was late as well, the machine is too slow for the rest."""

LATE_SHARE_OF_WAIT: Final = 0.1
"""A drill that did not run for this share of the time it waited cannot say that it waited enough:
the nodes had no more of the machine than it had."""


def verdict_of(
    *, interrupted: bool, passed: bool, possible: bool, is_excused: bool, is_felt: bool
) -> Verdict:
    """Put together what became of a drill. `is_felt`: no fault is known to have done nothing."""
    if interrupted:
        return "INTERRUPTED"
    if not passed:
        return "INCONCLUSIVE" if is_excused else "FAILED"
    if not is_felt:
        return "INCONCLUSIVE"
    return "PASSED" if possible else "NOT POSSIBLE"


def excused(
    recording: Recording,
    lost: Sequence[LostLease],
    lease_seconds: float,
    audit: AuditSummary | None,
    stream: StreamSummary | None,
    not_promised: Mapping[str, str] = NOTHING,
) -> bool:
    """Whether the machine explains all that failed, and nothing is wrong that it cannot explain.

    `not_promised`: counts of the audit that nobody promised to be 0.
    """
    is_broken = _is_broken(recording, audit, stream, not_promised)
    return _only_late(recording, lost, lease_seconds) and not is_broken


def crawls(recording: Recording, lease_seconds: float) -> bool:
    """Whether the cluster needed so long to start that the machine is too slow for the rest."""
    latest = max((each.seconds for each in recording.lateness), default=0.0)
    return recording.ready_at >= READY_SECONDS_SLOW and is_slow(latest, lease_seconds)


def _only_late(recording: Recording, lost: Sequence[LostLease], lease_seconds: float) -> bool:
    """Whether all that was not seen is about time, and comes from a machine that was too slow.

    Either a lease was lost before it, in its scenario, because the machine was slow. Or nothing had
    been done to the cluster yet in its scenario, and the drill itself was late meanwhile. Or the
    drill did not run for a good part of the time that it waited. Or the cluster needed very long to
    start at all. What a scenario leaves undone is so for the drill: it ends there.
    """
    begun = [run.started_at_seconds for run in recording.runs]
    slow = [each.at_seconds for each in lost if each.machine_was_slow]
    hurt = [fault.at_seconds for fault in recording.timeline.faults if fault.hurts]
    failed = [each for each in recording.expectations if not each.held]
    is_crawling = crawls(recording, lease_seconds)

    def is_explained(expectation: Expectation) -> bool:
        if is_crawling:
            return True
        until = expectation.at_seconds
        since = max((at for at in begun if at <= until), default=0.0)
        if any(since <= at <= until for at in slow):
            return True
        late = _late_seconds(recording, since, until)
        is_untouched = not any(since <= at <= until for at in hurt)
        if is_untouched and is_slow(max(late, default=0.0), lease_seconds):
            return True
        waited_seconds = expectation.waited_seconds
        late = _late_seconds(recording, until - waited_seconds, until)
        return bool(waited_seconds) and sum(late) >= LATE_SHARE_OF_WAIT * waited_seconds

    return bool(failed) and all(each.is_liveness and is_explained(each) for each in failed)


def _late_seconds(recording: Recording, since: float, until: float) -> list[float]:
    return [each.seconds for each in recording.lateness if since <= each.at_seconds <= until]


def _is_broken(
    recording: Recording,
    audit: AuditSummary | None,
    stream: StreamSummary | None,
    not_promised: Mapping[str, str],
) -> bool:
    """Whether something is wrong that no slow machine explains.

    In a drill that ended early, a log may be shorter than the master's: it had no time to catch up.
    That another byte is in it is as wrong as ever.
    """
    broken = 0 if audit is None else held_to(audit, not_promised)
    if audit is not None and recording.stopped_because:
        broken -= len(audit.shorter_slaves)
    return bool(
        audit is None
        or broken
        or recording.exits
        or (READS not in not_promised and is_disordered(recording))
        or (stream is not None and stream.promises_broken)
        or (recording.promises is not None and recording.promises.counts)
    )


def is_disordered(recording: Recording) -> bool:
    """Whether consumers, ours or a witness, were given another order or other messages."""
    witness = recording.witness
    return bool(recording.disorder or (witness is not None and witness.promises_broken))
