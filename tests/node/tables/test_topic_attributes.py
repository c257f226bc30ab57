"""Changes of the attributes of topics."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.tables.topic_attributes import (
    MESSAGE_TYPE,
    RESERVE_TIME,
    TopicAttributeError,
    changed_attributes,
    is_compacted,
)


@pytest.mark.parametrize(
    ("current", "changes", "expected"),
    [
        (None, "", {}),
        (None, "+message.type=FIFO", {"message.type": "FIFO"}),
        ({}, "+message.type=PRIORITY", {"message.type": "PRIORITY"}),
        (
            None,
            "+queue.type=BatchCQ, +cleanup.policy=DELETE,+reserve.time=-1",
            {"queue.type": "BatchCQ", "cleanup.policy": "DELETE", "reserve.time": "-1"},
        ),
        ({"queue.type": "BatchCQ"}, "", {"queue.type": "BatchCQ"}),
        ({"queue.type": "BatchCQ"}, "+queue.type=BatchCQ", {"queue.type": "BatchCQ"}),
        ({"message.type": "FIFO"}, "+message.type=NORMAL", {"message.type": "NORMAL"}),
        ({"message.type": "FIFO"}, "-message.type", {}),
        ({}, "-message.type", {}),
    ],
)
def test_attributes_are_changed_one_by_one(
    current: dict[str, str] | None, changes: str, expected: dict[str, str]
) -> None:
    assert changed_attributes(current, changes) == expected


@pytest.mark.parametrize(
    ("current", "changes", "why"),
    [
        (None, "+message.type=LITE", "lite topics are not served"),
        ({}, "+lite.topic.expiration=10", "lite topics are not served"),
        (None, "+cleanup.policy=COMPACTION,+queue.type=BatchCQ", "do not go together"),
        (None, "+cleanup.policy=KEEP", "is not in set: DELETE, COMPACTION"),
        ({}, "+cleanup.policy=COMPACTION", "unchangeable attribute. key: cleanup.policy"),
        (None, "+queue.type=RocksCQ", "is not in set: SimpleCQ, BatchCQ"),
        (None, "+reserve.time=-2", "not a whole number from -1 on"),
        (None, "+reserve.time=soon", "not a whole number from -1 on"),
        (None, "+lite.topic=x", "unsupported key: lite.topic"),
        ({}, "-lite.topic", "unsupported key: lite.topic"),
        (None, "-message.type", "only add attribute is supported while creating topic"),
        (None, "message.type=FIFO", "neither [+]name=value nor -name"),
        ({}, "-message.type=FIFO", "neither [+]name=value nor -name"),
        (None, "+message.type", "neither [+]name=value nor -name"),
        (None, "+message.type=FIFO,+message.type=FIFO", "key duplication"),
        ({}, "+queue.type=BatchCQ", "unchangeable attribute. key: queue.type"),
        ({"queue.type": "BatchCQ"}, "-queue.type", "unchangeable attribute. key: queue.type"),
        (None, "+" * 2000, "at most 1024"),
    ],
)
def test_what_cannot_be_set_is_said(current: dict[str, str] | None, changes: str, why: str) -> None:
    with pytest.raises(TopicAttributeError, match=why):
        changed_attributes(current, changes)


@given(st.text("+-=,. abmessage.type", max_size=30))
def test_any_text_is_a_change_or_refused(changes: str) -> None:
    with contextlib.suppress(TopicAttributeError):
        attributes = changed_attributes({}, changes)
        assert attributes.keys() <= {MESSAGE_TYPE, RESERVE_TIME}


def test_a_topic_may_be_compacted() -> None:
    attributes = changed_attributes(None, "+cleanup.policy=COMPACTION")
    assert is_compacted(attributes)
    assert not is_compacted(changed_attributes(None, "+cleanup.policy=DELETE"))
    assert not is_compacted({})
