import random

import msgspec
import pytest

from store.delayed.timer_request import Refusal, TimerSettings, is_timer_request, timer_rewrite
from store.results import PutMessage, PutMessageStatus
from tandem.wire.message_properties import decode_properties, encode_properties
from tests.store.store_world import a_message

NOW = 1_700_000_000_300
SETTINGS = TimerSettings(timer_congest_num_each_slot=10)
ILLEGAL = PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL


def asking(**properties: str) -> PutMessage:
    return msgspec.structs.replace(
        a_message(1, queue_id=2), properties=encode_properties(properties)
    )


def rewritten(message: PutMessage, num: int = 0) -> PutMessage | Refusal:
    return timer_rewrite(message, NOW, SETTINGS, lambda _: num, random.Random(1))


def out_ms(message: PutMessage) -> int:
    found = rewritten(message)
    assert isinstance(found, PutMessage), found
    return int(decode_properties(found.properties)["TIMER_OUT_MS"])


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TIMER_DELAY_SEC": "1"}, True),
        ({"TIMER_DELAY_MS": "1"}, True),
        ({"TIMER_DELIVER_MS": "1"}, True),
        ({"TIMER_DELIVER_MS": "1", "DELAY": "0"}, True),
        ({"TIMER_DELIVER_MS": "1", "DELAY": "3"}, False),
        ({"TIMER_DELIVER_MS": "1", "TIMER_OUT_MS": "1"}, False),
        ({"XTIMER_DELAY_MS": "1"}, False),
        ({"KEYS": "k"}, False),
    ],
)
def test_a_timer_request_has_a_time_and_no_delay_level(
    properties: dict[str, str],
    expected: bool,  # noqa: FBT001
) -> None:
    """HookUtils.checkIfTimerMessage."""
    message = asking(**properties)
    assert is_timer_request(message) is expected
    assert not is_timer_request(msgspec.structs.replace(message, topic="rmq_sys_wheel_timer"))


def test_a_timed_message_goes_into_the_timer_topic_and_says_where_it_belongs() -> None:
    """HookUtils.transformTimerMessage."""
    message = asking(TIMER_DELAY_SEC="5", KEYS="k")
    found = rewritten(message)
    assert isinstance(found, PutMessage)
    assert (found.topic, found.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert decode_properties(found.properties) == {
        "TIMER_DELAY_SEC": "5",
        "KEYS": "k",
        "TIMER_OUT_MS": "1700000005000",
        "REAL_TOPIC": "TopicA",
        "REAL_QID": "2",
    }
    assert found.body == message.body


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TIMER_DELAY_SEC": "1"}, 1_700_000_001_000),
        ({"TIMER_DELAY_MS": "700"}, 1_700_000_000_000),
        ({"TIMER_DELAY_MS": "701"}, 1_700_000_001_000),
        ({"TIMER_DELIVER_MS": "1700000009000"}, 1_700_000_008_000),
        ({"TIMER_DELIVER_MS": "1700000009999"}, 1_700_000_009_000),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "9000"}, 1_700_000_009_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "9000"}, 1_700_000_002_000),
    ],
)
def test_the_slot_is_the_last_tick_that_is_over_when_the_time_comes(
    properties: dict[str, str], expected: int
) -> None:
    assert out_ms(asking(**properties)) == expected


@pytest.mark.parametrize(
    "properties", [{"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELAY_SEC": "-5"}]
)
def test_a_time_that_has_passed_means_now(properties: dict[str, str]) -> None:
    message = asking(**properties)
    assert rewritten(message) is message


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELIVER_MS": "1.5"},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELIVER_MS": "9" * 18},
        {"TIMER_DELIVER_MS": "9" * 30},
        {"TIMER_DELAY_MS": " 3"},
        {"TIMER_DELAY_SEC": "1_0"},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "U"},
    ],
)
def test_what_cannot_be_timed_is_illegal(properties: dict[str, str]) -> None:
    refusal = rewritten(asking(**properties))
    assert not isinstance(refusal, PutMessage)
    assert refusal[0] is ILLEGAL


def test_the_longest_delay_is_taken() -> None:
    assert isinstance(rewritten(asking(TIMER_DELAY_SEC="259200")), PutMessage)


@pytest.mark.parametrize(("num", "taken"), [(10, 100), (20, 0), (25, 0)])
def test_a_slot_takes_all_up_to_its_limit_and_none_above_twice_that(num: int, taken: int) -> None:
    chance = random.Random(1)
    found = [
        timer_rewrite(asking(TIMER_DELAY_SEC="5"), NOW, SETTINGS, lambda _: num, chance)
        for _ in range(100)
    ]
    assert sum(isinstance(result, PutMessage) for result in found) == taken


def test_in_between_a_slot_takes_some() -> None:
    chance = random.Random(1)
    found = [
        timer_rewrite(asking(TIMER_DELAY_SEC="5"), NOW, SETTINGS, lambda _: 15, chance)
        for _ in range(100)
    ]
    refused = [result for result in found if not isinstance(result, PutMessage)]
    assert 30 < len(refused) < 70
    assert {status for status, _ in refused} == {PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL}
