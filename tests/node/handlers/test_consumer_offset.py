import pytest

import node.handlers.consumer_offset
from node.handlers.consumer_offset import ConsumerOffset
from node.tables.reset_offsets import ResetOffsets
from store import PutMessage
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client

QUERY = RequestCode.QUERY_CONSUMER_OFFSET
UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET


def client_of(broker: Broker) -> Client:
    handler = ConsumerOffset(broker.store, broker.tables, ResetOffsets(), timeout_seconds=3)
    return Client({QUERY: handler.query, UPDATE: handler.update}, broker.outbox)


def put(broker: Broker, count: int = 1) -> None:
    message = PutMessage("T", 0, bytes(1000), b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
    for _ in range(count):
        broker.store.puts.put_message(message)


async def test_a_committed_offset_is_told() -> None:
    client = client_of(Broker())
    assert client.call(UPDATE, UpdateConsumerOffsetRequestHeader("g", "T", 2, 42)).code == 0
    answer = client.call(QUERY, QueryConsumerOffsetRequestHeader("g", "T", 2))
    assert answer.decode_header(OffsetResponseHeader).offset == 42


async def test_an_unknown_offset_of_an_empty_queue_is_code_22() -> None:
    answer = client_of(Broker()).call(QUERY, QueryConsumerOffsetRequestHeader("g", "T", 0))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_new_group_starts_a_young_queue_at_zero() -> None:
    """ConsumerManageProcessor.queryConsumerOffset."""
    broker = Broker()
    put(broker)
    client = client_of(broker)
    answer = client.call(QUERY, QueryConsumerOffsetRequestHeader("g", "T", 0))
    assert answer.decode_header(OffsetResponseHeader).offset == 0
    strict = QueryConsumerOffsetRequestHeader("g", "T", 0, set_zero_if_not_found=False)
    assert client.call(QUERY, strict).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_queue_whose_start_is_far_behind_is_not_young(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.handlers.consumer_offset, "YOUNG_LOG_BYTES_MAX", 5000)
    broker = Broker()
    put(broker, 10)
    answer = client_of(broker).call(QUERY, QueryConsumerOffsetRequestHeader("g", "T", 0))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("topic", "queue_id", "code"),
    [
        ("nope", 0, ResponseCode.TOPIC_NOT_EXIST),
        ("T", 4, ResponseCode.INVALID_PARAMETER),
        ("T", -1, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_offsets_of_queues_that_do_not_exist_are_refused(
    topic: str, queue_id: int, code: ResponseCode
) -> None:
    header = UpdateConsumerOffsetRequestHeader("g", topic, queue_id, 1)
    assert client_of(Broker()).call(UPDATE, header).code == code


async def test_the_node_clients_minus_one_says_nothing() -> None:
    broker = Broker()
    header = UpdateConsumerOffsetRequestHeader("g", "T", 0, -1)
    assert client_of(broker).call(UPDATE, header).code == 0
    assert broker.offsets.query("g", "T", 0) is None
