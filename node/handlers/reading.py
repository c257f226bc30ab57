"""Whether a group may read a topic, for all requests that read for a group.

Source: RocketMQ 5.3.3, PullMessageProcessor, PopMessageProcessor.
"""

from __future__ import annotations

from node.errors import RequestError
from node.tables.subscription_group_table import READING
from node.tables.tables import Tables
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import PERM_READ
from tandem.wire.subscription_group import SubscriptionGroupConfig


def readable_topic(tables: Tables, topic: str) -> TopicConfig:
    """Return what is set for a topic.

    Raises:
        RequestError: there is none of this name, or nobody may read it.
    """
    config = tables.topics.get(topic)
    if config is None:
        raise RequestError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
        )
    if not config.perm & PERM_READ:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden"
        )
    return config


def check_reader(tables: Tables, group: SubscriptionGroupConfig, topic: str) -> None:
    """Make sure that a group may read a topic.

    Raises:
        RequestError: an operator has said that it may not (NO_PERMISSION).
    """
    name = group.group_name
    if not group.consume_enable:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"subscription group no permission, {name}: consumeEnable is false",
        )
    if tables.groups.forbidden(name, topic) & READING:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{name}] is forbidden to read topic[{topic}]",
        )
