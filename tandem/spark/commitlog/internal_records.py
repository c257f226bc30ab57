"""Which records no consumer ever gets: what brokers keep for themselves. `includeSystemTopics`.

    system topics       delayed messages that wait, halves of transactions and what became of them,
                        traces, our journal: `tandem.wire.system_topics`
    half, rolled back   records that SYSFLAG calls so. RocketMQ before 4.3 kept them in the topic
                        itself; they have no place in its queues

Source: RocketMQ 5.3.3, TopicValidator.isSystemTopic; DefaultMessageStore,
CommitLogDispatcherBuildConsumeQueue.dispatch.
"""

from typing import Final

import numpy as np

from tandem.spark.record_batches import RecordSlice
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
    TRANSACTION_NOT_TYPE,
)
from tandem.wire.record_scan import Bools, gather
from tandem.wire.system_topics import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, is_system_topic

_BEGINNINGS: Final = [
    int.from_bytes(topic[:3].encode(), "big") for topic in (*SYSTEM_TOPICS, SYSTEM_TOPIC_PREFIX)
]


def consumable(part: RecordSlice, *, all_topics: bool) -> Bools:
    """Say which records a consumer can get. Without `all_topics` topics were named: any is fine."""
    kind = part.records.sys_flag & TRANSACTION_MASK
    wanted: Bools = (kind == TRANSACTION_NOT_TYPE) | (kind == TRANSACTION_COMMIT_TYPE)
    if not all_topics or not len(part):
        return wanted
    # The byte before and the first three of each topic: few begin like one of the system's.
    places = np.minimum(part.records.topic_start - 1, len(part.data) - 4)
    beginnings = gather(part.data, ">i4", places) & 0xFFFFFF
    rows = np.flatnonzero(np.isin(beginnings, _BEGINNINGS))
    if len(rows):
        chosen = np.zeros(len(part), np.bool_)
        chosen[rows] = True
        topics = part.take(chosen).topics.to_pylist()
        wanted[rows] &= np.array([not is_system_topic(topic) for topic in topics])
    return wanted
