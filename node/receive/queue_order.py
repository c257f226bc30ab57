"""In which order a pop looks at the queues of a topic.

    ordinary topic    from a random queue on: all get their turn
    PRIORITY          the highest first, each time: a message of priority p is in queue p

A group whose attribute `priority.factor` is below 100 reads that much of the time in the second
order, and else in the first, so that what has little priority is not left for ever.

Source: RocketMQ 5.5.0, PopMessageProcessor.processRequest and popMsgFromTopic.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from node.receive.requests import Receive
from node.tables.group_attributes import PRIORITY_FACTOR_MAX, priority_factor
from node.tables.tables import Tables
from node.tables.topic_attributes import MESSAGE_TYPE, PRIORITY

RETRY_PERCENT: Final = 20
"""Source: BrokerConfig.popFromRetryProbability."""


class PriorityReading(msgspec.Struct, frozen=True):
    """How topics of the type PRIORITY are read at one broker.

    Attributes:
        order_asc: Whether a higher number is more, as with RocketMQ's priorityOrderAsc.
        retry_percent: How often what comes again is looked at before all queues, and not after
            them. Source: BrokerConfig.popFromRetryProbabilityForPriority.
    """

    order_asc: bool = True
    retry_percent: int = 0

    def is_strict(self, tables: Tables, request: Receive, random: Random) -> bool:
        """Whether queues are read in the order of their priorities this time."""
        topic = tables.topics.get(request.topic)
        if topic is None or request.is_orderly or topic.attributes.get(MESSAGE_TYPE) != PRIORITY:
            return False
        group = tables.groups.get(request.group)
        factor = PRIORITY_FACTOR_MAX if group is None else priority_factor(group.attributes)
        return random.randrange(100) < factor

    def queues(self, count: int) -> Sequence[int]:
        """Return the queues of a topic, those that are more urgent first."""
        return range(count - 1, -1, -1) if self.order_asc else range(count)


HIGHEST_FIRST: Final = PriorityReading()
"""RocketMQ's own defaults."""


def queues_from(first: int, count: int) -> list[int]:
    """Return the queues of a topic from one on."""
    return [at % count for at in range(first, first + count)]
