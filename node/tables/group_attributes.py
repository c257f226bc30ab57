"""Attributes of a consumer group, as operators change them: `+name` with a value, `-name`.

    priority.factor   0 to 100: of how many pops in a hundred of a topic with priorities the queues
                      are read strictly in their order

Those of lite topics (`lite.bind.topic` and others) are refused: there are none here.

Source: RocketMQ 5.5.0, SubscriptionGroupAttributes, SubscriptionGroupManager,
AttributeUtil.alterCurrentAttributes; 5.3.3 has none of them, and changes them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from node.tables.topic_attributes import NO_LITE
from tandem.wire.untrusted import UnreadableError, whole_number

PRIORITY_FACTOR: Final = "priority.factor"
PRIORITY_FACTOR_MAX: Final = 100

_LITE_PREFIX: Final = "lite."


class GroupAttributeError(ValueError):
    """A change of attributes that cannot be made; the text says why, `name` of which."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


def changed_group_attributes(
    current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes of a group after `changes`. `current` is None if it is a new group.

    Raises:
        GroupAttributeError: a change is malformed, not allowed, or not supported here.
    """
    attributes = dict(current or {})
    seen: set[str] = set()
    for change, value in changes.items():
        sign, name = change[:1], change[1:]
        if sign not in ("+", "-"):
            raise GroupAttributeError(f"attribute {change!r} is neither +name nor -name", name)
        if name in seen:
            raise GroupAttributeError(f"alter duplication key. key: {name}", name)
        seen.add(name)
        _check_known(name)
        if sign == "+":
            _check_factor(value)
            attributes[name] = value
        elif name not in attributes:
            raise GroupAttributeError(f"attempt to delete a nonexistent key: {name}", name)
        else:
            del attributes[name]
    return attributes


def priority_factor(attributes: Mapping[str, str]) -> int:
    """Return of how many pops in a hundred the queues are read in their order.

    Source: SubscriptionGroupConfig.getPriorityFactor.
    """
    try:
        return whole_number(attributes.get(PRIORITY_FACTOR, ""))
    except UnreadableError:
        return PRIORITY_FACTOR_MAX


def _check_known(name: str) -> None:
    if name.startswith(_LITE_PREFIX):
        raise GroupAttributeError(f"{name}: {NO_LITE}", name)
    if name != PRIORITY_FACTOR:
        raise GroupAttributeError(f"unsupported key: {name}", name)


def _check_factor(value: str) -> None:
    try:
        is_good = 0 <= whole_number(value) <= PRIORITY_FACTOR_MAX
    except UnreadableError:
        is_good = False
    if not is_good:
        given = f"value {value[:40]!r} of {PRIORITY_FACTOR}"
        text = f"{given} is not in range(0, {PRIORITY_FACTOR_MAX})"
        raise GroupAttributeError(text, PRIORITY_FACTOR)
