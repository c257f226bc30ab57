"""What goes on beside the log: dead letters that were sent again, and traces of clients."""

from collections.abc import Iterator

from tandem.life.evidence import Evidence, TraceMark
from tandem.life.records import Record, records_of
from tandem.life.result import Finding, Kind
from tandem.life.words import span_words
from tandem.wire.message_properties import PROPERTY_DLQ_ORIGIN_MESSAGE_ID


def resent(records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    """Say that a message was sent for a dead letter, or that one was sent for this one."""
    own = records[0].copies[0].family
    origin = records[0].message.properties.get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
    if origin:
        yield Finding(
            kind=Kind.RESENT,
            text=f"It was sent for the dead letter of message {origin}.",
            at_ms=records[0].message.store_timestamp_ms,
            evidence=[f"{PROPERTY_DLQ_ORIGIN_MESSAGE_ID} of the record; {records[0].sources[0]}"],
        )
    again = [
        copy
        for copy in evidence.copies
        if copy.message.properties.get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID) == own and copy.family != own
    ]
    for record in records_of(again)[:1]:
        yield Finding(
            kind=Kind.RESENT,
            text=f"Its dead letter was sent again as message {record.message.msg_id}, in"
            f" {record.place}.",
            at_ms=record.message.store_timestamp_ms,
            evidence=[f"{PROPERTY_DLQ_ORIGIN_MESSAGE_ID} of that one; {record.sources[0]}"],
        )


def traced(records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    """Say what clients wrote of it into the topic of traces."""
    for mark in evidence.traces:
        yield Finding(
            kind=Kind.TRACED,
            text=_words(mark),
            at_ms=mark.at_ms,
            evidence=[f"a trace that the client wrote; {mark.source}"],
            group="" if mark.what in ("sent", "ended") else mark.group,
        )


def _words(mark: TraceMark) -> str:
    took = f", in {span_words(mark.cost_ms)}" if mark.cost_ms >= 0 else ""
    if mark.what == "sent":
        how = "was not answered that it is stored"
        if mark.success:
            how = "was answered SEND_OK"
        elif mark.is_stored:
            how = "was answered where it is, and not SEND_OK: not all had it in time"
        return f"Its producer, of group {mark.group}, {how}{took}."
    if mark.what == "ended":
        return f"Its producer, of group {mark.group}, ended the transaction: {mark.state}."
    if mark.what == "received":
        return f"A member of group {mark.group} began to handle it."
    how = "handled it" if mark.success else "failed to handle it"
    return f"A member of group {mark.group} {how}{took}."
