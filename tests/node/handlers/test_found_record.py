"""Whose message a record is."""

from collections.abc import Sequence

import msgspec
import pytest

from node.errors import RequestError
from node.handlers.found_record import check_found, check_only_topic, topic_of
from node.remoting.caller import ANYBODY, Caller
from tandem.wire.access_control import Kind, Right
from tandem.wire.message import MessageExt, decode_messages, encode_record
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, Client, handlers_of, request_table
from tests.node.handlers.send_requests import HEADER


class Noted(Caller):
    """May nothing, and says what was asked for."""

    def __init__(self) -> None:
        super().__init__("somebody")
        self.asked: list[tuple[Kind, str, Sequence[Right]]] = []

    def check(self, kind: Kind, name: str, *rights: Right) -> None:
        self.asked.append((kind, name, rights))
        raise RequestError(16, "no")


def put(properties: str) -> tuple[bytes, MessageExt]:
    """Store a message; return its record."""
    broker = Broker()
    client = Client(request_table(handlers_of(broker)), broker.outbox)
    header: msgspec.Struct = msgspec.structs.replace(HEADER, properties=properties)
    assert client.call(RequestCode.SEND_MESSAGE_V2, header, b"x").code == 0
    record = broker.store.reads.look_message_by_offset(0)
    assert record is not None
    return record, decode_messages(record)[0]


async def test_an_ordinary_record_is_of_its_topic_whatever_it_says_itself() -> None:
    record, message = put("REAL_TOPIC\x01Mine\x02")
    assert topic_of(message) == HEADER.topic
    caller = Noted()
    with pytest.raises(RequestError):
        check_found(caller, record, Right.SUB, Right.GET)
    assert caller.asked == [(Kind.TOPIC, HEADER.topic, (Right.SUB, Right.GET))]
    check_found(ANYBODY, record, Right.SUB)


async def test_one_that_waits_is_of_the_topic_where_it_belongs() -> None:
    _, message = put("DELAY\x013\x02")
    assert message.topic == "SCHEDULE_TOPIC_XXXX"
    assert topic_of(message) == HEADER.topic


async def test_a_record_of_another_topic_than_the_one_that_was_checked_is_refused() -> None:
    record, message = put("")
    check_only_topic(record, None)
    check_only_topic(record, message.topic)
    with pytest.raises(RequestError) as caught:
        check_only_topic(record, "Another", "g")
    assert caught.value.code == ResponseCode.NO_PERMISSION
    again = msgspec.structs.replace(message, topic=f"%RETRY%g_{message.topic}")
    check_only_topic(encode_record(again), message.topic, "g")
    with pytest.raises(RequestError):
        check_only_topic(encode_record(again), message.topic, "another")
