"""Producers and consumers that write traces, under either event loop."""

import anyio
import msgspec
import pytest

from tandem.client import trace_tasks as module
from tandem.client.cluster_access import ClusterAccess
from tandem.client.producer import Producer
from tandem.client.trace_tasks import LAST_FLUSH_SECONDS
from tandem.client.tracing import SEND_TIMEOUT_MS
from tandem.wire.message import Message
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tandem.wire.trace_records import Pub, SubAfter, SubBefore, TraceRecord, decode_traces
from tests.tandem.client.consumer_world import World, a_world, until
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import IDENTITY, NAME_SERVER, ONE_BROKER

NOW_MS = 1_700_000_000_000
FENCED_BROKER = msgspec.structs.replace(
    ONE_BROKER,
    broker_datas=[
        msgspec.structs.replace(each, master_epoch=1) for each in ONE_BROKER.broker_datas
    ],
)


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


@pytest.mark.usefixtures("_rarely")
@under_either_loop
async def test_the_end_waits_for_traces_and_not_as_long_as_a_send() -> None:
    async with a_world() as world:
        async with producer(world, trace="traces") as sending:
            await sending.send(Message("orders", b"1"))
            world.broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda _: None
            closed_at = anyio.current_time()
        assert anyio.current_time() - closed_at == pytest.approx(LAST_FLUSH_SECONDS, abs=1e-3)
        assert SEND_TIMEOUT_MS > 1000 * LAST_FLUSH_SECONDS


class Interrupted(BaseException):
    """As `KeyboardInterrupt` is."""


@pytest.mark.usefixtures("_rarely")
@under_either_loop
async def test_who_is_interrupted_does_not_wait_for_traces() -> None:
    async with a_world() as world:
        with pytest.raises(Interrupted):
            async with producer(world, trace="traces") as sending:
                await sending.send(Message("orders", b"1"))
                asked_count = len(world.broker.requests)
                closed_at = anyio.current_time()
                raise Interrupted
        assert anyio.current_time() == closed_at
        assert len(world.broker.requests) == asked_count


@pytest.mark.usefixtures("_rarely")
@under_either_loop
async def test_what_traces_are_sent_as_has_keys_of_its_own() -> None:
    async with a_world() as world:
        async with producer(world, trace="traces", wall_clock_ms=lambda: NOW_MS) as sending:
            await sending.send_many([Message("orders", b"1")] * 3)
        headers = [
            request.decode_header(SendMessageRequestHeaderV2)
            for request in world.broker.requests
            if request.code == RequestCode.SEND_MESSAGE_V2
        ]
        assert [each.topic for each in headers] == ["orders"] * 3 + ["traces"]
        properties = [decode_properties((each.properties or "").encode()) for each in headers]
        assert len({each["UNIQ_KEY"] for each in properties}) == 4


@pytest.mark.usefixtures("_rarely")
@under_either_loop
async def test_traces_that_are_stored_but_not_safe_are_not_sent_again() -> None:
    async with a_world() as world:
        async with producer(world, trace="traces") as sending:
            # In a fenced group, where whatever is not safe is sent again.
            world.broker.routes["traces"] = FENCED_BROKER
            await sending.send(Message("orders", b"1"))
            store = world.broker.handlers[RequestCode.SEND_MESSAGE_V2]

            def unsafe(request: RemotingCommand) -> RemotingCommand | None:
                answer = store(request)
                assert answer is not None
                return msgspec.structs.replace(answer, code=ResponseCode.SLAVE_NOT_AVAILABLE)

            world.broker.handlers[RequestCode.SEND_MESSAGE_V2] = unsafe
        assert len(traced(world)) == 1
