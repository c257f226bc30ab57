"""Hooks are called around every kind of send and around what consumers are given, once each."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import anyio
import msgspec
import pytest
import trio
from trio.testing import MockClock

from tandem.client.blocking_consumer import BlockingConsumer
from tandem.client.blocking_producer import BlockingProducer
from tandem.client.errors import BrokerError, ClientError
from tandem.client.hooks import ConsumeOutcome, Consumption, SendEnded, TransactionEnd
from tandem.client.producer import Producer
from tandem.client.results import MessageQueue, SendResult
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message, MessageExt
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.consumer_world import a_world, until
from tests.tandem.client.either_loop import under_either_loop, under_either_loop_with_threads
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    FakeBroker,
    FakeNetwork,
    FakeSockets,
    answer_to,
)
from tests.tandem.client.group_broker import GROUP
from tests.tandem.client.tcp_broker import a_tcp_broker

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


async def test_of_many_that_are_cancelled_those_that_were_answered_have_their_results(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker, hook = FakeBroker(), Recorder()
    store = broker.handlers[RequestCode.SEND_MESSAGE_V2]
    answered: list[object] = []

    def answer_two(request: RemotingCommand) -> RemotingCommand | None:
        answered.append(request)
        return store(request) if len(answered) <= 2 else None

    broker.handlers[RequestCode.SEND_MESSAGE_V2] = answer_two
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
    async with Producer(
        NAME_SERVER, "PG", hooks=[hook], open_stream=network.open_stream
    ) as producer:
        given: tuple[dict[int, SendResult | ClientError] | None, ...] = (None, {})
        for outcomes in given:
            answered.clear()
            with trio.move_on_after(0.1):
                await producer.send_many([MESSAGE] * 4, outcomes=outcomes)
    assert len(hook.said) == 4
    for begun, ended in (hook.said[:2], hook.said[2:]):
        assert begun == ("PG", 4, False)
        assert isinstance(ended, list)
        assert ended[:2] == [SendResult, SendResult]
        # What ended the call, which is no error of a broker.
        assert len(ended) == 4
        assert not any(issubclass(each, SendResult | Exception) for each in ended[2:])


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


@under_either_loop_with_threads  # a thread writes the offsets of broadcasting consumers
async def test_a_message_of_which_nothing_was_said_has_an_end_when_its_consumer_is_closed() -> None:
    kinds: list[dict[str, Any]] = [{}, {"orderly": True}, {"message_model": "broadcasting"}]
    for settings in kinds:
        hook = Recorder()
        async with a_world() as world:
            world.broker.store("orders", 0, b"a", b"b")
            async with world.consumer(hooks=[hook], **settings) as consumer:
                messages = aiter(consumer.subscribe("orders"))
                (await anext(messages)).done()
                left = await anext(messages)
                assert ConsumeOutcome.LEFT not in hook.said
            left.done()  # too late: only the first word counts
        outcomes = [each for each in hook.said if isinstance(each, ConsumeOutcome)]
        assert outcomes == [ConsumeOutcome.DONE, ConsumeOutcome.LEFT], settings


@under_either_loop
async def test_so_has_one_whose_handler_was_cancelled_with_the_consumer() -> None:
    hook = Recorder()

    async def handle(_: MessageExt) -> None:
        cancelled.cancel()
        await anyio.sleep_forever()

    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        with anyio.CancelScope() as cancelled:
            async with world.consumer(hooks=[hook]) as consumer:
                await consumer.consume("orders", handle, concurrency=1)
    assert hook.said[1:] == ["handling", ConsumeOutcome.LEFT]


def test_a_blocking_consumer_ends_what_is_in_hand_and_puts_back_what_it_has_taken_ahead() -> None:
    hook = Recorder()
    with a_tcp_broker() as broker:
        broker.store("orders", 0, *[b"%d" % at for at in range(10)])
        with BlockingConsumer(broker.address, GROUP, hooks=[hook]) as consumer:
            messages = iter(consumer.subscribe("orders"))
            assert [next(messages).body for _ in range(2)] == [b"0", b"1"]
    outcomes = [each for each in hook.said if isinstance(each, ConsumeOutcome)]
    begun = len(hook.said) - len(outcomes)
    assert outcomes == [
        ConsumeOutcome.DONE,
        *[ConsumeOutcome.PUT_BACK] * (begun - 2),
        ConsumeOutcome.LEFT,
    ]


def test_what_was_taken_ahead_of_a_queue_that_is_lost_is_put_back() -> None:
    hook = Recorder()
    with a_tcp_broker() as broker:
        broker.store("orders", 0, *[b"%d" % at for at in range(10)])
        with BlockingConsumer(broker.address, GROUP, hooks=[hook]) as consumer:
            messages = iter(consumer.subscribe("orders"))
            assert next(messages).body == b"0"
            begun = len(hook.said)
            consumer.seek(MessageQueue("orders", "broker-a", 0), 9)
            assert next(messages).body == b"9"
            consumer.assignment  # noqa: B018  its loop has done all that came before
            assert hook.said.count(ConsumeOutcome.PUT_BACK) == begun - 1


class Raising(Recorder):
    """Raises at one place."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def sending(
        self, group: str, messages: Sequence[Message], *, is_half: bool
    ) -> tuple[Sequence[Message], SendEnded]:
        self._raise("sending")
        return messages, lambda _: self._raise("sent")

    def consuming(self, group: str, message: MessageExt) -> Consumption:
        self._raise("consuming")
        return RaisingConsumption(self)

    def _raise(self, where: str) -> None:
        if where == self.where:
            raise KeyError(where)


class RaisingConsumption(Recorded):
    def __init__(self, recorder: Raising) -> None:
        super().__init__(recorder)
        self._where = recorder.where

    def handling(self) -> AbstractContextManager[object]:
        if self._where == "handling":
            raise KeyError("handling")
        return super().handling()

    def ended(self, outcome: ConsumeOutcome) -> None:
        super().ended(outcome)
        if self._where == "ended" and outcome is ConsumeOutcome.DONE:
            raise KeyError("ended")


@pytest.mark.parametrize(("where", "stored"), [("sending", 0), ("sent", 1)])
def test_what_a_hook_costs_a_send_that_raises(where: str, stored: int) -> None:
    broker = FakeBroker()
    sockets = FakeSockets({NAME_SERVER: broker, MASTER: broker})
    with (
        BlockingProducer(
            NAME_SERVER, "PG", hooks=[Raising(where)], opener=sockets.open
        ) as producer,
        pytest.raises(KeyError),
    ):
        producer.send(MESSAGE)
    assert len(marks(broker)) == stored


@under_either_loop
async def test_what_a_hook_costs_a_consumer_that_raises() -> None:
    for where in ("consuming", "ended"):
        async with a_world() as world:
            world.broker.store("orders", 0, b"a", b"b")
            async with world.consumer(hooks=[Raising(where)]) as consumer:
                messages = aiter(consumer.subscribe("orders"))
                with pytest.raises(KeyError):
                    (await anext(messages)).done()
                if where == "ended":
                    assert (await anext(messages)).body == b"b"
            assert world.broker.offsets["orders", 0] == 0


@under_either_loop
async def test_a_hook_that_raises_around_a_handler_gives_the_message_back() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        async with world.consumer(hooks=[Raising("handling")]) as consumer:

            async def handle(_: MessageExt) -> None:
                raise AssertionError

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.consume, "orders", handle)
                await until(lambda: world.broker.sent_back)
                tasks.cancel_scope.cancel()
        assert world.broker.offsets["orders", 0] == 1
