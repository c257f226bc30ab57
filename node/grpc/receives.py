"""ReceiveMessage: messages by POP.

Everything that a receive needs is in its request and in the tables of the group: a client whose
settings nobody here has seen gets its messages like any other.

Source: RocketMQ 5.3.3, ReceiveMessageActivity, ReceiveMessageResponseStreamWriter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from node.grpc.call import Call
from node.grpc.errors import CallError, error_of
from node.grpc.protocol import messages as pb
from node.grpc.put_requests import milliseconds
from node.grpc.receipts import Delivery, Popped
from node.grpc.received_messages import grpc_message, set_time
from node.grpc.renewals import GIVEN_BACK_MS, RENEWED_MS, Renewals, owner_of
from node.grpc.routes import checked_group
from node.grpc.session import Session
from node.grpc.topic_types import checked_topic
from node.grpc.ways import Ways
from node.remoting.caller import ANYBODY, Caller
from tandem.wire.errors import MalformedMessageError, WireError
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.pop_headers import (
    ANY_QUEUE,
    INIT_MODE_MAX,
    POP_MAX_MSG_NUMS,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tandem.wire.pop_offsets import PoppedOffset, decode_order_counts
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig

INVISIBLE_MS_MIN: Final = 10_000
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
POLL_SECONDS_MIN: Final = 5.0
POLL_SECONDS_MAX: Final = 20.0
ANSWER_SECONDS: Final = 0.5
ANSWER_PART: Final = 0.15
"""Before its deadline a client has to have the answer: that part of its time, and at least this."""
LATE_SECONDS: Final = 5.0
"""For the answer of a master after its poll, where a call has no deadline."""

_log = logging.getLogger(__name__)

_NOTHING: Final = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL}
)


class Receives:
    """Answers these calls."""

    def __init__(
        self,
        ways: Ways,
        group_of: Callable[[str], SubscriptionGroupConfig | None],
        renewals: Renewals,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._ways = ways
        self._group_of = group_of
        self._renewals = renewals
        self._wall_clock_ms = wall_clock_ms

    def receive(self, session: Session, call: Call, request: pb.ReceiveMessageRequest) -> None:
        """ReceiveMessage: a status, messages, and the time, in a stream."""
        queue = request.message_queue
        group, topic = checked_group(request.group), checked_topic(queue.topic)
        broker_name = queue.broker.name
        if not self._ways.knows(broker_name):
            raise CallError(pb.TOPIC_NOT_FOUND, f"there is no broker {broker_name[:64]!r}")
        config = self._group_of(group)
        seconds = _poll_seconds(request, call, session.now)
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=min(max(request.batch_size, 1), POP_MAX_MSG_NUMS),
            invisible_time=_invisible_ms(request),
            poll_time=int(1000 * seconds),
            init_mode=INIT_MODE_MAX,
            exp_type="SQL92" if request.filter_expression.type == pb.SQL else "TAG",
            exp=request.filter_expression.expression or "*",
            order=config is not None and config.consume_message_orderly,
            attempt_id=request.attempt_id or None,
        )
        receive = _Receive(self, session, call, request, group, topic, broker_name)
        # A master that is late with its answer has what is left of the call, and not only its poll.
        way = self._ways.to(broker_name, call.deadline or session.now + seconds + LATE_SECONDS)
        receive.caller = session.ask(
            call, way, RequestCode.POP_MESSAGE, header, receive.done, lost=receive.lost, alone=True
        )

    def closing(self) -> bytes:
        """Return the last message of every receive."""
        last = pb.ReceiveMessageResponse()
        set_time(last.delivery_timestamp, self._wall_clock_ms())
        return last.SerializeToString()

    def keep(self, session: Session, call: Call, caller: Caller, delivery: Delivery) -> None:
        """Renew a message for its client."""
        self._renewals.keep(
            owner_of(caller, call),
            delivery,
            lambda ms: self._change(session, call, delivery, ms),
            session.now,
        )

    def drop(self, session: Session, call: Call, delivery: Delivery) -> None:
        """A message is not for this client: it is done for its group."""
        way = self._ways.to(delivery.handle.broker_name)
        session.ask(call, way, RequestCode.ACK_MESSAGE, delivery.ack_header(), _nothing)

    def give_back(self, session: Session, call: Call, delivery: Delivery) -> None:
        """A message did not reach its client."""
        self._renewals.done(delivery.group, delivery.text)
        self._change(session, call, delivery, GIVEN_BACK_MS)

    def _change(self, session: Session, call: Call, delivery: Delivery, ms: int) -> None:
        def done(answer: RemotingCommand) -> None:
            if answer.code in (ResponseCode.NO_MESSAGE, ResponseCode.NO_PERMISSION):
                self._renewals.done(delivery.group, delivery.text)

        header = delivery.change_header(ms, keeps_handle=True)
        way = self._ways.to(delivery.handle.broker_name)
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        session.ask(call, way, code, header, done, lost=done)


class _Receive:
    """One of them, until it is answered."""

    def __init__(
        self,
        receives: Receives,
        session: Session,
        call: Call,
        request: pb.ReceiveMessageRequest,
        group: str,
        topic: str,
        broker_name: str,
    ) -> None:
        self._receives = receives
        self._session = session
        self._call = call
        self._request = request
        self._group = group
        self._topic = topic
        self._broker_name = broker_name
        self.caller = ANYBODY

    def done(self, answer: RemotingCommand) -> None:
        """Send what a broker has found."""
        if answer.code in _NOTHING:
            raise CallError(pb.MESSAGE_NOT_FOUND, "no new message")
        if (error := error_of(answer)) is not None:
            raise error
        call, first = self._call, pb.ReceiveMessageResponse()
        first.status.code, first.status.message = pb.OK, "OK"
        call.send(first.SerializeToString())
        wanted, counts = self._wanted_tags(), self._counts(answer)
        sent: list[Delivery] = []
        for message, delivery in self._deliveries(answer):
            if wanted is not None and message.tags not in wanted:
                self._receives.drop(self._session, call, delivery)
                continue
            try:
                shown = grpc_message(message, self._topic)
            except MalformedMessageError as error:
                _log.warning("%s; it is not sent, and comes again when it is healed", error)
                continue
            except WireError:
                continue  # its body cannot be shown: it comes again, and is given up in the end
            shown.system_properties.receipt_handle = delivery.text
            handle = delivery.handle
            count = counts.get(PoppedOffset(handle.mark, handle.queue_id, handle.queue_offset))
            if count:
                shown.system_properties.delivery_attempt = count
            call.send(pb.ReceiveMessageResponse(message=shown).SerializeToString())
            sent.append(delivery)
            if self._request.auto_renew:
                self._receives.keep(self._session, call, self.caller, delivery)
        call.send(self._receives.closing())
        call.end()
        self._session.if_dropped(call, lambda count: self._give_back_last(sent, count - 1))

    def _give_back_last(self, sent: list[Delivery], count: int) -> None:
        """They did not go out: the client's windows had no room for them."""
        for delivery in sent[max(0, len(sent) - count) :]:
            self._receives.give_back(self._session, self._call, delivery)

    def lost(self, answer: RemotingCommand) -> None:
        """The client is gone: what was found is given back."""
        if not answer.code:
            for _, delivery in self._deliveries(answer):
                self._receives.give_back(self._session, self._call, delivery)

    def _deliveries(self, answer: RemotingCommand) -> list[tuple[MessageExt, Delivery]]:
        header = answer.decode_header(PopMessageResponseHeader)
        popped = Popped(self._group, self._topic, self._broker_name, header)
        return [(each, popped.delivery(each)) for each in decode_messages(answer.body)]

    def _counts(self, answer: RemotingCommand) -> dict[PoppedOffset, int]:
        text = answer.decode_header(PopMessageResponseHeader).order_count_info
        return decode_order_counts(text) if text else {}

    def _wanted_tags(self) -> frozenset[str] | None:
        """Brokers compare hashes of tags."""
        wanted = self._request.filter_expression
        if wanted.type == pb.SQL or wanted.expression.strip() in ("", "*"):
            return None
        return frozenset(tag.strip() for tag in wanted.expression.split("||"))


def _nothing(_answer: RemotingCommand) -> None:
    pass


def _invisible_ms(request: pb.ReceiveMessageRequest) -> int:
    if request.auto_renew:
        return RENEWED_MS
    ms = milliseconds(request.invisible_duration)
    if ms < INVISIBLE_MS_MIN:
        raise CallError(
            pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {INVISIBLE_MS_MIN}"
        )
    check_invisible(ms)
    return ms


def check_invisible(ms: int) -> None:
    """Raise if a message cannot be with one consumer for this long."""
    if not 0 <= ms <= INVISIBLE_MS_MAX:
        raise CallError(
            pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {INVISIBLE_MS_MAX}"
        )


def _poll_seconds(request: pb.ReceiveMessageRequest, call: Call, now: float) -> float:
    """Return how long a receive may wait, so that its client hears of it in time.

    Raises:
        CallError: that is no time at all (ILLEGAL_POLLING_TIME).
    """
    seconds = milliseconds(request.long_polling_timeout) / 1000
    left = POLL_SECONDS_MAX if call.deadline is None else call.deadline - now
    if not request.HasField("long_polling_timeout"):
        seconds = left
    seconds = min(max(seconds, POLL_SECONDS_MIN), POLL_SECONDS_MAX)
    latest = left - max(ANSWER_SECONDS, ANSWER_PART * left)
    if seconds > latest:
        if left < POLL_SECONDS_MIN:
            raise CallError(
                pb.ILLEGAL_POLLING_TIME,
                f"The deadline time remaining is not enough for polling: {left:.1f} s are left,"
                f" {POLL_SECONDS_MIN:g} s are the least",
            )
        return latest
    return seconds
