"""SendMessage, EndTransaction and RecallMessage.

They become the requests that producers of remoting send, to the same handlers, of this node or of
the master's. An answer comes when the log has what it says, as there.

Source: RocketMQ 5.3.3, SendMessageActivity, EndTransactionActivity, RecallMessageActivity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from node.grpc.call import Call
from node.grpc.errors import CallError, error_of
from node.grpc.protocol import messages as pb
from node.grpc.put_requests import MESSAGES_MAX, check_message, message_type, put_request
from node.grpc.queue_choice import choose_queue
from node.grpc.session import Session
from node.grpc.topic_types import DELAY, TopicTypes, checked_topic
from node.grpc.transaction_ids import TransactionId, read_transaction_id
from node.grpc.ways import Ways
from tandem.wire.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from tandem.wire.recall_handle import decode_recall_handle
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.reply_headers import (
    RecallableResponseHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import EndTransactionRequestHeader, SendMessageResponseHeader
from tandem.wire.route import TopicRouteData
from tandem.wire.untrusted import UnreadableError

_OFFSET_CHARACTERS = 16
"""Of a physical offset, at the end of an offset id."""

_RESOLUTIONS = {pb.COMMIT: TRANSACTION_COMMIT_TYPE, pb.ROLLBACK: TRANSACTION_ROLLBACK_TYPE}


class _Entries:
    """The answers to the messages of one call, which come one by one."""

    def __init__(self, call: Call, count: int) -> None:
        self._call = call
        self._answer = pb.SendMessageResponse()
        for _ in range(count):
            self._answer.entries.add()
        self._left = count

    def take(self, index: int, entry: pb.SendResultEntry) -> None:
        """Take one in, and answer the call with the last of them."""
        self._answer.entries[index].CopyFrom(entry)
        self._left -= 1
        if self._left:
            return
        answer = self._answer
        codes = {each.status.code for each in answer.entries}
        answer.status.code = codes.pop() if len(codes) == 1 else pb.MULTIPLE_RESULTS
        self._call.code = answer.status.code
        answer.status.message = answer.entries[0].status.message
        self._call.answer(answer.SerializeToString())


class Sends:
    """Answers these calls."""

    def __init__(
        self,
        ways: Ways,
        types: TopicTypes,
        route_of: Callable[[str], TopicRouteData | None],
        random: Random,
        wall_clock_ms: Callable[[], int],
        body_bytes_max: int,
    ) -> None:
        """`route_of` asks the name server beside us."""
        self._ways = ways
        self._types = types
        self._route_of = route_of
        self._random = random
        self._wall_clock_ms = wall_clock_ms
        self._body_bytes_max = body_bytes_max

    def send(
        self, session: Session, call: Call, request: pb.SendMessageRequest
    ) -> Iterator[None] | None:
        """SendMessage. All messages of a call are checked before the first of them is sent."""
        messages = request.messages
        if not messages:
            raise CallError(pb.MESSAGE_CORRUPTED, "no message to send")
        if len(messages) > MESSAGES_MAX:
            raise CallError(
                pb.MESSAGE_CORRUPTED,
                f"{len(messages)} messages in one call; the most allowed are {MESSAGES_MAX}",
            )
        topic = checked_topic(messages[0].topic)
        now_ms = self._wall_clock_ms()
        for message in messages:
            if message.topic.name != topic:
                raise CallError(pb.MESSAGE_CORRUPTED, "topic in messages is not same")
            check_message(message, now_ms, self._body_bytes_max)
            self._types.check(topic, message_type(message))
        route = self._route_of(topic)
        if route is None:
            raise CallError(pb.TOPIC_NOT_FOUND, f"no route of topic {topic} is known here yet")
        entries = _Entries(call, len(messages))
        self._put(session, call, entries, 0, messages[0], route)
        if len(messages) == 1:
            return None
        return self._put_others(session, call, entries, messages, route)

    def _put_others(
        self,
        session: Session,
        call: Call,
        entries: _Entries,
        messages: Sequence[pb.Message],
        route: TopicRouteData,
    ) -> Iterator[None]:
        for index in range(1, len(messages)):
            self._put(session, call, entries, index, messages[index], route)
            yield

    def _put(
        self,
        session: Session,
        call: Call,
        entries: _Entries,
        index: int,
        message: pb.Message,
        route: TopicRouteData,
    ) -> None:
        system = message.system_properties
        broker_name, queue_id = choose_queue(route, system.message_group or None, self._random)
        header = put_request(message, message.topic.name, queue_id)

        def done(answer: RemotingCommand) -> None:
            entries.take(index, _entry(answer, message, broker_name))

        way = self._ways.to(broker_name, call.deadline)
        session.ask(call, way, RequestCode.SEND_MESSAGE_V2, header, done, body=message.body)

    def end_transaction(
        self, session: Session, call: Call, request: pb.EndTransactionRequest
    ) -> None:
        """EndTransaction. Where the half is, is in the id of the transaction."""
        topic = checked_topic(request.topic)
        if not request.transaction_id.strip():
            raise CallError(pb.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        try:
            half = read_transaction_id(request.transaction_id)
        except UnreadableError as error:
            raise CallError(pb.INTERNAL_SERVER_ERROR, str(error)) from error
        self._check_broker(half.broker_name)
        header = EndTransactionRequestHeader(
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            commit_or_rollback=_RESOLUTIONS.get(request.resolution, 0),
            from_transaction_check=request.source == pb.SOURCE_SERVER_CHECK,
            only_topic=topic,
            msg_id=half.message_id,
            transaction_id=half.message_id,
            topic=topic,
        )

        def done(answer: RemotingCommand) -> None:
            _answer(call, pb.EndTransactionResponse(), answer)

        way = self._ways.to(half.broker_name, call.deadline)
        session.ask(call, way, RequestCode.END_TRANSACTION, header, done)

    def recall(self, session: Session, call: Call, request: pb.RecallMessageRequest) -> None:
        """RecallMessage."""
        topic = checked_topic(request.topic)
        self._types.check(topic, DELAY)
        try:
            handle = decode_recall_handle(request.recall_handle)
        except UnreadableError as error:
            raise CallError(pb.INTERNAL_SERVER_ERROR, "recall handle is invalid") from error
        self._check_broker(handle.broker_name)
        header = RecallMessageRequestHeader(
            producer_group="", topic=topic, recall_handle=request.recall_handle
        )

        def done(answer: RemotingCommand) -> None:
            recalled = pb.RecallMessageResponse()
            if not answer.code:
                recalled.message_id = answer.decode_header(RecallMessageResponseHeader).msg_id
            _answer(call, recalled, answer)

        way = self._ways.to(handle.broker_name, call.deadline)
        session.ask(call, way, RequestCode.RECALL_MESSAGE, header, done)

    def _check_broker(self, broker_name: str) -> None:
        """Ask whether there is a broker of a name that a client gives.

        Raises:
            CallError: there is none.
        """
        if not self._ways.knows(broker_name):
            raise CallError(
                pb.INTERNAL_SERVER_ERROR, f"there is no broker {broker_name[:64]!r} in this cluster"
            )


def _entry(answer: RemotingCommand, message: pb.Message, broker_name: str) -> pb.SendResultEntry:
    """Return what became of one message.

    Raises:
        CallError: it was refused; nothing was stored.
    """
    entry = pb.SendResultEntry()
    error = error_of(answer)
    if error is not None:
        entry.status.code, entry.status.message = error.code, str(error)
        return entry
    entry.status.code, entry.status.message = pb.OK, "OK"
    message_id = message.system_properties.message_id
    entry.message_id = entry.transaction_id = message_id
    header = answer.decode_header(SendMessageResponseHeader)
    if message.system_properties.message_type == pb.TRANSACTION:
        physical_offset = int(header.msg_id[-_OFFSET_CHARACTERS:], 16)
        where = TransactionId(broker_name, header.queue_offset, physical_offset, message_id)
        entry.transaction_id = str(where)
    else:
        entry.offset = header.queue_offset
        if message.system_properties.HasField("delivery_timestamp"):
            timed = answer.decode_header(RecallableResponseHeader)
            entry.recall_handle = timed.recall_handle or ""
    return entry


def _answer(call: Call, response: Any, answer: RemotingCommand) -> None:  # noqa: ANN401 - two kinds
    if (error := error_of(answer)) is not None:
        raise error
    response.status.code, response.status.message = pb.OK, "OK"
    call.answer(response.SerializeToString())
