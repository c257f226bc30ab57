"""What a broker reads in a message's properties, and what it adds before it stores them.

Properties are stored as they come. Added, as RocketMQ does, are UNIQ_KEY if it is missing, and
MSG_REGION, TRACE_ON and CLUSTER, so that a record looks to every tool like one of RocketMQ's own;
these three are the same for all messages and cost one concatenation. POP_CK is taken out.

What a message asks for is decided in `tandem.wire.demands`.

Source: RocketMQ 5.3.3, SendMessageProcessor.sendMessage, MessageClientIDSetter.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from node.errors import RequestError
from node.tables.topic_attributes import NO_LITE
from store.compaction.compacting import key_of
from tandem.wire.demands import PROPERTY_POP_CK, Demands
from tandem.wire.message import TRANSACTION_MASK, Host
from tandem.wire.message_choices import NO_PRIORITY
from tandem.wire.message_properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_MSG_REGION,
    PROPERTY_PRIORITY,
    PROPERTY_SEPARATOR,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
    REGION,
    decode_properties,
    encode_properties,
    join_properties,
)
from tandem.wire.request_headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    TopicConfig,
)
from tandem.wire.response_code import ResponseCode

_UNIQUE_KEY: Final = PROPERTY_UNIQUE_KEY + NAME_VALUE_SEPARATOR
_DELAY: Final = PROPERTY_DELAY_LEVEL + NAME_VALUE_SEPARATOR
_PRIORITY: Final = PROPERTY_PRIORITY + NAME_VALUE_SEPARATOR


def unique_key_of(properties: str) -> str | None:
    """The producer's own id of the message, if it gave one."""
    return _last_value(properties, _UNIQUE_KEY) or None


def is_half(asked: Demands, sys_flag: int, reconsume_times: int | None) -> bool:
    """Whether a message is to be put aside until its producer commits it.

    TRAN_MSG decides, unless a consumer sends the message back. Source: SendMessageProcessor.

    Raises:
        RequestError: Only its sysFlag speaks of a transaction: nobody would ever get it
            (MESSAGE_ILLEGAL).
    """
    if asked.transaction:
        return not (reconsume_times and asked.delay_level > 0)
    if sys_flag & TRANSACTION_MASK:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"sysFlag {sys_flag} says that the message is part of a transaction, but its property"
            " TRAN_MSG does not",
        )
    return False


def placed(
    asked: Demands,
    header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    queue_id: int,
    properties: str,
    config: TopicConfig,
) -> tuple[int, str]:
    """Return the queue of a message, by its priority if it has one, and its properties.

    `queue_id` is where it goes without. A priority beside something else that a message is of does
    not count, and is not stored.

    Source: 5.5.0, SendMessageProcessor.sendMessage.

    Raises:
        RequestError: it is for a lite topic, and nobody has received it before (MESSAGE_ILLEGAL).
    """
    if asked.lite and not header.reconsume_times:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, NO_LITE)
    if asked.loses_priority:
        return queue_id, PROPERTY_SEPARATOR.join([*_without(properties, _PRIORITY), ""])
    if asked.priority != NO_PRIORITY and not header.batch:
        queue_id = min(asked.priority, config.write_queue_nums - 1)
    return queue_id, properties


def check_key(properties: str) -> None:
    """Refuse a message without a key, which a compaction topic could not keep.

    Raises:
        RequestError: it has none (MESSAGE_ILLEGAL). Source: SendMessageProcessor.sendMessage.
    """
    if not key_of(properties.encode()):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            "Required message key is missing: the topic keeps the newest message of each key",
        )


def with_delay_level(properties: str, level: int) -> str:
    """The properties with another delay level, or with one."""
    return PROPERTY_SEPARATOR.join([*_without(properties, _DELAY), f"{_DELAY}{level}", ""])


def _without(properties: str, name: str) -> list[str]:
    """Return the single properties, but those of a name (given with its separator)."""
    pieces = properties.split(PROPERTY_SEPARATOR)
    return [piece for piece in pieces if piece and not piece.startswith(name)]


def _last_value(properties: str, name: str) -> str | None:
    """The value of the last property called `name` (given with its separator), or None."""
    at = properties.rfind(name)
    while at > 0 and properties[at - 1] != PROPERTY_SEPARATOR:
        at = properties.rfind(name, 0, at)
    if at < 0:
        return None
    start = at + len(name)
    end = properties.find(PROPERTY_SEPARATOR, start)
    return properties[start:end] if end >= 0 else properties[start:]


class PropertyStamp:
    """Turns the properties of a request into those of a record. One per broker.

    Attributes:
        suffix: What is added to the properties of a message that has not been through a broker.
        batch_suffix: What is added to the properties of each message of a batch. RocketMQ adds no
            more than this either.
    """

    def __init__(self, cluster: str, new_unique_key: Callable[[], str]) -> None:
        self._added = {
            PROPERTY_MSG_REGION: REGION,
            PROPERTY_TRACE_SWITCH: "true",
            PROPERTY_CLUSTER: cluster,
        }
        self._suffix = encode_properties(self._added).decode()
        self.suffix = self._suffix.encode()
        self.batch_suffix = encode_properties({PROPERTY_CLUSTER: cluster})
        self._new_unique_key = new_unique_key

    def stored(self, properties: str, *, is_stamped: bool) -> bytes:
        """The property string to store; `is_stamped` if it is of one that was in a broker."""
        if is_stamped:
            return self._merged(properties)
        # 4.9 clients leave out the last separator.
        if properties and properties[-1] != PROPERTY_SEPARATOR:
            properties += PROPERTY_SEPARATOR
        if _UNIQUE_KEY not in properties:
            properties += f"{_UNIQUE_KEY}{self._new_unique_key()}{PROPERTY_SEPARATOR}"
        return (properties + self._suffix).encode()

    def _merged(self, properties: str) -> bytes:
        """The slow way, for a message that has been through a broker before."""
        values = decode_properties(properties.encode())
        values.pop(PROPERTY_POP_CK, None)
        values.setdefault(PROPERTY_UNIQUE_KEY, self._new_unique_key())
        return join_properties(values | self._added)


class UniqueKeys:
    """Makes UNIQ_KEYs of the length and alphabet of RocketMQ's, for clients that send none.

    Address, six random bytes in place of process and class loader, milliseconds, and a counter.
    Source: MessageClientIDSetter.createUniqID.
    """

    def __init__(self, host: Host, wall_clock_ms: Callable[[], int], random: Random) -> None:
        self._prefix = (host.packed[:-4] + random.randbytes(6)).hex().upper()
        self._wall_clock_ms = wall_clock_ms
        self._count = 0

    def new(self) -> str:
        """A key that no other message has."""
        self._count = (self._count + 1) & 0xFFFF
        return f"{self._prefix}{self._wall_clock_ms() & 0xFFFFFFFF:08X}{self._count:04X}"
