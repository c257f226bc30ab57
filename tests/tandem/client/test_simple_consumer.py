"""Both faces of the consumer that pops."""

import anyio
import pytest

from tandem.client.simple_consumer import BlockingSimpleConsumer, SimpleConsumer
from tandem.wire.errors import ArgumentError
from tests.tandem.client.either_loop import EitherNetwork, under_either_loop
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, FakeSockets
from tests.tandem.client.pop_broker import PopBroker, record


@under_either_loop
async def test_what_is_received_is_acknowledged() -> None:
    broker = PopBroker([record(b"a", 0)])
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {MASTER: broker, NAME_SERVER: broker})
        consumer = SimpleConsumer(
            NAME_SERVER,
            "CG",
            orderly=True,
            start="latest",
            open_stream=network.open_stream,
            wall_clock_ms=lambda: 7,
        )
        async with consumer:
            (message,) = await consumer.receive("orders")
            assert await consumer.ack(message)
        tasks.cancel_scope.cancel()
    (asked,) = broker.asked()
    assert (asked.order, asked.init_mode, asked.born_time) == (True, 1, 7)
    assert broker.acked == [("orders", 0, 0)]


def test_plain_code_does_the_same() -> None:
    broker = PopBroker([record(b"a", 0)])
    sockets = FakeSockets({MASTER: broker, NAME_SERVER: broker})
    with BlockingSimpleConsumer(
        NAME_SERVER, "CG", opener=sockets.open, wall_clock_ms=lambda: 7
    ) as consumer:
        (message,) = consumer.receive("orders")
        assert consumer.ack(message)
    assert broker.asked()[0].init_mode == 0


@pytest.mark.parametrize("face", [SimpleConsumer, BlockingSimpleConsumer])
def test_a_group_begins_at_one_end(face: type[SimpleConsumer | BlockingSimpleConsumer]) -> None:
    with pytest.raises(ArgumentError):
        face(NAME_SERVER, "CG", start="middle")  # type: ignore[arg-type]
