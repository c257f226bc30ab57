"""What kind of messages a topic takes, by its attribute `message.type`.

Source: RocketMQ 5.3.3 and 5.5.0, TopicMessageType, DefaultTopicMessageTypeValidator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from node.tables.topic_attributes import MESSAGE_TYPE, PRIORITY
from node.tables.topic_config_table import topic_complaint
from tandem.wire.request_headers import TopicConfig
from tandem.wire.system_topics import is_system_topic

MIXED: Final = "MIXED"
UNSPECIFIED: Final = "UNSPECIFIED"
NORMAL: Final = "NORMAL"
FIFO: Final = "FIFO"
DELAY: Final = "DELAY"
TRANSACTION: Final = "TRANSACTION"

_NUMBERS: Final = {
    NORMAL: pb.NORMAL,
    FIFO: pb.FIFO,
    DELAY: pb.DELAY,
    TRANSACTION: pb.TRANSACTION,
    PRIORITY: pb.PRIORITY,
}


class TopicTypes:
    """Answers what topics take. `config_of` finds a topic, wherever in the cluster it is."""

    def __init__(self, config_of: Callable[[str], TopicConfig | None]) -> None:
        self._config_of = config_of

    def type_of(self, topic: str) -> str:
        """Return the type; UNSPECIFIED of a topic that is not known."""
        config = self._config_of(topic)
        if config is None:
            return UNSPECIFIED
        return config.attributes.get(MESSAGE_TYPE, NORMAL)

    def accepted(self, topic: str) -> list[pb.MessageType]:
        """Return what clients may send there, as they know it."""
        name = self.type_of(topic)
        if name == MIXED:
            return [number for name, number in _NUMBERS.items() if name != PRIORITY]
        return [_NUMBERS.get(name, pb.MESSAGE_TYPE_UNSPECIFIED)]

    def check(self, topic: str, sent: str) -> None:
        """Ask whether a topic takes a message of a type.

        Raises:
            CallError: it does not (MESSAGE_PROPERTY_CONFLICT_WITH_TYPE).
        """
        expected = self.type_of(topic)
        if expected not in (sent, MIXED):
            raise CallError(
                pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual"
                f" type is {sent}; a topic with the attribute +message.type={sent} takes it",
            )


def checked_topic(resource: pb.Resource) -> str:
    """Return the name of a topic that clients may use.

    Raises:
        CallError: it is none (ILLEGAL_TOPIC).
    """
    name = resource.name
    if complaint := topic_complaint(name):
        raise CallError(pb.ILLEGAL_TOPIC, complaint)
    if is_system_topic(name):
        raise CallError(pb.ILLEGAL_TOPIC, "cannot access system topic")
    return name
