"""What a producer gives a message: its body, and when and where it goes: what goes together.

Source: RocketMQ 5.5.0, TopicMessageType.parseFromMessageProperty: a message is of one type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tandem.wire.errors import ArgumentError
from tandem.wire.java_numbers import parse_int
from tandem.wire.message_properties import PROPERTY_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Mapping

DELAY_FIELDS: Final = ("delay_time_level", "delay_ms", "deliver_time_ms")
"""Of a `Message`: each says when it is delivered."""

NO_PRIORITY: Final = -1


def plain_body(body: object) -> bytes:
    """Return a body as bytes.

    Raises:
        TypeError: it is none.
    """
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    remedy = "body.encode()" if isinstance(body, str) else "json.dumps(body).encode(), say"
    raise TypeError(f"message body: expected bytes, not {type(body).__name__}; give it {remedy}")


def check_delays(delay_time_level: int, delay_ms: int, deliver_time_ms: int) -> None:
    """Check what a message says of its time.

    Raises:
        ArgumentError: more than one thing, or a time that is negative.
    """
    delays = (delay_time_level, delay_ms, deliver_time_ms)
    if sum(map(bool, delays)) > 1:
        given = [name for name, delay in zip(DELAY_FIELDS, delays, strict=True) if delay]
        raise ArgumentError(f"a message has only one of {' and '.join(given)}", *given)
    for name, value in (("delay_ms", delay_ms), ("deliver_time_ms", deliver_time_ms)):
        if value < 0:
            raise ArgumentError(f"{name} is {value}; it is 0 or more", name)


def check_priority(priority: int, sharding_key: str, *, is_delayed: bool) -> None:
    """Check what a message says of its queue.

    Raises:
        ArgumentError: the priority is negative, or there is something that brokers go by instead.
    """
    if priority < 0:
        raise ArgumentError(f"priority is {priority}; it is 0 or more", "priority")
    if sharding_key:
        text = "a message with a sharding key goes to the queue of that; give it no priority"
        raise ArgumentError(text, "priority", "sharding_key")
    if is_delayed:
        text = "brokers take the priority of a delayed message away; give it no delay"
        raise ArgumentError(text, "priority", *DELAY_FIELDS)


def priority_of(properties: Mapping[str, str]) -> int:
    """Return the priority of a message with these properties; `NO_PRIORITY` if it has none.

    Source: 5.5.0, Message.getPriority.
    """
    try:
        return max(parse_int(properties.get(PROPERTY_PRIORITY, "")), NO_PRIORITY)
    except ValueError:
        return NO_PRIORITY
