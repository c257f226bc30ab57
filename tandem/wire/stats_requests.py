"""Headers and bodies of the requests that ask how topics, groups and a broker are doing.

Keys of the JSON come in alphabetical order, as fastjson writes them. A map by queue has keys that
are objects, which is no JSON: Java writes it, RocketMQ's clients read it.

    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:{"maxOffset":10,..}}}

Source: RocketMQ 5.3.3, remoting.protocol.header, .body and .admin; recorded answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import Body, Header, MessageQueueBody, SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Iterable


def queue_map(entries: Iterable[tuple[MessageQueueBody, msgspec.Struct | int]]) -> msgspec.Raw:
    """Return a map by queue as Java writes it, to be put into a body."""
    encode = msgspec.json.encode
    return msgspec.Raw(
        b"{%b}" % b",".join(b"%b:%b" % (encode(queue), encode(value)) for queue, value in entries)
    )


# Statistics


class ViewBrokerStatsDataRequestHeader(Header, frozen=True):
    """VIEW_BROKER_STATS_DATA: an item by name, such as TOPIC_PUT_NUMS, and key."""

    stats_name: str
    stats_key: str


class BrokerStatsItem(Body, frozen=True):
    """One window of an item: sum, sum a second, and sum a time something was added."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Body, frozen=True):
    """Body of the answer to VIEW_BROKER_STATS_DATA."""

    stats_day: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_minute: BrokerStatsItem


# Topics


class TopicRequestHeader(Header, frozen=True):
    """GET_TOPIC_STATS_INFO, GET_TOPIC_CONFIG and QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class TopicOffset(Body, frozen=True):
    """One queue of a topic. The time is that of its last message in ms since 1970, 0 if none."""

    last_update_timestamp: int
    max_offset: int
    min_offset: int


class TopicStatsTable(Body, frozen=True):
    """Body of the answer to GET_TOPIC_STATS_INFO: a `TopicOffset` by queue."""

    offset_table: msgspec.Raw
    topic_put_tps: float


class GroupList(Body, frozen=True):
    """Body of the answer to QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str]


# Consumer groups


class ConsumeStatsRequestHeader(Header, frozen=True):
    """GET_CONSUME_STATS: of all topics of the group, of one, or of a list."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    """Topics, each followed by `;`. Of these it is not asked whether the group wants them."""


class OffsetWrapper(Body, frozen=True):
    """How far a group is in one queue.

    `last_timestamp` is when the last message consumed was stored, in ms since 1970; 0 if unknown.
    """

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    pull_offset: int


class ConsumeStats(Body, frozen=True):
    """Body of the answer to GET_CONSUME_STATS: an `OffsetWrapper` by queue."""

    consume_tps: float
    offset_table: msgspec.Raw


class BrokerConsumeStatsRequestHeader(Header, frozen=True):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool


class ConsumeStatsList(Body, frozen=True):
    """Body of the answer to GET_BROKER_CONSUME_STATS: for each group one record a topic."""

    broker_addr: str
    consume_stats_list: list[dict[str, list[ConsumeStats]]]
    total_diff: int
    total_inflight_diff: int


class ConsumeTimeSpanRequestHeader(Header, frozen=True):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class QueueTimeSpan(Body, frozen=True):
    """Store times in one queue, in ms since 1970; -1 where there is no message.

    `delay_time` says for how many ms the next message has been waiting for the group.
    """

    consume_time_stamp: int
    delay_time: int
    max_time_stamp: int
    message_queue: MessageQueueBody
    min_time_stamp: int


class QueryConsumeTimeSpanBody(Body, frozen=True):
    """Body of the answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan]


class QueryCorrectionOffsetHeader(Header, frozen=True):
    """QUERY_CORRECTION_OFFSET."""

    topic: str
    filter_groups: str | None = None
    """Groups, joined by commas, that do not count."""
    compare_group: str | None = None


class QueryCorrectionOffsetBody(Body, frozen=True):
    """Body of the answer to QUERY_CORRECTION_OFFSET: an offset by queue id."""

    correction_offsets: dict[int, int]


# The queue itself


class QueryConsumeQueueRequestHeader(Header, frozen=True):
    """QUERY_CONSUME_QUEUE: `count` units from queue offset `index` on."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class ConsumeQueueData(Body, frozen=True):
    """One unit. `is_matched` says whether the group's filter takes the message."""

    is_matched: bool = msgspec.field(name="eval")
    physic_offset: int
    physic_size: int
    tags_code: int


class QueryConsumeQueueResponseBody(Body, frozen=True, omit_defaults=True):
    """Body of the answer to QUERY_CONSUME_QUEUE."""

    max_queue_index: int
    min_queue_index: int
    queue_data: list[ConsumeQueueData]
    filter_data: str | None = None
    """What is to be said about the group's filter, for people."""
    subscription_data: SubscriptionData | None = None


# The broker


class GetBrokerConfigResponseHeader(Header, frozen=True):
    """Answer to GET_BROKER_CONFIG."""

    version: str
    """A DataVersion in JSON."""


class EpochEntryBody(Body, frozen=True):
    """One master's part of the log, in physical offsets."""

    end_offset: int
    epoch: int
    start_offset: int


class EpochEntryCache(Body, frozen=True):
    """Body of the answer to GET_BROKER_EPOCH_CACHE."""

    broker_id: int
    broker_name: str
    cluster_name: str
    epoch_list: list[EpochEntryBody]
    max_offset: int


# How queues are shared


class QueryAssignmentRequestBody(Body, frozen=True):
    """Body of QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body, frozen=True):
    """A queue for a client, and how it is to read it: PULL or POP."""

    message_queue: MessageQueueBody
    mode: str


class QueryAssignmentResponseBody(Body, frozen=True):
    """Body of the answer to QUERY_ASSIGNMENT."""

    message_queue_assignments: list[MessageQueueAssignment]


class SetMessageRequestModeRequestBody(Body, frozen=True, kw_only=True):
    """Body of SET_MESSAGE_REQUEST_MODE, and what GET_ALL_MESSAGE_REQUEST_MODE lists."""

    consumer_group: str
    mode: str
    pop_share_queue_num: Int32 = 0
    """POP: how many clients share a queue with the one that pulls would have it; 0 or below: all
    of them share all."""
    topic: str


class MessageRequestModeSerializeWrapper(Body, frozen=True):
    """Body of the answer to GET_ALL_MESSAGE_REQUEST_MODE: by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]]
