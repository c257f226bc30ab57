"""What a user says of a pull reaches the request."""

import pytest

from tandem.client.pull_consumer import BlockingPullConsumer
from tandem.client.results import MessageQueue
from tandem.wire.errors import ArgumentError
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, FakeBroker, FakeSockets

QUEUE = MessageQueue("orders", "broker-a", 0)


class Bench:
    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.broker.store("orders", 0, b"0", b"1", b"2")
        sockets = FakeSockets({MASTER: self.broker, NAME_SERVER: self.broker})
        self.consumer = BlockingPullConsumer(NAME_SERVER, "CG", opener=sockets.open)

    def header(self) -> PullMessageRequestHeader:
        asked = [each for each in self.broker.requests if each.code == RequestCode.PULL_MESSAGE]
        return asked[-1].decode_header(PullMessageRequestHeader)


def test_a_pull_asks_for_what_the_user_asks_for() -> None:
    bench = Bench()
    with bench.consumer as consumer:
        assert len(consumer.pull(QUEUE, 1).messages) == 2
        header = bench.header()
        assert (header.queue_offset, header.max_msg_nums) == (1, 32)
        assert (header.subscription, header.suspend_timeout_millis) == ("*", 0)
        consumer.pull(QUEUE, 0, 1, "a || b", 700)
        header = bench.header()
        assert (header.max_msg_nums, header.subscription) == (1, "a || b")
        assert header.suspend_timeout_millis == 700
        consumer.pull(QUEUE, 0, sql="a > 5")
        assert (bench.header().expression_type, bench.header().subscription) == ("SQL92", "a > 5")
        with pytest.raises(ArgumentError) as caught:
            consumer.pull(QUEUE, 0, tags="a", sql="a > 5")
        assert caught.value.names == ("tags", "sql")


def test_queues_and_offsets() -> None:
    with Bench().consumer as consumer:
        assert QUEUE in consumer.fetch_message_queues("orders")
        assert (consumer.min_offset(QUEUE), consumer.max_offset(QUEUE)) == (0, 3)
