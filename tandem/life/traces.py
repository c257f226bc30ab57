"""What clients wrote about a message into the topic of traces, as marks in its life."""

from collections.abc import Iterable, Iterator

from tandem.life.evidence import UNKNOWN, TraceMark
from tandem.wire.message import MessageExt
from tandem.wire.trace_records import (
    EndTransaction,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_traces,
)
from tandem.wire.untrusted import UnreadableError


def marks_of(messages: Iterable[MessageExt], key: str) -> list[TraceMark]:
    """Return what traces say about the message with a unique key, in the order of time.

    Anybody may write into that topic: what is no trace is left out.
    """
    marks: set[TraceMark] = set()
    for message in messages:
        source = f"topic {message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
        try:
            records = decode_traces(message.body)
        except UnreadableError:
            continue
        for record in records:
            if record.msg_id == key:
                marks.update(_mark(record, source))
    return sorted(marks, key=lambda mark: (mark.at_ms, mark.what))


def _mark(record: TraceRecord, source: str) -> Iterator[TraceMark]:
    match record:
        case Pub():
            yield TraceMark(
                what="sent",
                at_ms=record.time_ms,
                group=record.group,
                source=source,
                success=record.is_success,
                cost_ms=record.cost_ms,
                is_stored=bool(record.offset_msg_id),
            )
        case SubBefore():
            yield TraceMark(
                what="received", at_ms=record.time_ms, group=record.group, source=source
            )
        case SubAfter():
            yield TraceMark(
                what="handled",
                at_ms=record.time_ms or 0,
                group=record.group,
                source=source,
                success=record.is_success,
                cost_ms=record.cost_ms,
            )
        case EndTransaction():
            yield TraceMark(
                what="ended",
                at_ms=record.time_ms,
                group=record.group,
                source=source,
                cost_ms=UNKNOWN,
                state=record.state,
            )
