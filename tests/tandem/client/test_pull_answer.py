from typing import Final

import pytest

from tandem.client.errors import MessageDamagedError
from tandem.client.pull_answer import expression_type, is_all, passes_over, pull_result, wanted
from tandem.client.queue_flow import RETRIED
from tandem.client.results import PullResult, PullStatus
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message, encode_batch_body, encode_record
from tandem.wire.message_properties import PROPERTY_TAGS
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.system_topics import LMQ_PREFIX
from tests.tandem.client.fake_broker import answer_to, message_ext

REQUEST = RemotingCommand(code=11)


def result(
    code: int, next_offset: int, tags: str = "*", *, with_message: bool = False
) -> PullResult:
    message = message_ext(queue_offset=4, properties={PROPERTY_TAGS: "A"})
    body = encode_record(message) if with_message else b""
    ext = PullMessageResponseHeader(0, next_offset, 2, 9)
    return pull_result(answer_to(REQUEST, code, ext, body), "a:1", "orders", 0, tags, 4)


def test_found_messages_without_a_wanted_tag_are_no_match() -> None:
    assert result(0, 5, "A", with_message=True).status is PullStatus.FOUND
    assert result(0, 5, "B", with_message=True).status is PullStatus.NO_MATCHED_MSG


@pytest.mark.parametrize(
    ("code", "next_offset", "tags", "does"),
    [
        (21, 7, "*", True),  # the queue begins there
        (21, 7, "A", True),
        (20, 7, "*", True),  # deleted or damaged: everybody wants what is not tagged
        (20, 7, "A", False),  # other tags
        (19, 4, "*", False),
        (21, 4, "*", False),
        (21, 2, "*", False),  # beyond the end
    ],
)
def test_an_answer_that_moves_a_reader_past_messages_is_known(
    code: int, next_offset: int, tags: str, *, does: bool
) -> None:
    assert passes_over(result(code, next_offset, tags), tags, 4) == does


def test_messages_pass_over_nothing() -> None:
    assert not passes_over(result(0, 5, with_message=True), "*", 4)


# -- what has changed since it was stored --------------------------------------------------------


def answered(*records: bytes, tags: str = "*", topic: str = "orders") -> PullResult:
    """What a pull of message 4 gets."""
    ext = PullMessageResponseHeader(0, 9, 2, 9)
    answer = answer_to(REQUEST, 0, ext, b"".join(records))
    return pull_result(answer, "a:1", topic, 0, tags, 4)


def record(number: int, *, queue_id: int = 0, topic: str = "orders") -> bytes:
    properties = {PROPERTY_TAGS: "AB"[number % 2]}
    return encode_record(
        message_ext(topic=topic, queue_id=queue_id, queue_offset=number, properties=properties)
    )


def changed(number: int, at: int, byte: int) -> bytes:
    """A record with another byte somewhere: 88 is where its body begins."""
    data = bytearray(record(number))
    data[at] ^= byte
    return bytes(data)


CHANGED: Final = {
    "its size": changed(5, 2, 0x20),
    "its magic": changed(5, 7, 1),
    "its CRC": changed(5, 11, 1),
    "its queue": changed(5, 13, 0x20),
    "its number": changed(5, 27, 4),
    "its number, which is behind the end": changed(5, 22, 16),
    "its number, which is behind that of the next": changed(5, 27, 2),
    "its body": changed(5, 90, 1),
    "its topic": changed(5, 94, 1),
    "of another queue": record(5, queue_id=1),
    "of another topic": record(5, topic="order"),
    "the one before": record(4),
    "cut": record(5)[:40],
    "a batch before it": encode_record(
        message_ext(encode_batch_body([Message("orders", b"x")] * 2), sys_flag=0xC0, queue_offset=3)
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_an_answer_ends_before_what_is_not_what_was_asked_for(what: str) -> None:
    found = answered(record(4), CHANGED[what], record(6))
    assert ([m.queue_offset for m in found.messages], found.next_begin_offset) == ([4], 5)
    none = answered(record(4), CHANGED[what], record(6), tags="B")
    assert (none.status, none.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 5)


@pytest.mark.parametrize(
    "what", [w for w in CHANGED if w not in {"its number", "the one before"} and "next" not in w]
)
def test_where_nothing_is_before_it_the_message_is_damaged(what: str) -> None:
    ext = PullMessageResponseHeader(0, 9, 2, 9)
    with pytest.raises(MessageDamagedError) as caught:
        pull_result(answer_to(REQUEST, 0, ext, CHANGED[what]), "a:1", "orders", 0, "*", 5)
    assert (caught.value.queue_offset, caught.value.address) == (5, "a:1")
    assert caught.value.code in RETRIED


def test_a_number_that_has_left_out_the_next_one_is_damaged() -> None:
    """The first record of an answer: what comes after it says that it is not the next one."""
    with pytest.raises(MessageDamagedError) as caught:
        answered(changed(4, 27, 2), record(5))
    assert caught.value.queue_offset == 4


def test_numbers_that_are_left_out_are_other_peoples_tags() -> None:
    found = answered(record(4), record(6), record(8), tags="A")
    assert ([m.queue_offset for m in found.messages], found.next_begin_offset) == ([4, 6, 8], 9)


def test_a_light_queue_has_messages_of_other_topics() -> None:
    found = answered(record(1), record(7, queue_id=3), topic=f"{LMQ_PREFIX}mine")
    assert ([m.queue_offset for m in found.messages], found.next_begin_offset) == ([1, 7], 9)


def test_tags_or_an_expression_are_wanted_and_not_both() -> None:
    assert expression_type(wanted("A || B", None)) == "TAG"
    assert expression_type(wanted("*", "a > 5")) == "SQL92"
    # A word that means everything as tags means nothing of the kind as an expression.
    assert is_all("*")
    assert not is_all(wanted("*", "*"))
    with pytest.raises(ArgumentError) as caught:
        wanted("A", "a > 5")
    assert caught.value.names == ("tags", "sql")
