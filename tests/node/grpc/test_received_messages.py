import hashlib
import zlib
from typing import Any

import msgspec
import pytest

from node.grpc.protocol import messages as pb
from node.grpc.received_messages import grpc_message, original_topic
from tandem.wire.crc import crc32
from tandem.wire.errors import MalformedMessageError, WireError
from tandem.wire.message import COMPRESSED_FLAG, Host, MessageExt


def stored(*, body: bytes = b"hello2", sys_flag: int = 0, **properties: str) -> MessageExt:
    return MessageExt(
        topic="T",
        body=body,
        properties={"UNIQ_KEY": "ID", **properties},
        queue_id=2,
        queue_offset=28,
        physical_offset=1000,
        store_size=200,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1_700_000_000_123,
        born_host=Host("10.0.0.9", 5),
        store_timestamp_ms=1_700_000_000_456,
        store_host=Host("127.0.0.1", 10911),
        reconsume_times=1,
        prepared_transaction_offset=0,
        body_crc=crc32(body),
    )


def test_a_message_has_what_clients_read_of_it() -> None:
    found = grpc_message(
        stored(TAGS="t", KEYS="a b", p="v", __SHARDINGKEY="g", __BORNHOST="vm", WAIT="true"), "T"
    )
    system = found.system_properties
    assert (found.topic.name, found.body, dict(found.user_properties)) == (
        "T",
        b"hello2",
        {"p": "v"},
    )
    assert (system.tag, list(system.keys), system.message_id) == ("t", ["a", "b"], "ID")
    assert (system.message_group, system.message_type) == ("g", pb.FIFO)
    assert system.body_digest.checksum == "6E809CBDA0732AC4845916A59016F954"
    assert (system.body_digest.type, system.body_encoding) == (pb.MD5, pb.IDENTITY)
    assert (system.born_host, system.store_host) == ("vm", "127.0.0.1:10911")
    assert system.born_timestamp.ToMilliseconds() == 1_700_000_000_123
    assert system.store_timestamp.ToMilliseconds() == 1_700_000_000_456
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (2, 28, 2)
    assert not system.HasField("receipt_handle")


def test_a_body_that_is_not_that_of_its_record_gets_no_digest_that_fits_it() -> None:
    rotten = msgspec.structs.replace(stored(), body=b"hellp2")
    with pytest.raises(MalformedMessageError):
        grpc_message(rotten, "T")


def test_bodies_that_a_client_of_the_other_protocol_has_compressed_go_plain() -> None:
    body = b"hello " * 1000
    found = grpc_message(stored(body=zlib.compress(body), sys_flag=COMPRESSED_FLAG), "T")
    assert found.body == body
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    assert found.system_properties.body_digest.checksum == digest
    with pytest.raises(WireError):
        grpc_message(stored(body=b"no zlib", sys_flag=COMPRESSED_FLAG), "T")


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, pb.NORMAL),
        ({"__SHARDINGKEY": "g"}, pb.FIFO),
        ({"_SYS_MSG_PRIORITY_": "5"}, pb.PRIORITY),
        ({"_SYS_MSG_PRIORITY_": "5", "__SHARDINGKEY": "g"}, pb.FIFO),
        ({"TIMER_DELIVER_MS": "5", "__SHARDINGKEY": "g"}, pb.DELAY),
        ({"DELAY": "3"}, pb.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, pb.TRANSACTION),
    ],
)
def test_the_type_is_that_of_the_properties(properties: dict[str, Any], kind: int) -> None:
    assert grpc_message(stored(**properties), "T").system_properties.message_type == kind


def test_a_priority_is_shown_as_one_and_not_among_what_users_have_set() -> None:
    found = grpc_message(stored(_SYS_MSG_PRIORITY_="5"), "T")
    assert found.system_properties.priority == 5
    assert not found.user_properties
    assert not grpc_message(stored(), "T").system_properties.HasField("priority")


def test_times_and_dead_letters_are_said_and_nonsense_is_left_out() -> None:
    system = grpc_message(
        stored(TIMER_DELIVER_MS="1700000000001", DLQ_ORIGIN_TOPIC="O", DLQ_ORIGIN_MESSAGE_ID="m"),
        "T",
    ).system_properties
    assert system.delivery_timestamp.ToMilliseconds() == 1_700_000_000_001
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("O", "m")
    for nonsense in ("x", "-5", "9" * 19):
        system = grpc_message(stored(TIMER_DELIVER_MS=nonsense), "T").system_properties
        assert not system.HasField("delivery_timestamp")


def test_the_topic_is_that_to_which_it_was_sent() -> None:
    assert original_topic(stored()) == "T"
    assert original_topic(stored(REAL_TOPIC="Real")) == "Real"
