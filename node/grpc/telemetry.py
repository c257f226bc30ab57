"""Telemetry: the stream by which a client says what it is, and is asked something.

    client  --> settings          --> the same, with what the cluster decides
    broker  --> CHECK_TRANSACTION --> recover_orphaned_transaction_command, to one stream of the
                                      topic; the client answers by EndTransaction

Nothing that a client can miss is kept by it. Heartbeats and the calls of clients whose stream is
gone, or never was here, are answered as those of others.

Source: RocketMQ 5.3.3, ClientActivity, GrpcClientSettingsManager, GrpcClientChannel; recorded
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from node.errors import RequestError
from node.grpc.call import Call, MalformedCallError
from node.grpc.errors import (
    GRPC_INTERNAL,
    GRPC_INVALID_ARGUMENT,
    GRPC_UNIMPLEMENTED,
    CallError,
    error_of,
)
from node.grpc.protocol import messages as pb
from node.grpc.received_messages import grpc_message, original_topic
from node.grpc.renewals import Owner, Renewals, owner_of
from node.grpc.routes import checked_group
from node.grpc.session import Session
from node.grpc.topic_types import checked_topic
from node.grpc.transaction_ids import TransactionId
from node.grpc.ways import Ways
from node.remoting.caller import Caller
from node.tables.topic_attributes import NO_LITE
from tandem.wire.access_control import Kind, Right
from tandem.wire.errors import WireError
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    HeartbeatData,
    ProducerData,
)
from tandem.wire.route import TopicRouteData, encode_json_body
from tandem.wire.subscription_group import SubscriptionGroupConfig

_log = logging.getLogger(__name__)

TOPICS_MAX: Final = 1_024
"""That one producer publishes to, or one consumer subscribes to."""

SESSION_TOPICS_MAX: Final = 4_096
"""Of all streams of one connection: they are kept, and gone through every few seconds."""

BACKOFF_SECONDS: Final = (
    *(1, 5, 10, 30),
    *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(3_600, 7_200),
)
"""Between the attempts of a group that has no policy of its own. Source: CustomizedRetryPolicy."""

LONG_POLLING_SECONDS: Final = 20
RECEIVE_BATCH_SIZE: Final = 32

_PRODUCERS: Final = frozenset({pb.PRODUCER})
_CONSUMERS: Final = frozenset({pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER})
_LITE_CONSUMERS: Final = frozenset({pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER})


class Stream:
    """One telemetry stream whose client has said what it is."""

    def __init__(self, session: Session, call: Call) -> None:
        self.session = session
        self.call = call
        self.client_id = call.client_id or ""
        self.topics: tuple[str, ...] = ()
        """That a producer publishes to, and whose transactions it may end."""


class Telemetry:
    """All streams of one node."""

    def __init__(
        self,
        ways: Ways,
        route_of: Callable[[str], TopicRouteData | None],
        group_of: Callable[[str], SubscriptionGroupConfig | None],
        renewals: Renewals,
        own_broker_name: str,
        body_bytes_max: int,
    ) -> None:
        self._ways = ways
        self._renewals = renewals
        self._route_of = route_of
        self._group_of = group_of
        self._own_broker_name = own_broker_name
        self._body_bytes_max = body_bytes_max
        self._streams: dict[Call, Stream] = {}
        self._by_topic: dict[str, dict[Call, Stream]] = {}

    @property
    def count(self) -> int:
        """How many streams there are."""
        return len(self._streams)

    def telemetry(self, session: Session, call: Call, command: pb.TelemetryCommand) -> None:
        """Take what a client says on its stream."""
        if command.HasField("settings"):
            self._take_settings(session, call, command.settings)
        # What it has found out for somebody is answered where it was asked: nobody does here.

    def _take_settings(self, session: Session, call: Call, settings: pb.Settings) -> None:
        try:
            answer = pb.TelemetryCommand()
            answer.settings.CopyFrom(settings)
            topics = self._fill(answer.settings)
        except CallError as error:
            raise MalformedCallError(GRPC_INVALID_ARGUMENT, str(error)) from error
        others = (
            len(each.topics)
            for each in self._streams.values()
            if each.session is session and each.call is not call
        )
        if topics and sum(others) + len(topics) > SESSION_TOPICS_MAX:
            raise MalformedCallError(
                GRPC_INVALID_ARGUMENT,
                f"producers of more than {SESSION_TOPICS_MAX} topics by one connection",
            )
        answer.status.code, answer.status.message = pb.OK, "OK"
        stream = self._streams.get(call)
        if stream is None:
            stream = self._streams[call] = Stream(session, call)
            call.when_over(lambda: self._gone(call))
        if topics != stream.topics:
            self._publish(stream, topics)
        call.send(answer.SerializeToString())

    def _fill(self, settings: pb.Settings) -> tuple[str, ...]:
        """Put in what the cluster decides; return the topics that are published to.

        Raises:
            CallError: it cannot be.
        """
        kind = settings.WhichOneof("pub_sub")
        settings.metric.on = False
        if kind == "publishing":
            return self._fill_publishing(settings)
        if kind == "subscription":
            self._fill_subscription(settings)
            return ()
        raise CallError(pb.BAD_REQUEST, "there is no publishing or subscription data in settings")

    def _fill_publishing(self, settings: pb.Settings) -> tuple[str, ...]:
        publishing = settings.publishing
        if len(publishing.topics) > TOPICS_MAX:
            raise CallError(pb.BAD_REQUEST, f"a producer of more than {TOPICS_MAX} topics")
        topics = tuple(dict.fromkeys(checked_topic(topic) for topic in publishing.topics))
        publishing.validate_message_type = True
        publishing.max_body_size = self._body_bytes_max
        policy = settings.backoff_policy
        policy.max_attempts = 3
        policy.exponential_backoff.initial.FromMilliseconds(10)
        policy.exponential_backoff.max.FromMilliseconds(1_000)
        policy.exponential_backoff.multiplier = 2.0
        return topics

    def _fill_subscription(self, settings: pb.Settings) -> None:
        if settings.client_type in _LITE_CONSUMERS:
            raise MalformedCallError(GRPC_UNIMPLEMENTED, NO_LITE)
        if settings.client_type not in _CONSUMERS:
            raise MalformedCallError(
                GRPC_INTERNAL,
                f"Client type is not consumer, type: {settings.client_type}; push and simple"
                " consumers are served",
            )
        subscription = settings.subscription
        if len(subscription.subscriptions) > TOPICS_MAX:
            raise CallError(pb.BAD_REQUEST, f"a consumer of more than {TOPICS_MAX} topics")
        config = self._group_of(checked_group(subscription.group))
        subscription.fifo = config is not None and config.consume_message_orderly
        subscription.receive_batch_size = RECEIVE_BATCH_SIZE
        subscription.long_polling_timeout.seconds = LONG_POLLING_SECONDS
        retries = 16 if config is None else config.retry_max_times
        policy = settings.backoff_policy
        policy.Clear()
        policy.max_attempts = retries + 1
        for seconds in _backoff_ms(config):
            policy.customized_backoff.next.add().FromMilliseconds(seconds)

    # -- producers, and what they are asked ------------------------------------------------------

    def _publish(self, stream: Stream, topics: tuple[str, ...]) -> None:
        self._forget_topics(stream)
        stream.topics = topics
        self.register(stream)

    def register(self, stream: Stream) -> None:
        """Say to the brokers of its topics that there is a producer, so that they ask it."""
        by_broker: dict[str, list[str]] = {}
        for topic in stream.topics:
            route = self._route_of(topic)
            for data in () if route is None else route.queue_datas:
                by_broker.setdefault(data.broker_name, []).append(topic)
        for broker_name, topics in by_broker.items():
            self._register(stream, broker_name, topics)

    async def register_all(self) -> None:
        """The same for all streams, again: a master may be new. Others go on meanwhile."""
        for stream in list(self._streams.values()):
            if stream.topics and stream.call in self._streams:
                self.register(stream)
                await trio.lowlevel.checkpoint()

    def _register(self, stream: Stream, broker_name: str, topics: list[str]) -> None:
        groups = [ProducerData(topic) for topic in topics]
        body = encode_json_body(HeartbeatData(stream.client_id, groups))
        session, call = stream.session, stream.call
        caller: Caller | None = None

        def done(answer: RemotingCommand) -> None:
            if error_of(answer) is None and caller is not None:
                self._may_be_asked(stream, topics, caller)

        way = self._ways.to(broker_name)
        caller = session.ask(call, way, RequestCode.HEART_BEAT, None, done, body=body)

    def _may_be_asked(self, stream: Stream, topics: list[str], caller: Caller) -> None:
        """Show a producer halves of topics that it may write."""
        for topic in topics:
            if topic not in stream.topics:
                continue  # it has left, or says something else, since its broker was asked
            try:
                caller.check(Kind.TOPIC, topic, Right.PUB)
            except RequestError:
                continue
            self._by_topic.setdefault(topic, {})[stream.call] = stream

    def asked(self, session: Session | None, question: RemotingCommand) -> None:
        """Pass on what a broker asks a producer; it asks again if nobody answers.

        With `session` it is asked of the clients of that connection.
        """
        if question.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        try:
            header = question.decode_header(CheckTransactionStateRequestHeader)
            half = decode_messages(question.body)[0]
            topic = original_topic(half)
            streams = self._by_topic.get(topic, {})
            found = next(
                (each for each in streams.values() if session in (None, each.session)), None
            )
            if found is None:
                return
            streams[found.call] = streams.pop(found.call)  # the next one's turn
            command = pb.TelemetryCommand()
            recover = command.recover_orphaned_transaction_command
            recover.message.CopyFrom(grpc_message(half, topic))
            where = TransactionId(
                header.broker_name or self._own_broker_name,
                header.tran_state_table_offset,
                header.commit_log_offset,
                half.msg_id,
            )
            recover.transaction_id = str(where)
        except Exception as error:  # noqa: BLE001 - a record ends no link, and no broker
            if not isinstance(error, (WireError, IndexError)):
                _log.error("a half cannot be shown to its producer: a bug", exc_info=error)
            return  # a record that cannot be shown; its broker gives it up in the end
        found.call.send(command.SerializeToString())
        found.session.write()

    def _gone(self, call: Call) -> None:
        stream = self._streams.pop(call, None)
        if stream is not None:
            self._forget_topics(stream)

    def _forget_topics(self, stream: Stream) -> None:
        for topic in stream.topics:
            streams = self._by_topic.get(topic)
            if streams is not None:
                streams.pop(stream.call, None)
                if not streams:
                    del self._by_topic[topic]

    # -- heartbeats ------------------------------------------------------------------------------

    def heartbeat(self, session: Session, call: Call, request: pb.HeartbeatRequest) -> None:
        """Heartbeat. Who makes it is alive, which is all that has to be known."""
        if request.client_type in _CONSUMERS:
            checked_group(request.group)
        elif request.client_type not in _PRODUCERS:
            raise CallError(
                pb.UNRECOGNIZED_CLIENT_TYPE,
                NO_LITE
                if request.client_type in _LITE_CONSUMERS
                else "producers, push and simple consumers are served",
            )
        answer = pb.HeartbeatResponse()
        answer.status.code, answer.status.message = pb.OK, "OK"

        def known(owner: Owner) -> None:
            self._renewals.heard_of(owner, session.now)
            call.answer(answer.SerializeToString())

        self._if_known(session, call, known)

    def _if_known(self, session: Session, call: Call, then: Callable[[Owner], None]) -> None:
        """Do something for a call if who makes it may send heartbeats: an empty one asks that."""

        def done(answer: RemotingCommand) -> None:
            if (error := error_of(answer)) is not None:
                raise error
            then(owner_of(caller, call))

        body = encode_json_body(HeartbeatData(call.client_id or "", []))
        way = self._ways.local
        caller = session.ask(call, way, RequestCode.HEART_BEAT, None, done, body=body)

    def terminate(
        self, session: Session, call: Call, request: pb.NotifyClientTerminationRequest
    ) -> None:
        """NotifyClientTermination."""
        if request.HasField("group") and request.group.name:
            checked_group(request.group)
        self._if_known(session, call, lambda owner: self._good_bye(session, call, owner))

    def _good_bye(self, session: Session, call: Call, owner: Owner) -> None:
        self._renewals.gone(owner)
        for stream in [each for each in self._streams.values() if each.client_id == call.client_id]:
            if stream.session is session:
                self._forget_topics(stream)
                stream.topics = ()
        answer = pb.NotifyClientTerminationResponse()
        answer.status.code, answer.status.message = pb.OK, "OK"
        call.answer(answer.SerializeToString())


def _backoff_ms(config: SubscriptionGroupConfig | None) -> list[int]:
    """Return the pauses between the attempts of a group, for clients that know no other policy."""
    policy = None if config is None else config.group_retry_policy
    customized = None if policy is None else policy.customized_retry_policy
    if customized:
        return list(customized.next)
    return [1000 * seconds for seconds in BACKOFF_SECONDS]
