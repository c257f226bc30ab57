import pytest

from tandem.client.blocking_producer import BlockingProducer
from tandem.client.errors import BrokerError
from tandem.client.results import SendStatus
from tandem.wire.message import Message
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    FakeBroker,
    FakeSockets,
    answer_to,
)

MESSAGE = Message("orders", b"hello")
SEND = RequestCode.SEND_MESSAGE_V2


def one_broker() -> dict[str, FakeBroker]:
    broker = FakeBroker()
    return {NAME_SERVER: broker, MASTER: broker}


def test_plain_code_sends_by_the_same_rules() -> None:
    brokers = one_broker()
    sockets = FakeSockets(brokers)
    with BlockingProducer(NAME_SERVER, "PG", opener=sockets.open) as producer:
        assert producer.send(MESSAGE).status is SendStatus.SEND_OK
        assert producer.send(MESSAGE, queue_id=1, wait_store_msg_ok=False).queue.queue_id == 1
        assert len(producer.send_many([MESSAGE] * 300)) == 300
        brokers[MASTER].handlers[RequestCode.SEND_BATCH_MESSAGE] = brokers[MASTER].handlers[SEND]
        assert producer.send_batch([MESSAGE]).queue_offset >= 0
        brokers[MASTER].handlers[SEND] = lambda request: answer_to(request, 13)
        with pytest.raises(BrokerError):
            producer.send(MESSAGE)
    assert all(opened.closed for opened in sockets.opened)


def test_settings_of_the_producer_reach_its_messages() -> None:
    brokers = one_broker()
    with BlockingProducer(
        NAME_SERVER, "PG", opener=FakeSockets(brokers).open, compress_over_bytes=10
    ) as producer:
        queues = {producer.send(MESSAGE, sharding_key="o-7").queue for _ in range(5)}
        producer.send(Message("orders", b"x" * 100))
    assert len(queues) == 1
    last = [request for request in brokers[MASTER].requests if request.code == SEND][-1]
    assert last.decode_header(SendMessageRequestHeaderV2).sys_flag == 0x301
