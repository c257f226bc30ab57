"""decode_heartbeat: what clients of all languages send as the body of HEART_BEAT.

RocketMQ's C++ library (librocketmq 1.2, in the `rocketmq` package for Python) writes enums as
numbers and the version of a subscription as text. fastjson, which RocketMQ's broker reads it with,
takes a number for the place of a name in its enum. Both are understood here, for heartbeats alone.

Source: RocketMQ 5.3.3, ConsumeType, MessageModel, ConsumeFromWhere; a frame that was recorded.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tandem.wire.errors import MalformedFrameError
from tandem.wire.remoting_command import Int64
from tandem.wire.request_headers import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from tandem.wire.untrusted import UnreadableError, decode_json

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class _LooseConsumerData(msgspec.Struct, frozen=True, rename="camel"):
    """`ConsumerData` with names or numbers."""

    group_name: str
    consume_type: str | int = CONSUME_TYPES[0]
    message_model: str | int = MESSAGE_MODELS[1]
    consume_from_where: str | int = CONSUME_FROM_WHERE[0]
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class _LooseHeartbeatData(msgspec.Struct, frozen=True, rename="camel"):
    """`HeartbeatData` of them."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[_LooseConsumerData] = []
    heartbeat_fingerprint: Int64 = 0
    without_sub: bool = False


HEARTBEAT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Some 4,000 groups with four subscriptions each; what is longer is refused unread."""

RECORDS_MAX: Final = 8_192
"""Groups and subscriptions, as their braces are counted, those in texts too. A broker takes 1,024
groups of each kind and 4,096 subscriptions. To decode as many takes milliseconds, with as many tags
as the bytes allow some 20, in which nobody else is served."""


def decode_heartbeat(body: bytes) -> HeartbeatData:
    """Return a heartbeat.

    Raises:
        MalformedFrameError: it is none, is too long, or names something by a number that nothing
            has.
    """
    if len(body) > HEARTBEAT_BYTES_MAX:
        raise MalformedFrameError(
            f"a heartbeat of {len(body)} bytes; the most allowed are {HEARTBEAT_BYTES_MAX}, so send"
            " its groups in several",
            limit=HEARTBEAT_BYTES_MAX,
        )
    if (count := body.count(b"{")) > RECORDS_MAX:
        raise MalformedFrameError(
            f"a heartbeat with {count} records; the most allowed are {RECORDS_MAX}, so send its"
            " groups in several",
            limit=RECORDS_MAX,
        )
    try:
        # No record in it has integers for keys, so none has to be quoted: `decode_json_body` looks
        # at each string for that, which takes ten times as long as this.
        return decode_json(body, HeartbeatData)
    except UnreadableError as error:
        try:
            loose = decode_json(body, _LooseHeartbeatData, strict=False)
        except UnreadableError:
            raise MalformedFrameError(f"HeartbeatData body: {error}") from None
    return HeartbeatData(
        loose.client_id,
        loose.producer_data_set,
        [_named(data) for data in loose.consumer_data_set],
        loose.heartbeat_fingerprint,
        loose.without_sub,
    )


def _named(data: _LooseConsumerData) -> ConsumerData:
    return ConsumerData(
        data.group_name,
        _name(data.consume_type, CONSUME_TYPES),
        _name(data.message_model, MESSAGE_MODELS),
        _name(data.consume_from_where, CONSUME_FROM_WHERE),
        data.subscription_data_set,
        data.unit_mode,
    )


def _name(value: str | int, names: tuple[str, ...]) -> str:
    if isinstance(value, str):
        return value
    if not 0 <= value < len(names):
        raise MalformedFrameError(f"HeartbeatData body: {value} is no number of {', '.join(names)}")
    return names[value]
