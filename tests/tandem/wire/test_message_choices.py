"""What of the choices of a producer goes together."""

from typing import Any

import pytest

from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message
from tandem.wire.message_choices import (
    NO_PRIORITY,
    check_delays,
    check_priority,
    plain_body,
    priority_of,
)


@pytest.mark.parametrize("body", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_a_body_is_bytes_in_the_end(body: object) -> None:
    assert plain_body(body) == b"abc"


@pytest.mark.parametrize("body", ["abc", {"a": 1}, None, 5])
def test_another_body_is_refused(body: object) -> None:
    with pytest.raises(TypeError):
        plain_body(body)


@pytest.mark.parametrize("given", [(0, 0, 0), (3, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_one_delay_is_taken(given: tuple[int, int, int]) -> None:
    check_delays(*given)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ((3, 1, 0), {"delay_time_level", "delay_ms"}),
        ((0, 1, 1), {"delay_ms", "deliver_time_ms"}),
        ((0, -1, 0), {"delay_ms"}),
        ((0, 0, -1), {"deliver_time_ms"}),
    ],
)
def test_other_delays_are_refused(given: tuple[int, int, int], arguments: set[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_delays(*given)
    assert set(caught.value.names) == arguments


def test_a_priority_is_a_property_and_read_again() -> None:
    message = Message("T", b"", priority=0)
    assert message.property_map() == {"_SYS_MSG_PRIORITY_": "0"}
    assert not message.is_for_a_batch
    assert not message.is_plain
    assert Message("T", b"").is_for_a_batch
    assert not Message("T", b"", properties={"_SYS_MSG_PRIORITY_": "1"}).is_for_a_batch


@pytest.mark.parametrize(
    ("priority", "key", "is_delayed", "arguments"),
    [
        (-1, "", False, {"priority"}),
        (1, "k", False, {"priority", "sharding_key"}),
        (1, "", True, {"priority", "delay_time_level", "delay_ms", "deliver_time_ms"}),
    ],
)
def test_a_priority_beside_what_counts_in_its_place_is_refused(
    priority: int, key: str, *, is_delayed: bool, arguments: set[str]
) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_priority(priority, key, is_delayed=is_delayed)
    assert set(caught.value.names) == arguments


@pytest.mark.parametrize("wrong", [{}, {"delay_ms": 5}, {"sharding_key": "k"}])
def test_a_message_checks_its_priority(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Message("T", b"", priority=1 if wrong else -1, **wrong)


@pytest.mark.parametrize(
    ("value", "priority"),
    [("0", 0), ("7", 7), ("+7", 7), ("-2", NO_PRIORITY), ("x", NO_PRIORITY), ("", NO_PRIORITY)],
)
def test_a_priority_is_a_number_as_java_reads_it(value: str, priority: int) -> None:
    """Message.getPriority of 5.5.0."""
    assert priority_of({"_SYS_MSG_PRIORITY_": value}) == priority
    assert priority_of({}) == NO_PRIORITY
