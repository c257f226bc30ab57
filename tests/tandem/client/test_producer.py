import pytest
import trio
from trio.testing import MockClock

from tandem.client.cluster_access import ClusterAccess
from tandem.client.core import UPKEEP_SECONDS
from tandem.client.errors import ConnectionLostError, SendTimeoutError
from tandem.client.producer import Producer
from tandem.client.results import SendResult, SendStatus
from tandem.wire.message import Message
from tandem.wire.remoting_command import SerializeType
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    FakeBroker,
    FakeNetwork,
)

MESSAGE = Message("orders", b"hello")
SEND = RequestCode.SEND_MESSAGE_V2


def one_broker() -> dict[str, FakeBroker]:
    broker = FakeBroker()
    return {NAME_SERVER: broker, MASTER: broker}


async def test_many_tasks_send_through_one_producer(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = one_broker()
    network = FakeNetwork(nursery, brokers)
    results: list[SendResult] = []
    async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:

        async def send() -> None:
            for _ in range(5):
                results.append(await producer.send(MESSAGE))  # noqa: PERF401  one by one

        async with trio.open_nursery() as tasks:
            for _ in range(40):
                tasks.start_soon(send)
    assert [result.status for result in results] == [SendStatus.SEND_OK] * 200
    assert len({result.msg_id for result in results}) == 200
    assert len({(result.queue, result.queue_offset) for result in results}) == 200
    assert network.dials == [NAME_SERVER, MASTER]


async def test_a_broker_of_ours_is_spoken_to_in_msgpack(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = one_broker()
    network = FakeNetwork(nursery, brokers)
    async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
        await producer.send(MESSAGE)
        await producer.send(MESSAGE)
    sends = [request for request in brokers[MASTER].requests if request.code == SEND]
    assert [request.serialize_type for request in sends] == [
        SerializeType.JSON,
        SerializeType.MSGPACK,
    ]
    first, second = (request.decode_header(SendMessageRequestHeaderV2) for request in sends)
    assert first.topic == second.topic


async def test_a_broker_of_rocketmq_is_spoken_to_in_json(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = dict.fromkeys((NAME_SERVER, MASTER), FakeBroker(language="JAVA"))
    network = FakeNetwork(nursery, brokers)
    async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
        for _ in range(3):
            await producer.send(MESSAGE)
    assert {request.serialize_type for request in brokers[MASTER].requests} == {SerializeType.JSON}


async def test_a_send_gives_up_when_its_time_is_over(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = one_broker()
    network = FakeNetwork(nursery, brokers)
    async with Producer(
        NAME_SERVER, "PG", send_msg_timeout_ms=700, open_stream=network.open_stream
    ) as producer:
        await producer.send(MESSAGE)
        brokers[MASTER].handlers[SEND] = lambda _: None
        start = trio.current_time()
        with pytest.raises(SendTimeoutError) as caught:
            await producer.send(MESSAGE)
        assert caught.value.outcome_unknown
        assert trio.current_time() - start == pytest.approx(0.7)


async def test_a_producer_lives_through_a_broker_that_goes_and_comes_back(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = one_broker()
    network = FakeNetwork(nursery, brokers)
    async with Producer(
        NAME_SERVER, "PG", retry_times_when_send_failed=0, open_stream=network.open_stream
    ) as producer:
        await producer.send(MESSAGE)
        broker = brokers.pop(MASTER)
        await network.cut()
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        failures = 0
        while trio.current_time() < start + 60:
            with pytest.raises(ConnectionLostError) as caught:
                await producer.send(MESSAGE)
            assert not caught.value.outcome_unknown
            failures += 1
        assert failures < 150
        brokers[MASTER] = broker
        result = await producer.send(MESSAGE)
        assert result.status is SendStatus.SEND_OK


async def test_heartbeats_and_farewell_name_the_producer(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = one_broker()
    network = FakeNetwork(nursery, brokers)
    async with Producer(
        ClusterAccess(NAME_SERVER, identity=IDENTITY), "PG", open_stream=network.open_stream
    ) as producer:
        await producer.send(MESSAGE)
        await trio.sleep(UPKEEP_SECONDS + 1)
    codes = brokers[MASTER].codes()
    assert codes.count(RequestCode.HEART_BEAT) == 1
    assert codes[-1] == RequestCode.UNREGISTER_CLIENT


async def test_batch_and_many_go_through_the_same_producer(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = one_broker()
    brokers[MASTER].handlers[RequestCode.SEND_BATCH_MESSAGE] = brokers[MASTER].handlers[SEND]
    network = FakeNetwork(nursery, brokers)
    async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
        result = await producer.send_batch([MESSAGE, MESSAGE], queue_id=1)
        assert result.queue.queue_id == 1
        outcomes = await producer.send_many([MESSAGE] * 1100)
        assert len(outcomes) == 1100
        assert all(isinstance(outcome, SendResult) for outcome in outcomes)
