"""What a message asks of a broker beyond being stored, by its properties: decided in one place.

    properties --> demands_of --+--> USUAL: nothing, but that its producer waits for the answer
                                +--> UNWAITING: not even that
                                +--> whatever else: `Demands`

Nearly every message asks for nothing. This runs once for each, so the first question is whether the
name of a property that asks for something occurs at all; only then are properties taken apart.

`PROPERTY_DEMANDS` is the one table. The loops in C leave every message to Python that has one of
its properties; their list is made from it (`c_table`, `native_demands.h`). A new property that asks
for something is one line here, and a field of `Demands`.

Source: RocketMQ 5.3.3, SendMessageProcessor, HookUtils, Message.isWaitStoreMsgOK, MessageConst;
5.5.0, SendMessageProcessor.sendMessage and TopicMessageType for priorities and lite topics.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tandem.wire.errors import IllegalPropertyError
from tandem.wire.java_numbers import parse_int
from tandem.wire.message_choices import NO_PRIORITY, priority_of
from tandem.wire.message_properties import (
    ACK_FLUSHED,
    NAME_VALUE_SEPARATOR,
    PROPERTY_ACK,
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_INNER_NUM,
    PROPERTY_LITE_TOPIC,
    PROPERTY_MSG_REGION,
    PROPERTY_PRIORITY,
    PROPERTY_SEPARATOR,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
    parse_properties,
)

PROPERTY_POP_CK: Final = "POP_CK"


class Demand(enum.Enum):
    """What a property is about."""

    DELAYED = "goes to a delay level"
    TIMED = "has a time of its own"
    HALF = "is put aside until its producer commits it"
    INNER = "holds a batch"
    FLUSHED = "waits for the disks of the replicas"
    PRIORITY = "goes to the queue of its priority"
    LITE = "goes to a lite topic"
    STAMPED = "has been through a broker: what that added is replaced"


PROPERTY_DEMANDS: Final[dict[str, Demand]] = {
    PROPERTY_DELAY_LEVEL: Demand.DELAYED,
    PROPERTY_TIMER_DELAY_SEC: Demand.TIMED,
    PROPERTY_TIMER_DELAY_MS: Demand.TIMED,
    PROPERTY_TIMER_DELIVER_MS: Demand.TIMED,
    PROPERTY_TRANSACTION_PREPARED: Demand.HALF,
    PROPERTY_INNER_NUM: Demand.INNER,
    PROPERTY_ACK: Demand.FLUSHED,
    PROPERTY_PRIORITY: Demand.PRIORITY,
    PROPERTY_LITE_TOPIC: Demand.LITE,
    PROPERTY_CLUSTER: Demand.STAMPED,
    PROPERTY_MSG_REGION: Demand.STAMPED,
    PROPERTY_TRACE_SWITCH: Demand.STAMPED,
    PROPERTY_POP_CK: Demand.STAMPED,
}
"""All properties that ask for something, but WAIT, which nearly every message has."""

DELAY_HINT: Final = "DEL"
"""In the names of all properties that ask for a delay or a time, and in hardly any others."""

_LATER: Final = (Demand.DELAYED, Demand.TIMED)
_HINTED: Final = [name for name, demand in PROPERTY_DEMANDS.items() if demand in _LATER]
assert all(DELAY_HINT in name for name in _HINTED)

_OTHERS: Final = tuple(
    name + NAME_VALUE_SEPARATOR for name in PROPERTY_DEMANDS if name not in _HINTED
)
_WAIT: Final = PROPERTY_WAIT_STORE_MSG_OK + NAME_VALUE_SEPARATOR
_WAIT_TRUE: Final = _WAIT + "true" + PROPERTY_SEPARATOR
_WAIT_FALSE: Final = _WAIT + "false" + PROPERTY_SEPARATOR
_THEN_WAIT_FALSE: Final = PROPERTY_SEPARATOR + _WAIT_FALSE


class Demands(msgspec.Struct, frozen=True, gc=False):
    """What one message asks for.

    Attributes:
        is_usual: Whether it asks for nothing that is in the table.
        waits: Whether its producer wants the answer only when disk and slaves have it.
        flushed: Whether it wants that of the disks of the replicas, too.
        delay_level: Its delay level; 0 if it has none.
        timed: Whether it asks for a time of its own.
        transaction: Whether it says that it is part of a transaction.
        inner: Whether it says that it holds a batch.
        priority: Its priority, 0 or more; -1 if it has none that counts.
        loses_priority: Whether it has one beside a delay, a transaction or a sharding key, which
            count in its place: a broker takes the property away.
        lite: Whether it is for a lite topic.
        stamped: Whether it has been through a broker.
    """

    is_usual: bool = True
    waits: bool = True
    flushed: bool = False
    delay_level: int = 0
    timed: bool = False
    transaction: bool = False
    inner: bool = False
    priority: int = NO_PRIORITY
    loses_priority: bool = False
    lite: bool = False
    stamped: bool = False


USUAL: Final = Demands()
UNWAITING: Final = Demands(waits=False)

_TRAN, _INNER, _ACK, _PRIORITY, _LITE, _CLUSTER, _REGION, _TRACE, _POP = _OTHERS


def demands_of(properties: str) -> Demands:
    """Return what a message with these properties asks for.

    Raises:
        IllegalPropertyError: its delay level is no number.
    """
    # One line for each name: a loop over them takes three times as long.
    if (
        DELAY_HINT in properties
        or _CLUSTER in properties
        or _REGION in properties
        or _TRACE in properties
        or _POP in properties
        or _TRAN in properties
        or _INNER in properties
        or _ACK in properties
        or _PRIORITY in properties
        or _LITE in properties
    ):
        return _looked_at(parse_properties(properties))
    count = properties.count(_WAIT)
    if count == properties.count(_WAIT_TRUE):
        return USUAL
    if count == 1 and (properties.startswith(_WAIT_FALSE) or _THEN_WAIT_FALSE in properties):
        return UNWAITING
    waits = _is_waiting(parse_properties(properties))
    return USUAL if waits else UNWAITING


def is_stamped(properties: str) -> bool:
    """Whether a message with these properties has been through a broker."""
    names = parse_properties(properties)
    return any(PROPERTY_DEMANDS.get(name) is Demand.STAMPED for name in names)


def delay_level(properties: dict[str, str]) -> int:
    """Return the delay level of a message; 0 if it has none.

    Raises:
        IllegalPropertyError: it is no number. In RocketMQ that ends in a SYSTEM_ERROR.
    """
    value = properties.get(PROPERTY_DELAY_LEVEL, "0")
    try:
        return parse_int(value)
    except ValueError:
        text = f"the delay level {value[:40]!r} is no number"
        raise IllegalPropertyError(text, PROPERTY_DELAY_LEVEL) from None


def _looked_at(properties: dict[str, str]) -> Demands:
    asked = {PROPERTY_DEMANDS[name] for name in properties if name in PROPERTY_DEMANDS}
    transaction = properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
    priority = priority_of(properties)
    is_other = transaction or not asked.isdisjoint(_LATER) or PROPERTY_SHARDING_KEY in properties
    return Demands(
        is_usual=not asked,
        waits=_is_waiting(properties),
        flushed=properties.get(PROPERTY_ACK) == ACK_FLUSHED,
        delay_level=delay_level(properties),
        timed=Demand.TIMED in asked,
        transaction=transaction,
        inner=Demand.INNER in asked,
        priority=NO_PRIORITY if is_other else priority,
        loses_priority=is_other and priority != NO_PRIORITY,
        lite=bool(properties.get(PROPERTY_LITE_TOPIC)),
        stamped=Demand.STAMPED in asked,
    )


def _is_waiting(properties: dict[str, str]) -> bool:
    return properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"


def c_table() -> str:
    """Return `native_demands.h`: what the loops in C leave to Python."""
    names = ",\n    ".join(f'"{name.removesuffix(NAME_VALUE_SEPARATOR)}"' for name in _OTHERS)
    return f"""\
/* Made from tandem/wire/demands.py; its test says how. */

#ifndef TANDEM_NATIVE_DEMANDS_H
#define TANDEM_NATIVE_DEMANDS_H

/* In the names of properties that ask for a delay or a time. */
#define DELAY_HINT "{DELAY_HINT}"

/* The ends of names of other properties that ask for something. */
static const char *const demanding[] = {{
    {names},
}};
enum {{ DEMANDING = sizeof demanding / sizeof *demanding }};

#endif
"""
