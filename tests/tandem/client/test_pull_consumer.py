import contextlib

import anyio
import pytest
import trio
from trio.testing import MockClock

from tandem.client.errors import BrokerError, NotOpenError
from tandem.client.pull_consumer import BlockingPullConsumer, PullConsumer
from tandem.client.results import MessageQueue, PullStatus
from tandem.wire.errors import ArgumentError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import OffsetResponseHeader, PullMessageRequestHeader
from tests.tandem.client.either_loop import EitherNetwork, under_either_loop
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    FakeNetwork,
    FakeSockets,
    answer_to,
)

QUEUE = MessageQueue("orders", "broker-a", 0)
PULL = RequestCode.PULL_MESSAGE


def brokers_with_messages(count: int = 3) -> dict[str, FakeBroker]:
    """The same messages on master and slave; nobody answers pulls that find nothing."""
    brokers = {MASTER: FakeBroker(), SLAVE: FakeBroker()}
    for broker in brokers.values():
        for queue_id in (0, 1):
            broker.store("orders", queue_id, *(b"%d" % number for number in range(count)))
    for code in (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.QUERY_CONSUMER_OFFSET):
        brokers[MASTER].handlers[code] = lambda request: answer_to(
            request, ext=OffsetResponseHeader(2)
        )
    brokers[MASTER].handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = answer_to
    return {**brokers, NAME_SERVER: brokers[MASTER]}


def hold_empty_pulls(broker: FakeBroker) -> None:
    """Long polling: a pull that finds nothing is not answered."""
    handler = broker.handlers[PULL]

    def hold(request: RemotingCommand) -> RemotingCommand | None:
        answer = handler(request)
        return answer if answer is not None and answer.body else None

    broker.handlers[PULL] = hold


async def test_everything_a_consumer_can_ask(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    network = FakeNetwork(nursery, brokers_with_messages())
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        assert await consumer.fetch_message_queues("orders") == [
            QUEUE,
            MessageQueue("orders", "broker-a", 1),
        ]
        assert await consumer.min_offset(QUEUE) == 0
        assert await consumer.max_offset(QUEUE) == 3
        assert await consumer.search_offset(QUEUE, 0) == 2
        assert await consumer.fetch_consume_offset(QUEUE) == 2
        await consumer.update_consume_offset(QUEUE, 3)
        result = await consumer.pull(QUEUE, 1)
        assert (result.status, [message.body for message in result.messages]) == (
            PullStatus.FOUND,
            [b"1", b"2"],
        )


async def test_messages_until_the_end_come_in_queue_order(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    network = FakeNetwork(nursery, brokers_with_messages(100))
    seen: dict[int, list[int]] = {}
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        async for message in consumer.messages("orders", until_end=True):
            seen.setdefault(message.queue_id, []).append(message.queue_offset)
    assert seen == {0: list(range(100)), 1: list(range(100))}


async def test_messages_are_followed_as_they_arrive(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = brokers_with_messages()
    network = FakeNetwork(nursery, brokers)
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        messages = consumer.messages("orders", start="latest")
        hold_empty_pulls(brokers[MASTER])
        hold_empty_pulls(brokers[SLAVE])
        bodies: list[bytes] = []

        async def follow() -> None:
            async for message in messages:
                bodies.append(message.body)
                if len(bodies) == 2:
                    return

        async with trio.open_nursery() as tasks:
            tasks.start_soon(follow)
            await trio.sleep(1)
            for broker in (brokers[MASTER], brokers[SLAVE]):
                broker.store("orders", 0, b"new")
                broker.store("orders", 1, b"new too")
        await messages.aclose()
    assert sorted(bodies) == [b"new", b"new too"]


async def test_messages_go_on_from_a_slave_when_the_master_goes(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = brokers_with_messages(64)
    network = FakeNetwork(nursery, brokers)
    offsets = []
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        async for message in consumer.messages("orders", until_end=True, max_msg_nums=8):
            offsets.append((message.queue_id, message.queue_offset))
            if len(offsets) == 20:
                del brokers[MASTER]
                await network.cut()
    assert sorted(offsets) == [(queue_id, n) for queue_id in (0, 1) for n in range(64)]
    assert PULL in brokers[SLAVE].codes()


async def test_a_refusal_reaches_the_loop(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    brokers = brokers_with_messages()
    brokers[MASTER].handlers[PULL] = lambda request: answer_to(request, 16)
    network = FakeNetwork(nursery, brokers)
    async with PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer:
        with pytest.raises(BrokerError):
            async for _ in consumer.messages("orders"):
                raise AssertionError
        assert not consumer._shell._shared


async def test_a_consumer_that_is_not_open_says_so(autojump_clock: MockClock) -> None:
    with pytest.raises(NotOpenError):
        await PullConsumer(NAME_SERVER, "CG").max_offset(QUEUE)


def test_plain_code_reads_by_the_same_rules() -> None:
    brokers = brokers_with_messages()
    sockets = FakeSockets(brokers)
    with BlockingPullConsumer(NAME_SERVER, "CG", opener=sockets.open) as consumer:
        assert len(consumer.fetch_message_queues("orders")) == 2
        assert (consumer.min_offset(QUEUE), consumer.max_offset(QUEUE)) == (0, 3)
        assert consumer.search_offset(QUEUE, 0) == 2
        assert consumer.fetch_consume_offset(QUEUE) == 2
        consumer.update_consume_offset(QUEUE, 3)
        assert consumer.pull(QUEUE, 3).status is PullStatus.NO_NEW_MSG
        assert sum(1 for _ in consumer.messages("orders", until_end=True)) == 6
    assert all(opened.closed for opened in sockets.opened)


def test_plain_code_follows_and_lets_the_broker_wait_when_all_queues_are_idle() -> None:
    brokers = brokers_with_messages()
    sockets = FakeSockets(brokers)
    with BlockingPullConsumer(NAME_SERVER, "CG", opener=sockets.open) as consumer:
        messages = consumer.messages("orders", start="latest")
        pulls = 0

        def store_at_the_fifth_pull(request: RemotingCommand) -> RemotingCommand | None:
            nonlocal pulls
            pulls += 1
            if pulls == 5:
                brokers[MASTER].store("orders", 0, b"new")
            return handler(request)

        handler = brokers[MASTER].handlers[PULL]
        brokers[MASTER].handlers[PULL] = store_at_the_fifth_pull
        assert next(messages).body == b"new"


def test_an_expression_goes_to_the_broker_and_tags_beside_it_are_refused() -> None:
    sockets = FakeSockets(brokers_with_messages())
    with BlockingPullConsumer(NAME_SERVER, "CG", opener=sockets.open) as consumer:
        found = list(consumer.messages("orders", sql="a > 5", until_end=True))
        assert len(found) == 6
        with pytest.raises(ArgumentError) as caught:
            consumer.pull(QUEUE, 0, tags="A", sql="a > 5")
        assert caught.value.names == ("tags", "sql")
    pulls = [each for each in sockets.brokers[MASTER].requests if each.code == PULL]
    headers = [each.decode_header(PullMessageRequestHeader) for each in pulls]
    assert {(each.subscription, each.expression_type) for each in headers} == {("a > 5", "SQL92")}


@under_either_loop
async def test_a_loop_that_is_left_early_leaves_no_trouble_behind() -> None:
    brokers = brokers_with_messages(200)
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, brokers)
        async with (
            PullConsumer(NAME_SERVER, "CG", open_stream=network.open_stream) as consumer,
            contextlib.aclosing(consumer.messages("orders", max_msg_nums=1)) as messages,
        ):
            async for _ in messages:
                # Both queues have the next message at hand, and wait to hand it over.
                await anyio.sleep(0.02)
                break
        tasks.cancel_scope.cancel()
