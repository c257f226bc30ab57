"""Decides from a finished run whether any promise was broken. Pure: records in, findings out.

What goes in: the history (what producers were told, what readers saw, what slaves reported, when
probes were answered) and the bytes that are in each node's commit log at the end. What must hold:

    LOST              acknowledged with SEND_OK, but not in the master's log
    STORED_BUT_MISSING  answered FLUSH_*_TIMEOUT or SLAVE_NOT_AVAILABLE: must be in the log too
    DUPLICATED        stored more often than it was sent
    REORDERED         answered before another was sent, but stored after it in their queue; or queue
                      offsets that do not rise with physical offsets
    HOLE              queue offsets of a queue are not 0, 1, 2, ...
    PHANTOM           stored, but never sent, sent with other bytes, or refused by the broker
    MISPLACED         stored elsewhere than the producer was told
    CORRUPT           a log that cannot be walked from its start to its end
    DIVERGED          a slave's log is not the master's, byte for byte, after all the time it takes
                      to catch up; or it became different although no power was lost
    FALSE_ALARM       a slave was refused as diverged, but its log was a prefix of the master's
    FALSE_ACK         a slave reported bytes that it did not have
    UNREPLICATED      a sync send was answered SEND_OK before enough slaves had reported its bytes
    UNFLUSHED         with SYNC_FLUSH, SEND_OK of a put that waits left before the disk had it
    STALE             the master had nothing for a reader who asked after SEND_OK of what was to be
                      there
    MISREAD           a reader saw a record that is not in the log at that place, or out of order
    UNREAD            in the log, but not to be had by pulling its queue
    SKIPPED           an answer moved a reader on by more messages than it had
    UNNOTICED         a log has rotted, and neither a scrub nor a start has found it
    FORGOTTEN         a node has noted damage, and says that there is none
    HANDED_OUT        bytes left a node that it knew to be bad
    FALSELY_WHOLE     what was noted as damage is noted no more, and is bad yet
    ROTTEN            what was repaired from a copy is not whole, or still counts as bad
    STUCK             after everything was healed, sends do not succeed again in time
    CRASHED           a node ended by itself without cause, or logged a traceback

Kinds of ends of a send: see `Outcome`. Only SEND_OK is a promise; the three "stored" answers say
where the message is, not that it is safe.
"""

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tests.sim.classic.history import ClassicHistory, Refusal, Report
from tests.sim.engine.comparison import by_key, duplicated, misplaced, phantoms, reordered, stale
from tests.sim.engine.history import Contract, Finding, Outcome, Probe, Read, Send
from tests.sim.engine.walked_log import Log, LogRecord, first_difference


class Kind(enum.Enum):
    """What was broken; the module docstring says what each means."""

    LOST = enum.auto()
    STORED_BUT_MISSING = enum.auto()
    DUPLICATED = enum.auto()
    REORDERED = enum.auto()
    HOLE = enum.auto()
    PHANTOM = enum.auto()
    MISPLACED = enum.auto()
    CORRUPT = enum.auto()
    DIVERGED = enum.auto()
    FALSE_ALARM = enum.auto()
    FALSE_ACK = enum.auto()
    UNREPLICATED = enum.auto()
    UNFLUSHED = enum.auto()
    STALE = enum.auto()
    MISREAD = enum.auto()
    UNREAD = enum.auto()
    SKIPPED = enum.auto()
    UNNOTICED = enum.auto()
    FORGOTTEN = enum.auto()
    HANDED_OUT = enum.auto()
    FALSELY_WHOLE = enum.auto()
    ROTTEN = enum.auto()
    STUCK = enum.auto()
    CRASHED = enum.auto()


class Expectations(msgspec.Struct, frozen=True):
    """What this run allows.

    `master_lost_cache`: the master lost power, and with it what was not synced. Then its log may
    be shorter than a slave's, and such a slave has to be refused. `acks_survive_power_loss` says
    whether SEND_OK meant "on the master's disk" (SYNC_FLUSH); if not, an acknowledged message has
    to be on some node, or in the log of a slave that was refused. `slaves_needed` is how many
    slaves have to have a message before its SEND_OK.
    """

    master_lost_cache: bool = False
    acks_survive_power_loss: bool = False
    slaves_needed: int = 1
    send_again_within_seconds: float = 10.0


def check(
    history: ClassicHistory,
    master: Log,
    slaves: Mapping[str, Log],
    expectations: Expectations | None = None,
) -> list[Finding]:
    """Return every broken promise; an empty list if all were kept.

    `slaves` are the logs at the end, when every slave has caught up; one that was refused has been
    wiped and has copied the log by then.
    """
    expected = expectations or Expectations()
    logs = {"master": master, **slaves}
    elsewhere = [*slaves.values(), *(log for _, log in history.given_up)]
    findings = [Finding(Kind.CRASHED, text) for text in history.crashes]
    findings += _check_damage(history)
    findings += _check_logs(logs)
    findings += _check_slaves(master, slaves)
    findings += _check_refusals(history.refusals, expected)
    findings += _check_sends(history.sends, master, elsewhere, expected)
    findings += _check_phantoms(history.sends, logs)
    for name, log in logs.items():
        findings += _check_queues(name, log.records)
    findings += [Finding(Kind.REORDERED, text) for text in reordered(history.sends, master.records)]
    findings += _check_reports(history.reports)
    findings += _check_replication(history, expected)
    findings += _check_answers(history, expected)
    if not expected.master_lost_cache:
        findings += [
            Finding(Kind.STALE, text) for text in stale(history.sends, history.empty_pulls)
        ]
    findings += _check_reads(history.reads, master, expected, history.hurt)
    findings += _check_drained(history.drained, master)
    findings += _check_probes(history.probes, expected)
    return findings


def _check_damage(history: ClassicHistory) -> Iterator[Finding]:
    said = {
        Kind.SKIPPED: history.skipped,
        Kind.UNNOTICED: history.unnoticed,
        Kind.FORGOTTEN: history.forgotten,
        Kind.HANDED_OUT: history.handed_out,
        Kind.FALSELY_WHOLE: history.falsely_whole,
        Kind.ROTTEN: history.rotten,
    }
    for kind, texts in said.items():
        yield from (Finding(kind, text) for text in texts)


def _check_logs(logs: Mapping[str, Log]) -> Iterator[Finding]:
    for name, log in logs.items():
        if log.fault:
            yield Finding(Kind.CORRUPT, f"{name}: {log.fault}")


def _check_slaves(master: Log, slaves: Mapping[str, Log]) -> Iterator[Finding]:
    for name, slave in slaves.items():
        if slave.data != master.data:
            what = "is still behind" if _is_prefix(slave, master) else "has other bytes"
            yield Finding(
                Kind.DIVERGED,
                f"{name} ({len(slave.data)} bytes) {what}: differs from the master"
                f" ({len(master.data)} bytes) at {first_difference(master.data, slave.data)}",
            )


def _check_refusals(refusals: Iterable[Refusal], expected: Expectations) -> Iterator[Finding]:
    for refusal in refusals:
        where = f"{refusal.name} ({len(refusal.slave.data)} bytes) was refused"
        if _is_prefix(refusal.slave, refusal.master):
            yield Finding(Kind.FALSE_ALARM, f"{where}, but holds a prefix of the master's log")
        elif not expected.master_lost_cache:
            yield Finding(Kind.DIVERGED, f"{where}, but nothing could make the logs differ")


def _is_prefix(slave: Log, master: Log) -> bool:
    return master.data.startswith(slave.data)


def _check_sends(
    sends: Sequence[Send], master: Log, others: Iterable[Log], expected: Expectations
) -> Iterator[Finding]:
    on_master = by_key(master.records)
    anywhere = set(on_master).union(*(by_key(log.records) for log in others))
    for send in sends:
        places = on_master.get(send.key, [])
        if send.outcome is Outcome.OK and not _may_be_missing(send, anywhere, expected):
            if not places:
                yield Finding(Kind.LOST, f"{send.key} was acknowledged and is gone")
            elif send.queue_offset >= 0 and (text := misplaced(send, places)):
                yield Finding(Kind.MISPLACED, text)
        elif send.outcome is Outcome.STORED and not places and not expected.master_lost_cache:
            yield Finding(Kind.STORED_BUT_MISSING, f"{send.key} was stored and is gone")
    for text in duplicated(sends, on_master):
        yield Finding(Kind.DUPLICATED, text)


def _may_be_missing(send: Send, anywhere: set[str], expected: Expectations) -> bool:
    if not expected.master_lost_cache:
        return False
    if send.contract is Contract.ASYNC:
        return True
    return not expected.acks_survive_power_loss and send.key in anywhere


def _check_phantoms(sends: Sequence[Send], logs: Mapping[str, Log]) -> Iterator[Finding]:
    for name, log in logs.items():
        for text in phantoms(sends, log.records):
            yield Finding(Kind.PHANTOM, f"{name}, {text}")


def _check_queues(name: str, records: Iterable[LogRecord]) -> Iterator[Finding]:
    next_offset: dict[int, int] = defaultdict(int)
    for record in records:
        expected = next_offset[record.queue_id]
        where = f"{name}, queue {record.queue_id}: {record.queue_offset} follows {expected - 1}"
        if record.queue_offset > expected:
            yield Finding(Kind.HOLE, where)
        elif record.queue_offset < expected:
            yield Finding(Kind.REORDERED, where)
        next_offset[record.queue_id] = record.queue_offset + 1


def _check_reports(reports: Iterable[Report]) -> Iterator[Finding]:
    for report in reports:
        if report.reported_offset > report.stored_end:
            yield Finding(
                Kind.FALSE_ACK,
                f"{report.slave} reported {report.reported_offset} at {report.at_seconds:.6f},"
                f" but had {report.stored_end}",
            )


def _check_replication(history: ClassicHistory, expected: Expectations) -> Iterator[Finding]:
    """Whoever was told SEND_OK: enough slaves had said before that they hold the message."""
    told = [
        send
        for send in history.sends
        if send.contract is not Contract.ASYNC and send.outcome is Outcome.OK
    ]
    reports = sorted(history.reports, key=lambda report: report.at_seconds)
    highest: dict[str, int] = {}
    index = 0
    for send in sorted(told, key=lambda send: send.answered_at):
        while index < len(reports) and reports[index].at_seconds <= send.answered_at:
            report = reports[index]
            highest[report.slave] = max(report.reported_offset, highest.get(report.slave, 0))
            index += 1
        # Whole records are reported: what lies above its first byte lies above its last.
        holders = sum(offset > send.physical_offset for offset in highest.values())
        if holders < expected.slaves_needed:
            yield Finding(
                Kind.UNREPLICATED,
                f"{send.key} at {send.physical_offset} was acknowledged at"
                f" {send.answered_at:.6f}, when {holders} slaves had it",
            )


def _check_answers(history: ClassicHistory, expected: Expectations) -> Iterator[Finding]:
    """Each SEND_OK as it left the master, where it means "on the master's disk"."""
    if not expected.acks_survive_power_loss:
        return
    for answer in history.answers:
        waits = history.contracts.get(answer.key, Contract.ASYNC) is not Contract.ASYNC
        if waits and answer.own.flushed <= answer.physical_offset:
            text = f"{answer.key} at {answer.physical_offset} was answered at"
            yield Finding(
                Kind.UNFLUSHED, f"{text} {answer.at_seconds:.6f}, the disk had {answer.own.flushed}"
            )


def _check_reads(
    reads: Iterable[Read],
    master: Log,
    expected: Expectations,
    hurt: Sequence[tuple[int, int]] = (),
) -> Iterator[Finding]:
    """What was hurt under a running process may reach a reader before anybody has noticed it."""
    places = {(record.queue_id, record.queue_offset): record for record in master.records}
    next_offset: dict[tuple[str, int], int] = {}
    if expected.master_lost_cache:
        return  # a reader may have seen what the master's disk then lost
    for read in reads:
        where = f"{read.reader}: queue {read.queue_id}, {read.queue_offset}"
        due = next_offset.get((read.reader, read.queue_id), read.queue_offset)
        due_record = places.get((read.queue_id, due))
        if due_record is not None and _is_hurt(due_record, hurt):
            is_there = (read.queue_id, read.queue_offset) in places
            came = max(due, read.queue_offset) if is_there else due
            next_offset[read.reader, read.queue_id] = came + 1
            continue
        if read.queue_offset != due:
            yield Finding(Kind.MISREAD, f"{where} came instead of {due}")
        next_offset[read.reader, read.queue_id] = read.queue_offset + 1
        place = places.get((read.queue_id, read.queue_offset))
        if place is None or _content(place) != _content(read):
            yield Finding(Kind.MISREAD, f"{where}: {read.key!r} is not in the log there")


def _is_hurt(record: LogRecord, hurt: Sequence[tuple[int, int]]) -> bool:
    return any(start < record.end and record.physical_offset < end for start, end in hurt)


def _content(record: LogRecord | Read) -> tuple[object, ...]:
    """Return what a reader receives of a record."""
    place = record.queue_id, record.queue_offset, record.physical_offset
    return record.topic, record.key, record.body_crc, *place


def _check_drained(drained: Iterable[Read], master: Log) -> Iterator[Finding]:
    seen = {_content(read): read for read in drained}
    stored = {_content(record): record for record in master.records}
    for content, read in seen.items():
        if content not in stored:
            yield Finding(Kind.MISREAD, f"drain: {read.key!r} is not in the log there: {read}")
    for content, record in stored.items():
        if content not in seen:
            yield Finding(
                Kind.UNREAD,
                f"queue {record.queue_id}, {record.queue_offset} ({record.key!r}) is in the log,"
                " but its queue does not give it",
            )


def _check_probes(probes: Iterable[Probe], expected: Expectations) -> Iterator[Finding]:
    limit: Final = expected.send_again_within_seconds
    late = [probe for probe in probes if probe.sent_after_heal_seconds > limit - 0.001]
    if not late:
        yield Finding(Kind.STUCK, f"nothing was tried {limit} s after healing")
    for probe in late:
        if not probe.succeeded:
            yield Finding(
                Kind.STUCK,
                f"a sync send {probe.sent_after_heal_seconds:.3f} s after healing: {probe.text}",
            )
