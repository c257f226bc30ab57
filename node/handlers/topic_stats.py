"""What a broker knows of a topic: how it is set up, how full its queues are, who consumes it.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import Final

from node.errors import RequestError
from node.handlers.subscription import Wanted, as_told, by_tags, is_tag_type
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, of_topic, serves
from node.tables.broker_stats import TOPIC_PUT_NUMS, BrokerStats
from node.tables.client_table import ClientTable
from node.tables.tables import Tables
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody, SubscriptionData, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicList, encode_json_body
from tandem.wire.stats_requests import (
    ConsumeQueueData,
    GroupList,
    QueryConsumeQueueRequestHeader,
    QueryConsumeQueueResponseBody,
    TopicOffset,
    TopicRequestHeader,
    TopicStatsTable,
    queue_map,
)
from tandem.wire.system_topics import SYSTEM_TOPICS, is_system_topic

NO_FILTER_DATA: Final = "null"
"""What RocketMQ says of a group that filters by tags, or not at all."""

UNITS_MAX: Final = 1_024
"""Units of a queue in one answer. Ours: RocketMQ sends as many as are asked for."""


class TopicStats:
    """Serves what `topicStatus`, `topicList -c` and `queryCq` ask for."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        clients: ClientTable,
        stats: BrokerStats,
        *,
        cluster_name: str,
        broker_name: str,
    ) -> None:
        self._store = store
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._clients = clients
        self._stats = stats
        self._cluster_name = cluster_name
        self._broker_name = broker_name

    @serves(
        RequestCode.GET_TOPIC_STATS_INFO,
        (Resource.TOPICS, Action.READ),
        of_topic("topic", Right.GET),
        header=TopicRequestHeader,
    )
    def topic_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_STATS_INFO. Source: AdminBrokerProcessor.getTopicStatsInfo."""
        config = self._config(command)
        topic, store = config.topic_name, self._store
        entries = []
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            end = store.reads.max_offset_in_queue(topic, queue_id)
            last_ms = store.reads.message_store_timestamp_ms(topic, queue_id, end - 1)
            first = store.reads.min_offset_in_queue(topic, queue_id)
            entries.append(
                (
                    MessageQueueBody(self._broker_name, queue_id, topic),
                    TopicOffset(max(0, last_ms), end, first),
                )
            )
        tps = self._stats.minute_of(TOPIC_PUT_NUMS, topic).tps
        body = TopicStatsTable(queue_map(entries), tps)
        return response_to(command, body=encode_json_body(body))

    @serves(
        RequestCode.GET_TOPIC_CONFIG,
        (Resource.TOPICS, Action.READ),
        of_topic("topic", Right.GET),
        header=TopicRequestHeader,
    )
    def topic_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG. Source: AdminBrokerProcessor.getTopicConfig."""
        return response_to(command, body=encode_json_body(self._config(command)))

    def _config(self, command: RemotingCommand) -> TopicConfig:
        topic = command.decode_header(TopicRequestHeader).topic
        config = self._topics.get(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    @serves(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        (Resource.CLIENTS, Action.READ),
        of_topic("topic", Right.GET),
        header=TopicRequestHeader,
    )
    def consumed_by(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups with clients that want it, and those with offsets.

        RocketMQ lists the topic itself among them as soon as a client wants it; that is a mistake.

        Source: AdminBrokerProcessor.queryTopicConsumeByWho.
        """
        topic = command.decode_header(TopicRequestHeader).topic
        groups = [*self._clients.groups_of(topic), *self._offsets.groups_of(topic)]
        body = GroupList(list(dict.fromkeys(groups)))
        return response_to(command, body=encode_json_body(body))

    @serves(
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        (Resource.TOPICS, Action.READ),
        of_cluster(Right.LIST),
    )
    def system_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER: those of every RocketMQ, of this broker, and ours.

        Source: AdminBrokerProcessor.getSystemTopicListFromBroker.
        """
        here = self._topics.configs.topic_config_table
        own = [topic for topic in here if is_system_topic(topic)]
        topics = {*SYSTEM_TOPICS, self._cluster_name, self._broker_name, *own}
        return response_to(command, body=encode_json_body(TopicList(sorted(topics))))

    @serves(
        RequestCode.QUERY_CONSUME_QUEUE,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.GET),
        header=QueryConsumeQueueRequestHeader,
    )
    def consume_queue(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE: units as they are.

        Source: AdminBrokerProcessor.queryConsumeQueue.
        """
        header = command.decode_header(QueryConsumeQueueRequestHeader)
        topic, queue_id = header.topic, header.queue_id
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        first = self._store.reads.min_offset_in_queue(topic, queue_id)
        end = self._store.reads.max_offset_in_queue(topic, queue_id)
        filter_data, wanted = self._subscription(header.consumer_group, topic)
        has_tags = wanted is not None and is_tag_type(wanted.expression_type)
        codes = (by_tags(wanted.sub_string) if wanted and has_tags else Wanted()).tags_codes
        # RocketMQ judges only units that have an extension.
        has_ext = self._store.config.enable_consume_queue_ext
        start = max(first, header.index)
        count = min(header.index + header.count, end, start + UNITS_MAX) - start
        units = queue.units(start, count) if count > 0 else ()
        return response_to(
            command,
            body=encode_json_body(
                QueryConsumeQueueResponseBody(
                    max_queue_index=end,
                    min_queue_index=first,
                    queue_data=[
                        ConsumeQueueData(
                            has_ext and wanted is not None and (codes is None or code in codes),
                            offset,
                            size,
                            code,
                        )
                        for offset, size, code in units
                    ],
                    filter_data=filter_data,
                    subscription_data=wanted and as_told(wanted),
                )
            ),
        )

    def _subscription(
        self, group: str | None, topic: str
    ) -> tuple[str | None, SubscriptionData | None]:
        if not group:
            return None, None
        wanted = self._clients.subscription(group, topic)
        return (f"{group}@{topic} is not online!" if wanted is None else NO_FILTER_DATA), wanted
