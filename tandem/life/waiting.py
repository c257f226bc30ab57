"""What a message waits for before it comes into its topic: the end of a transaction, or a time."""

from collections.abc import Iterator
from typing import Final

from tandem.life.evidence import DelayAt, Evidence, Gap, HalfEnd
from tandem.life.records import Record, Role
from tandem.life.result import Finding, Kind
from tandem.life.storing import stored
from tandem.life.words import count_words, span_words, time_words
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL, DelayLevels
from tandem.wire.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from tandem.wire.message_properties import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
)

OVERDUE_MS: Final = 10_000
"""Deliveries run every second or so; what is late by more than this is worth a word."""


def transaction(records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    """Say whether a transaction was committed, rolled back, given up, or is open."""
    halves = [each for each in records if each.role is Role.HALF and each.is_in_log]
    committed = next((each for each in records if _is_committed(each)), None)
    if halves:
        yield _half(halves[0], evidence)
        checks = max(_number(half, PROPERTY_TRANSACTION_CHECK_TIMES) for half in halves)
        if checks:
            yield Finding(
                kind=Kind.CHECKED,
                text=f"Its broker asked the producer {count_words(checks, 'time')} what became of"
                " the transaction.",
                at_ms=halves[-1].message.store_timestamp_ms,
                evidence=[f"TRANSACTION_CHECK_TIMES of the half; {halves[-1].sources[0]}"],
            )
    if committed is not None:
        yield Finding(
            kind=Kind.COMMITTED,
            text="Its transaction was committed.",
            at_ms=committed.message.store_timestamp_ms,
            evidence=[
                "the record of the message has the mark of a commit, and the place of the half"
                f" ({committed.message.prepared_transaction_offset}); {committed.sources[0]}"
            ],
            broker=committed.broker,
            topic=committed.real_topic,
        )
    elif halves:
        yield from _not_committed(halves[-1], records, evidence)


def _is_committed(record: Record) -> bool:
    is_marked = record.message.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT_TYPE
    return is_marked and record.role in (Role.ORIGINAL, Role.DELAYED, Role.TIMER)


def _half(half: Record, evidence: Evidence) -> Finding:
    found = stored(half, evidence, "It was stored as the half of a transaction")
    return Finding(
        kind=Kind.HALF,
        text=f"{found.text} No consumer gets a half.",
        at_ms=found.at_ms,
        evidence=found.evidence,
        broker=half.broker,
        topic=half.real_topic,
        queue_offset=half.message.queue_offset,
        physical_offset=half.message.physical_offset,
    )


def _not_committed(half: Record, records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    given_up = next((each for each in records if each.role is Role.GIVEN_UP), None)
    if given_up is not None:
        yield Finding(
            kind=Kind.TRANSACTION_GIVEN_UP,
            text="Its transaction was given up: the producer did not say in time what became of"
            f" it. It is in {given_up.place}, and no consumer gets it.",
            at_ms=given_up.message.store_timestamp_ms,
            evidence=given_up.sources,
            broker=given_up.broker,
        )
        return
    end = _end_of(half, evidence)
    if end is not None:
        yield Finding(
            kind=Kind.ROLLED_BACK,
            text="Its transaction was rolled back: the half has ended, and no committed message"
            " was found.",
            at_ms=end.at_ms,
            evidence=[
                f"{end.source} says that the half at queue offset {end.half_queue_offset} has"
                " ended; no record says how"
            ],
            is_concluded=True,
            broker=half.broker,
        )
        return
    if not _all_ends_read(half, evidence):
        return
    waits_ms = evidence.now_ms - half.message.store_timestamp_ms
    yield Finding(
        kind=Kind.TRANSACTION_OPEN,
        text="Its transaction is open: it was neither committed nor rolled back, and waits"
        f" since {span_words(waits_ms)}.",
        evidence=["no record of RMQ_SYS_TRANS_OP_HALF_TOPIC says that the half has ended"],
        broker=half.broker,
    )


def transaction_gaps(records: list[Record], evidence: Evidence) -> Iterator[Gap]:
    """Say what cannot be known of a transaction."""
    halves = [each for each in records if each.role is Role.HALF and each.is_in_log]
    if not halves or any(map(_is_committed, records)):
        return
    half = halves[-1]
    is_given_up = any(each.role is Role.GIVEN_UP for each in records)
    if not is_given_up and _end_of(half, evidence) is None and not _all_ends_read(half, evidence):
        yield Gap(
            what="whether its transaction has ended",
            why="the records of RMQ_SYS_TRANS_OP_HALF_TOPIC could not all be read",
            remedy="ask with --store and the directory of its master",
        )


def _end_of(half: Record, evidence: Evidence) -> HalfEnd | None:
    """Return what says that the last copy of a half has ended."""
    found = [
        end
        for end in evidence.ends
        if end.half_queue_offset == half.message.queue_offset and _is_of(half, end.broker, end.node)
    ]
    return found[0] if found else None


def _all_ends_read(half: Record, evidence: Evidence) -> bool:
    return any(
        each.is_complete and _is_of(half, each.broker, each.node) for each in evidence.halves_read
    )


def _is_of(record: Record, broker: str, node: str) -> bool:
    return broker == record.broker if record.broker and broker else node in record.nodes


def delay(records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    """Say until when a message was delayed, and whether it came. Retries are left out."""
    originals = [each for each in records if each.role is Role.ORIGINAL and each.is_in_log]
    waits = [
        each
        for each in records
        if each.role in (Role.DELAYED, Role.TIMER) and not each.group and each.is_in_log
    ]
    recalls = [each for each in waits if PROPERTY_TIMER_DEL_UNIQKEY in each.message.properties]
    for record in waits:
        if record in recalls:
            yield Finding(
                kind=Kind.RECALLED,
                text="It was recalled: somebody asked the broker not to deliver it.",
                at_ms=record.message.store_timestamp_ms,
                evidence=[f"{PROPERTY_TIMER_DEL_UNIQKEY} of the record; {record.sources[0]}"],
            )
            continue
        due_ms, how = due_of(record, evidence)
        found = stored(record, evidence, "It was stored to be delivered later")
        until = f" {how[0].upper()}{how[1:]}: it is due at {time_words(due_ms)}." if due_ms else ""
        yield Finding(
            kind=Kind.DELAYED,
            text=found.text + until,
            at_ms=found.at_ms,
            due_ms=due_ms,
            evidence=found.evidence,
            broker=record.broker,
            topic=record.real_topic,
            queue_id=record.message.queue_id,
            queue_offset=record.message.queue_offset,
            physical_offset=record.message.physical_offset,
        )
    waiting = [each for each in waits if each not in recalls]
    if waiting and originals and originals[-1].message.store_timestamp_ms:
        last = originals[-1]
        yield Finding(
            kind=Kind.DELIVERED,
            text=f"Its time came, and it was put into its topic {last.message.topic}.",
            at_ms=last.message.store_timestamp_ms,
            evidence=last.sources,
            broker=last.broker,
            topic=last.message.topic,
        )
    elif waiting and not recalls:
        yield from _overdue(waiting[-1], evidence)


def _overdue(record: Record, evidence: Evidence) -> Iterator[Finding]:
    due_ms, _ = due_of(record, evidence)
    late_ms = evidence.now_ms - due_ms
    if not due_ms or late_ms < OVERDUE_MS:
        return
    delays = _delays_of(record, evidence)
    text = f"It is late by {span_words(late_ms)}: it has not come into its topic."
    shown = [f"no record of it in topic {record.real_topic}"]
    level = record.message.queue_id + 1
    if delays is not None and record.role is Role.DELAYED and level in delays.next_offsets:
        next_offset = delays.next_offsets[level]
        if next_offset > record.message.queue_offset:
            text += " Its broker has passed it over: it was delivered, and what was delivered is"
            text += " not in the log that was looked at any more."
        else:
            left = record.message.queue_offset - next_offset
            text += f" {count_words(left, 'message')} of its delay level come first."
        shown.append(f"delivery of level {level} is at queue offset {next_offset}: {delays.source}")
    yield Finding(
        kind=Kind.OVERDUE,
        text=text,
        evidence=shown,
        is_concluded=True,
        broker=record.broker,
        topic=record.real_topic,
    )


def due_of(record: Record, evidence: Evidence) -> tuple[int, str]:
    """Return when a record that waits is due, and how that is known; 0 if it is not."""
    properties = record.message.properties
    if record.role is Role.TIMER:
        for name in (PROPERTY_TIMER_OUT_MS, PROPERTY_TIMER_DELIVER_MS):
            due_ms = _number(record, name)
            if due_ms:
                return due_ms, f"{name} of the record says when"
        return 0, ""
    delays = _delays_of(record, evidence)
    is_named = delays is not None and bool(delays.delays_ms)
    table = delays.delays_ms if delays and is_named else DelayLevels(MESSAGE_DELAY_LEVEL).delays_ms
    level = record.message.queue_id + 1
    if not 1 <= level <= len(table) or "DELAY" not in properties:
        return 0, ""
    is_default = not is_named or (delays is not None and delays.is_default)
    source = "RocketMQ's levels" if is_default else "the broker's levels"
    waits = span_words(table[level - 1])
    return (
        record.message.store_timestamp_ms + table[level - 1],
        f"delay level {level} is {waits} by {source}",
    )


def _delays_of(record: Record, evidence: Evidence) -> DelayAt | None:
    found = (each for each in evidence.delays if _is_of(record, each.broker, each.node))
    return next(found, None)


def _number(record: Record, name: str) -> int:
    text = record.message.properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
