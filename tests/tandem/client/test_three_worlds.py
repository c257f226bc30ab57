"""The same tests of producers and consumers under trio, under asyncio, and in plain threads."""

import threading
import time
from collections.abc import Iterator

import pytest

import tandem
from tandem.wire.errors import ArgumentError
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.support.patience import PATIENCE_SECONDS
from tests.support.patience import wait_until as until
from tests.tandem.client.fake_broker import answer_to
from tests.tandem.client.group_broker import GROUP
from tests.tandem.client.tcp_broker import TcpBroker, a_tcp_broker
from tests.tandem.client.three_worlds import Clients, clients_of, in_three_worlds

pytestmark = in_three_worlds


@pytest.fixture
def broker() -> Iterator[TcpBroker]:
    with a_tcp_broker() as broker:
        yield broker


@pytest.fixture
def clients(world: str) -> Iterator[Clients]:
    with clients_of(world) as clients:
        yield clients


def test_what_is_sent_is_handled(clients: Clients, broker: TcpBroker) -> None:
    with clients.producer(broker.address, "PG") as producer:
        results = [producer.send(tandem.Message("orders", b"%d" % at)) for at in range(6)]
    assert [result.status.name for result in results] == ["SEND_OK"] * 6
    with clients.consumer(broker.address, GROUP) as consumer:
        seen = []
        for message in consumer.subscribe("orders"):
            seen.append(message.body)
            if len(seen) == 6:
                consumer.stop()
    assert sorted(seen) == [b"%d" % at for at in range(6)]
    assert [broker.offsets["orders", at] for at in (0, 1)] == [3, 3]
    assert broker.members == []


def test_a_message_is_given_back_and_another_is_a_dead_letter(
    clients: Clients, broker: TcpBroker
) -> None:
    broker.store("orders", 0, b"a", b"b")
    with clients.consumer(broker.address, GROUP) as consumer:
        for message in consumer.subscribe("orders"):
            if message.body == b"a":
                message.retry(5)
            else:
                message.dead_letter()
                consumer.stop()
    assert [each.delay_level for each in broker.sent_back] == [2, -1]
    assert broker.offsets["orders", 0] == 2


def test_members_share_queues_and_the_last_has_them_all(
    clients: Clients, broker: TcpBroker
) -> None:
    with clients.consumer(broker.address, GROUP) as one:
        one.subscribe("orders")
        until(lambda: len(one.assignment) == 3)
        with clients.consumer(broker.address, GROUP) as two:
            two.subscribe("orders")
            until(lambda: len(one.assignment) + len(two.assignment) == 3 and bool(two.assignment))
        until(lambda: len(one.assignment) == 3)


def test_positions_are_asked_moved_and_stored(clients: Clients, broker: TcpBroker) -> None:
    broker.store("orders", 0, b"a", b"b", b"c")
    with clients.consumer(broker.address, GROUP) as consumer:
        subscription = consumer.subscribe("orders")
        subscription.pause()
        queue = tandem.MessageQueue("orders", "broker-a", 0)
        until(lambda: queue in consumer.assignment)
        assert consumer.lag()[queue] == 3
        consumer.seek(queue, 1)
        consumer.commit()
        assert broker.offsets["orders", 0] == 1
        subscription.resume()
        assert next(iter(subscription)).body == b"b"
        with pytest.raises(ArgumentError) as caught:
            consumer.seek(queue, -1)
        assert caught.value.names == ("offset",)


def test_an_error_of_a_client_is_the_same(clients: Clients, broker: TcpBroker) -> None:
    with clients.producer(broker.address, "PG") as producer:
        with pytest.raises(tandem.RouteNotFoundError):
            producer.send(tandem.Message("missing", b""))
        with pytest.raises(ArgumentError) as caught:
            producer.send(tandem.Message("orders", b"x" * 5_000_000))
        assert caught.value.names == ("body",)
    with pytest.raises(KeyError):
        raise KeyError("planned")


def test_a_refusal_that_does_not_pass_ends_the_handlers_with_one_error(
    clients: Clients, broker: TcpBroker
) -> None:
    broker.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(
        request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="at column 3"
    )
    with (
        clients.consumer(broker.address, GROUP) as consumer,
        pytest.raises(tandem.BrokerError) as caught,
    ):
        consumer.consume("orders", print, sql="a >", concurrency=5)
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_handlers_run_side_by_side(clients: Clients, broker: TcpBroker) -> None:
    broker.store("orders", 0, *[b"%d" % at for at in range(8)])
    most = 0
    running = set()
    lock = threading.Lock()
    are_two = threading.Event()

    with clients.consumer(broker.address, GROUP) as consumer:

        def handle(message: tandem.MessageExt) -> None:
            nonlocal most
            with lock:
                running.add(message.queue_offset)
                most = max(most, len(running))
                if most == 2:
                    are_two.set()
            are_two.wait(PATIENCE_SECONDS)
            time.sleep(0.02)
            with lock:
                running.discard(message.queue_offset)
            if message.queue_offset == 7:
                threading.Thread(target=consumer.stop).start()

        async def handle_in_a_thread(message: tandem.MessageExt) -> None:
            from anyio.to_thread import run_sync  # noqa: PLC0415

            await run_sync(handle, message)

        plain = clients.world == "threads"
        consumer.consume("orders", handle if plain else handle_in_a_thread, concurrency=4)
    assert 2 <= most <= 4
    assert broker.offsets["orders", 0] == 8
