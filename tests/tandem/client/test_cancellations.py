"""Cancel at each wait of a send, and look at what is left."""

import pytest
import trio
from trio.testing import MockClock

from tandem.client.cluster_access import ClusterAccess
from tandem.client.producer import Producer
from tandem.client.results import SendStatus
from tandem.wire.message import Message
from tandem.wire.request_code import RequestCode
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    FakeBroker,
    FakeNetwork,
    answer_to,
)

MESSAGE = Message("orders", b"hello")


async def cancel_when_blocked(producer: Producer) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, MESSAGE)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    "hung_code", [RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2]
)
async def test_a_send_cancelled_while_a_broker_hangs_leaves_a_working_producer(
    autojump_clock: MockClock, hung_code: RequestCode
) -> None:
    async with trio.open_nursery() as nursery:
        broker = FakeBroker()
        network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
        handler = broker.handlers[hung_code]
        broker.handlers[hung_code] = lambda _: None
        async with Producer(
            ClusterAccess(NAME_SERVER, identity=IDENTITY), "PG", open_stream=network.open_stream
        ) as producer:
            await cancel_when_blocked(producer)
            broker.handlers[hung_code] = handler
            # What is asked on behalf of everybody goes on: let it end.
            await trio.sleep(5.0)
            result = await producer.send(MESSAGE)
            assert result.status is SendStatus.SEND_OK
        nursery.cancel_scope.cancel()


async def test_a_send_cancelled_while_dialling_leaves_the_dial_to_others(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        broker = FakeBroker()
        network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
        gate = trio.Event()

        async def slow_open(host: str, port: int) -> trio.abc.Stream:
            await gate.wait()
            return await network.open_stream(host, port)

        async with Producer(
            ClusterAccess(NAME_SERVER, identity=IDENTITY), "PG", open_stream=slow_open
        ) as producer:
            await cancel_when_blocked(producer)
            gate.set()
            await producer.send(MESSAGE)
            assert network.dials == [NAME_SERVER, MASTER]
        nursery.cancel_scope.cancel()


async def test_a_send_that_has_not_left_when_it_is_cancelled_never_leaves(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        broker = FakeBroker()
        network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            ClusterAccess(NAME_SERVER, identity=IDENTITY), "PG", open_stream=network.open_stream
        ) as producer:
            await producer.send(MESSAGE)
            with trio.CancelScope() as scope:
                scope.cancel()
                await producer.send(MESSAGE)
            await trio.testing.wait_all_tasks_blocked()
            assert broker.codes().count(RequestCode.SEND_MESSAGE_V2) == 1
        nursery.cancel_scope.cancel()


async def test_cancelling_many_forgets_them_all(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        broker = FakeBroker()
        network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            ClusterAccess(NAME_SERVER, identity=IDENTITY), "PG", open_stream=network.open_stream
        ) as producer:
            broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda _: None
            with trio.move_on_after(1.0) as scope:
                await producer.send_many([MESSAGE] * 10)
            assert scope.cancelled_caught
            (connection,) = [
                each for each in producer._shell._connections.values() if each.address == MASTER
            ]
            assert connection._session.connection_lost() == []
        nursery.cancel_scope.cancel()


async def test_an_error_in_the_body_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        network = FakeNetwork(nursery, {})
        with pytest.raises(KeyError):
            async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream):
                raise KeyError("mine")


async def test_cancelling_around_a_producer_closes_it(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        broker = FakeBroker()
        broker.handlers[RequestCode.HEART_BEAT] = answer_to
        network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
        with trio.move_on_after(100.0) as scope:
            async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
                await producer.send(MESSAGE)
                await trio.sleep_forever()
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
