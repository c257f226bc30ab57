"""Hooks are called around every kind of send and around what consumers are given, once each."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import anyio
import msgspec
import pytest
import trio
from trio.testing import MockClock

from tandem.client.blocking_producer import BlockingProducer
from tandem.client.errors import BrokerError, ClientError
from tandem.client.hooks import ConsumeOutcome, Consumption, SendEnded, TransactionEnd
from tandem.client.producer import Producer
from tandem.client.results import SendResult
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message, MessageExt
from tandem.wire.message_properties import decode_properties
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.consumer_world import a_world
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    FakeBroker,
    FakeNetwork,
    FakeSockets,
    answer_to,
)

MESSAGE = Message("orders", b"hello")


class Recorder:
    """Both hooks. Gives each message that is sent a property."""

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.said: list[object] = []

    def sending(
        self, group: str, messages: Sequence[Message], *, is_half: bool
    ) -> tuple[Sequence[Message], SendEnded]:
        self.said.append((group, len(messages), is_half))
        marked = [
            msgspec.structs.replace(each, properties={**each.properties, f"by-{self.name}": "x"})
            for each in messages
        ]

        def ended(outcomes: Sequence[SendResult | BaseException]) -> None:
            self.said.append([type(each) for each in outcomes])

        return marked, ended

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        self.said.append((group, end))

    def consuming(self, group: str, message: MessageExt) -> Consumption:
        self.said.append((group, message.body))
        return Recorded(self)


class Recorded:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @contextmanager
    def _handling(self) -> Iterator[None]:
        self._recorder.said.append("handling")
        yield
        self._recorder.said.append("handled")

    def handling(self) -> AbstractContextManager[object]:
        return self._handling()

    def ended(self, outcome: ConsumeOutcome) -> None:
        self._recorder.said.append(outcome)


def refusing() -> FakeBroker:
    broker = FakeBroker()
    broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda request: answer_to(
        request, ResponseCode.MESSAGE_ILLEGAL
    )
    return broker


def marks(broker: FakeBroker) -> list[list[str]]:
    """Return which hooks have marked each message that the broker got by itself."""
    headers = [
        request.decode_header(SendMessageRequestHeaderV2)
        for request in broker.requests
        if request.code == RequestCode.SEND_MESSAGE_V2
    ]
    return [
        [name for name in decode_properties((each.properties or "").encode()) if name[:3] == "by-"]
        for each in headers
    ]


async def test_a_producer_calls_them_around_each_kind_of_send(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker, first, second = FakeBroker(), Recorder("a"), Recorder("b")
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
    async with Producer(
        NAME_SERVER, "PG", hooks=[first, second], open_stream=network.open_stream
    ) as producer:
        await producer.send(MESSAGE)
        await producer.send_many([MESSAGE, MESSAGE])
        assert marks(broker) == [["by-a", "by-b"]] * 3
        await producer.send_batch([MESSAGE, MESSAGE])
    assert first.said == [
        *(("PG", 1, False), [SendResult]),
        *(("PG", 2, False), [SendResult, SendResult]),
        *(("PG", 2, False), [SendResult]),
    ]
    assert second.said == first.said


def test_a_blocking_producer_does_so_too() -> None:
    broker, hook = FakeBroker(), Recorder()
    sockets = FakeSockets({NAME_SERVER: broker, MASTER: broker})
    with BlockingProducer(NAME_SERVER, "PG", hooks=[hook], opener=sockets.open) as producer:
        producer.send(MESSAGE)
        producer.send_many(iter([MESSAGE]))
        producer.send_batch([MESSAGE])
    assert hook.said == [("PG", 1, False), [SendResult]] * 3
    assert marks(broker) == [["by-a"]] * 2


async def test_a_send_that_fails_has_its_error_as_outcome(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker, hook = refusing(), Recorder()
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
    async with Producer(
        NAME_SERVER, "PG", hooks=[hook], open_stream=network.open_stream
    ) as producer:
        with pytest.raises(BrokerError):
            await producer.send(MESSAGE)
        assert isinstance((await producer.send_many([MESSAGE]))[0], ClientError)
        with pytest.raises(ArgumentError):  # an empty batch
            await producer.send_batch([])
        with pytest.raises(BrokerError):
            async with producer.transaction(MESSAGE):
                raise AssertionError
    assert hook.said == [
        *(("PG", 1, False), [BrokerError]),
        *(("PG", 1, False), [BrokerError]),
        *(("PG", 0, False), [ArgumentError]),
        *(("PG", 1, True), [BrokerError]),
    ]


async def test_a_send_that_is_cancelled_ends_too(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker, hook = FakeBroker(), Recorder()
    broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda _: None
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
    async with Producer(
        NAME_SERVER, "PG", hooks=[hook], open_stream=network.open_stream
    ) as producer:
        with trio.move_on_after(0.1):
            await producer.send(MESSAGE)
        with trio.move_on_after(0.1):
            await producer.send_many([MESSAGE])
    assert hook.said[1] == [trio.Cancelled]
    assert len(hook.said) == 4


@under_either_loop
async def test_a_consumer_calls_them_around_each_message() -> None:
    hook = Recorder()
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b", b"c")
        async with world.consumer(hooks=[hook]) as consumer:
            messages = aiter(consumer.subscribe("orders"))
            (await anext(messages)).done()
            await (await anext(messages)).retry()
            await (await anext(messages)).dead_letter()
    group = world.broker.sent_back[0].group
    assert hook.said == [
        *((group, b"a"), ConsumeOutcome.DONE),
        *((group, b"b"), ConsumeOutcome.RETRY),
        *((group, b"c"), ConsumeOutcome.DEAD_LETTER),
    ]


@under_either_loop
async def test_a_handler_is_within_what_hooks_put_around_it() -> None:
    hook = Recorder()

    async def handle(message: MessageExt) -> None:
        hook.said.append(message.body)
        consumer.stop()

    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        async with world.consumer(hooks=[hook]) as consumer:
            with anyio.fail_after(60):
                await consumer.consume("orders", handle, concurrency=1)
    assert hook.said[1:] == ["handling", b"a", "handled", ConsumeOutcome.DONE]


async def test_hooks_hear_how_a_transaction_ends_and_have_changed_its_half(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker, hook = FakeBroker(), Recorder()
    broker.handlers[RequestCode.END_TRANSACTION] = answer_to
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
    async with Producer(
        NAME_SERVER, "PG", hooks=[hook], open_stream=network.open_stream
    ) as producer:
        async with producer.transaction(MESSAGE):
            pass
        async with producer.transaction(MESSAGE) as transaction:
            transaction.rollback()
    ended = [
        (each[1].state, each[1].from_check)
        for each in hook.said
        if isinstance(each, tuple) and isinstance(each[1], TransactionEnd)
    ]
    assert ended == [("commit", False), ("rollback", False)]
    assert marks(broker) == [["by-a"], ["by-a"]]
