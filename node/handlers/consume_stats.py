"""How far consumer groups are: GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS, and more of that kind.

    min offset       consumer offset   pull offset        broker offset
        |==================|---in flight---|-------------------|
                           '---------- diff (lag) -------------'

Every node answers with what it has; offsets and ends of queues are those that are confirmed.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable

from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, of_group, of_topic, serves
from node.tables.broker_stats import GROUP_GET_NUMS, BrokerStats
from node.tables.client_table import ClientTable
from node.tables.tables import Tables
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tandem.wire.stats_requests import (
    BrokerConsumeStatsRequestHeader,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeStatsRequestHeader,
    ConsumeTimeSpanRequestHeader,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueryCorrectionOffsetHeader,
    QueueTimeSpan,
    queue_map,
)
from tandem.wire.store_layout import OFFSET_MAX


class ConsumeStatsRequests:
    """Serves what `consumerProgress` and `brokerConsumeStats` ask for."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        clients: ClientTable,
        stats: BrokerStats,
        *,
        broker_name: str,
        broker_address: str,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._groups = tables.groups
        self._clients = clients
        self._stats = stats
        self._broker_name = broker_name
        self._broker_address = broker_address
        self._wall_clock_ms = wall_clock_ms

    @serves(
        RequestCode.GET_CONSUME_STATS,
        (Resource.OFFSETS, Action.READ),
        of_topic("topic", Right.GET),
        of_group("consumer_group", Right.GET),
        header=ConsumeStatsRequestHeader,
    )
    def consume_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_CONSUME_STATS: one group, by queue. A group that nobody knows has none.

        Source: AdminBrokerProcessor.getConsumeStats.
        """
        header = command.decode_header(ConsumeStatsRequestHeader)
        group = header.consumer_group
        listed = [topic for topic in (header.topic_list or "").split(";") if topic]
        topics = listed or ([header.topic] if header.topic else self._offsets.topics_of(group))
        entries: list[tuple[MessageQueueBody, OffsetWrapper]] = []
        consume_tps = 0.0
        for topic in topics:
            config = self._topics.get(topic)
            if config is None or not (listed or self._may_want(group, topic)):
                continue
            entries += self._progress(group, config, config.read_queue_nums, with_pulls=True)
            consume_tps += self._consume_tps(group, topic)
        body = ConsumeStats(consume_tps, queue_map(entries))
        return response_to(command, body=encode_json_body(body))

    def _may_want(self, group: str, topic: str) -> bool:
        """False for a topic that the group once read, and its clients do not any more."""
        is_wanted = self._clients.subscription(group, topic) is not None
        return is_wanted or not self._clients.has_subscriptions(group)

    def _consume_tps(self, group: str, topic: str) -> float:
        return self._stats.minute_of(GROUP_GET_NUMS, f"{topic}@{group}").tps

    def _progress(
        self, group: str, config: TopicConfig, queue_nums: int, *, with_pulls: bool
    ) -> list[tuple[MessageQueueBody, OffsetWrapper]]:
        topic, store = config.topic_name, self._store
        entries = []
        for queue_id in range(queue_nums):
            consumed = self._offsets.query(group, topic, queue_id) or 0
            stored_ms = store.reads.message_store_timestamp_ms(topic, queue_id, consumed - 1)
            pulled = self._stats.pull_offset(group, topic, queue_id) if with_pulls else 0
            progress = OffsetWrapper(
                broker_offset=store.reads.max_offset_in_queue(topic, queue_id),
                consumer_offset=consumed,
                last_timestamp=max(0, stored_ms),
                pull_offset=max(consumed, pulled) if with_pulls else 0,
            )
            entries.append((self._queue(topic, queue_id), progress))
        return entries

    def _queue(self, topic: str, queue_id: int) -> MessageQueueBody:
        return MessageQueueBody(self._broker_name, queue_id, topic)

    @serves(
        RequestCode.GET_BROKER_CONSUME_STATS,
        (Resource.OFFSETS, Action.READ),
        of_cluster(Right.GET),
        header=BrokerConsumeStatsRequestHeader,
    )
    def broker_consume_stats(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """GET_BROKER_CONSUME_STATS: all groups, one record a topic.

        As in RocketMQ `pullOffset` is 0 in these, and so the total in flight is below 0.

        Source: AdminBrokerProcessor.fetchAllConsumeStatsInBroker.
        """
        header = command.decode_header(BrokerConsumeStatsRequestHeader)
        found: list[dict[str, list[ConsumeStats]]] = []
        total_diff = total_inflight_diff = 0
        configured = self._groups.configs.subscription_group_table
        for group in dict.fromkeys((*configured, *self._offsets.groups())):
            records = []
            for topic in self._offsets.topics_of(group):
                config = self._topics.get(topic)
                is_other_kind = config is not None and header.is_order and not config.order
                if config is None or is_other_kind or not self._may_want(group, topic):
                    continue
                entries = self._progress(group, config, config.write_queue_nums, with_pulls=False)
                total_diff += sum(each.broker_offset - each.consumer_offset for _, each in entries)
                total_inflight_diff -= sum(each.consumer_offset for _, each in entries)
                records.append(ConsumeStats(self._consume_tps(group, topic), queue_map(entries)))
            found.append({group: records})
        body = ConsumeStatsList(self._broker_address, found, total_diff, total_inflight_diff)
        return response_to(command, body=encode_json_body(body))

    @serves(
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        (Resource.OFFSETS, Action.READ),
        of_topic("topic", Right.GET),
        of_group("group", Right.GET),
        header=ConsumeTimeSpanRequestHeader,
    )
    def time_span(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_TIME_SPAN: how far a group is in each queue, by time.

        Source: AdminBrokerProcessor.queryConsumeTimeSpan.
        """
        header = command.decode_header(ConsumeTimeSpanRequestHeader)
        config = self._topics.get(header.topic)
        if config is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        spans = [
            self._span(header.group, header.topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        ]
        return response_to(command, body=encode_json_body(QueryConsumeTimeSpanBody(spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        def stored_ms(offset: int) -> int:
            return self._store.reads.message_store_timestamp_ms(topic, queue_id, offset)

        end = self._store.reads.max_offset_in_queue(topic, queue_id)
        first_ms = stored_ms(self._store.reads.min_offset_in_queue(topic, queue_id))
        consumed = self._offsets.query(group, topic, queue_id) or 0
        next_ms = stored_ms(consumed) if consumed < end else -1
        return QueueTimeSpan(
            consume_time_stamp=stored_ms(consumed - 1) if consumed > 0 else first_ms,
            delay_time=self._wall_clock_ms() - next_ms if next_ms >= 0 else 0,
            max_time_stamp=stored_ms(end - 1),
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first_ms,
        )

    @serves(
        RequestCode.QUERY_CORRECTION_OFFSET,
        (Resource.OFFSETS, Action.READ),
        of_topic("topic", Right.GET),
        of_group("compare_group", Right.GET),
        header=QueryCorrectionOffsetHeader,
    )
    def correction_offset(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """QUERY_CORRECTION_OFFSET: by queue the lowest offset that any group of a topic has.

        Groups that are not to count are left out, and so are offsets below what the queue still
        holds. Where `compareGroup` is further back, the offset is the highest there is.

        Source: AdminBrokerProcessor.queryCorrectionOffset, queryMinOffsetInAllGroup.
        """
        header = command.decode_header(QueryCorrectionOffsetHeader)
        config, topic = self._topics.get(header.topic), header.topic
        left_out = set((header.filter_groups or "").split(","))
        groups = [group for group in self._offsets.groups_of(topic) if group not in left_out]
        lowest: dict[int, int] = {}
        queue_nums = max(config.read_queue_nums, config.write_queue_nums) if config else 0
        for queue_id in range(queue_nums):
            known = [self._offsets.query(group, topic, queue_id) for group in groups]
            first = self._store.reads.min_offset_in_queue(topic, queue_id)
            held = [offset for offset in known if offset is not None and offset >= first]
            if not held:
                continue
            compared = self._offsets.query(header.compare_group or "", topic, queue_id)
            is_behind = compared is not None and min(held) > compared
            lowest[queue_id] = OFFSET_MAX if is_behind else min(held)
        return response_to(command, body=encode_json_body(QueryCorrectionOffsetBody(lowest)))
