"""The topics through which messages come back to a group that pops them, and whose they are.

    %RETRY%group+topic   V2: neither name can have a `+`, so both are known
    %RETRY%group_topic   V1: names have `_` of their own, and a group may be called `group_topic`

A record of V1 is told from a retry of a group of that name by its properties: who revives it notes
when it was popped first, and whoever gives a message back to its group notes its topic.

Source: RocketMQ 5.3.3, KeyBuilder.buildPopRetryTopic, PopReviveService.reviveRetry,
AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tandem.wire.message_properties import PROPERTY_FIRST_POP_TIME, PROPERTY_RETRY_TOPIC
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX, retry_topic

SEPARATOR_V2: Final = "+"
SEPARATOR_V1: Final = "_"


class PopRetry(msgspec.Struct, frozen=True):
    """Whose a retry topic is, and of which topic."""

    group: str
    topic: str


def pop_retry_topics(group: str, topic: str) -> list[str]:
    """Return where messages of a topic come back to a group that pops them, of either version."""
    prefix = retry_topic(group)
    return [f"{prefix}{separator}{topic}" for separator in (SEPARATOR_V2, SEPARATOR_V1)]


def pop_retry_of(
    retries: str, properties: Mapping[str, str], topics: Iterable[str]
) -> PopRetry | None:
    """Return what a retry topic is of; None: it is an ordinary one, or nobody can say.

    Args:
        retries: the topic.
        properties: those of a record in it.
        topics: which its message may have been sent to, the likeliest first.
    """
    if not retries.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return None
    name = retries.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
    group, separator, topic = name.partition(SEPARATOR_V2)
    if separator:
        return PopRetry(group, topic) if group and topic else None
    if PROPERTY_FIRST_POP_TIME not in properties or PROPERTY_RETRY_TOPIC in properties:
        return None
    for topic in topics:
        group = name.removesuffix(f"{SEPARATOR_V1}{topic}")
        if topic and group not in ("", name):
            return PopRetry(group, topic)
    return None
