"""Sends of many tasks in few requests, under trio and under asyncio."""

from collections.abc import Callable

import anyio
import pytest

from tandem.client.ack import Ack
from tandem.client.auto_batch import AutoBatch
from tandem.client.errors import BrokerError, ClientError, ConnectionLostError
from tandem.client.producer import Producer
from tandem.client.results import SendResult
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.either_loop import EitherNetwork, under_either_loop
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, FakeBroker, answer_to

SEND = RequestCode.SEND_MESSAGE_V2
SEND_BATCH = RequestCode.SEND_BATCH_MESSAGE

assert AutoBatch is not None, "what is tested here, through its producer"


def sizes(broker: FakeBroker) -> list[int]:
    """How many messages each request had, oldest first."""
    return [
        sum(1 for _ in decode_batch_body(request.body)) if request.code == SEND_BATCH else 1
        for request in broker.requests
        if request.code in {SEND, SEND_BATCH}
    ]


async def send_all(producer: Producer, messages: list[Message]) -> list[SendResult | ClientError]:
    """Send each in a task of its own; they begin in order."""
    outcomes: dict[int, SendResult | ClientError] = {}

    async def send(index: int) -> None:
        try:
            outcomes[index] = await producer.send(messages[index])
        except ClientError as error:
            outcomes[index] = error

    async with anyio.create_task_group() as tasks:
        for index in range(len(messages)):
            tasks.start_soon(send, index)
            await anyio.lowlevel.checkpoint()
    return [outcomes[index] for index in range(len(messages))]


def messages(count: int, **fields: str) -> list[Message]:
    return [Message("orders", b"%d" % number, **fields) for number in range(count)]  # type: ignore[arg-type]


@under_either_loop
async def test_many_tasks_share_requests_and_each_gets_its_own_result() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
            outcomes = await send_all(producer, messages(100))
        tasks.cancel_scope.cancel()
    results = [each for each in outcomes if isinstance(each, SendResult)]
    assert len({each.msg_id for each in results}) == 100
    for number, result in enumerate(results):
        queue = broker.queues["orders", result.queue.queue_id]
        assert queue[result.queue_offset].body == b"%d" % number
        assert int(result.offset_msg_id[-16:], 16) == 1000 * result.queue_offset
    assert sum(sizes(broker)) == 100
    assert len(sizes(broker)) < 70


@under_either_loop
async def test_each_message_is_stored_as_it_is_under_the_key_its_sender_gets() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
            sent = [
                Message("orders", b"%d" % n, keys=["k", ""][n % 2], tags=["", "t"][n % 3 > 1])
                for n in range(60)
            ]
            outcomes = await send_all(producer, sent)
        tasks.cancel_scope.cancel()
    assert len(sizes(broker)) < 40
    stored: dict[bytes, dict[str, str]] = {}
    for request in broker.requests:
        if request.code == SEND_BATCH:
            for entry in decode_batch_body(request.body):
                stored[entry.body] = decode_properties(entry.properties)
        elif request.code == SEND:
            header = request.decode_header(SendMessageRequestHeaderV2)
            stored[request.body] = decode_properties((header.properties or "").encode())
    for message, result in zip(sent, outcomes, strict=True):
        assert isinstance(result, SendResult)
        properties = stored[message.body]
        assert properties.pop("UNIQ_KEY") == result.msg_id
        properties.pop("WAIT", None)
        assert properties == message.property_map()


@under_either_loop
async def test_a_body_that_is_too_large_is_refused_although_others_wait_for_company() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with (
            Producer(
                NAME_SERVER, "PG", open_stream=network.open_stream, max_message_size_bytes=10
            ) as producer,
            anyio.create_task_group() as senders,
        ):
            for each in messages(20):
                senders.start_soon(producer.send, each)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(ArgumentError) as caught:
                await producer.send(Message("orders", bytes(11)))
            assert caught.value.names == ("body",)
            await producer.send(Message("orders", bytes(10)))
        tasks.cancel_scope.cancel()
    assert sum(sizes(broker)) == 21


@under_either_loop
async def test_a_lone_send_is_a_plain_request_of_its_own() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
            for message in messages(5):
                await producer.send(message)
        tasks.cancel_scope.cancel()
    assert SEND_BATCH not in broker.codes()
    assert sizes(broker) == [1] * 5


@under_either_loop
async def test_messages_of_one_sharding_key_are_stored_in_the_order_of_the_calls() -> None:
    broker = FakeBroker()
    refusals = 3

    def refuse_first(then: Callable[[RemotingCommand], RemotingCommand | None]) -> None:
        def handler(request: RemotingCommand) -> RemotingCommand | None:
            nonlocal refusals
            refusals -= 1
            if refusals >= 0:
                return answer_to(request, ResponseCode.SYSTEM_BUSY)
            return then(request)

        broker.handlers[SEND] = broker.handlers[SEND_BATCH] = handler

    single, batch = broker.handlers[SEND], broker.handlers[SEND_BATCH]
    refuse_first(lambda request: (single if request.code == SEND else batch)(request))
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            NAME_SERVER, "PG", open_stream=network.open_stream, batch_max_bytes=300
        ) as producer:
            ordered = messages(40, sharding_key="order-7")
            ordered[20] = Message("orders", b"x" * 400, sharding_key="order-7")
            outcomes = await send_all(producer, ordered)
        tasks.cancel_scope.cancel()
    queues = {each.queue for each in outcomes if isinstance(each, SendResult)}
    assert len(queues) == 1
    stored = broker.queues["orders", queues.pop().queue_id]
    assert [each.body for each in stored] == [each.body for each in ordered]
    assert len(sizes(broker)) < 30


@under_either_loop
async def test_only_messages_that_are_alike_are_in_one_request() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            NAME_SERVER, "PG", open_stream=network.open_stream, compress_over_bytes=1000
        ) as producer:
            alone = [
                Message("orders", b"a", delay_time_level=1),
                Message("orders", b"b", delay_ms=5),
                Message("orders", bytes(2000)),
            ]
            async with anyio.create_task_group() as senders:
                for _ in range(10):
                    for message in alone:
                        senders.start_soon(producer.send, message)
                    senders.start_soon(lambda: producer.send(Message("orders", b"c"), queue_id=1))
                    senders.start_soon(
                        lambda: producer.send(Message("orders", b"d"), ack=Ack.ASYNC)
                    )
        tasks.cancel_scope.cancel()
    assert sum(sizes(broker)) == 50
    for request in broker.requests:
        if request.code == SEND_BATCH:
            header = request.decode_header(SendMessageRequestHeaderV2)
            bodies = {entry.body for entry in decode_batch_body(request.body)}
            assert bodies in ({b"c"}, {b"d"})
            assert (header.queue_id == 1) or bodies == {b"d"}
            assert ("WAIT\x01false" in (header.properties or "")) == (bodies == {b"d"})


@under_either_loop
async def test_a_broker_that_takes_no_batches_gets_them_one_by_one() -> None:
    broker = FakeBroker()
    del broker.handlers[SEND_BATCH]
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
            outcomes = await send_all(producer, messages(30))
        tasks.cancel_scope.cancel()
    assert all(isinstance(each, SendResult) for each in outcomes)
    assert sum(len(queue) for queue in broker.queues.values()) == 30


@under_either_loop
async def test_what_a_request_ends_with_concerns_all_its_messages() -> None:
    broker = FakeBroker()
    broker.handlers[SEND_BATCH] = lambda request: answer_to(request, ResponseCode.NO_PERMISSION)
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            NAME_SERVER, "PG", open_stream=network.open_stream, retry_times_when_send_failed=0
        ) as producer:
            outcomes = await send_all(producer, messages(30))
        tasks.cancel_scope.cancel()
    errors = [each for each in outcomes if isinstance(each, BrokerError)]
    assert len(errors) > 20
    assert len({id(each) for each in errors}) == len(errors)
    assert all(each.code == ResponseCode.NO_PERMISSION for each in errors)


@under_either_loop
async def test_a_message_that_cannot_be_sent_is_its_senders_trouble_alone() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
            refused = 0

            async def send(number: int) -> None:
                nonlocal refused
                tags = "a\x01b" if number % 10 == 9 else "a"
                try:
                    await producer.send(Message("orders", b"%d" % number, tags=tags))
                except ValueError:
                    refused += 1

            async with anyio.create_task_group() as senders:
                for number in range(40):
                    senders.start_soon(send, number)
        tasks.cancel_scope.cancel()
    assert refused == 4
    assert sum(len(queue) for queue in broker.queues.values()) == 36


@under_either_loop
async def test_a_cancelled_send_that_was_gathered_never_leaves() -> None:
    broker = FakeBroker()
    held: list[RemotingCommand] = []
    broker.handlers[SEND] = held.append
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(NAME_SERVER, "PG", open_stream=network.open_stream) as producer:
            async with anyio.create_task_group() as senders:
                for message in messages(10):
                    senders.start_soon(producer.send, message)
                    await anyio.lowlevel.checkpoint()
                while len(held) < 4:
                    await anyio.sleep(0.001)
                senders.cancel_scope.cancel()
            del broker.handlers[SEND]
            broker.handlers[SEND] = FakeBroker().handlers[SEND]
            await producer.send(Message("orders", b"last"))
        tasks.cancel_scope.cancel()
    assert sizes(broker) == [1] * 5


@under_either_loop
async def test_closing_the_producer_wakes_all_who_wait() -> None:
    broker = FakeBroker()
    held: list[RemotingCommand] = []
    broker.handlers[SEND] = held.append
    errors: list[ConnectionLostError] = []
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})

        async def send(producer: Producer, message: Message) -> None:
            try:
                await producer.send(message)
            except ConnectionLostError as error:
                errors.append(error)

        async with (
            anyio.create_task_group() as senders,
            Producer(
                NAME_SERVER,
                "PG",
                open_stream=network.open_stream,
                retry_times_when_send_failed=0,
                max_in_flight_bytes=8,
            ) as producer,
        ):
            for message in messages(10):
                senders.start_soon(send, producer, message)
            while len(held) < 4:
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert len(errors) == 10
    assert sum(each.outcome_unknown for each in errors) == 4


@under_either_loop
async def test_no_more_is_under_way_than_there_is_room_for() -> None:
    broker = FakeBroker()
    most = waiting = 0

    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            NAME_SERVER, "PG", open_stream=network.open_stream, max_in_flight_bytes=300
        ) as producer:
            store = broker.handlers[SEND]

            def count(request: RemotingCommand) -> RemotingCommand | None:
                nonlocal most
                most = max(most, len(request.body))
                return store(request)

            broker.handlers[SEND] = count
            async with anyio.create_task_group() as senders:
                for _ in range(50):
                    senders.start_soon(producer.send, Message("orders", bytes(100)))
                    waiting += 1
        tasks.cancel_scope.cancel()
    assert max(sizes(broker)) <= 3
    assert sum(sizes(broker)) == 50
    assert most == 100


@under_either_loop
async def test_batching_can_be_switched_off() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            NAME_SERVER, "PG", open_stream=network.open_stream, batch_max_bytes=0
        ) as producer:
            await send_all(producer, messages(30))
        tasks.cancel_scope.cancel()
    assert sizes(broker) == [1] * 30


@under_either_loop
async def test_what_is_no_message_is_refused() -> None:
    async with Producer(NAME_SERVER, "PG") as producer:
        with pytest.raises(TypeError):
            await producer.send("text")  # type: ignore[arg-type]
