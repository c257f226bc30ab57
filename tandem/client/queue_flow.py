"""The rules of asking about a queue: which broker, which next, and when to wait for a master.

Most questions go to the master of the queue's broker name; if that cannot be reached they go to its
other nodes, in the order of their ids, and come back once the master's pause is over and it answers
again. What decides where a reader begins and ends only a master may answer: another node may lack
what was acknowledged last. Those questions wait for a master while there is none.

Source: RocketMQ 5.3.3, MQClientInstance.findBrokerAddressInSubscribe.
"""

import itertools
from contextlib import suppress
from typing import Final

from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    MessageDamagedError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.flow import Call, Flow, Pause
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.results import MessageQueue
from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.errors import MalformedFrameError
from tandem.wire.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from tandem.wire.remoting_command import HeaderT, RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID

RETRIED: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR.value,
        ResponseCode.SYSTEM_BUSY.value,
        ResponseCode.SERVICE_NOT_AVAILABLE.value,
        # Another node has a topic's messages a moment before it has the topic's settings.
        ResponseCode.TOPIC_NOT_EXIST.value,
    }
)
"""Refusals that pass: a reader that follows a topic waits and asks again."""

RETRIED_AT_MASTER: Final = RETRIED - {ResponseCode.TOPIC_NOT_EXIST.value}

SILENT_ATTEMPT_SECONDS: Final = 1.0
"""What a master gets that did not answer lately: enough to notice that it is back."""

QueueRequest = (
    QueueRequestHeader
    | SearchOffsetRequestHeader
    | QueryConsumerOffsetRequestHeader
    | UpdateConsumerOffsetRequestHeader
    | PullMessageRequestHeader
    | PopMessageRequestHeader
    | AckMessageRequestHeader
    | ChangeInvisibleTimeRequestHeader
    | None
)
"""What is asked about a queue."""


class QueueBrokers:
    """Asks the brokers of queues, for one consumer. Flows only; the shell does the rest."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    def ask(
        self,
        queue: MessageQueue,
        code: RequestCode,
        ext: QueueRequest,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Flow[tuple[RemotingCommand, str]]:
        """Ask the brokers of a queue in turn; return the first answer and whose it is.

        Raises:
            RouteNotFoundError: the route has no broker of that name.
            ConnectionLostError, RequestTimeoutError: what the last of them ended with.
        """
        route = yield from self._core.route(queue.topic, self.deadline())
        addresses = list(route.addresses(queue.broker_name).values())
        if not addresses:
            self._core.suspect_route(queue.topic)
            raise _no_broker(queue)
        last_error: ClientError | None = None
        for address in sorted(addresses, key=self.is_to_be_avoided):
            try:
                answer = yield from self.call(queue, address, code, ext, timeout_seconds)
            except (ConnectionLostError, RequestTimeoutError) as error:
                last_error = error
            else:
                return answer, address
        assert last_error is not None
        raise last_error

    def ask_master(
        self,
        queue: MessageQueue,
        code: RequestCode,
        ext: QueueRequest,
        timeout_seconds: float,
        body: bytes = b"",
    ) -> Flow[tuple[RemotingCommand, str]]:
        """Ask the master of a queue, and wait for one while there is none.

        Raises:
            ClientError: what the last try ended with when the time was over.
        """
        end = self._core.clock() + timeout_seconds
        for retries_count in itertools.count():
            error: ClientError
            try:
                answer, address = yield from self._ask_master_once(queue, code, ext, end, body)
                if answer.code not in RETRIED_AT_MASTER:
                    return answer, address
                error = BrokerError(answer.code, answer.remark or "", address)
            except (ConnectionLostError, RequestTimeoutError, RouteNotFoundError) as failure:
                error = failure
            self._core.suspect_route(queue.topic)
            pause = retry_pause_seconds(retries_count)
            if not may_pass(error) or self._core.clock() + pause >= end:
                raise error
            yield Pause(pause)
        raise AssertionError

    def _ask_master_once(
        self, queue: MessageQueue, code: RequestCode, ext: QueueRequest, end: float, body: bytes
    ) -> Flow[tuple[RemotingCommand, str]]:
        route = yield from self._core.route(queue.topic, min(end, self.deadline()))
        addresses = route.addresses(queue.broker_name)
        if not addresses:
            raise _no_broker(queue)
        address = addresses.get(MASTER_ID)
        if address is None:
            reason = (
                f"no master of broker {queue.broker_name!r} is registered, and only a master knows"
                " all that was acknowledged"
            )
            raise RouteNotFoundError(queue.topic, RouteCause.NO_MASTER, reason, may_pass=True)
        now = self._core.clock()
        is_silent = self._core.backoff.is_silent(address, now)
        seconds = SILENT_ATTEMPT_SECONDS if is_silent else REQUEST_TIMEOUT_SECONDS
        answer = yield from self.call(queue, address, code, ext, min(seconds, end - now), body)
        return answer, address

    def call(
        self,
        queue: MessageQueue,
        address: str,
        code: RequestCode,
        ext: QueueRequest,
        timeout_seconds: float,
        body: bytes = b"",
    ) -> Flow[RemotingCommand]:
        """Ask one broker; remember what came of it."""
        deadline = self._core.clock() + timeout_seconds
        try:
            answer: RemotingCommand = yield Call(address, code, ext, deadline, body)
        except (ConnectionLostError, RequestTimeoutError) as error:
            self._core.suspect_route(queue.topic)
            if isinstance(error, RequestTimeoutError):
                self._core.backoff.fell_silent(address, self._core.clock())
            raise
        self._core.backoff.spoke(address)
        return answer

    def is_to_be_avoided(self, address: str) -> bool:
        """True if another broker should be asked first."""
        return self._core.backoff.is_to_be_avoided(address, self._core.clock())

    def deadline(self) -> float:
        """Until when one request may take that begins now."""
        return self._core.clock() + REQUEST_TIMEOUT_SECONDS


def _no_broker(queue: MessageQueue) -> RouteNotFoundError:
    reason = f"no address of broker {queue.broker_name!r} is registered"
    return RouteNotFoundError(queue.topic, RouteCause.NO_BROKER, reason, may_pass=True)


def may_pass(error: ClientError) -> bool:
    """Whether the same request may succeed a moment later."""
    match error:
        case ConnectionLostError() | RequestTimeoutError():
            return True
        case RouteNotFoundError():
            return error.may_pass
        case BrokerError():
            return error.code in RETRIED
        case _:
            return False


def expect_success(answer: RemotingCommand, address: str) -> RemotingCommand:
    """Return the answer.

    Raises:
        BrokerError: it is a refusal.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise refusal_in(answer, address)
    return answer


def refusal_in(answer: RemotingCommand, address: str) -> BrokerError:
    """Return the error that an answer is: of a damaged message, one of its own."""
    remark = answer.remark or ""
    damaged = None
    with suppress(MalformedFrameError):
        damaged = answer.decode_header(DamagedMessageHeader)
    number = None if damaged is None else damaged.damaged_queue_offset
    if damaged is None or number is None:
        return BrokerError(answer.code, remark, address)
    at = damaged.damaged_physical_offset
    return MessageDamagedError(answer.code, remark, address, number, -1 if at is None else at)


def decode(answer: RemotingCommand, header_type: type[HeaderT], address: str) -> HeaderT:
    """Return the header of an answer.

    Raises:
        ConnectionLostError: it does not parse.
    """
    try:
        return answer.decode_header(header_type)
    except MalformedFrameError as error:
        reason = f"the answer does not parse: {error}"
        raise ConnectionLostError(address, ConnectionCause.MALFORMED, reason) from error
