"""The topics that a consumer group has for itself: what comes back, and what was given up."""

from __future__ import annotations

from node.errors import RequestError
from node.tables.tables import Tables
from node.tables.topic_config_table import topic_complaint
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import dlq_topic


def dead_letter_topic(tables: Tables, group: str) -> str:
    """Return the topic of what a group has given up, which is there after that.

    Raises:
        RequestError: No topic can have that name, or it cannot be created.
    """
    topic = dlq_topic(group)
    ensure_topic(tables, topic, 1)
    return topic


def ensure_topic(tables: Tables, topic: str, queue_nums: int) -> None:
    """Create a topic of a group unless it is there.

    Source: TopicConfigManager.createTopicInSendMessageBackMethod.

    Raises:
        RequestError: No topic can have that name, or it cannot be created.
    """
    if tables.topics.get(topic) is not None:
        return
    if complaint := topic_complaint(topic):
        raise RequestError(ResponseCode.SYSTEM_ERROR, complaint)
    tables.change_topics(group_topic(topic, queue_nums))


def group_topic(topic: str, queue_nums: int) -> TopicConfig:
    """What a topic of a group is like."""
    return TopicConfig(topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums)
