"""The rules of sending: queue, header, tries, and what the outcome is.

One send has up to 1 + `retry_times_when_send_failed` tries, `send_msg_timeout_ms` for all of them
together. Another try follows a lost connection, and an answer that RocketMQ's producer retries;
with several broker names it goes to another one. With 0 retries a send is exactly one request.

What the user learns is exact. If any try may have been carried out and none was answered with a
result, the error says `outcome_unknown`, whatever the last try ended with.

Source: RocketMQ 5.3.3, DefaultMQProducerImpl.sendDefaultImpl, MQClientAPIImpl.processSendResponse,
DefaultMQProducer.retryResponseCodes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendTimeoutError,
)
from tandem.client.flow import Call, CallMany, Flow
from tandem.client.identity import UniqueKeys
from tandem.client.results import MessageQueue, SendResult, SendStatus
from tandem.client.routes import AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUE_NUMS, PublishQueue
from tandem.wire.errors import MalformedFrameError
from tandem.wire.message import Message, encode_batch_body
from tandem.wire.message_properties import (
    PROPERTIES_BYTES_MAX,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode

STORED: Final = {
    ResponseCode.SUCCESS.value: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT.value: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT.value: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE.value: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""Answers that say: the message is in the log."""

RETRIED: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST.value,
        ResponseCode.SERVICE_NOT_AVAILABLE.value,
        ResponseCode.SYSTEM_ERROR.value,
        ResponseCode.SYSTEM_BUSY.value,
        ResponseCode.NO_PERMISSION.value,
    }
)
"""Refusals after which another broker, or the same one a moment later, may take the message."""

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""RocketMQ's maxMessageSize, of producer and broker."""

MANY_MESSAGES_MAX: Final = 1024
MANY_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of a `send_many` is in flight at once: bounds memory here and at the broker."""

USER_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 256
"""The record has 32,767 bytes for all. 256 are left for what is added (RocketMQ: 128 or less)."""

_WAIT: Final = f"{PROPERTY_WAIT_STORE_MSG_OK}\x01true\x02"
_DO_NOT_WAIT: Final = f"{PROPERTY_WAIT_STORE_MSG_OK}\x01false\x02"
_SEND: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value


class SendSettings(msgspec.Struct, frozen=True):
    """How a producer sends. Defaults are RocketMQ's."""

    group: str
    wait_store_msg_ok: bool = True
    retry_times_when_send_failed: int = 2
    send_msg_timeout_ms: int = 3000
    max_message_size_bytes: int = MESSAGE_BYTES_MAX


class Sending:
    """One message or batch on its way, over all its tries."""

    __slots__ = (
        "avoid_broker",
        "body",
        "code",
        "deadline",
        "flag",
        "msg_id",
        "properties",
        "queue_id",
        "target",
        "topic",
        "tries_left",
        "unknown",
    )

    def __init__(
        self,
        code: int,
        topic: str,
        msg_id: str,
        properties: str,
        body: bytes,
        flag: int,
        queue_id: int | None,
        deadline: float,
        tries: int,
    ) -> None:
        self.code = code
        self.topic = topic
        self.msg_id = msg_id
        self.properties = properties
        self.body = body
        self.flag = flag
        self.queue_id = queue_id
        self.deadline = deadline
        self.tries_left = tries
        self.avoid_broker: str | None = None
        self.target: PublishQueue | None = None
        self.unknown: ClientError | None = None
        """The first try that may have been carried out without an answer."""


class Sender:
    """Sends for one producer. Flows only; the shell does the rest."""

    def __init__(
        self, core: ClientCore, settings: SendSettings, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._core = core
        self._settings = settings
        self._wall_clock_ms = wall_clock_ms
        self._keys = UniqueKeys(core.identity)

    def send(
        self, message: Message, *, queue_id: int | None, wait_store_msg_ok: bool | None
    ) -> Flow[SendResult]:
        """Send one message; see `Producer.send`."""
        return self._finish(
            self._prepare(message, queue_id=queue_id, wait_store_msg_ok=wait_store_msg_ok)
        )

    def send_batch(
        self, messages: Sequence[Message], *, queue_id: int | None, wait_store_msg_ok: bool | None
    ) -> Flow[SendResult]:
        """Send messages of one topic as one request; see `Producer.send_batch`."""
        return self._finish(
            self._prepare_batch(messages, queue_id=queue_id, wait_store_msg_ok=wait_store_msg_ok)
        )

    def _finish(self, sending: Sending) -> Flow[SendResult]:
        while True:
            call = self._next_call(sending)
            if call is None:
                yield from self._fetch_route(sending)
                call = self._call_with_any_route(sending)
            try:
                answer: RemotingCommand | ClientError = yield call
            except ClientError as error:
                answer = error
            outcome = self._take(sending, answer)
            if isinstance(outcome, SendResult):
                return outcome
            if outcome is not None:
                raise outcome

    def send_many(
        self, messages: Iterable[Message], *, queue_id: int | None, wait_store_msg_ok: bool | None
    ) -> Flow[list[SendResult | ClientError]]:
        """Send many messages, many at once; see `Producer.send_many`."""
        outcomes: list[SendResult | ClientError] = []
        for part in _parts(messages):
            outcomes += yield from self._send_part(
                [
                    self._prepare(message, queue_id=queue_id, wait_store_msg_ok=wait_store_msg_ok)
                    for message in part
                ]
            )
        return outcomes

    def _send_part(self, sendings: list[Sending]) -> Flow[list[SendResult | ClientError]]:
        outcomes: dict[int, SendResult | ClientError] = {}
        waiting = list(enumerate(sendings))
        while waiting:
            calls = []
            under_way = []
            for index, sending in waiting:
                try:
                    call = self._next_call(sending)
                    if call is None:
                        yield from self._fetch_route(sending)
                        call = self._call_with_any_route(sending)
                except ClientError as error:
                    # No route any more; or worse, if an earlier try may have been carried out.
                    outcomes[index] = error
                    continue
                calls.append(call)
                under_way.append((index, sending))
            answers: list[RemotingCommand | ClientError] = yield CallMany(calls)
            waiting = []
            for (index, sending), answer in zip(under_way, answers, strict=True):
                outcome = self._take(sending, answer)
                if outcome is None:
                    waiting.append((index, sending))
                else:
                    outcomes[index] = outcome
        return [outcomes[index] for index in range(len(sendings))]

    def _prepare(
        self, message: Message, *, queue_id: int | None, wait_store_msg_ok: bool | None
    ) -> Sending:
        if wait_store_msg_ok is None:
            wait_store_msg_ok = message.wait_store_msg_ok
        user_properties = (
            message.property_map() if message.properties or message.keys or message.tags else {}
        )
        return self._sending(
            _SEND,
            message.topic,
            self._keys.next_key(self._wall_clock_ms()),
            user_properties,
            wait_store_msg_ok,
            message.body,
            message.flag,
            queue_id,
        )

    def _prepare_batch(
        self, messages: Sequence[Message], *, queue_id: int | None, wait_store_msg_ok: bool | None
    ) -> Sending:
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            raise ValueError(f"a batch has one topic, this one has {len(topics)}: {sorted(topics)}")
        if any(message.delay_time_level for message in messages):
            raise ValueError("the messages of a batch cannot be delayed; send them one by one")
        keyed = [self._with_unique_key(message) for message in messages]
        sending = self._sending(
            _SEND_BATCH,
            topics.pop(),
            self._keys.next_key(self._wall_clock_ms()),
            {},
            wait_store_msg_ok,
            encode_batch_body(keyed),
            0,
            queue_id,
        )
        sending.msg_id = ",".join(message.properties[PROPERTY_UNIQUE_KEY] for message in keyed)
        return sending

    def _with_unique_key(self, message: Message) -> Message:
        if PROPERTY_UNIQUE_KEY in message.properties:
            return message
        unique_key = self._keys.next_key(self._wall_clock_ms())
        return msgspec.structs.replace(
            message, properties={**message.properties, PROPERTY_UNIQUE_KEY: unique_key}
        )

    def _sending(
        self,
        code: int,
        topic: str,
        unique_key: str,
        user_properties: dict[str, str],
        wait_store_msg_ok: bool | None,  # noqa: FBT001  by position: this runs for every message
        body: bytes,
        flag: int,
        queue_id: int | None,
    ) -> Sending:
        if len(body) > self._settings.max_message_size_bytes:
            raise ValueError(
                f"message body of {len(body)} bytes; the limit is"
                f" {self._settings.max_message_size_bytes} bytes (max_message_size_bytes of the"
                " producer, and a setting of the broker)"
            )
        if wait_store_msg_ok is None:
            wait_store_msg_ok = self._settings.wait_store_msg_ok
        properties = _WAIT if wait_store_msg_ok else _DO_NOT_WAIT
        if user_properties:
            user_properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
            unique_key = user_properties.pop(PROPERTY_UNIQUE_KEY, unique_key)
            properties += _encode_user_properties(user_properties)
        settings = self._settings
        return Sending(
            code,
            topic,
            unique_key,
            f"{properties}{PROPERTY_UNIQUE_KEY}\x01{unique_key}\x02",
            body,
            flag,
            queue_id,
            self._core.clock() + settings.send_msg_timeout_ms / 1000,
            1 + settings.retry_times_when_send_failed,
        )

    def _next_call(self, sending: Sending) -> Call | None:
        """Return the next try, None if a route has to be fetched first."""
        route = self._core.trusted_route(sending.topic)
        if route is None:
            return None
        target = route.next_queue(sending.queue_id, sending.avoid_broker)
        return None if target is None else self._call(sending, target)

    def _fetch_route(self, sending: Sending) -> Flow[None]:
        try:
            yield from self._core.route(sending.topic, sending.deadline, for_sends=True)
        except RouteNotFoundError as error:
            raise _final(sending, error) from error

    def _call_with_any_route(self, sending: Sending) -> Call:
        route = self._core.routes[sending.topic]
        target = route.next_queue(sending.queue_id, sending.avoid_broker)
        if target is not None:
            return self._call(sending, target)
        if sending.queue_id is None or not route.publish_queues:
            reason = "no broker takes sends: no master is registered, or no queue is writable"
        else:
            queues = sorted({each.queue.queue_id for each in route.publish_queues})
            reason = f"there is no queue {sending.queue_id}; the writable ones are {queues}"
        raise _final(sending, RouteNotFoundError(sending.topic, reason))

    def _call(self, sending: Sending, target: PublishQueue) -> Call:
        sending.target = target
        queue = target.queue
        header = SendMessageRequestHeaderV2(
            self._settings.group,
            sending.topic,
            AUTO_CREATE_TOPIC,
            DEFAULT_TOPIC_QUEUE_NUMS,
            queue.queue_id,
            0,
            self._wall_clock_ms(),
            sending.flag,
            sending.properties,
            0,
            False,  # noqa: FBT003  unitMode; by position, since this runs for every message
            None,
            sending.code == _SEND_BATCH,
            queue.broker_name,
        )
        return Call(target.address, sending.code, header, sending.deadline, sending.body)

    def _take(
        self, sending: Sending, answer: RemotingCommand | ClientError
    ) -> SendResult | ClientError | None:
        """Return the outcome, None if there is another try."""
        assert sending.target is not None
        if isinstance(answer, RemotingCommand):
            status = STORED.get(answer.code)
            if status is not None:
                return _result(sending, sending.target, status, answer)
            error: ClientError = BrokerError(
                answer.code, answer.remark or "", sending.target.address
            )
            again = answer.code in RETRIED
        else:
            error = answer
            again = isinstance(error, ConnectionLostError | RequestTimeoutError)
        return self._take_failure(sending, error, again=again)

    def _take_failure(
        self, sending: Sending, error: ClientError, *, again: bool
    ) -> ClientError | None:
        assert sending.target is not None
        if error.outcome_unknown and sending.unknown is None:
            sending.unknown = error
        sending.avoid_broker = sending.target.queue.broker_name
        sending.tries_left -= 1
        if again:
            self._core.suspect_route(sending.topic)
            if sending.tries_left > 0 and self._core.clock() < sending.deadline:
                return None
        return _final(sending, error)


def _final(sending: Sending, last_error: ClientError) -> ClientError:
    """Return what the user gets: what is unknown stays unknown, whatever came after it."""
    error = last_error
    if sending.unknown is not None and not last_error.outcome_unknown:
        error = sending.unknown
        error.__cause__ = last_error
    if isinstance(error, RequestTimeoutError) and not isinstance(error, SendTimeoutError):
        timeout = SendTimeoutError(error.address, outcome_unknown=error.outcome_unknown)
        timeout.__cause__ = error.__cause__
        return timeout
    return error


def _result(
    sending: Sending, target: PublishQueue, status: SendStatus, answer: RemotingCommand
) -> SendResult | ClientError:
    try:
        header = answer.decode_header(SendMessageResponseHeader)
    except MalformedFrameError as error:
        # The code says stored, but not where: nobody can tell this message's offset.
        return ConnectionLostError(
            target.address, f"the answer does not parse: {error}", outcome_unknown=True
        )
    return SendResult(
        status,
        sending.msg_id,
        header.msg_id,
        MessageQueue(sending.topic, target.queue.broker_name, header.queue_id),
        header.queue_offset,
        answer.remark or "",
    )


def _encode_user_properties(properties: dict[str, str]) -> str:
    encoded = encode_properties(properties)
    if len(encoded) > USER_PROPERTIES_BYTES_MAX:
        raise ValueError(
            f"message properties take {len(encoded)} bytes; the limit is"
            f" {USER_PROPERTIES_BYTES_MAX} bytes, since the producer and the broker add theirs"
        )
    return encoded.decode()


def _parts(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Cut into runs that are bounded in number and bytes; at least one message each."""
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and (len(part) == MANY_MESSAGES_MAX or size + len(message.body) > MANY_BYTES_MAX):
            yield part
            part = []
            size = 0
        part.append(message)
        size += len(message.body)
    if part:
        yield part
