"""What a user says of a pop reaches the request."""

import pytest

from tandem.client.pop_operations import INVISIBLE_MS_MAX
from tandem.client.simple_consumer import BlockingSimpleConsumer
from tandem.wire.errors import ArgumentError
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, FakeSockets
from tests.tandem.client.pop_broker import PopBroker, record


class Bench:
    def __init__(self) -> None:
        self.broker = PopBroker([record(b"a", 0), record(b"b", 1)])
        sockets = FakeSockets({MASTER: self.broker, NAME_SERVER: self.broker})
        self.consumer = BlockingSimpleConsumer(NAME_SERVER, "CG", opener=sockets.open)


def test_a_user_receives_extends_and_acknowledges() -> None:
    bench = Bench()
    with bench.consumer as consumer:
        first, second = consumer.receive("orders", 2, invisible_ms=5_000, wait_ms=0, tags="*")
        (asked,) = bench.broker.asked()
        assert (asked.max_msg_nums, asked.invisible_time, asked.poll_time) == (2, 5_000, 0)
        assert consumer.extend(first, 0)
        assert consumer.ack(first)
        assert consumer.ack([second])
        assert bench.broker.acked == [("orders", 0, 0), ("orders", 0, 1)]
        assert consumer.receive("orders", wait_ms=0) == []


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"max_messages": 0}, "max_messages"),
        ({"max_messages": 33}, "max_messages"),
        ({"invisible_ms": 0}, "invisible_ms"),
        ({"invisible_ms": INVISIBLE_MS_MAX + 1}, "invisible_ms"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"tags": "a", "sql": "b = 1"}, "tags"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_asked(
    arguments: dict[str, object], name: str
) -> None:
    bench = Bench()
    with bench.consumer as consumer, pytest.raises(ArgumentError) as caught:
        consumer.receive("orders", **arguments)  # type: ignore[arg-type]
    assert name in caught.value.names
    assert bench.broker.requests == []


@pytest.mark.parametrize("invisible_ms", [-1, INVISIBLE_MS_MAX + 1])
def test_a_message_cannot_be_kept_for_ever(invisible_ms: int) -> None:
    bench = Bench()
    with bench.consumer as consumer:
        (message, _) = consumer.receive("orders", wait_ms=0)
        with pytest.raises(ArgumentError):
            consumer.extend(message, invisible_ms)
