"""Attributes of a topic, as operators change them: `+name=value,-name`.

    queue.type      SimpleCQ, BatchCQ                                     set at creation only
    cleanup.policy  DELETE, COMPACTION (not with BatchCQ)                 the same
    message.type    UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, MIXED  for clients and proxies
                    PRIORITY                                              for pops, too
    reserve.time    a number, at least -1                                 kept; nothing asks for it

Refused, too, are LITE of message.type, and lite.topic.expiration: there are no lite topics.

Source: RocketMQ 5.3.3 and 5.5.0, TopicAttributes, AttributeParser.parseToMap,
AttributeUtil.alterCurrentAttributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tandem.wire.untrusted import UnreadableError, whole_number

ATTRIBUTES_CHARACTERS_MAX: Final = 1_024
"""Ours: of all changes in one request."""

QUEUE_TYPE: Final = "queue.type"
CLEANUP_POLICY: Final = "cleanup.policy"
MESSAGE_TYPE: Final = "message.type"
RESERVE_TIME: Final = "reserve.time"

LITE_EXPIRATION: Final = "lite.topic.expiration"

COMPACTION: Final = "COMPACTION"
PRIORITY: Final = "PRIORITY"
LITE: Final = "LITE"

NO_LITE: Final = (
    "lite topics are not served; use a topic with message.type=FIFO and the name of the lite topic"
    " as a sharding key, or an ordinary topic and that name as a tag"
)
BATCH_QUEUE_TYPE: Final = "BatchCQ"
"""Of a topic whose queues have one unit for a batch. Source: TopicAttributes, CQType."""

_CHOICES: Final = {
    QUEUE_TYPE: ("SimpleCQ", BATCH_QUEUE_TYPE),
    CLEANUP_POLICY: ("DELETE", COMPACTION),
    MESSAGE_TYPE: (
        *("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
        *(PRIORITY, LITE),
    ),
}
_UNCHANGEABLE: Final = (QUEUE_TYPE, CLEANUP_POLICY)


class TopicAttributeError(ValueError):
    """A change of attributes that cannot be made; the text says why."""


def changed_attributes(current: Mapping[str, str] | None, changes: str) -> dict[str, str]:
    """Return the attributes of a topic after `changes`. `current` is None if it is a new topic.

    Raises:
        TopicAttributeError: a change is malformed, not allowed, or not supported here.
    """
    if len(changes) > ATTRIBUTES_CHARACTERS_MAX:
        raise TopicAttributeError(
            f"attributes have {len(changes)} characters; give at most {ATTRIBUTES_CHARACTERS_MAX}"
        )
    attributes = dict(current or {})
    seen: set[str] = set()
    for change in filter(None, (each.strip() for each in changes.split(","))):
        name, is_set, value = change[1:].partition("=")
        if name in seen:
            raise TopicAttributeError(f"key duplication: {name}")
        seen.add(name)
        if change[0] == "+" and is_set:
            _check(name, value)
        elif change[0] != "-" or is_set:
            raise TopicAttributeError(f"attribute {change!r} is neither +name=value nor -name")
        elif name not in _CHOICES and name != RESERVE_TIME:
            raise TopicAttributeError(f"unsupported key: {name}")
        elif current is None:
            raise TopicAttributeError(
                f"only add attribute is supported while creating topic. key: {name}"
            )
        new = value if change[0] == "+" else None
        if current is not None and name in _UNCHANGEABLE and new != current.get(name):
            raise TopicAttributeError(f"attempt to update an unchangeable attribute. key: {name}")
        attributes.pop(name, None)
        if new is not None:
            attributes[name] = new
    _check_together(attributes)
    return attributes


def _check_together(attributes: Mapping[str, str]) -> None:
    if is_compacted(attributes) and attributes.get(QUEUE_TYPE) == BATCH_QUEUE_TYPE:
        raise TopicAttributeError(
            f"{CLEANUP_POLICY}={COMPACTION} and {QUEUE_TYPE}={BATCH_QUEUE_TYPE} do not go together:"
            " a batch has no key that is its own; leave one of them out"
        )


def is_compacted(attributes: Mapping[str, str]) -> bool:
    """Whether a topic with these attributes keeps only the newest message of each key.

    Source: CleanupPolicyUtils.isCompaction.
    """
    return attributes.get(CLEANUP_POLICY) == COMPACTION


def _check(name: str, value: str) -> None:
    if name == RESERVE_TIME:
        try:
            is_good = whole_number(value) >= -1
        except UnreadableError:
            is_good = False
        if not is_good:
            raise TopicAttributeError(f"value {value!r} of {name} is not a whole number from -1 on")
        return
    if name == LITE_EXPIRATION:
        raise TopicAttributeError(NO_LITE)
    choices = _CHOICES.get(name)
    if choices is None:
        raise TopicAttributeError(f"unsupported key: {name}")
    if value not in choices:
        raise TopicAttributeError(f"value {value!r} of {name} is not in set: {', '.join(choices)}")
    if value == LITE:
        raise TopicAttributeError(NO_LITE)
