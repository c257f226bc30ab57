"""What a member of a consumer group asks its brokers. Flows only; the shell does the rest.

    members          who else is in the group
    lock, unlock     queues that one member alone may read, in order
    send_back        a message that could not be handled: again after a delay, or a dead letter

Source: RocketMQ 5.3.3, RebalanceImpl.lock, MQClientInstance.findConsumerIdList,
DefaultMQPushConsumerImpl.sendMessageBack.
"""

import itertools
from typing import Final

import msgspec

from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import (
    ClientError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.flow import Call, CallMany, Flow, Pause
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.pull_answer import ALL_TAGS
from tandem.client.queue_flow import expect_success, may_pass
from tandem.client.results import MessageQueue
from tandem.wire.delay_level import DelayLevels
from tandem.wire.errors import MalformedFrameError
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import PROPERTY_RETRY_TOPIC, java_string_hash
from tandem.wire.remoting_command import RemotingCommand  # noqa: TC001  flows speak of it
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerIdList,
    ConsumerSendMsgBackRequestHeader,
    GroupRequestHeader,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueBody,
    SubscriptionData,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID, decode_json_body, encode_json_body

LOCK_TIMEOUT_SECONDS: Final = 1.0
"""RocketMQ's, for LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

NO_MORE_TRIES: Final = -1
"""The delay level that makes a message a dead letter at once."""

NEXT_LEVEL: Final = 0
"""The delay level that lets the broker choose: one more than the last time, from 10 s on."""

_DELAYS_MS: Final = DelayLevels().delays_ms


def delay_level(delay_seconds: float | None) -> int:
    """Return the lowest level whose delay is at least this; None: the broker's choice.

    The levels are RocketMQ's: 1 s to 2 h. Longer delays get the last one.
    """
    if delay_seconds is None:
        return NEXT_LEVEL
    for level, delay_ms in enumerate(_DELAYS_MS, start=1):
        if delay_ms >= delay_seconds * 1000:
            return level
    return len(_DELAYS_MS)


class Filter(msgspec.Struct, frozen=True):
    """Which messages of a topic are wanted: `sql` if it is not None, else `tags`."""

    topic: str
    tags: str = ALL_TAGS
    sql: str | None = None


def subscription_data(wanted: Filter, version: int) -> SubscriptionData:
    """Return what a heartbeat says of one subscription.

    Source: RocketMQ 5.3.3, FilterAPI.build and buildSubscriptionData.
    """
    if wanted.sql is not None:
        return SubscriptionData(wanted.topic, wanted.sql, version, "SQL92")
    tags = [each.strip() for each in wanted.tags.split("||")]
    names = [tag for tag in tags if tag not in ("", ALL_TAGS)]
    codes: list[int | str] = [java_string_hash(name) for name in names]
    return SubscriptionData(wanted.topic, wanted.tags, version, "TAG", names, codes)


class GroupMember:
    """Asks for one member of a group."""

    def __init__(self, core: ClientCore, group: str, max_reconsume_times: int | None) -> None:
        self._core = core
        self._group = group
        self._max_reconsume_times = max_reconsume_times

    def members(self, topic: str) -> Flow[list[str] | None]:
        """Return the client ids of the group, None if no broker of `topic` knows any.

        Every broker has a heartbeat of every member; the first that answers is as good as another.
        """
        ext = GroupRequestHeader(self._group)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        for address in self._masters(topic):
            deadline = self._core.clock() + REQUEST_TIMEOUT_SECONDS
            try:
                answer: RemotingCommand = yield Call(address, code, ext, deadline)
                if answer.code == ResponseCode.SUCCESS:
                    return decode_json_body(answer.body, ConsumerIdList).consumer_id_list
            except (ClientError, MalformedFrameError):
                self._core.suspect_route(topic)
        return None

    def _masters(self, topic: str) -> list[str]:
        route = self._core.routes.get(topic)
        if route is None:
            return []
        found = [broker.broker_addrs.get(MASTER_ID) for broker in route.data.broker_datas]
        return [address for address in found if address is not None]

    def lock(self, queues: list[MessageQueue]) -> Flow[list[MessageQueue]]:
        """Return those of `queues` that this client alone may read for a minute from now on."""
        by_address = self._by_master(queues)
        calls = [
            self._lock_call(RequestCode.LOCK_BATCH_MQ, address, part)
            for address, part in by_address.items()
        ]
        if not calls:
            return []
        answers: list[RemotingCommand | ClientError] = yield CallMany(calls)
        granted: list[MessageQueue] = []
        for answer, part in zip(answers, by_address.values(), strict=True):
            if isinstance(answer, ClientError) or answer.code != ResponseCode.SUCCESS:
                for queue in part:
                    self._core.suspect_route(queue.topic)
                continue
            try:
                body = decode_json_body(answer.body, LockBatchResponseBody)
            except MalformedFrameError:
                continue
            held = {(each.topic, each.broker_name, each.queue_id) for each in body.lock_ok_mq_set}
            granted += [q for q in part if (q.topic, q.broker_name, q.queue_id) in held]
        return granted

    def unlock(self, queues: list[MessageQueue]) -> Flow[None]:
        """Let other members have them. Best effort: a lock ends by itself after a minute."""
        calls = [
            self._lock_call(RequestCode.UNLOCK_BATCH_MQ, address, part)
            for address, part in self._by_master(queues).items()
        ]
        if calls:
            yield CallMany(calls)

    def _by_master(self, queues: list[MessageQueue]) -> dict[str, list[MessageQueue]]:
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            route = self._core.routes.get(queue.topic)
            address = route.addresses(queue.broker_name).get(MASTER_ID) if route else None
            if address is not None:
                by_address.setdefault(address, []).append(queue)
        return by_address

    def _lock_call(self, code: RequestCode, address: str, queues: list[MessageQueue]) -> Call:
        body = LockBatchRequestBody(
            self._core.identity.client_id,
            self._group,
            [MessageQueueBody(q.broker_name, q.queue_id, q.topic) for q in queues],
        )
        deadline = self._core.clock() + LOCK_TIMEOUT_SECONDS
        return Call(address, code, None, deadline, encode_json_body(body))

    def send_back(self, queue: MessageQueue, message: MessageExt, level: int) -> Flow[None]:
        """Let the group have a message again later; see `delay_level`.

        Tries again while the master changes. It may then come twice.

        Raises:
            ClientError: what the last try ended with. The message is not settled.
        """
        ext = ConsumerSendMsgBackRequestHeader(
            message.physical_offset,
            self._group,
            level,
            message.msg_id,
            message.properties.get(PROPERTY_RETRY_TOPIC, message.topic),
            unit_mode=False,
            max_reconsume_times=self._max_reconsume_times,
            broker_name=queue.broker_name,
        )
        end = self._core.clock() + SWITCH_SECONDS
        for retries_count in itertools.count():
            try:
                yield from self._send_back_once(queue, ext, end)
            except ClientError as error:
                self._core.suspect_route(queue.topic)
                pause = retry_pause_seconds(retries_count)
                if not may_pass(error) or self._core.clock() + pause >= end:
                    raise
                yield Pause(pause)
            else:
                return

    def _send_back_once(
        self, queue: MessageQueue, ext: ConsumerSendMsgBackRequestHeader, end: float
    ) -> Flow[None]:
        route = yield from self._core.route(queue.topic, end)
        address = route.addresses(queue.broker_name).get(MASTER_ID)
        if address is None:
            reason = f"no master of broker {queue.broker_name!r} is registered"
            raise RouteNotFoundError(queue.topic, RouteCause.NO_MASTER, reason, may_pass=True)
        deadline = min(end, self._core.clock() + REQUEST_TIMEOUT_SECONDS)
        answer: RemotingCommand = yield Call(
            address, RequestCode.CONSUMER_SEND_MSG_BACK, ext, deadline
        )
        expect_success(answer, address)
