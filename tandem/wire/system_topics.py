"""Topics that a broker keeps for itself, and how those of groups are called.

A message that has to wait is in a topic of the system: delayed ones in SCHEDULE_TOPIC_XXXX (see
`tandem.wire.delay_level`), halves of transactions in RMQ_SYS_TRANS_HALF_TOPIC. Its properties
REAL_TOPIC and REAL_QID say where it belongs.

Source: RocketMQ 5.3.3, TopicValidator, MixAll, TransactionalMessageUtil.
"""

from typing import Final

AUTO_CREATE_TOPIC: Final = "TBW102"
"""Source: TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Source: TopicValidator.RMQ_SYS_SCHEDULE_TOPIC."""
RMQ_SYS_TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where clients of RocketMQ write what became of their messages."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
JOURNAL_TOPIC: Final = "rmq_sys_TANDEM_JOURNAL"
"""Ours: what a fenced group keeps beside its messages. To RocketMQ a system topic like others."""
CID_RMQ_SYS_TRANS: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group under which the check of transactions keeps its progress."""

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
"""Source: TopicValidator.SYSTEM_TOPIC_PREFIX."""

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        RMQ_SYS_TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Source: TopicValidator.SYSTEM_TOPIC_SET. Its brokers add their own name and their cluster's."""

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
"""Of the topic of a cluster's replies, after its name. Source: MixAll.REPLY_TOPIC_POSTFIX."""

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"

LMQ_PREFIX: Final = "%LMQ%"
"""Of a light queue, which names records of other topics. Source: MixAll.LMQ_PREFIX."""


def retry_topic(group: str) -> str:
    """Return the topic that a consumer group's failed messages come back through."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic where a consumer group's given-up messages end."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Say whether brokers keep a topic for themselves. Source: TopicValidator.isSystemTopic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)
