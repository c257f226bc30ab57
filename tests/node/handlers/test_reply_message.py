"""Replies, from a replier through the broker to the client that asked."""

import msgspec
import pytest
import trio

from node.handlers.reply_message import CLIENT_SECONDS
from tandem.wire.message import decode_messages
from tandem.wire.message_properties import decode_properties
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    HeartbeatData,
    ProducerData,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from tandem.wire.route import encode_json_body
from tests.node.doubles import (
    BROKER,
    NOW_MS,
    Broker,
    Client,
    FakeReplication,
    handlers_of,
    request_table,
)

REPLY, LONG = RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
PROPERTIES = (
    "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker\x02MSG_TYPE\x01reply\x02UNIQ_KEY\x01K"
)
HEADER = SendMessageRequestHeaderV2(
    "PG", "C_REPLY_TOPIC", "TBW102", 4, 0, 1, 12345, 3, PROPERTIES, 0, unit_mode=False
)


def world(broker: Broker, replication: FakeReplication | None = None) -> tuple[Client, Client]:
    """A replier, and a client that sends the heartbeats of a producer."""
    table = request_table(handlers_of(broker, replication))
    replier, asker = (Client(table, broker.outbox, broker.to_clients) for _ in range(2))
    beat = HeartbeatData("asker", producer_data_set=[ProducerData("p")])
    asker.call(RequestCode.HEART_BEAT, None, encode_json_body(beat))
    return replier, asker


@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("code", [REPLY, LONG])
async def test_a_reply_goes_to_the_client_that_asked(code: int, *, is_fenced: bool) -> None:
    broker = Broker(is_fenced=is_fenced)
    replier, asker = world(broker)
    values = msgspec.structs.asdict(HEADER)
    header = SendMessageRequestHeader(**values) if code == LONG else HEADER
    replier.send(code, header, b"answer")
    assert replier.answers() == [], "the replier waits for the client that asked"
    (pushed,) = asker.answers()
    assert (pushed.code, pushed.body) == (PUSH, b"answer")
    fields = pushed.ext_fields()
    assert decode_properties(fields.pop("properties").encode()) == decode_properties(
        PROPERTIES.encode()
    ) | {"PUSH_REPLY_TIME": str(NOW_MS)}
    assert fields == {
        "producerGroup": "PG",
        "topic": "C_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "1",
        "bornTimestamp": "12345",
        "flag": "3",
        "bornHost": "10.1.2.3:1234",
        "storeHost": str(BROKER),
        "storeTimestamp": str(NOW_MS),
        "reconsumeTimes": "0",
        "unitMode": "false",
    }
    asker.answer(pushed)
    (answer,) = replier.answers()
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields()["queueOffset"] == "0"
    assert len(answer.ext_fields()["msgId"]) == 32
    if is_fenced:
        broker.store.confirm(broker.store.max_physical_offset)
    (kept,) = decode_messages(
        b"".join(broker.store.reads.get_message("C_REPLY_TOPIC", 0, 0, 9).body)
    )
    assert (kept.body, kept.properties["CLUSTER"]) == (b"answer", "C")


async def test_a_reply_need_not_be_kept() -> None:
    broker = Broker()
    broker.set(store_reply_message_enable=False)
    replier, asker = world(broker)
    replier.send(REPLY, HEADER, b"answer")
    replier.answers()
    asker.answer(asker.answers()[0])
    (answer,) = replier.answers()
    assert (answer.code, answer.ext_fields()["msgId"]) == (0, "0")
    assert broker.store.reads.max_offset_in_queue("C_REPLY_TOPIC", 0) == 0


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("REPLY_TO_CLIENT\x01who\x02", "push reply message fail, channel of <who> not found."),
        ("K\x01v\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_nobody_to_send_a_reply_to(properties: str | None, remark: str) -> None:
    """It is kept all the same, as in RocketMQ."""
    broker = Broker()
    replier, _ = world(broker)
    answer = replier.call(REPLY, msgspec.structs.replace(HEADER, properties=properties), b"answer")
    assert (answer.code, answer.remark) == (1, remark)
    assert broker.store.reads.max_offset_in_queue("C_REPLY_TOPIC", 0) == 1


async def test_a_client_that_does_not_take_the_reply() -> None:
    broker = Broker()
    replier, asker = world(broker)
    replier.send(REPLY, HEADER, b"answer")
    replier.answers()
    asker.answer(asker.answers()[0], code=3)
    (answer,) = replier.answers()
    assert (answer.code, answer.remark) == (1, "push reply message to asker fail: it answers 3")


async def test_a_client_that_does_not_answer() -> None:
    broker = Broker()
    replier, _ = world(broker)
    replier.send(REPLY, HEADER, b"answer")
    replier.answers()
    broker.to_clients.expire(trio.current_time() + CLIENT_SECONDS - 0.1)
    assert replier.answers() == []
    broker.to_clients.expire(trio.current_time() + CLIENT_SECONDS)
    (answer,) = replier.answers()
    assert answer.code == 1
    assert "did not answer in time" in (answer.remark or "")


async def test_what_is_refused() -> None:
    replication = FakeReplication()
    broker = Broker()
    replier, _ = world(broker, replication)
    answer = replier.call(REPLY, msgspec.structs.replace(HEADER, topic="Unknown"))
    assert (answer.code, answer.remark) == (17, "topic[Unknown] not exist")
    answer = replier.call(REPLY, msgspec.structs.replace(HEADER, queue_id=1))
    assert answer.code == 29
    replication.demote("not the master")
    answer = replier.call(REPLY, HEADER)
    assert (answer.code, answer.remark) == (14, "not the master")
