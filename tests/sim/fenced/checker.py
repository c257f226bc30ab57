"""Decides from a finished run of a fenced group whether any promise was broken. Pure.

LOST            acknowledged, but not in the log that the group has at the end
DUPLICATED      stored more often than it was sent
REORDERED       answered before another was sent, but stored after it in their queue
PHANTOM         stored, but never sent, sent with other bytes, or refused
MISPLACED       stored elsewhere than the producer was told
GAP             queue offsets of a queue are not 0, 1, 2, ...
REWRITTEN       the log of an opened master is no beginning of that of a later one
RESURRECTED     a later log has, below where a master opened, what that master had not
VANISHED        a reader received a record that is not in the final log at that place, with that
                body; of VANISHED, MISREAD and READ_AHEAD `unseen_rot` says what is left out
MISREAD         a reader received records of a queue out of order, or one place twice
READ_AHEAD      a reader received a record that no master had confirmed by then
UNREAD          in the log, but not to be had by pulling its queue
TORN            a log that cannot be walked from its start to its end
DIVERGED        two nodes have the same epoch with another start or with other bytes, or a node
                has not caught up at the end
ACK_LIE         a slave reported more than it had written or flushed
STALE           the master had nothing for a reader who asked after SEND_OK of what was to be there
UNREPLICATED    SEND_OK was decided, or left, while a recorded member of the ISR did not have the
                message
UNFLUSHED       SEND_OK left for a message that asked for all disks, and was not on each of them
SMALL_ISR       SEND_OK was decided with fewer members than recorded
TOO_FEW         SEND_OK was decided with fewer than min_isr live replicas
LATE            SEND_OK was decided after the lease had ended, or with a deadline that is after that
TWO_MASTERS     two nodes decided SEND_OK, or opened, in one epoch
UNELECTED       a master opened in an epoch that the coordinator had not given it
EPOCH_JUMPED    the recorded epoch fell, rose by more than one, or changed hands without rising
USURPED         the record was changed in the name of a master who was none any more
ISR_TOO_SMALL   the recorded ISR was shrunk below min_isr
PROMISE_BROKEN  a promise fell, or bytes from an older master were appended after it
CONFIRM_FELL    within the life of a node, or from one master to the next
CUT_TOO_DEEP    a log was cut below its own confirm offset, or an acknowledged record was cut
BAD_EPOCHS      epochs or starts of an epoch file do not rise, or the last start is above the end
OFFSET_BACK     a consumer group was sent back
QUARANTINED     a node gave itself up although nothing had damaged it
ROTTEN          what has rotted on a disk is not whole again, though others had it
FALSELY_WHOLE   what was noted as damage is noted no more, and is bad yet
FORGOTTEN       a node has noted damage, and says that there is none
HANDED_OUT      bytes left a node that it knew to be bad, or that do not fit the fingerprint that it
                has to look at first
SKIPPED         an answer moved a reader on by more messages than it had
DAMAGED_FIRST   a node that knew its log to be damaged was elected where a whole member was
DAMAGED_STAYS   such a node stayed master although a whole member followed well
UNAVAILABLE     after everything was healed, sends do not succeed again in time
CRASHED         a node ended by itself without cause, or logged a traceback
"""

import enum
import math
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from ha.fenced.events import (
    ConfirmAdvanced,
    EpochAppended,
    FrameTaken,
    MasterOpened,
    Promised,
    Quarantined,
)
from ha.fenced.wholeness import WHOLE_FIRST_SECONDS
from tests.sim.engine.comparison import by_key, duplicated, misplaced, phantoms, reordered, stale
from tests.sim.engine.history import (
    Contract,
    EmptyPull,
    Finding,
    OffsetSeen,
    Outcome,
    Probe,
    Read,
    Send,
)
from tests.sim.engine.walked_log import LogRecord, first_difference
from tests.sim.fenced.blackout import parted
from tests.sim.fenced.history import (
    AckSeen,
    EpochEntrySeen,
    FencedHistory,
    FinalNode,
    NodeEvent,
    OpeningSeen,
    ReportSeen,
    StateSeen,
)
from tests.sim.fenced.rot_watch import KNOWN_SECONDS
from tests.sim.fenced.unseen_rot import as_stored

ROUNDING_SECONDS: Final = 1e-6

GIVE_WAY_SECONDS: Final = 2.0
"""A damaged master has given way by then to one it knows to be whole: it looks twice a second."""


class Kind(enum.Enum):
    """What was broken; the module docstring says what each means."""

    LOST = enum.auto()
    DUPLICATED = enum.auto()
    REORDERED = enum.auto()
    PHANTOM = enum.auto()
    MISPLACED = enum.auto()
    GAP = enum.auto()
    REWRITTEN = enum.auto()
    RESURRECTED = enum.auto()
    VANISHED = enum.auto()
    MISREAD = enum.auto()
    READ_AHEAD = enum.auto()
    STALE = enum.auto()
    UNREAD = enum.auto()
    TORN = enum.auto()
    DIVERGED = enum.auto()
    ACK_LIE = enum.auto()
    UNREPLICATED = enum.auto()
    UNFLUSHED = enum.auto()
    SMALL_ISR = enum.auto()
    TOO_FEW = enum.auto()
    LATE = enum.auto()
    TWO_MASTERS = enum.auto()
    UNELECTED = enum.auto()
    EPOCH_JUMPED = enum.auto()
    USURPED = enum.auto()
    ISR_TOO_SMALL = enum.auto()
    PROMISE_BROKEN = enum.auto()
    NOT_DURABLE = enum.auto()
    CONFIRM_FELL = enum.auto()
    CUT_TOO_DEEP = enum.auto()
    BAD_EPOCHS = enum.auto()
    TOPIC_LOST = enum.auto()
    OFFSET_BACK = enum.auto()
    QUARANTINED = enum.auto()
    ROTTEN = enum.auto()
    FALSELY_WHOLE = enum.auto()
    FORGOTTEN = enum.auto()
    HANDED_OUT = enum.auto()
    SKIPPED = enum.auto()
    DAMAGED_FIRST = enum.auto()
    DAMAGED_STAYS = enum.auto()
    TOO_OLD = enum.auto()
    UNAVAILABLE = enum.auto()
    CRASHED = enum.auto()


class FencedExpectations(msgspec.Struct, frozen=True):
    """What this run allows."""

    min_isr: int = 2
    counts_flushed: bool = False
    """The group's acknowledgements mean: on the disk."""
    send_again_within_seconds: float = 8.0
    must_be_available: bool = True
    """False if no electable replica was left, which only a disk's loss can bring about."""
    topic: str = "orders"
    """What clients write; other topics are the group's own."""


def check(history: FencedHistory, expected: FencedExpectations) -> list[Finding]:
    """Return every broken promise; an empty list if all were kept."""
    if history.blackout_at == math.inf:
        return _check(history, expected)
    before, after = parted(history)
    whatever_came = msgspec.structs.replace(expected, must_be_available=False)
    return [*_check(before, whatever_came), *_check(after, expected)]


def _check(history: FencedHistory, expected: FencedExpectations) -> list[Finding]:
    final = next((node for node in history.nodes if node.is_master), None)
    findings = [Finding(Kind.CRASHED, text) for text in history.crashes]
    findings += [Finding(Kind.TOO_OLD, text) for text in history.too_old]
    findings += _check_damage(history)
    findings += _check_events(history.events)
    findings += _check_promises(history.events, history.put_back)
    findings += _check_confirm(history.events, history.older_openings)
    findings += [
        Finding(Kind.NOT_DURABLE, f"{seen.node} at {seen.at_seconds:.6f}: {seen.what}")
        for seen in history.missing
    ]
    findings += [
        Finding(
            Kind.UNREPLICATED,
            f"{seen.node} at {seen.at_seconds:.6f}: a member of the ISR has {seen.stored} of"
            f" {seen.acknowledged} bytes that were acknowledged,"
            f" {seen.flushed_acknowledged} of them as flushed",
        )
        for seen in history.lacking
    ]
    findings += _check_acks(history.acks, expected)
    findings += _check_answers(history, expected)
    findings += _check_masters(history.acks, history.openings, history.set_back)
    findings += _check_states(history.states, history.set_back)
    findings += _check_reports(history.reports)
    findings += _check_openings(history.openings, final)
    findings += _check_cuts(history, final)
    findings += _check_nodes(history.nodes)
    findings += _check_offsets(history.offsets)
    findings += [
        Finding(Kind.TOPIC_LOST, topic)
        for topic in history.topics_created
        if history.topics_at_end is not None and topic not in history.topics_at_end
    ]
    reads = as_stored(history.reads, final.log.records if final is not None else (), history.hurt)
    findings += _check_read_ahead(reads, history.events)
    findings += _check_order_of_reads(reads)
    pulls = _pulls_of_masters_that_count(history)
    findings += [Finding(Kind.STALE, text) for text in stale(history.sends, pulls)]
    if expected.must_be_available:
        findings += _check_probes(history.probes, expected)
    if final is not None:
        findings += _check_final_log(history, final, expected)
        findings += _check_reads(reads, final.log.records)
    return findings


def _check_damage(history: FencedHistory) -> Iterator[Finding]:
    """What is promised while damage is open, and when all is over."""
    said = {
        Kind.ROTTEN: history.rotten,
        Kind.FALSELY_WHOLE: history.falsely_whole,
        Kind.FORGOTTEN: history.forgotten,
        Kind.HANDED_OUT: history.handed_out,
        Kind.SKIPPED: history.skipped,
    }
    for kind, texts in said.items():
        yield from (Finding(kind, text) for text in texts)
    for seen in history.elections:
        began = seen.leaderless_since
        whole = [name for name, since in seen.whole.items() if since <= began - KNOWN_SECONDS]
        if whole and seen.noted_since <= began and seen.waited_seconds < WHOLE_FIRST_SECONDS:
            text = f"{seen.node} at {seen.at_seconds:.3f}, epoch {seen.epoch}: it has noted damage"
            yield Finding(
                Kind.DAMAGED_FIRST,
                f"{text} since {seen.noted_since:.3f}, and {', '.join(whole)} is whole",
            )
    for stay in history.stays:
        if stay.until - stay.since > GIVE_WAY_SECONDS:
            text = f"{stay.node}, master of epoch {stay.epoch}, knew from {stay.since:.3f} to"
            yield Finding(
                Kind.DAMAGED_STAYS,
                f"{text} {stay.until:.3f} of damage, and {stay.other} followed with a whole log",
            )


def _pulls_of_masters_that_count(history: FencedHistory) -> Iterator[EmptyPull]:
    """Leave out those of a master by records from a backup, which the others have to put aside.

    It opened by them, or was master of then, was cut off, and is named by them again.
    docs/replication.md names it among what is not promised.
    """
    opened = [
        (seen.at_seconds, seen.node, seen.event.epoch)
        for seen in history.events
        if isinstance(seen.event, MasterOpened)
    ]
    for pull in history.empty_pulls:
        before = [each for each in opened if each[0] <= pull.answered_at]
        own = [(node, epoch) for _, node, epoch in before if node == pull.node]
        if own and own[-1] in history.older_openings:
            continue
        set_back = max((at for at in history.set_back if at <= pull.answered_at), default=-1.0)
        newest = max((epoch for at, _, epoch in before if at < set_back), default=0)
        if not own or own[-1][1] >= newest:
            yield pull


def _check_final_log(
    history: FencedHistory, final: FinalNode, expected: FencedExpectations
) -> Iterator[Finding]:
    ours = [record for record in final.log.records if record.topic == expected.topic]
    yield from _check_sends(history.sends, ours)
    yield from (Finding(Kind.PHANTOM, text) for text in phantoms(history.sends, ours))
    yield from _check_queues(final.log.records)
    yield from (Finding(Kind.REORDERED, text) for text in reordered(history.sends, ours))
    if expected.must_be_available:
        yield from _check_drained(history.drained, ours)


# What nodes said


def _check_events(events: list[NodeEvent]) -> Iterator[Finding]:
    # By id, too: a coordinator that was set back gives a number twice.
    starts: dict[tuple[int, str], tuple[int, str]] = {}
    for seen in events:
        match seen.event:
            case EpochAppended(epoch, start, epoch_id):
                first = starts.setdefault((epoch, epoch_id), (start, seen.node))
                if first[0] != start:
                    text = f"epoch {epoch} starts at {first[0]} for {first[1]}, at {start} for"
                    yield Finding(Kind.DIVERGED, f"{text} {_where(seen)}")
            case Quarantined(reason):
                yield Finding(Kind.QUARANTINED, f"{_where(seen)}: {reason}")
            case _:
                pass


def _where(seen: NodeEvent) -> str:
    return f"{seen.node} at {seen.at_seconds:.6f}"


def _check_promises(
    events: Iterable[NodeEvent], put_back: Sequence[tuple[float, str]]
) -> Iterator[Finding]:
    """`put_back`: whose directory has forgotten what it promised, and when."""
    promised: dict[str, int] = defaultdict(int)
    forgotten = deque(put_back)
    for seen in events:
        while forgotten and forgotten[0][0] <= seen.at_seconds:
            promised.pop(forgotten.popleft()[1], None)
        before = promised[seen.node]
        match seen.event:
            case Promised(epoch):
                if epoch < before:
                    text = f"{_where(seen)}: promised {epoch} after {before}"
                    yield Finding(Kind.PROMISE_BROKEN, text)
                promised[seen.node] = epoch
            case FrameTaken(_, offset, _, master_epoch):
                if master_epoch < before:
                    text = f"{_where(seen)}: bytes from the master of {master_epoch} at {offset}"
                    yield Finding(Kind.PROMISE_BROKEN, f"{text} after the promise of {before}")
            case _:
                pass


def _check_confirm(
    events: Iterable[NodeEvent], older: Container[tuple[str, int]]
) -> Iterator[Finding]:
    own: dict[tuple[str, int], int] = defaultdict(int)
    highest = 0
    for seen in events:
        life = (seen.node, seen.life)
        match seen.event:
            case MasterOpened(epoch, confirm):
                if confirm < highest and (seen.node, epoch) not in older:
                    text = f"{_where(seen)}: opened epoch {epoch} with confirm {confirm}"
                    yield Finding(Kind.CONFIRM_FELL, f"{text}, {highest} was before")
            case ConfirmAdvanced(epoch, confirm):
                if confirm < own[life]:
                    text = f"{_where(seen)}: confirm {confirm} of epoch {epoch}"
                    yield Finding(Kind.CONFIRM_FELL, f"{text} after {own[life]}")
            case _:
                continue
        own[life] = max(own[life], confirm)
        highest = max(highest, confirm)


def _check_acks(acks: Iterable[AckSeen], expected: FencedExpectations) -> Iterator[Finding]:
    for ack in acks:
        where = f"{ack.node} at {ack.at_seconds:.6f}, epoch {ack.epoch}, up to {ack.end}"
        for name, extent in ack.stored.items():
            held = extent.flushed if expected.counts_flushed else extent.written
            if extent.is_certain and held < ack.end:
                yield Finding(Kind.UNREPLICATED, f"{where}: {name} of the ISR has {held}")
        if ack.epoch == ack.recorded_epoch and not set(ack.recorded_isr) <= set(ack.used_isr):
            text = f"{where}: used {ack.used_isr}, recorded are {sorted(ack.recorded_isr)}"
            yield Finding(Kind.SMALL_ISR, text)
        if ack.live_count < expected.min_isr:
            text = f"{where}: {ack.live_count} live replicas, {expected.min_isr} are needed"
            yield Finding(Kind.TOO_FEW, text)
        if ack.true_boottime_seconds >= ack.deadline_seconds or ack.lease == "expired":
            late = ack.true_boottime_seconds - ack.deadline_seconds
            text = f"{where}: {late:.3f} s after its deadline, lease {ack.lease}"
            yield Finding(Kind.LATE, text)
        beyond = ack.deadline_seconds - ack.true_boottime_seconds - ack.lease_left_seconds
        if beyond > ROUNDING_SECONDS:
            text = f"{where}: its deadline is {beyond:.3f} s after the end of its lease"
            yield Finding(Kind.LATE, text)


def _check_answers(history: FencedHistory, expected: FencedExpectations) -> Iterator[Finding]:
    """Each SEND_OK as it left its node, by the contract that the producer had asked for."""
    for answer in history.answers:
        contract = history.contracts.get(answer.key, Contract.ASYNC)
        where = f"{answer.node} at {answer.at_seconds:.6f}, {answer.key} at"
        for name, extent in answer.stored.items():
            if contract is Contract.ASYNC or not extent.is_certain:
                continue
            text = f"{where} {answer.physical_offset}: {name} of the ISR has {extent}"
            held = extent.flushed if expected.counts_flushed else extent.written
            # Whole records are counted: what is above the first byte of one is above its last.
            if held <= answer.physical_offset:
                yield Finding(Kind.UNREPLICATED, text)
            if contract is Contract.FLUSHED and extent.flushed <= answer.physical_offset:
                yield Finding(Kind.UNFLUSHED, text)


def _check_masters(
    acks: Iterable[AckSeen], openings: Iterable[OpeningSeen], set_back: Sequence[float]
) -> Iterator[Finding]:
    masters: dict[tuple[int, int], str] = {}
    claims: list[OpeningSeen | AckSeen] = [*openings, *acks]
    for seen in claims:
        # A coordinator that was set back may give a number twice; ids tell the two apart.
        restores = sum(at <= seen.at_seconds for at in set_back)
        first = masters.setdefault((restores, seen.epoch), seen.node)
        if first != seen.node:
            text = f"{first} and, at {seen.at_seconds:.6f}, {seen.node} in epoch {seen.epoch}"
            yield Finding(Kind.TWO_MASTERS, text)
    for opening in openings:
        if not opening.is_elected:
            text = f"{opening.node} at {opening.at_seconds:.6f} in epoch {opening.epoch}"
            yield Finding(Kind.UNELECTED, text)


def _check_states(states: list[StateSeen], set_back: Sequence[float]) -> Iterator[Finding]:
    for before, after in pairwise(states):
        if any(before.at_seconds < at <= after.at_seconds for at in set_back):
            continue  # the record before this one was forgotten
        old, new = before.state, after.state
        where = f"revision {after.revision} at {after.at_seconds:.6f}"
        rise = new.epoch - old.epoch
        if new.recoveries == old.recoveries + 1:
            # An operator chose a log: what must hold is that no message is lost by it.
            if rise < 0 or new.age <= old.age:
                yield Finding(Kind.EPOCH_JUMPED, f"{where}: {old.age} was recovered as {new.age}")
            continue
        if rise not in (0, 1) or (rise == 0 and new.master != old.master):
            text = f"{where}: epoch {old.epoch} of {old.master}, then {new.epoch} of {new.master}"
            yield Finding(Kind.EPOCH_JUMPED, text)
        if rise == 0 and not after.was_led:
            yield Finding(Kind.USURPED, f"{where}: {new.master} of epoch {new.epoch}: {new.reason}")
        if len(new.isr) < min(new.min_isr, len(old.isr)):
            text = f"{where}: {sorted(old.isr)} shrank to {sorted(new.isr)}"
            yield Finding(Kind.ISR_TOO_SMALL, f"{text}, min_isr is {new.min_isr}")


def _check_reports(reports: Iterable[ReportSeen]) -> Iterator[Finding]:
    for report in reports:
        if report.written > report.stored.written or report.flushed > report.stored.flushed:
            yield Finding(
                Kind.ACK_LIE,
                f"{report.node} reported {report.written} written, {report.flushed} flushed at"
                f" {report.at_seconds:.6f}, but had {report.stored.written} and"
                f" {report.stored.flushed}",
            )


def _check_openings(openings: list[OpeningSeen], final: FinalNode | None) -> Iterator[Finding]:
    """What a master has when it opens is confirmed: it is there for ever."""
    last = () if final is None else ((f"{final.name} at the end", final.log),)
    logs = [(f"{o.node} opening epoch {o.epoch}", o.log) for o in openings]
    for (name, log), (later_name, later) in zip(logs, [*logs[1:], *last], strict=False):
        if later.data[: len(log.data)] == log.data:
            continue
        differs_at = first_difference(log.data, later.data)
        text = f"{later_name} differs from {name} at {differs_at} of {len(log.data)}"
        yield Finding(Kind.REWRITTEN, text)
        known = set(log.records)
        for record in later.records:
            if record.end <= len(log.data) and record not in known:
                text = f"{record.key!r} at {record.physical_offset} in the log of {later_name}"
                yield Finding(Kind.RESURRECTED, f"{text} was not in that of {name}")
                break


def _check_cuts(history: FencedHistory, final: FinalNode | None) -> Iterator[Finding]:
    acked = {
        (send.key, send.physical_offset)
        for send in history.sends
        if send.outcome is Outcome.OK and send.contract is not Contract.ASYNC
    }
    there = {
        (record.key, record.physical_offset): record
        for record in (final.log.records if final is not None else ())
    }
    for cut in history.cuts:
        where = f"{cut.node} at {cut.at_seconds:.6f} cuts [{cut.cut}, {cut.end})"
        if cut.cut < cut.confirm:
            yield Finding(Kind.CUT_TOO_DEEP, f"{where}, below its confirm offset {cut.confirm}")
        for record in cut.records:
            place = (record.key, record.physical_offset)
            # The next master may have got the same message at the same place, as another record.
            if place in acked and there.get(place, record) == record:
                yield Finding(Kind.CUT_TOO_DEEP, f"{where}: {record.key} was acknowledged")


# The disks


def _check_nodes(nodes: list[FinalNode]) -> Iterator[Finding]:
    for node in nodes:
        if node.log.fault:
            yield Finding(Kind.TORN, f"{node.name}: {node.log.fault}")
        yield from _check_epochs(node)
    for index, left in enumerate(nodes):
        for right in nodes[index + 1 :]:
            yield from _check_common_epochs(left, right)
    final = next((node for node in nodes if node.is_master), None)
    for node in nodes:
        if final is None or node.is_excused or node.log.data == final.log.data:
            continue
        differs_at = first_difference(node.log.data, final.log.data)
        text = f"{node.name} ({len(node.log.data)} bytes) differs from {final.name}"
        yield Finding(Kind.DIVERGED, f"{text} ({len(final.log.data)} bytes) at {differs_at}")


def _check_epochs(node: FinalNode) -> Iterator[Finding]:
    entries = node.epochs
    where = f"{node.name}: {[(entry.epoch, entry.start) for entry in entries]}"
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start <= before.start:
            yield Finding(Kind.BAD_EPOCHS, f"{where} does not rise")
    if entries and entries[-1].start > len(node.log.data):
        yield Finding(Kind.BAD_EPOCHS, f"{where}, but the log ends at {len(node.log.data)}")


def _check_common_epochs(left: FinalNode, right: FinalNode) -> Iterator[Finding]:
    theirs = {entry.epoch: entry.start for entry in right.epochs}
    for index, entry in enumerate(left.epochs):
        if entry.epoch not in theirs:
            continue
        where = f"epoch {entry.epoch} of {left.name} and {right.name}"
        if theirs[entry.epoch] != entry.start:
            text = f"{where} starts at {entry.start} and {theirs[entry.epoch]}"
            yield Finding(Kind.DIVERGED, text)
            continue
        end = min(_epoch_end(left, index), _epoch_end_of(right, entry))
        if left.log.data[entry.start : end] != right.log.data[entry.start : end]:
            yield Finding(Kind.DIVERGED, f"{where} has other bytes in [{entry.start}, {end})")


def _epoch_end(node: FinalNode, index: int) -> int:
    return node.epochs[index + 1].start if index + 1 < len(node.epochs) else len(node.log.data)


def _epoch_end_of(node: FinalNode, entry: EpochEntrySeen) -> int:
    return _epoch_end(node, [other.epoch for other in node.epochs].index(entry.epoch))


# What producers were told


def _check_sends(sends: Sequence[Send], records: list[LogRecord]) -> Iterator[Finding]:
    places = by_key(records)
    for send in sends:
        if send.outcome is not Outcome.OK or send.contract is Contract.ASYNC:
            continue
        found = places.get(send.key, [])
        if not found:
            yield Finding(Kind.LOST, f"{send.key} ({send.contract}) at {send.physical_offset}")
        elif text := misplaced(send, found):
            yield Finding(Kind.MISPLACED, text)
    for text in duplicated(sends, places):
        yield Finding(Kind.DUPLICATED, text)


def _check_queues(records: Iterable[LogRecord]) -> Iterator[Finding]:
    next_offset: dict[tuple[str, int], int] = defaultdict(int)
    for record in records:
        queue = (record.topic, record.queue_id)
        if record.queue_offset != next_offset[queue]:
            text = f"queue {queue}: {record.queue_offset} follows {next_offset[queue] - 1}"
            yield Finding(Kind.GAP, f"{text} at {record.physical_offset}")
        next_offset[queue] = record.queue_offset + 1


# What consumers saw


def _check_reads(reads: Iterable[Read], records: Iterable[LogRecord]) -> Iterator[Finding]:
    places = {(r.topic, r.queue_id, r.queue_offset): r for r in records}
    for read in reads:
        place = places.get((read.topic, read.queue_id, read.queue_offset))
        seen = read.key, read.physical_offset, read.body_crc
        if place is None or (place.key, place.physical_offset, place.body_crc) != seen:
            text = f"{read.reader}: {read.key!r} of queue {read.queue_id}, {read.queue_offset}"
            yield Finding(Kind.VANISHED, f"{text}, read at {read.at_seconds:.6f}, is not there")


def _check_order_of_reads(reads: Iterable[Read]) -> Iterator[Finding]:
    due: dict[tuple[str, str, int], int] = {}
    content: dict[tuple[str, int, int], tuple[str, int]] = {}
    for read in reads:
        queue = (read.reader, read.topic, read.queue_id)
        where = f"{read.reader}: queue {read.queue_id}, {read.queue_offset}"
        if due.get(queue, read.queue_offset) != read.queue_offset:
            yield Finding(Kind.MISREAD, f"{where} came instead of {due[queue]}")
        due[queue] = read.queue_offset + 1
        place = (read.topic, read.queue_id, read.queue_offset)
        this = (read.key, read.physical_offset)
        if content.setdefault(place, this) != this:
            yield Finding(Kind.MISREAD, f"{where} was {content[place]}, then {this}")


def _check_read_ahead(reads: Iterable[Read], events: Iterable[NodeEvent]) -> Iterator[Finding]:
    """Confirmed is what some master has said to be, before the reader received it."""
    confirms = [
        (seen.at_seconds, seen.event.confirm)
        for seen in events
        if isinstance(seen.event, ConfirmAdvanced | MasterOpened)
    ]
    highest = 0
    index = 0
    for read in sorted(reads, key=lambda read: read.at_seconds):
        while index < len(confirms) and confirms[index][0] <= read.at_seconds:
            highest = max(highest, confirms[index][1])
            index += 1
        if read.physical_offset >= highest:
            text = f"{read.reader}: {read.key!r} at {read.physical_offset}, read at"
            yield Finding(
                Kind.READ_AHEAD, f"{text} {read.at_seconds:.6f}, when {highest} was confirmed"
            )


def _check_drained(drained: Iterable[Read], records: list[LogRecord]) -> Iterator[Finding]:
    seen = {(read.queue_id, read.queue_offset, read.key) for read in drained}
    for record in records:
        if (record.queue_id, record.queue_offset, record.key) not in seen:
            text = f"queue {record.queue_id}, {record.queue_offset} ({record.key!r})"
            yield Finding(Kind.UNREAD, f"{text} is in the log, but its queue does not give it")


def _check_offsets(offsets: Iterable[OffsetSeen]) -> Iterator[Finding]:
    highest: dict[tuple[str, int], int] = defaultdict(int)
    for seen in offsets:
        queue = (seen.group, seen.queue_id)
        if seen.offset < highest[queue]:
            text = f"{seen.group}, queue {seen.queue_id}: {seen.offset} at {seen.at_seconds:.6f}"
            yield Finding(Kind.OFFSET_BACK, f"{text} after {highest[queue]}")
        highest[queue] = max(highest[queue], seen.offset)


def _check_probes(probes: list[Probe], expected: FencedExpectations) -> Iterator[Finding]:
    """The last try decides: it came when all was well, or when it had to be."""
    if not probes:
        limit = expected.send_again_within_seconds
        yield Finding(Kind.UNAVAILABLE, f"nothing was tried {limit} s after healing")
    elif not probes[-1].succeeded:
        last = probes[-1]
        text = f"a send {last.sent_after_heal_seconds:.3f} s after healing: {last.text}"
        yield Finding(Kind.UNAVAILABLE, text)
