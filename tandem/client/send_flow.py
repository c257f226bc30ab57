"""The rules of sending: which queue, how many tries, and what the outcome is.

One send has as many tries as fit into `send_msg_timeout_ms`, so that it outlives a change of
master; `retry_times_when_send_failed` bounds them, and with 0 a send is exactly one request. All
carry the same UNIQ_KEY. Another try follows

- a refusal that passes (RETRIED), a lost connection, no answer, no master in the route: until the
  time is over;
- a refusal that rarely passes (RETRIED_TWICE), no route at all: twice;
- in a fenced group also an answer that says "stored, but not known to be safe": a switch is a slow
  send there. `resend_until_ok` says otherwise: True, in classic groups too; False, nowhere.

The second try comes at once, to another broker name if there is one; the others over a route that
was fetched again, after pauses of 50 ms in the first second, which then grow to half a second.

A try is given up after `attempt_timeout_ms`, for a frozen master answers nothing and refuses
nothing. The limit is longer than a healthy broker waits for other nodes and its disk, or its answer
would come too late and the message be stored twice. An address that let one try run out gets
`SILENT_ATTEMPT_SECONDS` from then on until it answers something.

What the user learns is exact. If any try may have been carried out and none was answered with a
result, the error says `outcome_unknown`, whatever the last try ended with. If one was answered
"stored, but not known to be safe" and no later one did better, that is the result; where a fenced
group was to be asked until it is safe, it is `SendInDoubtError`: what a switch may take away is no
ordinary result. In a classic group the message stays in its master's log, as in RocketMQ.

Source: RocketMQ 5.3.3, DefaultMQProducerImpl.sendDefaultImpl, MQClientAPIImpl.processSendResponse,
DefaultMQProducer.retryResponseCodes. RocketMQ's producer tries three times without a pause, which
is over long before a new master is there.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tandem.client.accumulator import Gathered
from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
    SendInDoubtError,
)
from tandem.client.flow import Call, CallMany, Flow, Pause
from tandem.client.identity import UniqueKeys
from tandem.client.results import MessageQueue, SendResult, SendStatus
from tandem.client.routes import DEFAULT_TOPIC_QUEUE_NUMS, PublishQueue, TopicRoute
from tandem.client.sending import (
    NO_OPTIONS,
    SEND_BATCH,
    SEND_REPLY,
    Sending,
    Sendings,
    SendOptions,
    SendSettings,
    parts_of,
)
from tandem.wire.batch_body import keyed_entry_parts
from tandem.wire.errors import MalformedFrameError, MalformedMessageError
from tandem.wire.message import TRANSACTION_PREPARED_TYPE, Message, decode_offset_msg_id
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import AUTO_CREATE_TOPIC

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

RETRIED_TWICE: Final = frozenset(
    {ResponseCode.TOPIC_NOT_EXIST.value, ResponseCode.NO_PERMISSION.value}
)
"""Those among them that mostly do not pass: a topic or a right is missing."""

NO_BATCHES: Final = frozenset(
    {ResponseCode.MESSAGE_ILLEGAL.value, ResponseCode.REQUEST_CODE_NOT_SUPPORTED.value}
)
"""Refusals of a batch whose messages may be taken one by one."""

FEW_TRIES: Final = 3
"""How many tries may end with what mostly does not pass."""

SILENT_ATTEMPT_SECONDS: Final = 0.5
"""What an address gets that did not answer lately: enough to notice that it is back."""


class Sender:
    """Sends for one producer. Flows only; the shell does the rest."""

    def __init__(
        self, core: ClientCore, settings: SendSettings, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._core = core
        self._settings = settings
        self._wall_clock_ms = wall_clock_ms
        keys = UniqueKeys(core.identity)
        self.sendings = Sendings(settings, keys, core.clock, wall_clock_ms)

    def send(self, message: Message, options: SendOptions) -> Flow[SendResult]:
        """Send one message; see `Producer.send`."""
        return self._finish(self.sendings.one(message, options))

    def send_half(self, message: Message, options: SendOptions) -> Flow[SendResult]:
        """Send a message that nobody sees until its transaction is committed."""
        sending = self.sendings.one(message, options)
        sending.sys_flag |= TRANSACTION_PREPARED_TYPE
        return self._finish(sending)

    def send_reply(self, message: Message, within_seconds: float) -> Flow[SendResult]:
        """Send what answers a request, while somebody waits for it."""
        sending = self.sendings.one(message, NO_OPTIONS)
        sending.code = SEND_REPLY
        sending.deadline = min(sending.deadline, self._core.clock() + within_seconds)
        return self._finish(sending)

    def send_batch(self, messages: Sequence[Message], options: SendOptions) -> Flow[SendResult]:
        """Send messages of one topic as one request; see `Producer.send_batch`."""
        return self._finish(self.sendings.batch(messages, options))

    def send_gathered(
        self, topic: str, gathered: Sequence[Gathered], options: SendOptions
    ) -> Flow[list[SendResult | ClientError]]:
        """Send what was gathered in one lane; return the outcome of each.

        One message goes as itself. A broker that does not take these as a batch, and has not stored
        them, gets them one by one.
        """
        if len(gathered) == 1:
            return [(yield from self._outcome(self.send(gathered[0].message, options)))]
        sending = self.sendings.gathered(topic, self._entries(gathered), options)
        outcome = yield from self._outcome(self._finish(sending))
        if isinstance(outcome, SendResult):
            return list(_results(outcome, [each.unique_key for each in gathered]))
        if not isinstance(outcome, BrokerError) or outcome.code not in NO_BATCHES:
            # A copy each, so that the tracebacks of many tasks do not pile up in one exception.
            return [copy.copy(outcome) for _ in gathered]
        outcomes: list[SendResult | ClientError] = []
        for each in gathered:
            alone = options
            if options.sharding_key and each.message.sharding_key:
                # Another key of the same queue.
                alone = msgspec.structs.replace(options, sharding_key=each.message.sharding_key)
            outcome = yield from self._outcome(self.send(each.message, alone))
            outcomes.append(outcome)
        return outcomes

    def send_packed(self, topic: str, body: bytes) -> Flow[SendResult | ClientError]:
        """Send a batch body that is made already (`tandem.wire.batch_body`); return its outcome.

        Each of its messages has its UNIQ_KEY and nothing that speaks against a batch.
        """
        sending = self.sendings.gathered(topic, (body,), NO_OPTIONS)
        return (yield from self._outcome(self._finish(sending)))

    def _entries(self, gathered: Sequence[Gathered]) -> list[bytes]:
        """Return the parts of a batch body; messages that have no key yet get theirs."""
        parts: list[bytes] = []
        for each, unique_key in zip(gathered, self.sendings.next_keys(len(gathered)), strict=True):
            if each.entry:
                parts.append(each.entry)
                continue
            each.unique_key = unique_key
            message = each.message
            parts += keyed_entry_parts(message.flag, message.body, unique_key.encode())
        return parts

    @staticmethod
    def _outcome(flow: Flow[SendResult]) -> Flow[SendResult | ClientError]:
        try:
            return (yield from flow)
        except ClientError as error:
            return error

    def _finish(self, sending: Sending) -> Flow[SendResult]:
        while True:
            outcome = yield from self._try_once(sending)
            if isinstance(outcome, SendResult):
                return outcome
            if outcome is not None:
                raise outcome
            if pause := sending.pause_seconds:
                yield Pause(pause)

    # The first try of `_finish`, for a shell that saves itself the flow if it is the only one.

    def first_call(self, sending: Sending) -> Call | None:
        """Return the first try, None if a route has to be fetched first: see `go_on`."""
        return self._next_call(sending)

    def take_first(
        self, sending: Sending, answer: RemotingCommand | ClientError
    ) -> SendResult | None:
        """Return what the first try ended with, None if there is another: see `go_on`.

        Raises:
            ClientError: there is none.
        """
        outcome = self._take(sending, answer)
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    def go_on(self, sending: Sending) -> Flow[SendResult]:
        """Go on from where `first_call` or `take_first` has left it."""
        return self._finish(sending)

    def _try_once(self, sending: Sending) -> Flow[SendResult | ClientError | None]:
        call = self._next_call(sending)
        if call is None:
            try:
                yield from self._fetch_route(sending)
                call = self._call_with_any_route(sending)
            except RouteNotFoundError as error:
                return self._take_no_route(sending, error)
        try:
            answer: RemotingCommand | ClientError = yield call
        except ClientError as error:
            answer = error
        return self._take(sending, answer)

    def send_many(
        self,
        messages: Iterable[Message],
        options: SendOptions,
        outcomes: dict[int, SendResult | ClientError] | None = None,
    ) -> Flow[list[SendResult | ClientError]]:
        """Send many messages, many at once; see `Producer.send_many`."""
        found = {} if outcomes is None else outcomes
        count = 0
        for part in parts_of(messages):
            sendings = [self.sendings.one(message, options) for message in part]
            yield from self._send_part(count, sendings, found)
            count += len(sendings)
        return [found[index] for index in range(count)]

    def _send_part(
        self, first: int, sendings: list[Sending], outcomes: dict[int, SendResult | ClientError]
    ) -> Flow[None]:
        waiting = list(enumerate(sendings, first))
        while waiting:
            routes = yield from self._routes_of([sending for _, sending in waiting])
            calls = []
            under_way = []
            again: list[tuple[int, Sending]] = []
            for index, sending in waiting:
                try:
                    calls.append(self._call_over(routes[sending.topic], sending))
                    under_way.append((index, sending))
                except RouteNotFoundError as error:
                    outcome = self._take_no_route(sending, error)
                    _sort_in(index, sending, outcome, outcomes, again)
            asked = CallMany(calls)
            answers: list[RemotingCommand | ClientError]
            try:
                answers = (yield asked) if calls else []
            except GeneratorExit:
                for place, answer in asked.answers.items():
                    index, sending = under_way[place]
                    _sort_in(index, sending, self._take(sending, answer), outcomes, again)
                raise
            for (index, sending), answer in zip(under_way, answers, strict=True):
                _sort_in(index, sending, self._take(sending, answer), outcomes, again)
            waiting = sorted(again, key=lambda each: each[0])
            if pause := max((sending.pause_seconds for _, sending in waiting), default=0.0):
                yield Pause(pause)

    def _routes_of(
        self, sendings: list[Sending]
    ) -> Flow[dict[str, TopicRoute | RouteNotFoundError]]:
        """Look once for each topic, however many messages wait for its route."""
        routes: dict[str, TopicRoute | RouteNotFoundError] = {}
        for sending in sendings:
            if sending.topic in routes:
                continue
            try:
                route = self._core.trusted_route(sending.topic)
                if route is None or not route.publish_queues:
                    yield from self._fetch_route(sending)
                    route = self._core.routes[sending.topic]
            except RouteNotFoundError as error:
                routes[sending.topic] = error
            else:
                routes[sending.topic] = route
        return routes

    def _call_over(self, route: TopicRoute | RouteNotFoundError, sending: Sending) -> Call:
        if isinstance(route, RouteNotFoundError):
            raise route
        target = _target(route, sending)
        if target is None:
            return self._call_with_any_route(sending)
        return self._call(sending, target)

    def _next_call(self, sending: Sending) -> Call | None:
        """Return the next try, None if a route has to be fetched first."""
        route = self._core.trusted_route(sending.topic)
        if route is None:
            return None
        target = _target(route, sending)
        return None if target is None else self._call(sending, target)

    def _fetch_route(self, sending: Sending) -> Flow[None]:
        yield from self._core.route(sending.topic, sending.deadline, for_sends=True)

    def _call_with_any_route(self, sending: Sending) -> Call:
        route = self._core.routes[sending.topic]
        target = _target(route, sending)
        if target is not None:
            return self._call(sending, target)
        raise route.refusal(sending.queue_id)

    def _call(self, sending: Sending, target: PublishQueue) -> Call:
        sending.target = target
        queue = target.queue
        header = SendMessageRequestHeaderV2(
            self._settings.group,
            sending.topic,
            AUTO_CREATE_TOPIC,
            DEFAULT_TOPIC_QUEUE_NUMS,
            queue.queue_id,
            sending.sys_flag,
            self._wall_clock_ms(),
            sending.flag,
            sending.properties,
            0,
            False,  # noqa: FBT003  unitMode; by position, since this runs for every message
            None,
            sending.code == SEND_BATCH,
            queue.broker_name,
        )
        return Call(
            target.address, sending.code, header, self._attempt_end(sending, target), sending.body
        )

    def _attempt_end(self, sending: Sending, target: PublishQueue) -> float:
        """Until when a try may take."""
        now = self._core.clock()
        seconds = self._settings.attempt_timeout_ms / 1000
        if self._core.backoff.is_silent(target.address, now):
            seconds = min(seconds, SILENT_ATTEMPT_SECONDS)
        return min(sending.deadline, now + seconds)

    def _take(
        self, sending: Sending, answer: RemotingCommand | ClientError
    ) -> SendResult | ClientError | None:
        """Return the outcome, None if there is another try."""
        target = sending.target
        assert target is not None
        if isinstance(answer, RemotingCommand):
            self._core.backoff.spoke(target.address)
            status = STORED.get(answer.code)
            if status is not None:
                return self._take_stored(sending, _result(sending, target, status, answer))
            if answer.code in RETRIED_TWICE:
                sending.doubtful_tries += 1
            error: ClientError = BrokerError(answer.code, answer.remark or "", target.address)
            return self._take_failure(sending, error, again=answer.code in RETRIED)
        if isinstance(answer, RequestTimeoutError):
            self._core.backoff.fell_silent(target.address, self._core.clock())
        again = isinstance(answer, ConnectionLostError | RequestTimeoutError)
        return self._take_failure(sending, answer, again=again)

    def _take_stored(
        self, sending: Sending, result: SendResult | ClientError
    ) -> SendResult | ClientError | None:
        if not isinstance(result, SendResult) or result.status is SendStatus.SEND_OK:
            return result
        assert sending.target is not None
        is_fenced = sending.target.is_fenced
        wanted = self._settings.resend_until_ok
        resends = is_fenced if wanted is None else wanted
        sending.stored = SendInDoubtError(result) if resends and is_fenced else result
        if resends and self._has_another_try(sending):
            self._core.suspect_route(sending.topic)
            return None
        return sending.stored

    def _take_no_route(
        self, sending: Sending, error: RouteNotFoundError
    ) -> SendResult | ClientError | None:
        """There was nobody to ask: that counts as a try, too."""
        # A name server that is cut off knows no new topic, and the next one knows its broker.
        is_change = error.cause in {RouteCause.STARTING, RouteCause.NO_MASTER}
        is_known = sending.topic in self._core.routes
        if not is_known and not is_change:
            sending.doubtful_tries += 1
        if error.may_pass or not is_known:
            self._core.suspect_route(sending.topic)
            if self._has_another_try(sending):
                return None
        return sending.outcome(error)

    def _take_failure(
        self, sending: Sending, error: ClientError, *, again: bool
    ) -> SendResult | ClientError | None:
        assert sending.target is not None
        if error.outcome_unknown and sending.unknown is None:
            sending.unknown = error
        sending.avoid_broker = sending.target.queue.broker_name
        if again:
            self._core.suspect_route(sending.topic)
            if self._has_another_try(sending):
                return None
        return sending.outcome(error)

    def _has_another_try(self, sending: Sending) -> bool:
        """Count the try that failed; True if another is allowed and there is time for it."""
        sending.tries_left -= 1
        sending.tries_count += 1
        if sending.doubtful_tries >= FEW_TRIES:
            return False
        now = self._core.clock()
        return sending.tries_left > 0 and now + sending.pause_seconds < sending.deadline


def _target(route: TopicRoute, sending: Sending) -> PublishQueue | None:
    if sending.sharding_hash is not None:
        return route.hashed_queue(sending.sharding_hash)
    return route.next_queue(sending.queue_id, sending.avoid_broker)


def _sort_in(
    index: int,
    sending: Sending,
    outcome: SendResult | ClientError | None,
    outcomes: dict[int, SendResult | ClientError],
    again: list[tuple[int, Sending]],
) -> None:
    if outcome is None:
        again.append((index, sending))
    else:
        outcomes[index] = outcome


def _result(
    sending: Sending, target: PublishQueue, status: SendStatus, answer: RemotingCommand
) -> SendResult | ClientError:
    try:
        header = answer.decode_header(SendMessageResponseHeader)
        if sending.sys_flag & TRANSACTION_PREPARED_TYPE:
            decode_offset_msg_id(header.msg_id)  # its end says where the half is
    except (MalformedFrameError, MalformedMessageError) as error:
        # The code says stored, but not where: this message's offset is unknown.
        reason = f"the answer does not parse: {error}"
        return ConnectionLostError(target.address, ConnectionCause.MALFORMED, reason)
    queue = target.queue
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(sending.topic, queue.broker_name, header.queue_id)
    return SendResult(
        status,
        sending.msg_id,
        header.msg_id,
        queue,
        header.queue_offset,
        answer.remark or "",
    )


def _results(batch: SendResult, unique_keys: list[str]) -> Iterator[SendResult]:
    """Take the result of a batch apart; it was stored at consecutive offsets of one queue."""
    ids = batch.offset_msg_id.split(",")
    if len(ids) != len(unique_keys):
        # A broker that stores a batch as one record has one id for it.
        ids = [batch.offset_msg_id] * len(unique_keys)
    status, queue, offset, reason = batch.status, batch.queue, batch.queue_offset, batch.reason
    for unique_key, offset_msg_id in zip(unique_keys, ids, strict=True):
        yield SendResult(status, unique_key, offset_msg_id, queue, offset, reason)
        offset += 1
