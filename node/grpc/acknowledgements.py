"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

A handle says all that is needed. What it says of its time alone refuses nothing: it may have been
renewed. The broker says whether it is good.

Source: RocketMQ 5.3.3, AckMessageActivity, ChangeInvisibleDurationActivity,
ForwardMessageToDLQActivity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from node.grpc.call import Call
from node.grpc.errors import CallError, error_of
from node.grpc.protocol import messages as pb
from node.grpc.put_requests import milliseconds
from node.grpc.receipts import Delivery, read_delivery
from node.grpc.receives import check_invisible
from node.grpc.renewals import Renewals
from node.grpc.routes import checked_group
from node.grpc.session import Session
from node.grpc.topic_types import checked_topic
from node.grpc.ways import Ways
from tandem.wire.pop_headers import AckMessageResponseHeader, ChangeInvisibleTimeResponseHeader
from tandem.wire.receipt_handle import NO_PHYSICAL_OFFSET
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import ConsumerSendMsgBackRequestHeader
from tandem.wire.response_code import ResponseCode

ENTRIES_MAX: Final = 4_096
NO_MORE_TRIES: Final = -1
"""As a delay level. Source: ForwardMessageToDLQActivity."""

_OVER: Final = "INVALID_RECEIPT_HANDLE: the time of this delivery is over"


class Acknowledgements:
    """Answers these calls."""

    def __init__(self, ways: Ways, renewals: Renewals, wall_clock_ms: Callable[[], int]) -> None:
        self._ways = ways
        self._renewals = renewals
        self._wall_clock_ms = wall_clock_ms

    def ack(
        self, session: Session, call: Call, request: pb.AckMessageRequest
    ) -> Iterator[None] | None:
        """AckMessage. An answer comes when nothing undoes it any more."""
        group, topic = checked_group(request.group), checked_topic(request.topic)
        if not request.entries:
            raise CallError(pb.INTERNAL_SERVER_ERROR, "ack message result is empty")
        if len(request.entries) > ENTRIES_MAX:
            raise CallError(pb.BAD_REQUEST, f"more than {ENTRIES_MAX} messages in one call")
        rest = self._ack_all(session, call, request, group, topic)
        next(rest)
        return rest if len(request.entries) > 1 else None

    def _ack_all(
        self, session: Session, call: Call, request: pb.AckMessageRequest, group: str, topic: str
    ) -> Iterator[None]:
        results = _Results(call, request)
        for index, entry in enumerate(request.entries):
            try:
                delivery = self._delivery(group, topic, entry.receipt_handle)
            except CallError as error:
                results.take(index, error)
            else:
                self._ack(session, call, delivery, results, index)
            yield

    def _ack(
        self, session: Session, call: Call, delivery: Delivery, results: _Results, index: int
    ) -> None:
        def done(answer: RemotingCommand) -> None:
            self._renewals.done(delivery.group, delivery.text)
            results.take(index, self._ack_error(delivery, answer))

        way = self._ways.to(delivery.handle.broker_name, call.deadline)
        session.ask(call, way, RequestCode.ACK_MESSAGE, delivery.ack_header(), done)

    def _ack_error(self, delivery: Delivery, answer: RemotingCommand) -> CallError | None:
        """A message that was acknowledged before, by an answer that was lost, is acknowledged."""
        if answer.code == ResponseCode.NO_MESSAGE:
            return CallError(pb.INVALID_RECEIPT_HANDLE, answer.remark or _OVER)
        if (error := error_of(answer)) is not None:
            return error
        is_stale = answer.decode_header(AckMessageResponseHeader).is_stale
        if is_stale and delivery.is_over(self._wall_clock_ms()):
            return CallError(pb.INVALID_RECEIPT_HANDLE, _OVER)
        return None

    def change(
        self, session: Session, call: Call, request: pb.ChangeInvisibleDurationRequest
    ) -> None:
        """ChangeInvisibleDuration: the message comes again at another time, by another handle."""
        group, topic = checked_group(request.group), checked_topic(request.topic)
        ms = milliseconds(request.invisible_duration)
        check_invisible(ms)
        delivery = self._delivery(group, topic, request.receipt_handle)

        def done(answer: RemotingCommand) -> None:
            if answer.code == ResponseCode.NO_MESSAGE:
                raise CallError(pb.INVALID_RECEIPT_HANDLE, answer.remark or _OVER)
            if (error := error_of(answer)) is not None:
                raise error
            self._renewals.done(delivery.group, delivery.text)
            header = answer.decode_header(ChangeInvisibleTimeResponseHeader)
            changed = pb.ChangeInvisibleDurationResponse()
            changed.receipt_handle = delivery.changed(header).text
            _answer(call, changed)

        way = self._ways.to(delivery.handle.broker_name, call.deadline)
        header = delivery.change_header(ms)
        session.ask(call, way, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, done)

    def forward(
        self, session: Session, call: Call, request: pb.ForwardMessageToDeadLetterQueueRequest
    ) -> None:
        """ForwardMessageToDeadLetterQueue: stored there first, and acknowledged after that.

        It is with the dead letters then, also if its time was over: a client that hears something
        else has it stored once more, again and again.
        """
        group, topic = checked_group(request.group), checked_topic(request.topic)
        delivery = self._delivery(group, topic, request.receipt_handle)
        handle = delivery.handle
        if handle.physical_offset == NO_PHYSICAL_OFFSET:
            raise CallError(
                pb.INVALID_RECEIPT_HANDLE, "the handle does not say where the message is"
            )
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.physical_offset,
            group=group,
            delay_level=NO_MORE_TRIES,
            origin_msg_id=request.message_id,
            origin_topic=topic,
            max_reconsume_times=0,
            only_topic=topic,
        )

        def stored(answer: RemotingCommand) -> None:
            if (error := error_of(answer)) is not None:
                raise error
            way = self._ways.to(handle.broker_name, call.deadline)
            session.ask(call, way, RequestCode.ACK_MESSAGE, delivery.ack_header(), acknowledged)

        def acknowledged(answer: RemotingCommand) -> None:
            self._renewals.done(delivery.group, delivery.text)
            is_over = answer.code == ResponseCode.NO_MESSAGE
            if not is_over and (error := error_of(answer)) is not None:
                raise error
            _answer(call, pb.ForwardMessageToDeadLetterQueueResponse())

        way = self._ways.to(handle.broker_name, call.deadline)
        session.ask(call, way, RequestCode.CONSUMER_SEND_MSG_BACK, header, stored)

    def _delivery(self, group: str, topic: str, text: str) -> Delivery:
        delivery = read_delivery(group, topic, text)
        if not self._ways.knows(delivery.handle.broker_name):
            raise CallError(pb.INVALID_RECEIPT_HANDLE, "the handle is of no broker of this cluster")
        return delivery


class _Results:
    """The results of the entries of one call, which come one by one."""

    def __init__(self, call: Call, request: pb.AckMessageRequest) -> None:
        self._call = call
        self._answer = pb.AckMessageResponse()
        for entry in request.entries:
            self._answer.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle
            )
        self._left = len(request.entries)

    def take(self, index: int, error: CallError | None) -> None:
        """Take one in, and answer the call with the last of them."""
        status = self._answer.entries[index].status
        status.code, status.message = (pb.OK, "OK") if error is None else (error.code, str(error))
        self._left -= 1
        if self._left:
            return
        answer = self._answer
        codes = {entry.status.code for entry in answer.entries}
        answer.status.code = codes.pop() if len(codes) == 1 else pb.MULTIPLE_RESULTS
        self._call.code = answer.status.code
        answer.status.message = pb.Code.Name(answer.status.code)
        self._call.answer(answer.SerializeToString())


def _answer(call: Call, response: Any) -> None:  # noqa: ANN401 - two kinds
    response.status.code, response.status.message = pb.OK, "OK"
    call.answer(response.SerializeToString())
