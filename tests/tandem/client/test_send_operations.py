"""What a user says of a send reaches the request."""

import pytest

from tandem.client.ack import Ack
from tandem.client.blocking_producer import BlockingProducer
from tandem.client.errors import ClientError
from tandem.client.results import SendResult
from tandem.wire.message import Message
from tandem.wire.message_properties import decode_properties
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, FakeBroker, FakeSockets

MESSAGES = [Message("orders", b"0"), Message("orders", b"1")]


class Bench:
    def __init__(self) -> None:
        self.broker = FakeBroker()
        sockets = FakeSockets({MASTER: self.broker, NAME_SERVER: self.broker})
        self.producer = BlockingProducer(NAME_SERVER, "PG", opener=sockets.open)

    def headers(self) -> list[SendMessageRequestHeaderV2]:
        codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        return [
            request.decode_header(SendMessageRequestHeaderV2)
            for request in self.broker.requests
            if request.code in codes
        ]

    def waits(self) -> list[str | None]:
        texts = [decode_properties((header.properties or "").encode()) for header in self.headers()]
        return [text.get("WAIT") for text in texts]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_message(bench: Bench) -> None:
    with bench.producer as producer:
        producer.send(MESSAGES[0], queue_id=1, wait_store_msg_ok=False)
        producer.send(MESSAGES[0], sharding_key="k")
        producer.send(MESSAGES[0], sharding_key="k", ack=Ack.ASYNC)
    first, second, third = bench.headers()
    assert first.queue_id == 1
    assert second.queue_id == third.queue_id
    assert bench.waits() == ["false", "true", "false"]


def test_a_batch_is_one_request(bench: Bench) -> None:
    with bench.producer as producer:
        producer.send_batch(MESSAGES, queue_id=1)
    (header,) = bench.headers()
    assert (header.queue_id, header.batch) == (1, True)


def test_many_are_a_request_each_and_outcomes_can_be_looked_at(bench: Bench) -> None:
    outcomes: dict[int, SendResult | ClientError] = {}
    with bench.producer as producer:
        results = producer.send_many(MESSAGES, queue_id=1, ack=Ack.ASYNC, outcomes=outcomes)
    assert results == [outcomes[0], outcomes[1]]
    assert [header.queue_id for header in bench.headers()] == [1, 1]
    assert bench.waits() == ["false", "false"]
