"""Topics that a broker keeps for itself, and the properties by which messages find their way back.

A message that has to wait is in a topic of the system: delayed ones in SCHEDULE_TOPIC_XXXX (see
`tandem.wire.delay_level`), halves of transactions in RMQ_SYS_TRANS_HALF_TOPIC. REAL_TOPIC and
REAL_QID say where it belongs.

Source: RocketMQ 5.3.3, TopicValidator, MixAll, MessageConst, TransactionalMessageUtil.
"""

from typing import Final

RMQ_SYS_TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
JOURNAL_TOPIC: Final = "rmq_sys_TANDEM_JOURNAL"
"""Ours: what a fenced group keeps beside its messages. To RocketMQ a system topic like others."""
CID_RMQ_SYS_TRANS: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group under which the check of transactions keeps its progress."""

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
"""Source: TopicValidator.SYSTEM_TOPIC_PREFIX."""

SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        RMQ_SYS_TRANS_HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
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

PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"

PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"

PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_REQUEST_PROPERTIES: Final = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
"""Any one of them asks for a deliver time of its own; a delay level overrides them."""


def retry_topic(group: str) -> str:
    """Return the topic that a consumer group's failed messages come back through."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic where a consumer group's given-up messages end."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Say whether brokers keep a topic for themselves. Source: TopicValidator.isSystemTopic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)
