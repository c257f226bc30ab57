"""What a driver asks a cluster: which queues there are, and where they begin and end.

Every question about offsets goes to the masters, to all of them at once, and is asked again while
one is replaced. In a fenced group the end of a queue is what is confirmed: a batch that is
planned with it never holds what is cut off later.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import TracebackType
from typing import Final, Self, TypeVar

from tandem.client.admin_calls import AdminCalls
from tandem.client.backoff import retry_pause_seconds
from tandem.client.blocking_shell import BlockingShell
from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.flow import Call, CallMany, Flow, Pause
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.plain_socket import SocketOpener, open_socket
from tandem.client.queue_flow import RETRIED_AT_MASTER, QueueRequest, decode, expect_success
from tandem.client.results import MessageQueue
from tandem.client.routes import TopicRoute, lacks_masters
from tandem.client.topic_admin import TopicAdministration
from tandem.spark.errors import SparkSourceError, UnknownTopicError
from tandem.spark.live.offsets import Offsets
from tandem.spark.live.options import ANY_BROKER, GROUP_DEFAULT, LiveOptions
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import decode_message
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.route import MASTER_ID

T = TypeVar("T")

COMMIT_SECONDS: Final = 3.0
"""A group's offsets are for people to look at: a batch does not wait long for them."""

Queues = dict[MessageQueue, str]
"""Queues, and the cluster that each is in."""


def client_core(options: LiveOptions) -> ClientCore:
    """Return the rules of a client that asks the cluster of `options`."""
    return options.access.core(time.monotonic)


class Cluster:
    """Asks one cluster. Use it as a context manager, from one thread.

    Every method raises `SparkSourceError` if there is no answer within `options.retry_ms`, and
    `UnknownTopicError` for a topic that does not exist.
    """

    def __init__(self, options: LiveOptions, opener: SocketOpener = open_socket) -> None:
        self._options = options
        self._core = client_core(options)
        self._topic_names = TopicAdministration(AdminCalls(self._core))
        self._shell = BlockingShell(self._core, opener)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._shell.close()

    def queues(self, *, unknown_is_error: bool = True) -> Queues:
        """Return the readable queues that the options subscribe to.

        A topic that does not exist has none, if that is no error.
        """
        return self._run(self._queues(unknown_is_error=unknown_is_error))

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the offset of the oldest message of each queue that its master still has."""
        return self._run(self._offsets(queues, RequestCode.GET_MIN_OFFSET, _of_queue))

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Return the offset of the next message of each queue."""
        return self._run(self._offsets(queues, RequestCode.GET_MAX_OFFSET, _of_queue))

    def offsets_at(self, queues: Iterable[MessageQueue], time_ms: int) -> Offsets:
        """Return the first offset of each queue stored at or after a time, or the end."""

        def header(queue: MessageQueue) -> QueueRequest:
            return SearchOffsetRequestHeader(queue.topic, queue.queue_id, time_ms, only_master=True)

        return self._run(self._offsets(queues, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set a group's offsets, as far as it goes quickly.

        Raises:
            ClientError: some were not set.
        """

        def header(queue: MessageQueue) -> QueueRequest:
            return UpdateConsumerOffsetRequestHeader(
                group, queue.topic, queue.queue_id, offsets[queue]
            )

        code = RequestCode.UPDATE_CONSUMER_OFFSET
        self._shell.run(self._ask_masters(offsets, code, header, COMMIT_SECONDS))

    def stored_at(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return when the message at each place was stored, in ms since 1970, if that is quick.

        A queue whose message is not there, or not legible, is left out.

        Raises:
            ClientError: a master does not answer.
        """

        def header(queue: MessageQueue) -> QueueRequest:
            return PullMessageRequestHeader(
                consumer_group=group_of(self._options),
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=places[queue],
                max_msg_nums=1,
                sys_flag=PULL_FLAG_SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                sub_version=0,
                subscription="*",
                expression_type="TAG",
                broker_name=queue.broker_name,
            )

        code = RequestCode.PULL_MESSAGE
        asked = self._ask_masters(places, code, header, COMMIT_SECONDS, _any_answer)
        answers = self._shell.run(asked)
        found: dict[MessageQueue, int] = {}
        for queue, (answer, _) in answers.items():
            try:
                found[queue] = decode_message(answer.body)[0].store_timestamp_ms
            except MalformedMessageError:
                continue
        return found

    # --- rules -----------------------------------------------------------------------------------

    def _run(self, flow: Flow[T]) -> T:
        try:
            return self._shell.run(flow)
        except ClientError as error:
            raise SparkSourceError(f"source tandem: {error}") from error

    def _queues(self, *, unknown_is_error: bool) -> Flow[Queues]:
        options = self._options
        end = self._core.clock() + options.retry_ms / 1000
        found: Queues = {}
        for topic in (yield from self._topics()):
            try:
                route = yield from self._route(topic, end)
            except UnknownTopicError:
                # A topic that a pattern found may be deleted a moment later.
                if unknown_is_error and options.pattern is None:
                    raise
                continue
            clusters = {each.broker_name: each.cluster for each in route.data.broker_datas}
            found.update(
                (queue, clusters.get(queue.broker_name, ""))
                for queue in self._wanted(route.subscribe_queues)
            )
        return found

    def _topics(self) -> Flow[list[str]]:
        options = self._options
        if options.pattern is None:
            return sorted(options.topics or options.assigned or ())
        pattern = re.compile(options.pattern)
        names = self._topic_names.names(of_system=options.with_system_topics)
        return [topic for topic in (yield from names) if pattern.fullmatch(topic)]

    def _wanted(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Those of one topic that are assigned or chosen."""
        chosen = self._options.queues
        if self._options.assigned is None:
            return [each for each in queues if chosen is None or each.queue_id in chosen]
        assigned = self._options.assigned
        return [
            queue
            for queue in queues
            if any(
                queue.queue_id in assigned[queue.topic].get(name, ())
                for name in (ANY_BROKER, queue.broker_name)
            )
        ]

    def _route(self, topic: str, end: float) -> Flow[TopicRoute]:
        """Return a fresh route. One that lacks a master only counts when the time is over.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        retries_count = 0
        while True:
            is_last = self._core.clock() >= end
            try:
                yield from self._core.refresh_route(topic)
                route = self._core.routes[topic]
                if is_last or not lacks_masters(route.data):
                    return route
            except RouteNotFoundError as error:
                if not error.may_pass:
                    raise (yield from self._unknown(topic)) from error
                if is_last:
                    raise
            yield Pause(retry_pause_seconds(retries_count))
            retries_count += 1

    def _unknown(self, topic: str) -> Flow[UnknownTopicError]:
        known = yield from self._topic_names.names(of_system=True)
        close = get_close_matches(topic, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the name servers know {len(known)}"
        servers = ", ".join(self._options.access.addresses)
        return UnknownTopicError(
            f"source tandem: no topic {topic!r} at the name servers {servers}; {hint}",
            [topic],
        )

    def _offsets(
        self,
        queues: Iterable[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], QueueRequest],
    ) -> Flow[Offsets]:
        seconds = self._options.retry_ms / 1000
        answers = yield from self._ask_masters(queues, code, header, seconds)
        return {
            queue: decode(answer, OffsetResponseHeader, address).offset
            for queue, (answer, address) in answers.items()
        }

    def _ask_masters(
        self,
        queues: Iterable[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], QueueRequest],
        seconds: float,
        taken: Callable[[RemotingCommand | ClientError, str], RemotingCommand] | None = None,
    ) -> Flow[dict[MessageQueue, tuple[RemotingCommand, str]]]:
        """Ask about all queues at once; ask again about those that a master may answer later.

        `taken` returns an answer that is one, and raises the error that it is otherwise.

        Raises:
            ClientError: a refusal for good, or what there was when the time was over.
        """
        left = list(queues)
        answers: dict[MessageQueue, tuple[RemotingCommand, str]] = {}
        end = self._core.clock() + seconds
        retries_count = 0
        while left:
            calls, trouble = yield from self._calls(left, code, header, end)
            results = yield CallMany(list(calls.values()))
            for (queue, call), result in zip(calls.items(), results, strict=True):
                try:
                    answer = (taken or _successful)(result, call.address)
                    answers[queue] = answer, call.address
                except (ConnectionLostError, RequestTimeoutError) as error:
                    trouble = error
                except BrokerError as error:
                    if error.code not in RETRIED_AT_MASTER:
                        raise
                    trouble = error
            left = [queue for queue in left if queue not in answers]
            for queue in left:
                self._core.suspect_route(queue.topic)
            pause = retry_pause_seconds(retries_count)
            if left and self._core.clock() + pause >= end:
                assert trouble is not None
                raise trouble
            if left:
                yield Pause(pause)
            retries_count += 1
        return answers

    def _calls(
        self,
        queues: list[MessageQueue],
        code: RequestCode,
        header: Callable[[MessageQueue], QueueRequest],
        end: float,
    ) -> Flow[tuple[dict[MessageQueue, Call], ClientError | None]]:
        """Return the requests to the masters that are known, and why there are no more."""
        calls: dict[MessageQueue, Call] = {}
        trouble: ClientError | None = None
        deadline = min(end, self._core.clock() + REQUEST_TIMEOUT_SECONDS)
        routes: dict[str, TopicRoute] = {}
        for topic in sorted({queue.topic for queue in queues}):
            try:
                routes[topic] = yield from self._core.route(topic, deadline)
            except RouteNotFoundError as error:
                if not error.may_pass:
                    raise
                trouble = error
        for queue in queues:
            if queue.topic not in routes:
                continue
            master = routes[queue.topic].addresses(queue.broker_name).get(MASTER_ID)
            if master:
                calls[queue] = Call(master, code, header(queue), deadline)
            else:
                reason = f"no master of broker {queue.broker_name!r} is registered"
                trouble = RouteNotFoundError(
                    queue.topic, RouteCause.NO_MASTER, reason, may_pass=True
                )
        return calls, trouble


def group_of(options: LiveOptions) -> str:
    """Return the consumer group that brokers see."""
    return options.group or GROUP_DEFAULT


def _of_queue(queue: MessageQueue) -> QueueRequest:
    return QueueRequestHeader(queue.topic, queue.queue_id, only_master=True)


def _any_answer(result: RemotingCommand | ClientError, address: str) -> RemotingCommand:
    """Return an answer, whatever it says.

    Raises:
        ClientError: it is none.
    """
    del address
    if isinstance(result, ClientError):
        raise result
    return result


def _successful(result: RemotingCommand | ClientError, address: str) -> RemotingCommand:
    """Return an answer that is one.

    Raises:
        ClientError: it is none, or a refusal.
    """
    if isinstance(result, ClientError):
        raise result
    return expect_success(result, address)
