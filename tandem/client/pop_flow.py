"""The rules of receiving by POP: which broker is asked, how long, and what is said of messages.

One broker is asked as long as the caller wants to wait. If a topic is at several, each is asked
once without waiting, and then they take turns, a second each. What was received is acknowledged at
the master of its broker, and a new master is waited for: it knows the handles of the one before.

Source: RocketMQ 5.3.3, DefaultMQPushConsumerImpl.popMessage and ackAsync.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import ClientError, RouteCause, RouteNotFoundError
from tandem.client.flow import Call, CallMany, Flow, Pause
from tandem.client.identity import wall_clock_ms
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.pop_answer import Popped, pop_result
from tandem.client.popped_message import PoppedMessage
from tandem.client.pull_answer import expression_type
from tandem.client.queue_flow import QueueBrokers, decode, may_pass, refusal_in
from tandem.client.results import MessageQueue
from tandem.wire.batch_ack import BITS_BYTES_MAX, BatchAck, BatchAckMessageRequestBody, encode_bits
from tandem.wire.pop_headers import (
    ANY_QUEUE,
    INIT_MODE_MAX,
    INIT_MODE_MIN,
    AckMessageRequestHeader,
    AckMessageResponseHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
)
from tandem.wire.receipt_handle import ReceiptHandle, encode_receipt_handle
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import ConsumerData, SubscriptionData
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID, PERM_READ, encode_json_body

TURN_SECONDS: Final = 1.0
"""How long one of several brokers holds a request before the next one is asked."""

_BITS_MAX: Final = 8 * BITS_BYTES_MAX

CONSUME_POP: Final = "CONSUME_POP"
"""How heartbeats call it. Source: RocketMQ 5.3.3, ConsumeType."""


class Wish(msgspec.Struct, frozen=True):
    """What is to be received.

    Attributes:
        tags: `TagA || TagB`, or an `Sql92`.
        count_max: Messages.
        invisible_ms: How long no other consumer of the group gets them.
        wait_ms: How long a broker may hold the request.
    """

    topic: str
    tags: str
    count_max: int
    invisible_ms: int
    wait_ms: int


class _Asked(msgspec.Struct):
    """What a round of questions has brought."""

    messages: list[PoppedMessage] = []
    has_answer: bool = False
    was_to_wait: bool = False
    """Whether the last one that answered was to wait for a message, and had none."""
    error: ClientError | None = None


class Popper:
    """Asks for one consumer. Flows only; the shell does the rest."""

    def __init__(
        self,
        core: ClientCore,
        group: str,
        *,
        is_orderly: bool = False,
        starts_at_end: bool = False,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._core = core
        self._group = group
        self._is_orderly = is_orderly
        self._init_mode = INIT_MODE_MAX if starts_at_end else INIT_MODE_MIN
        self._wall_clock_ms = wall_clock_ms
        self._brokers = QueueBrokers(core)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._attempts = itertools.count(1)
        self._turn = core.identity.salt

    def receive(self, wish: Wish) -> Flow[list[PoppedMessage]]:
        """Return messages, as soon as there are any; none if there are none in time.

        Raises:
            ClientError: no broker of the topic answers, not even some seconds later.
        """
        self._say_in_heartbeats(wish)
        attempt = f"{self._core.identity.client_id}#{next(self._attempts)}"
        end = self._core.clock() + wish.wait_ms / 1000
        for round_count in itertools.count():
            began = self._core.clock()
            masters = yield from self._masters(wish.topic, end)
            asked = yield from self._ask_each(wish, masters, end, round_count, attempt)
            if asked.messages:
                return asked.messages
            now, error = self._core.clock(), asked.error
            if asked.has_answer and now >= end:
                return []
            if not masters:
                error = _no_master(wish.topic)
            if error is not None and now >= end + SWITCH_SECONDS:
                raise error
            pause = retry_pause_seconds(round_count)
            if not asked.has_answer:
                yield Pause(pause)
            elif asked.was_to_wait and now < began + pause and now < end:
                # A broker that has no room for one more that waits says so at once.
                yield Pause(min(began + pause, end) - now)
        raise AssertionError

    def _ask_each(
        self,
        wish: Wish,
        masters: list[tuple[str, str]],
        end: float,
        round_count: int,
        attempt: str,
    ) -> Flow[_Asked]:
        """Ask masters one after the other, until one has messages.

        Raises:
            ClientError: a refusal that does not pass.
        """
        asked = _Asked()
        for name, address in masters:
            wait = self._wait_seconds(end, len(masters), round_count)
            try:
                popped = yield from self._pop(wish, name, address, wait, attempt)
            except ClientError as failure:
                self._core.suspect_route(wish.topic)
                if not may_pass(failure):
                    raise
                asked.error = failure
                continue
            asked.has_answer = True
            # There may be more behind what nobody wants.
            asked.was_to_wait = wait > 0 and not popped.unwanted
            if popped.messages:
                asked.messages = popped.messages
                break
        return asked

    def _wait_seconds(self, end: float, masters_count: int, round_count: int) -> float:
        left = max(end - self._core.clock(), 0.0)
        if masters_count == 1:
            return left
        return 0.0 if round_count == 0 else min(left, TURN_SECONDS)

    def _masters(self, topic: str, end: float) -> Flow[list[tuple[str, str]]]:
        """Return broker names and masters, beginning with another one each time.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        deadline = max(end, self._brokers.deadline())
        try:
            route = yield from self._core.route(topic, deadline)
        except RouteNotFoundError as error:
            if error.may_pass:
                return []
            raise
        names = sorted(
            {each.broker_name for each in route.data.queue_datas if each.perm & PERM_READ}
        )
        found = [(name, route.addresses(name).get(MASTER_ID)) for name in names]
        masters = [(name, address) for name, address in found if address is not None]
        if not masters:
            self._core.suspect_route(topic)
            return []
        self._turn += 1
        first = self._turn % len(masters)
        return masters[first:] + masters[:first]

    def _pop(
        self, wish: Wish, name: str, address: str, wait_seconds: float, attempt: str
    ) -> Flow[Popped]:
        ext = PopMessageRequestHeader(
            consumer_group=self._group,
            topic=wish.topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=wish.count_max,
            invisible_time=wish.invisible_ms,
            poll_time=round(wait_seconds * 1000),
            init_mode=self._init_mode,
            born_time=self._wall_clock_ms(),
            exp_type=expression_type(wish.tags),
            exp=str(wish.tags),
            order=self._is_orderly,
            attempt_id=attempt,
        )
        queue = MessageQueue(wish.topic, name, ANY_QUEUE)
        timeout = wait_seconds + REQUEST_TIMEOUT_SECONDS
        answer = yield from self._brokers.call(
            queue, address, RequestCode.POP_MESSAGE, ext, timeout
        )
        popped = pop_result(answer, address, name, wish.topic, wish.tags)
        if popped.unwanted:
            deadline = self._core.clock() + REQUEST_TIMEOUT_SECONDS
            code = RequestCode.ACK_MESSAGE
            # Best effort: whoever gets one next acknowledges it.
            yield CallMany(
                [Call(address, code, self._ack_header(each), deadline) for each in popped.unwanted]
            )
        return popped

    def _say_in_heartbeats(self, wish: Wish) -> None:
        known = self._subscriptions.get(wish.topic)
        kind = expression_type(wish.tags)
        if known is not None and (known.sub_string, known.expression_type) == (wish.tags, kind):
            return
        self._subscriptions[wish.topic] = SubscriptionData(
            wish.topic, str(wish.tags), self._wall_clock_ms(), kind
        )
        self._core.consumes(
            ConsumerData(
                self._group, CONSUME_POP, subscription_data_set=list(self._subscriptions.values())
            )
        )

    # -- what becomes of messages ----------------------------------------------------------------

    def ack(self, messages: Sequence[PoppedMessage], timeout_seconds: float) -> Flow[bool]:
        """Say that messages are done; return whether all handles were good, as far as is said.

        Raises:
            ClientError: what the last try ended with.
        """
        are_good = True
        for queue, part in _by_broker(messages).items():
            if len(part) == 1:
                ext = self._ack_header(part[0])
                answer, address = yield from self._brokers.ask_master(
                    queue, RequestCode.ACK_MESSAGE, ext, timeout_seconds
                )
            else:
                body = encode_json_body(
                    BatchAckMessageRequestBody(self._entries(part), queue.broker_name)
                )
                answer, address = yield from self._brokers.ask_master(
                    queue, RequestCode.BATCH_ACK_MESSAGE, None, timeout_seconds, body
                )
            if answer.code == ResponseCode.NO_MESSAGE:
                are_good = False
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise refusal_in(answer, address)
            if decode(answer, AckMessageResponseHeader, address).is_stale:
                are_good = False
        return are_good

    def _ack_header(self, message: PoppedMessage) -> AckMessageRequestHeader:
        handle = message.lease.handle
        return AckMessageRequestHeader(
            consumer_group=self._group,
            topic=handle.mark.topic(message.lease.topic, self._group),
            queue_id=handle.queue_id,
            extra_info=encode_receipt_handle(handle),
            offset=handle.queue_offset,
        )

    def _entries(self, messages: Iterable[PoppedMessage]) -> list[BatchAck]:
        """Source: MQClientAPIImpl.batchAckMessageAsync."""
        parts: dict[tuple[object, ...], list[PoppedMessage]] = {}
        for message in messages:
            handle = message.lease.handle
            key = (message.lease.topic, handle.mark, handle.queue_id, _start_offset(handle))
            parts.setdefault((*key, handle.pop_time_ms), []).append(message)
        return [self._entry(part) for part in parts.values()]

    def _entry(self, messages: Sequence[PoppedMessage]) -> BatchAck:
        first = messages[0].lease
        handle = first.handle
        start = _start_offset(handle)
        return BatchAck(
            bits=encode_bits(each.lease.handle.queue_offset - start for each in messages),
            consumer_group=self._group,
            invisible_ms=handle.invisible_ms,
            pop_time_ms=handle.pop_time_ms,
            queue_id=handle.queue_id,
            mark=str(handle.mark.value),
            revive_queue_id=handle.revive_queue_id,
            start_offset=start,
            topic=first.topic,
        )

    def extend(
        self, message: PoppedMessage, invisible_ms: int, timeout_seconds: float
    ) -> Flow[bool]:
        """Have a message come again this much later than now; False if it is not held any more.

        Raises:
            ClientError: what the last try ended with.
        """
        lease, handle = message.lease, message.lease.handle
        ext = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._group,
            topic=handle.mark.topic(lease.topic, self._group),
            queue_id=handle.queue_id,
            extra_info=encode_receipt_handle(handle),
            offset=handle.queue_offset,
            invisible_time=invisible_ms,
        )
        queue = MessageQueue(lease.topic, handle.broker_name, handle.queue_id)
        answer, address = yield from self._brokers.ask_master(
            queue, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext, timeout_seconds
        )
        if answer.code == ResponseCode.NO_MESSAGE:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise refusal_in(answer, address)
        changed = decode(answer, ChangeInvisibleTimeResponseHeader, address)
        lease.handle = msgspec.structs.replace(
            handle,
            # As RocketMQ's client makes the new handle: of this message alone.
            start_offset=handle.queue_offset,
            pop_time_ms=changed.pop_time,
            invisible_ms=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
        )
        return True


def _start_offset(handle: ReceiptHandle) -> int:
    """Return where the bits begin that say of a message that it is done.

    Each counts from the first of its handout. If a broker says that this is far away, or later, the
    message is named alone.
    """
    start, offset = handle.start_offset, handle.queue_offset
    return start if 0 <= offset - start < _BITS_MAX else offset


def _by_broker(messages: Sequence[PoppedMessage]) -> dict[MessageQueue, list[PoppedMessage]]:
    parts: dict[MessageQueue, list[PoppedMessage]] = {}
    for message in messages:
        lease = message.lease
        queue = MessageQueue(lease.topic, lease.handle.broker_name, ANY_QUEUE)
        parts.setdefault(queue, []).append(message)
    return parts


def _no_master(topic: str) -> RouteNotFoundError:
    reason = "no master of any of its brokers is registered"
    return RouteNotFoundError(topic, RouteCause.NO_MASTER, reason, may_pass=True)
