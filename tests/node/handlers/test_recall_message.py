"""Recalls: what is stored for them, and what is refused."""

import msgspec
import pytest

from store.delayed.timer_request import TimerSettings, timer_rewrite
from tandem.wire.message import decode_messages
from tandem.wire.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from tandem.wire.reply_headers import RecallMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import TIMER_TOPIC
from tests.node.doubles import NOW_MS, Broker, Client, FakeReplication, handlers_of, request_table
from tests.node.handlers.send_requests import HEADER

RECALL = RequestCode.RECALL_MESSAGE
SEND = RequestCode.SEND_MESSAGE_V2
TIMED = msgspec.structs.replace(HEADER, properties="UNIQ_KEY\x01K1\x02TIMER_DELAY_SEC\x0160\x02")
DUE_MS = NOW_MS // 1000 * 1000 + 60_000


def timed_broker(*, is_fenced: bool = False) -> Broker:
    broker = Broker(is_fenced=is_fenced)
    broker.store.puts.take_timed(
        lambda message, now_ms: timer_rewrite(
            message, now_ms, TimerSettings(), lambda _: 0, broker.random
        )
    )
    return broker


def client_of(broker: Broker, replication: FakeReplication | None = None) -> Client:
    return Client(request_table(handlers_of(broker, replication)), broker.outbox)


def handle_of(**changes: object) -> str:
    handle = RecallHandle("T", "broker-a", NOW_MS + 60_000, "K1")
    return encode_recall_handle(msgspec.structs.replace(handle, **changes))


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_a_timed_send_is_answered_with_a_handle_and_the_handle_recalls_it(
    *, is_fenced: bool
) -> None:
    broker = timed_broker(is_fenced=is_fenced)
    client = client_of(broker)
    answer = client.call(SEND, TIMED, b"x")
    handle = decode_recall_handle(answer.ext_fields()["recallHandle"])
    if is_fenced:
        broker.store.confirm(broker.store.max_physical_offset)
    (waiting,) = decode_messages(
        b"".join(broker.store.reads.get_message(TIMER_TOPIC, 0, 0, 1).body)
    )
    assert handle == RecallHandle(
        "T", "broker-a", int(waiting.properties["TIMER_OUT_MS"]) + 1, "K1"
    )
    request = RecallMessageRequestHeader("T", answer.ext_fields()["recallHandle"], "PG")
    recalled = client.call(RECALL, request)
    assert (recalled.code, recalled.remark) == (0, None)
    assert recalled.ext_fields() == {"msgId": "K1", "MSG_REGION": "DefaultRegion"}
    if is_fenced:
        broker.store.confirm(broker.store.max_physical_offset)
    (stored,) = decode_messages(b"".join(broker.store.reads.get_message(TIMER_TOPIC, 0, 1, 1).body))
    assert stored.body == b"0"
    assert stored.properties == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": "T+K1",
        "UNIQ_KEY": "K1",
        "TIMER_DELIVER_MS": str(handle.deliver_ms),
        "TIMER_OUT_MS": waiting.properties["TIMER_OUT_MS"],
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
        "BORN_TIMESTAMP": str(NOW_MS),
        "PGROUP": "PG",
    }


@pytest.mark.parametrize(
    "properties",
    ["UNIQ_KEY\x01K1\x02", "DELAY\x013\x02", "TIMER_DELIVER_MS\x015\x02", "TIMER_DX\x015\x02"],
)
async def test_a_message_that_does_not_wait_in_the_wheel_has_no_handle(properties: str) -> None:
    client = client_of(timed_broker())
    answer = client.call(SEND, msgspec.structs.replace(HEADER, properties=properties), b"x")
    assert answer.code == 0
    assert "recallHandle" not in answer.ext_fields()


@pytest.mark.parametrize(
    ("topic", "handle", "code", "remark"),
    [
        ("Unknown", handle_of(), 17, "the topic[Unknown] not exist"),
        ("T", "?", 604, "recall handle is invalid"),
        ("T", handle_of(topic="U"), 604, "topic not match"),
        ("T", handle_of(broker_name="b"), 604, "the handle is one of b, this is broker-a"),
        ("T", handle_of(deliver_ms=NOW_MS), 604, "timestamp invalid"),
        ("T", handle_of(deliver_ms=NOW_MS + 259_200_000), 604, "timestamp invalid"),
        ("T", handle_of(unique_key="a\x02b"), 604, "cannot be stored"),
    ],
)
async def test_what_cannot_be_recalled(topic: str, handle: str, code: int, remark: str) -> None:
    client = client_of(timed_broker())
    answer = client.call(RECALL, RecallMessageRequestHeader(topic, handle))
    assert answer.code == code
    assert remark in (answer.remark or "")


async def test_recalls_are_refused_where_they_are_off_or_the_node_is_not_the_master() -> None:
    broker = timed_broker()
    replication = FakeReplication()
    client = client_of(broker, replication)
    replication.demote("not the master")
    answer = client.call(RECALL, RecallMessageRequestHeader("T", handle_of()))
    assert (answer.code, answer.remark) == (14, "not the master")
    broker.set(recall_message_enable=False)
    answer = client_of(broker).call(RECALL, RecallMessageRequestHeader("T", handle_of()))
    assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")


async def test_without_timers_there_is_nothing_to_recall() -> None:
    answer = client_of(Broker()).call(RECALL, RecallMessageRequestHeader("T", handle_of()))
    assert answer.code == ResponseCode.SYSTEM_ERROR
