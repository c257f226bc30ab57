"""Decides from a finished run whether any promise was broken. Pure: records in, findings out.

What goes in: the history (what producers were told, what readers saw, what slaves reported, when
probes were answered) and the bytes that are in each node's commit log at the end. What must hold:

    LOST              acknowledged with SEND_OK, but not in the master's log
    STORED_BUT_MISSING  answered FLUSH_*_TIMEOUT or SLAVE_NOT_AVAILABLE: must be in the log too
    DUPLICATED        stored more often than it was sent
    REORDERED         answered before another was sent, but behind it in their queue; or queue
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
    MISREAD           a reader saw a record that is not in the log at that place, or out of order
    UNREAD            in the log, but not to be had by pulling its queue
    STUCK             after everything was healed, sends do not succeed again in time
    CRASHED           a node ended by itself without cause, or logged a traceback

Kinds of ends of a send: see `Outcome`. Only SEND_OK is a promise; the three "stored" answers say
where the message is, not that it is safe.
"""

import enum
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tandem.wire.crc import crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import BLANK_MAGIC_CODE, decode_message


class Outcome(enum.Enum):
    """How a send ended for the producer."""

    OK = enum.auto()
    """SEND_OK."""
    STORED = enum.auto()
    """FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE: in the master's log."""
    UNKNOWN = enum.auto()
    """No answer; it may be stored, or still be on its way."""
    REFUSED = enum.auto()
    """The broker said no, or the request never left: it must never be stored."""


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
    MISREAD = enum.auto()
    UNREAD = enum.auto()
    STUCK = enum.auto()
    CRASHED = enum.auto()


class Finding(msgspec.Struct, frozen=True):
    """One broken promise, for a person."""

    kind: Kind
    text: str


class Send(msgspec.Struct, frozen=True):
    """One message from the first attempt to the answer. Times are virtual seconds."""

    key: str
    body_crc: int
    sync: bool
    outcome: Outcome
    invoked_at: float
    answered_at: float = float("inf")
    """Infinity for UNKNOWN: the message may still be stored at any later time."""
    ended_at: float = float("inf")
    """When the producer was done with it, answer or not."""
    attempts_max: int = 1
    queue_id: int = -1
    queue_offset: int = -1
    physical_offset: int = -1
    text: str = ""
    """The producer's words, for people."""


class Stored(msgspec.Struct, frozen=True):
    """One record of a log."""

    key: str
    body_crc: int
    queue_id: int
    queue_offset: int
    physical_offset: int


class Report(msgspec.Struct, frozen=True):
    """What a slave told its master, and what it had when it said so. Offsets in bytes."""

    slave: str
    reported_offset: int
    stored_end: int
    at_seconds: float


class Read(msgspec.Struct, frozen=True):
    """One record a reader received."""

    reader: str
    record: Stored


class Probe(msgspec.Struct, frozen=True):
    """One sync send after everything was healed."""

    sent_after_heal_seconds: float
    succeeded: bool
    text: str = ""


class History(msgspec.Struct):
    """What the outside saw, in order of time."""

    sends: list[Send] = []
    reads: list[Read] = []
    drained: list[Read] = []
    """What pulling every queue from its start gave at the very end."""
    reports: list[Report] = []
    probes: list[Probe] = []
    crashes: list[str] = []


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


class Log(msgspec.Struct, frozen=True):
    """A commit log from offset 0 to its end, walked."""

    data: bytes
    records: tuple[Stored, ...]
    fault: str = ""
    """Why it cannot be walked to its end; empty if it can."""


class Refusal(msgspec.Struct, frozen=True):
    """An alarm: a slave was refused as another history. Both logs at that time."""

    name: str
    slave: Log
    master: Log


def walk_log(data: bytes) -> Log:
    """Decode a log from offset 0; every byte up to the end must belong to a valid record."""
    records: list[Stored] = []
    position = 0
    while position < len(data):
        filler_bytes = int.from_bytes(data[position : position + 4], "big")
        magic = int.from_bytes(data[position + 4 : position + 8], "big")
        if magic == BLANK_MAGIC_CODE and filler_bytes >= 8:
            position += filler_bytes
            continue
        try:
            message, end = decode_message(data, position)
        except MalformedMessageError as error:
            return Log(data, tuple(records), str(error))
        record = Stored(
            key=message.keys,
            body_crc=message.body_crc,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
        )
        if crc32(message.body) != message.body_crc or message.physical_offset != position:
            return Log(data, tuple(records), f"record at byte {position}: wrong CRC or offset")
        records.append(record)
        position = end
    fault = "" if position == len(data) else f"ends inside the filler at byte {len(data)}"
    return Log(data, tuple(records), fault)


def check(
    history: History,
    master: Log,
    slaves: Mapping[str, Log],
    expectations: Expectations | None = None,
    refusals: Sequence[Refusal] = (),
    given_up: Sequence[Log] = (),
) -> list[Finding]:
    """Return every broken promise; an empty list if all were kept.

    `slaves` are the logs at the end, when every slave has caught up; one that was refused has been
    wiped and has copied the log by then. `given_up` are the logs that were wiped.
    """
    expected = expectations or Expectations()
    logs = {"master": master, **slaves}
    findings = [Finding(Kind.CRASHED, text) for text in history.crashes]
    findings += _check_logs(logs)
    findings += _check_slaves(master, slaves)
    findings += _check_refusals(refusals, expected)
    findings += _check_sends(history.sends, master, [*slaves.values(), *given_up], expected)
    findings += _check_phantoms(history.sends, logs)
    for name, log in logs.items():
        findings += _check_queues(name, log.records)
    findings += _check_order(history.sends, master)
    findings += _check_reports(history.reports)
    findings += _check_replication(history, expected)
    findings += _check_reads(history.reads, master, expected)
    findings += _check_drained(history.drained, master)
    findings += _check_probes(history.probes, expected)
    return findings


def _check_logs(logs: Mapping[str, Log]) -> Iterator[Finding]:
    for name, log in logs.items():
        if log.fault:
            yield Finding(Kind.CORRUPT, f"{name}: {log.fault}")


def first_difference(left: bytes, right: bytes) -> int:
    """Return the first offset at which two logs differ; the shorter length if none does."""
    size = min(len(left), len(right))
    if left[:size] == right[:size]:
        return size
    # The first position at which the prefixes up to and with it differ.
    return bisect_left(range(size), 1, key=lambda at: left[: at + 1] != right[: at + 1])


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
    sends: Iterable[Send], master: Log, others: Iterable[Log], expected: Expectations
) -> Iterator[Finding]:
    on_master = _by_key(master.records)
    anywhere = set(on_master).union(*(_by_key(log.records) for log in others))
    for send in sends:
        places = on_master.get(send.key, [])
        if send.outcome is Outcome.OK and not _may_be_missing(send, anywhere, expected):
            if not places:
                yield Finding(Kind.LOST, f"{send.key} was acknowledged and is gone")
            elif send.queue_offset >= 0 and not any(_is_at(send, place) for place in places):
                yield Finding(Kind.MISPLACED, f"{send.key}: {_place(send)}, found {places[0]}")
        elif send.outcome is Outcome.STORED and not places and not expected.master_lost_cache:
            yield Finding(Kind.STORED_BUT_MISSING, f"{send.key} was stored and is gone")
        if len(places) > send.attempts_max:
            at = ", ".join(str(place.physical_offset) for place in places)
            yield Finding(Kind.DUPLICATED, f"{send.key}: at {at}")


def _may_be_missing(send: Send, anywhere: set[str], expected: Expectations) -> bool:
    if not expected.master_lost_cache:
        return False
    if not send.sync:
        return True
    return not expected.acks_survive_power_loss and send.key in anywhere


def _by_key(records: Iterable[Stored]) -> dict[str, list[Stored]]:
    places: dict[str, list[Stored]] = defaultdict(list)
    for record in records:
        places[record.key].append(record)
    return places


def _is_at(send: Send, place: Stored) -> bool:
    return (send.queue_id, send.queue_offset, send.physical_offset) == (
        place.queue_id,
        place.queue_offset,
        place.physical_offset,
    )


def _place(send: Send) -> str:
    return f"told queue {send.queue_id}, {send.queue_offset}, physical {send.physical_offset}"


def _check_phantoms(sends: Iterable[Send], logs: Mapping[str, Log]) -> Iterator[Finding]:
    by_key = {send.key: send for send in sends}
    for name, log in logs.items():
        for record in log.records:
            send = by_key.get(record.key)
            where = f"{name}, offset {record.physical_offset}: {record.key!r}"
            if send is None:
                yield Finding(Kind.PHANTOM, f"{where} was never sent")
            elif send.body_crc != record.body_crc:
                yield Finding(Kind.PHANTOM, f"{where} was sent with another body")
            elif send.outcome is Outcome.REFUSED:
                yield Finding(Kind.PHANTOM, f"{where} was refused, but is stored")


def _check_queues(name: str, records: Iterable[Stored]) -> Iterator[Finding]:
    next_offset: dict[int, int] = defaultdict(int)
    for record in records:
        expected = next_offset[record.queue_id]
        where = f"{name}, queue {record.queue_id}: {record.queue_offset} follows {expected - 1}"
        if record.queue_offset > expected:
            yield Finding(Kind.HOLE, where)
        elif record.queue_offset < expected:
            yield Finding(Kind.REORDERED, where)
        next_offset[record.queue_id] = record.queue_offset + 1


def _check_order(sends: Iterable[Send], master: Log) -> Iterator[Finding]:
    """What was answered before another was sent must lie before it in their queue."""
    by_key = {send.key: send for send in sends if send.attempts_max == 1}
    latest: dict[int, Send] = {}
    for record in master.records:
        send = by_key.get(record.key)
        if send is None:
            continue
        before = latest.get(record.queue_id)
        if before is not None and send.answered_at < before.invoked_at:
            yield Finding(
                Kind.REORDERED,
                f"queue {record.queue_id}: {send.key} was answered before {before.key} was sent,"
                " but lies behind it",
            )
        if before is None or send.invoked_at > before.invoked_at:
            latest[record.queue_id] = send


def _check_reports(reports: Iterable[Report]) -> Iterator[Finding]:
    for report in reports:
        if report.reported_offset > report.stored_end:
            yield Finding(
                Kind.FALSE_ACK,
                f"{report.slave} reported {report.reported_offset} at {report.at_seconds:.6f},"
                f" but had {report.stored_end}",
            )


def _check_replication(history: History, expected: Expectations) -> Iterator[Finding]:
    """Whoever was told SEND_OK: enough slaves had said before that they hold the message."""
    told = [s for s in history.sends if s.sync and s.outcome is Outcome.OK]
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


def _check_reads(reads: Iterable[Read], master: Log, expected: Expectations) -> Iterator[Finding]:
    places = {(record.queue_id, record.queue_offset): record for record in master.records}
    next_offset: dict[tuple[str, int], int] = {}
    if expected.master_lost_cache:
        return  # a reader may have seen what the master's disk then lost
    for read in reads:
        record = read.record
        where = f"{read.reader}: queue {record.queue_id}, {record.queue_offset}"
        due = next_offset.get((read.reader, record.queue_id), record.queue_offset)
        if record.queue_offset != due:
            yield Finding(Kind.MISREAD, f"{where} came instead of {due}")
        next_offset[read.reader, record.queue_id] = record.queue_offset + 1
        if places.get((record.queue_id, record.queue_offset)) != record:
            yield Finding(Kind.MISREAD, f"{where}: {record.key!r} is not in the log there")


def _check_drained(drained: Iterable[Read], master: Log) -> Iterator[Finding]:
    seen = [read.record for read in drained]
    places = set(master.records)
    for record in seen:
        if record not in places:
            yield Finding(Kind.MISREAD, f"drain: {record.key!r} is not in the log there: {record}")
    read = set(seen)
    for record in master.records:
        if record not in read:
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
