"""The rules of administration of consumer groups: members, lag, where they go on.

Source: RocketMQ 5.3.3, DefaultMQAdminExtImpl.examineConsumeStats, examineConsumerConnectionInfo,
getConsumerRunningInfo, resetOffsetByTimestamp, deleteSubscriptionGroup.
"""

import enum
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.client.admin_calls import AdminCalls, BrokerAnswer, decode_body, illegible
from tandem.client.admin_results import (
    GroupDescription,
    GroupMember,
    GroupQueue,
    GroupSummary,
    OffsetChange,
    ResetPlan,
    ResetWay,
)
from tandem.client.errors import BrokerError, ClientError, GroupNotFoundError
from tandem.client.flow import Call, CallMany, Flow
from tandem.client.topic_admin import TopicAdministration
from tandem.wire.admin_headers import (
    ClientConnection,
    ClientRequestHeader,
    ConsumerConnection,
    DeleteSubscriptionGroupRequestHeader,
    ResetOffsetRequestHeader,
)
from tandem.wire.errors import MalformedFrameError
from tandem.wire.lag import total_lag
from tandem.wire.mq_version import version_text
from tandem.wire.queue_map import ConsumeOffsets, GroupsOffsets, RunningInfo, by_queue
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    GroupRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import BrokerConsumeStatsRequestHeader, ConsumeStatsRequestHeader
from tandem.wire.subscription_group import SubscriptionGroupWrapper
from tandem.wire.system_topics import dlq_topic, retry_topic

if TYPE_CHECKING:
    from tandem.wire.remoting_command import RemotingCommand

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""RocketMQ's group for tools: every broker has it."""

SYSTEM_GROUP_PREFIXES: Final = ("CID_RMQ_SYS_", "CID_ONS", "CID_SYS_")
SYSTEM_GROUPS: Final = frozenset(
    {TOOLS_GROUP, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "SCHEDULE_CONSUMER"}
)
"""Source: RocketMQ 5.3.3, MixAll, SubscriptionGroupManager.init."""

NOT_RESET_BY_BROKER: Final = frozenset(
    {ResponseCode.CONSUMER_NOT_ONLINE.value, ResponseCode.REQUEST_CODE_NOT_SUPPORTED.value}
)
"""What brokers without a reset of their own answer."""

Queue = tuple[str, str, int]
"""Topic, broker name and queue id."""


class ResetTo(enum.Enum):
    """Where a group goes on in each queue. `TIME` and `OFFSET` go with a number."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"


class _Connected(msgspec.Struct):
    """What brokers know of the clients of a group."""

    clients: dict[str, tuple[ClientConnection, str]] = {}
    """By client id, with the address of a broker that knows it."""
    message_model: str = ""
    consume_type: str = ""
    subscriptions: dict[str, str] = {}


class GroupAdministration:
    """Asks about consumer groups for one administrator. Flows only."""

    def __init__(self, calls: AdminCalls, topics: TopicAdministration) -> None:
        self._calls = calls
        self._topics = topics

    def summaries(self, *, of_system: bool = False) -> Flow[list[GroupSummary]]:
        """Return all consumer groups with their lag; with `of_system` those of brokers, too."""
        answers = yield from self._calls.each_broker(
            RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequestHeader(is_order=False)
        )
        topics: dict[str, set[str]] = defaultdict(set)
        lags: dict[str, list[int]] = defaultdict(list)
        for answer in answers:
            for table in answer.body(GroupsOffsets).consume_stats_list:
                for group, stats in table.items():
                    topics[group] |= set()
                    for each in queues_of(stats, answer):
                        topics[group].add(each.topic)
                        lags[group].append(each.lag)
        groups = sorted(group for group in topics if of_system or not is_group_of_system(group))
        counts = yield from self._members_counts(groups, [each.address for each in answers])
        return [
            GroupSummary(group, counts[group], sorted(topics[group]), total_lag(lags[group]))
            for group in groups
        ]

    def _members_counts(self, groups: list[str], addresses: list[str]) -> Flow[dict[str, int]]:
        pairs = [(group, address) for group in groups for address in addresses]
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        answers: list[RemotingCommand | ClientError] = yield CallMany(
            [
                Call(address, code, GroupRequestHeader(group), self._calls.deadline())
                for group, address in pairs
            ]
        )
        clients: dict[str, set[str]] = {group: set() for group in groups}
        for (group, address), answer in zip(pairs, answers, strict=True):
            if isinstance(answer, ClientError) or answer.code != ResponseCode.SUCCESS:
                continue
            body = decode_body(answer, ConsumerConnection, address)
            clients[group] |= {each.client_id for each in body.connection_set}
        return {group: len(each) for group, each in clients.items()}

    def describe(self, group: str) -> Flow[GroupDescription]:
        """Return members, and how far the group is in each queue.

        Raises:
            GroupNotFoundError: no broker knows it.
        """
        connected = yield from self._connected(group)
        answers = yield from self._calls.each_broker(
            RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader(group)
        )
        queues = [
            queue for each in answers for queue in queues_of([each.body(ConsumeOffsets)], each)
        ]
        if not queues and not connected.clients:
            yield from self._check_known(group)
        readers = yield from self._readers(group, connected)
        owner = {queue: client_id for client_id, found in readers.items() for queue in found}
        return GroupDescription(
            group=group,
            members=[
                GroupMember(
                    client_id=client_id,
                    address=client.client_addr,
                    language=client.language,
                    version=version_text(client.version),
                    queues_count=len(readers[client_id]) if client_id in readers else None,
                )
                for client_id, (client, _) in sorted(connected.clients.items())
            ],
            queues=[
                msgspec.structs.replace(
                    each, client_id=owner.get((each.topic, each.broker_name, each.queue_id), "")
                )
                for each in queues
            ],
            message_model=connected.message_model,
            consume_type=connected.consume_type,
            subscriptions=connected.subscriptions,
        )

    def _connected(self, group: str) -> Flow[_Connected]:
        answers = yield from self._calls.each_broker(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GroupRequestHeader(group),
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
        connected = _Connected({}, subscriptions={})
        for answer in answers:
            body = answer.body(ConsumerConnection)
            connected.message_model = body.message_model
            connected.consume_type = body.consume_type
            for client in body.connection_set:
                connected.clients[client.client_id] = client, answer.address
            for topic, wanted in sorted(body.subscription_table.items()):
                connected.subscriptions[topic] = wanted.sub_string
        return connected

    def _check_known(self, group: str) -> Flow[None]:
        answers = yield from self._calls.each_broker(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None
        )
        tables = [each.body(SubscriptionGroupWrapper).subscription_group_table for each in answers]
        if not any(group in table for table in tables):
            raise GroupNotFoundError(group)

    def _readers(self, group: str, connected: _Connected) -> Flow[dict[str, set[Queue]]]:
        """Return which queues each client reads, of those that say so."""
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        clients = sorted(connected.clients)
        answers: list[RemotingCommand | ClientError] = yield CallMany(
            [
                Call(
                    connected.clients[client_id][1],
                    code,
                    ClientRequestHeader(group, client_id, jstack_enable=False),
                    self._calls.deadline(),
                )
                for client_id in clients
            ]
        )
        readers = {}
        for client_id, answer in zip(clients, answers, strict=True):
            if isinstance(answer, ClientError) or answer.code != ResponseCode.SUCCESS:
                continue
            address = connected.clients[client_id][1]
            try:
                table = by_queue(decode_body(answer, RunningInfo, address).mq_table)
            except MalformedFrameError as error:
                raise illegible(address, error) from error
            readers[client_id] = {
                (each.topic, each.broker_name, each.queue_id) for each, _ in table
            }
        return readers

    def plan_reset(self, group: str, topic: str, to: ResetTo, number: int = 0) -> Flow[ResetPlan]:
        """Return where a group would go on in each queue after a reset; changes nothing.

        `number`: with ResetTo.TIME ms since 1970, with ResetTo.OFFSET the offset in every queue. An
        offset that a queue does not have becomes the nearest that it has.

        Raises:
            RouteNotFoundError: no broker has the topic.
        """
        connected = yield from self._connected(group)
        queues = yield from self._topics.queues(topic)
        changes = []
        for queue in queues:
            where = (queue.broker_name, topic, queue.queue_id)
            old = yield from self._offset(
                queue.broker_name,
                RequestCode.QUERY_CONSUMER_OFFSET,
                QueryConsumerOffsetRequestHeader(group, topic, queue.queue_id),
            )
            wanted = number
            if to is ResetTo.TIME:
                wanted = yield from self._offset_by_time(*where, number)
            elif to is not ResetTo.OFFSET:
                wanted = queue.min_offset if to is ResetTo.EARLIEST else queue.max_offset
            changes.append(
                OffsetChange(
                    topic=topic,
                    broker_name=queue.broker_name,
                    queue_id=queue.queue_id,
                    old_offset=old,
                    new_offset=min(max(wanted, queue.min_offset), queue.max_offset),
                    min_offset=queue.min_offset,
                    max_offset=queue.max_offset,
                )
            )
        return ResetPlan(group, len(connected.clients), changes)

    def _offset_by_time(
        self, broker_name: str, topic: str, queue_id: int, time_ms: int
    ) -> Flow[int]:
        found = yield from self._offset(
            broker_name,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetRequestHeader(topic, queue_id, time_ms),
        )
        return 0 if found is None else found

    def _offset(self, broker_name: str, code: RequestCode, ext: msgspec.Struct) -> Flow[int | None]:
        """Return an offset, None if there is none."""
        try:
            answer = yield from self._calls.broker(broker_name, code, ext)
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        try:
            return answer.command.decode_header(OffsetResponseHeader).offset
        except MalformedFrameError as error:
            raise illegible(answer.address, error) from error

    def apply_reset(self, plan: ResetPlan) -> Flow[ResetWay]:
        """Let a group go on where the plan says.

        The broker does it and tells the members; where it cannot, offsets are committed.
        """
        try:
            for change in plan.changes:
                yield from self._reset(plan.group, change)
        except BrokerError as error:
            if error.code not in NOT_RESET_BY_BROKER:
                raise
            for change in plan.changes:
                yield from self._commit(plan.group, change)
            return ResetWay.COMMIT
        return ResetWay.BROKER

    def _reset(self, group: str, change: OffsetChange) -> Flow[None]:
        header = ResetOffsetRequestHeader(
            change.topic,
            group,
            timestamp=0,
            queue_id=change.queue_id,
            offset=change.new_offset,
            is_force=True,
        )
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        names = [change.broker_name]
        yield from self._calls.each_master(change.topic, code, lambda _: header, names=names)

    def _commit(self, group: str, change: OffsetChange) -> Flow[None]:
        header = UpdateConsumerOffsetRequestHeader(
            group, change.topic, change.queue_id, change.new_offset
        )
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        names = [change.broker_name]
        yield from self._calls.each_master(change.topic, code, lambda _: header, names=names)

    def delete(self, group: str, *, with_dead_letters: bool = False) -> Flow[None]:
        """Forget a group with its offsets and retries. Members that go on bring it back.

        Raises:
            GroupNotFoundError: no broker knows it.
        """
        yield from self.describe(group)
        header = DeleteSubscriptionGroupRequestHeader(group, clean_offset=True)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        yield from self._calls.each_master(group, code, lambda _: header)
        yield from self._topics.forget(retry_topic(group))
        if with_dead_letters:
            yield from self._topics.forget(dlq_topic(group))


def is_group_of_system(group: str) -> bool:
    """Whether brokers or tools made a group for themselves."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIXES)


def queues_of(stats: list[ConsumeOffsets], answer: BrokerAnswer) -> list[GroupQueue]:
    """Return how far a group is in each queue of an answer.

    Raises:
        ConnectionLostError: it does not parse.
    """
    try:
        entries = [entry for each in stats for entry in by_queue(each.offset_table)]
    except MalformedFrameError as error:
        raise illegible(answer.address, error) from error
    return [
        GroupQueue(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            consumer_offset=progress.consumer_offset,
            pull_offset=max(progress.pull_offset, progress.consumer_offset),
            broker_offset=progress.broker_offset,
            last_consumed_timestamp_ms=progress.last_timestamp or None,
        )
        for queue, progress in entries
    ]
