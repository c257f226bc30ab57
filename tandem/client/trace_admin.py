"""What clients have said of one message: records of RocketMQ's message trace, put together.

    Pub                          sent
    SubBefore  -- request id --  SubAfter     consumed, or given back; without it: handed out
    EndTransaction               committed, rolled back

It is what clients say, and only those that write traces say anything. What the brokers know is
another question: `MessageAdministration.trace`.

Source: RocketMQ 5.3.3, QueryMsgTraceByIdSubCommand, TraceView.
"""

from collections.abc import Iterable
from typing import Final

from tandem.client.admin_results import ClientTrace, ClientTraceEvent
from tandem.client.flow import Flow
from tandem.client.message_admin import MessageAdministration
from tandem.wire.system_topics import TRACE_TOPIC
from tandem.wire.trace_records import (
    ContextCode,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_traces,
)
from tandem.wire.untrusted import UnreadableError

TRACES_MAX: Final = 256
"""Messages of traces that are looked at; each group that reads a message writes one or two."""

_ENDS: Final = {
    "COMMIT_MESSAGE": ClientTraceEvent.COMMITTED,
    "ROLLBACK_MESSAGE": ClientTraceEvent.ROLLED_BACK,
}


class TraceAdministration:
    """Looks for traces for one administrator. Flows only."""

    def __init__(self, messages: MessageAdministration) -> None:
        self._messages = messages

    def client_traces(
        self, message_id: str, trace_topic: str = TRACE_TOPIC
    ) -> Flow[list[ClientTrace]]:
        """Return what clients have said of a message, by its unique key; oldest first.

        Empty if none of them writes traces, or if they write them to another topic.
        """
        found = yield from self._messages.by_key(trace_topic, message_id, count_max=TRACES_MAX)
        records: list[TraceRecord] = []
        for each in found:
            try:
                records += decode_traces(each.body)
            except UnreadableError:
                continue  # anybody may write to that topic
        return client_traces(message_id, records)


def client_traces(message_id: str, records: Iterable[TraceRecord]) -> list[ClientTrace]:
    """Return what records say of one message, oldest first."""
    own = [record for record in records if record.msg_id == message_id]
    endings = {record.request_id: record for record in own if isinstance(record, SubAfter)}
    traces: list[ClientTrace] = []
    for record in own:
        match record:
            case Pub():
                traces.append(_sent(record))
            case SubBefore():
                traces.append(_consumed(record, endings.pop(record.request_id, None)))
            case EndTransaction():
                traces.append(_ended(record))
    # Their beginnings are gone, or not there yet.
    traces += [_end_alone(record) for record in endings.values()]
    return sorted(traces, key=lambda trace: trace.time_ms)


def _sent(record: Pub) -> ClientTrace:
    event = ClientTraceEvent.SENT
    if not record.is_success:
        has_place = bool(record.offset_msg_id)
        event = ClientTraceEvent.STORED if has_place else ClientTraceEvent.SEND_FAILED
    return ClientTrace(
        event=event,
        time_ms=record.time_ms,
        group=record.group,
        cost_ms=record.cost_ms,
        store_host=record.store_host,
        detail=_name(MessageType, record.msg_type),
    )


def _consumed(before: SubBefore, after: SubAfter | None) -> ClientTrace:
    if after is None:
        event, cost_ms, detail = ClientTraceEvent.HANDED_OUT, None, ""
    else:
        event, cost_ms = _end_of(after), after.cost_ms
        detail = _name(ContextCode, after.context_code)
    return ClientTrace(
        event=event,
        time_ms=before.time_ms,
        group=before.group,
        cost_ms=cost_ms,
        retry_times=before.retry_times,
        detail=detail,
    )


def _end_alone(after: SubAfter) -> ClientTrace:
    return ClientTrace(
        event=_end_of(after),
        time_ms=max((after.time_ms or 0) - after.cost_ms, 0),
        group=after.group,
        cost_ms=after.cost_ms,
        detail=_name(ContextCode, after.context_code),
    )


def _end_of(after: SubAfter) -> ClientTraceEvent:
    return ClientTraceEvent.CONSUMED if after.is_success else ClientTraceEvent.GIVEN_BACK


def _ended(record: EndTransaction) -> ClientTrace:
    return ClientTrace(
        event=_ENDS.get(record.state, ClientTraceEvent.LEFT_UNKNOWN),
        time_ms=record.time_ms,
        group=record.group,
        store_host=record.store_host,
        detail="asked by a broker" if record.from_check else "",
    )


def _name(names: type[MessageType] | type[ContextCode], number: int) -> str:
    """Return the name of a number in words; those of other versions stay numbers."""
    try:
        return names(number).name.lower().replace("_", " ")
    except ValueError:
        return str(number)
