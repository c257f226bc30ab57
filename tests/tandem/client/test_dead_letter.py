import msgspec
import pytest

from store.messages.send_back import send_back
from tandem.client.dead_letter import key_again, message_again, origin_id, origin_topic
from tandem.wire.errors import ArgumentError
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import decode_properties
from tests.tandem.client.fake_broker import message_ext

ORIGINAL = message_ext(
    b"body",
    topic="Orders",
    properties={"UNIQ_KEY": "U1", "KEYS": "k1 k2", "TAGS": "t", "own": "value", "WAIT": "true"},
)


def given_up(times: int) -> MessageExt:
    """The dead letter of the original after this many retries, as our broker makes it."""
    message = ORIGINAL
    for each in range(times + 1):
        put = send_back(
            message, group="g", delay_level=0, max_reconsume_times=times, retry_queue_id=0
        )
        message = msgspec.structs.replace(
            message,
            topic=put.topic,
            properties={**decode_properties(put.properties), "REAL_TOPIC": put.topic},
            reconsume_times=each + 1,
        )
    return message


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_dead_letter_becomes_the_message_that_it_was(times: int) -> None:
    letter = given_up(times)
    assert letter.topic == "%DLQ%g"
    again = message_again(letter)
    assert (again.topic, again.body, again.keys, again.tags) == ("Orders", b"body", "k1 k2", "t")
    assert again.properties == {
        "own": "value",
        "DLQ_ORIGIN_TOPIC": "Orders",
        "DLQ_ORIGIN_MESSAGE_ID": "U1",
    }
    assert not again.is_delayed


def test_copies_of_a_message_are_known_by_its_unique_key() -> None:
    assert origin_id(given_up(1)) == origin_id(given_up(3)) == "U1"
    without = message_ext(properties={"ORIGIN_MESSAGE_ID": "O1"})
    assert origin_id(without) == "O1"
    assert origin_id(message_ext()) == message_ext().offset_msg_id


def test_a_letter_that_does_not_say_its_topic_is_not_sent() -> None:
    assert origin_topic(message_ext()) == ""
    with pytest.raises(ArgumentError) as caught:
        message_again(message_ext())
    assert caught.value.names == ("DLQ_ORIGIN_TOPIC",)


def test_a_letter_given_up_twice_goes_where_it_was_first() -> None:
    letter = given_up(1)
    twice = msgspec.structs.replace(
        letter, properties={**letter.properties, "DLQ_ORIGIN_TOPIC": "First"}
    )
    assert origin_topic(twice) == "First"


def test_the_key_of_a_letter_that_is_sent_again_is_always_the_same() -> None:
    origin = "7F0000014AD6CF8AC9BE7176A0700000"
    letter = message_ext(topic="%DLQ%g", properties={"UNIQ_KEY": origin})
    key = key_again(letter)
    assert key == key_again(msgspec.structs.replace(letter, queue_offset=99))
    assert (len(key), key[20:28], key != origin) == (32, origin[20:28], True)
    others = [
        key_again(msgspec.structs.replace(letter, topic="%DLQ%other")),
        key_again(message_ext(topic="%DLQ%g", properties={"UNIQ_KEY": key})),
        key_again(message_ext(topic="%DLQ%g", properties={"UNIQ_KEY": "short"})),
    ]
    assert len({key, *others}) == 4
    assert all(len(each) == 32 and int(each, 16) for each in others)


def test_a_key_is_given_to_the_message_if_there_is_one() -> None:
    assert message_again(given_up(1), unique_key="K").properties["UNIQ_KEY"] == "K"
