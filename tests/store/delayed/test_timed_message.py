"""What is put when a slot is emptied. How it comes to that: test_timer_message_store.py."""

from typing import Any

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from store.delayed.timed_message import delivered_message, rolled_message, says_where_and_when
from tandem.wire.message import Host, MessageExt, decode_message
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.system_topics import TIMER_TOPIC
from tests.store.store_world import a_message, open_store

T0 = 1_700_000_000_000
WAITING = {"REAL_TOPIC": "TopicA", "REAL_QID": "2", "TIMER_OUT_MS": str(T0), "KEYS": "k"}


def a_timed(**changes: str) -> MessageExt:
    """A message of the timer topic, as it is read from the log; an empty value leaves one out."""
    properties = {name: value for name, value in (WAITING | changes).items() if value}
    with open_store(SimulatedDisk()) as store:
        message = msgspec.structs.replace(
            a_message(1, TIMER_TOPIC),
            properties=encode_properties(properties),
            flag=5,
            sys_flag=1,
            reconsume_times=3,
            store_host=Host("10.9.8.7", 99).packed,
        )
        record = store.reads.look_message_by_offset(store.puts.put_message(message).wrote_offset)
    assert record is not None
    return decode_message(record)[0]


def test_a_message_that_is_due_is_itself_again_in_its_real_topic() -> None:
    """TimerMessageStore.convertMessage; properties tell when it came and went."""
    message = a_timed()
    put = delivered_message(message, T0 - 5000, T0 + 3)
    assert (put.topic, put.queue_id, put.body) == ("TopicA", 2, b"1:")
    assert (put.flag, put.sys_flag, put.reconsume_times) == (5, 1, 3)
    assert put.born_timestamp_ms == message.born_timestamp_ms
    assert (put.born_host, put.store_host) == (
        message.born_host.packed,
        Host("10.9.8.7", 99).packed,
    )
    added = {"TIMER_ENQUEUE_MS": str(T0 - 5000), "TIMER_DEQUEUE_MS": str(T0 + 3)}
    assert decode_properties(put.properties) == WAITING | added


@pytest.mark.parametrize(("times", "expected"), [("", "1"), ("1", "2"), ("41", "42"), ("x", "1")])
def test_a_message_that_has_to_wait_longer_says_how_often_it_was_rolled(
    times: str, expected: str
) -> None:
    put = rolled_message(a_timed(TIMER_ROLL_TIMES=times), T0 - 5000, T0 + 3)
    assert (put.topic, put.queue_id) == (TIMER_TOPIC, 0)
    found = decode_properties(put.properties)
    assert found["TIMER_ROLL_TIMES"] == expected
    assert found["REAL_TOPIC"] == "TopicA"


@pytest.mark.parametrize(
    ("changes", "is_sound"),
    [
        ({}, True),
        ({"REAL_TOPIC": ""}, False),
        ({"REAL_TOPIC": TIMER_TOPIC}, False),
        ({"REAL_QID": ""}, False),
        ({"REAL_QID": "-1"}, False),
        ({"TIMER_OUT_MS": "soon"}, False),
        ({"TIMER_OUT_MS": "1" * 19}, False),
        ({"TIMER_OUT_MS": "\u0663"}, False),
    ],
)
def test_a_message_belongs_somewhere_if_it_names_topic_queue_and_time(
    changes: dict[str, Any],
    is_sound: bool,  # noqa: FBT001
) -> None:
    assert says_where_and_when(a_timed(**changes)) == is_sound
