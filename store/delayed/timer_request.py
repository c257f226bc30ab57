"""Messages that ask for a deliver time of their own, and what is put instead of them.

    TIMER_DELAY_SEC, TIMER_DELAY_MS    from now       TIMER_DELIVER_MS    a time
    TIMER_DEL_UNIQKEY                  cancels a message instead of being one

Source: RocketMQ 5.3.3, HookUtils.checkIfTimerMessage and transformTimerMessage.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

import msgspec

from store.delayed.timer_wheel import SLOTS
from store.results import PutMessage, PutMessageStatus
from tandem.wire.delay_level import delay_level_of
from tandem.wire.java_map import encode_in_java_order
from tandem.wire.java_numbers import parse_long
from tandem.wire.message_properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    TIMER_REQUEST_PROPERTIES,
    decode_properties,
)
from tandem.wire.system_topics import TIMER_TOPIC

_TIMER_HINTS: Final = tuple(f"{name}\x01".encode() for name in TIMER_REQUEST_PROPERTIES)

Refusal: TypeAlias = tuple[PutMessageStatus, str]
"""Why a message is not put."""


class TimerSettings(msgspec.Struct, frozen=True):
    """Source: MessageStoreConfig."""

    timer_precision_ms: int = 1_000
    timer_roll_window_slots: int = 172_800
    timer_max_delay_seconds: int = 259_200
    timer_congest_num_each_slot: int = 0x7FFFFFFF
    mapped_file_size_timer_log_bytes: int = 104_857_600
    timer_flush_interval_ms: int = 1_000
    slots: int = SLOTS
    """Of the wheel. RocketMQ has no setting for it; tests want small wheels."""


def is_timer_request(message: PutMessage) -> bool:
    """True if a message asks for a deliver time of its own, and has no delay level.

    Source: HookUtils.checkIfTimerMessage.
    """
    properties = message.properties
    if not any(hint in properties for hint in _TIMER_HINTS) or message.topic == TIMER_TOPIC:
        return False
    values = decode_properties(properties)
    asks = any(name in values for name in TIMER_REQUEST_PROPERTIES)
    return asks and PROPERTY_TIMER_OUT_MS not in values and delay_level_of(properties) <= 0


def deliver_time_ms(properties: dict[str, str], now_ms: int) -> int:
    """Return the time a message asks for.

    Raises:
        ValueError: it is no number.

    Source: HookUtils.transformTimerMessage.
    """
    if seconds := properties.get(PROPERTY_TIMER_DELAY_SEC):
        return now_ms + parse_long(seconds) * 1000
    if milliseconds := properties.get(PROPERTY_TIMER_DELAY_MS):
        return now_ms + parse_long(milliseconds)
    return parse_long(properties[PROPERTY_TIMER_DELIVER_MS])


def timer_rewrite(
    message: PutMessage,
    now_ms: int,
    settings: TimerSettings,
    num_at: Callable[[int], int],
    chance: Random,
) -> PutMessage | Refusal:
    """Return what is put instead of a timer request, or why nothing is.

    A time that has passed means now. `num_at` says how many messages the slot of a time has.

    Source: HookUtils.transformTimerMessage.
    """
    properties = decode_properties(message.properties)
    try:
        due_ms = deliver_time_ms(properties, now_ms)
    except ValueError:
        return (
            PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL,
            "the time of the delivery is not a number; TIMER_DELIVER_MS and TIMER_DELAY_MS are in"
            " milliseconds, TIMER_DELAY_SEC in seconds",
        )
    if due_ms <= now_ms:
        if PROPERTY_TIMER_DEL_UNIQKEY in properties:
            reason = "a message cannot be cancelled when its time has passed"
            return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL, reason
        return message
    delay_max_ms = settings.timer_max_delay_seconds * 1000
    if due_ms - now_ms > delay_max_ms:
        reason = f"the delay of {due_ms - now_ms} ms is above the limit, {delay_max_ms} ms"
        return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL, reason
    # The tick before, if it is at the start of one: a slot is emptied when its tick is over.
    slot_ms = (due_ms - 1) // settings.timer_precision_ms * settings.timer_precision_ms
    if _is_congested(num_at(slot_ms), settings.timer_congest_num_each_slot, chance):
        reason = f"too many messages are due at {slot_ms}; send again"
        return PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL, reason
    properties[PROPERTY_TIMER_OUT_MS] = str(slot_ms)
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    return msgspec.structs.replace(
        message, topic=TIMER_TOPIC, queue_id=0, properties=encode_in_java_order(properties)
    )


def _is_congested(num: int, limit: int, chance: Random) -> bool:
    """Refuse some above the limit, the more the more there are, and all above twice the limit.

    In RocketMQ those are refused less often that come later.

    Source: TimerMessageStore.isReject.
    """
    above = num - limit
    return above > 0 and chance.random() < above / limit
