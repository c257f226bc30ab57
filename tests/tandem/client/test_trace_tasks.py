"""Producers and consumers that write traces, under either event loop."""

import anyio
import pytest

from tandem.client import trace_tasks as module
from tandem.client.cluster_access import ClusterAccess
from tandem.client.producer import Producer
from tandem.wire.message import Message
from tandem.wire.request_code import RequestCode
from tandem.wire.trace_records import Pub, SubAfter, SubBefore, TraceRecord, decode_traces
from tests.tandem.client.consumer_world import World, a_world, until
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import IDENTITY, NAME_SERVER, ONE_BROKER


def traced(world: World) -> list[TraceRecord]:
    """Return the records that the broker has got."""
    stored = [
        message
        for (topic, _), queue in world.broker.queues.items()
        if topic == "traces"
        for message in queue
    ]
    return [record for message in stored for record in decode_traces(message.body)]


def producer(world: World, **settings: object) -> Producer:
    world.broker.routes["traces"] = ONE_BROKER
    access = ClusterAccess(NAME_SERVER, identity=IDENTITY)
    return Producer(access, "PG", open_stream=world.network.open_stream, **settings)  # type: ignore[arg-type]


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)


@pytest.fixture
def _rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 3600)


@pytest.fixture
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_FLUSH_SECONDS", 0.05)


@pytest.mark.usefixtures("_often")
@under_either_loop
async def test_a_producer_sends_them_while_it_goes_on() -> None:
    async with a_world() as world, producer(world, trace="traces") as sending:
        result = await sending.send(Message("orders", b"1"))
        await until(lambda: traced(world))
        [record] = traced(world)
        assert isinstance(record, Pub)
        assert (record.msg_id, record.topic) == (result.msg_id, "orders")


@pytest.mark.usefixtures("_rarely")
@under_either_loop
async def test_the_last_ones_are_sent_at_the_end() -> None:
    async with a_world() as world:
        async with producer(world, trace="traces") as sending:
            await sending.send_many([Message("orders", b"1")] * 3)
            assert not traced(world)
        assert len(traced(world)) == 3


@under_either_loop
async def test_a_consumer_writes_beginning_and_end() -> None:
    async with a_world() as world:
        world.broker.routes["traces"] = ONE_BROKER
        world.broker.store("orders", 0, b"a")
        async with world.consumer(trace="traces") as consumer:
            async for message in consumer.subscribe("orders"):
                message.done()
                break
        before, after = traced(world)
    assert isinstance(before, SubBefore)
    assert isinstance(after, SubAfter)
    assert before.request_id == after.request_id
    assert after.is_success


@under_either_loop
async def test_without_the_argument_there_are_none() -> None:
    async with a_world() as world:
        async with producer(world) as sending:
            await sending.send(Message("orders", b"1"))
        assert not traced(world)


@pytest.mark.usefixtures("_briefly")
@under_either_loop
async def test_the_end_does_not_wait_for_ever_for_traces() -> None:
    async with a_world() as world:
        with anyio.fail_after(60):
            async with producer(world, trace="traces") as sending:
                await sending.send(Message("orders", b"1"))
                world.broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda _: None


@under_either_loop
async def test_a_client_that_is_cancelled_while_it_sends_the_last_ones_is_closed() -> None:
    async with a_world() as world:
        with anyio.move_on_after(0.2) as scope:
            async with producer(world, trace="traces") as sending:
                await sending.send(Message("orders", b"1"))
                world.broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda _: None
        assert scope.cancelled_caught
