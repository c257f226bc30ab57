"""Changes of the attributes of consumer groups."""

import pytest

from node.tables.group_attributes import (
    GroupAttributeError,
    changed_group_attributes,
    priority_factor,
)


@pytest.mark.parametrize(
    ("current", "changes", "expected"),
    [
        (None, {}, {}),
        (None, {"+priority.factor": "50"}, {"priority.factor": "50"}),
        ({"priority.factor": "50"}, {}, {"priority.factor": "50"}),
        ({"priority.factor": "50"}, {"+priority.factor": "0"}, {"priority.factor": "0"}),
        ({"priority.factor": "50"}, {"-priority.factor": ""}, {}),
        (
            {"of.a.newer": "x"},
            {"+priority.factor": "100"},
            {"of.a.newer": "x", "priority.factor": "100"},
        ),
    ],
)
def test_attributes_are_changed_one_by_one(
    current: dict[str, str] | None, changes: dict[str, str], expected: dict[str, str]
) -> None:
    """AttributeUtil.alterCurrentAttributes."""
    assert changed_group_attributes(current, changes) == expected


@pytest.mark.parametrize(
    ("current", "changes", "name"),
    [
        (None, {"priority.factor": "50"}, "riority.factor"),
        (None, {"": "50"}, ""),
        (None, {"+priority.factor": "101"}, "priority.factor"),
        (None, {"+priority.factor": "-1"}, "priority.factor"),
        (None, {"+priority.factor": "much"}, "priority.factor"),
        (None, {"+priority.factor": ""}, "priority.factor"),
        (None, {"-priority.factor": ""}, "priority.factor"),
        ({}, {"-priority.factor": ""}, "priority.factor"),
        (
            {"priority.factor": "1"},
            {"+priority.factor": "2", "-priority.factor": ""},
            "priority.factor",
        ),
        (None, {"+nonsense": "1"}, "nonsense"),
        (None, {"+lite.bind.topic": "T"}, "lite.bind.topic"),
        ({}, {"+lite.sub.model": "Exclusive"}, "lite.sub.model"),
    ],
)
def test_other_changes_are_refused_and_named(
    current: dict[str, str] | None, changes: dict[str, str], name: str
) -> None:
    with pytest.raises(GroupAttributeError) as caught:
        changed_group_attributes(current, changes)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("attributes", "factor"),
    [({}, 100), ({"priority.factor": "30"}, 30), ({"priority.factor": "nonsense"}, 100)],
)
def test_a_group_reads_by_priority_unless_it_says_otherwise(
    attributes: dict[str, str], factor: int
) -> None:
    """SubscriptionGroupConfig.getPriorityFactor."""
    assert priority_factor(attributes) == factor
