from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tandem.client import Admin, Producer
from tandem.client.dead_letter import key_again
from tandem.views.resending import RESEND_GROUP, find_resent, send_again
from tandem.wire.errors import ArgumentError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import FakeNetwork, answer_to
from tests.tandem.console.fake_cluster import ADDRESSES, FakeCluster

KEY = "7F0000012D2019C18436716E4DDC0000"


@asynccontextmanager
async def clients(cluster: FakeCluster) -> AsyncIterator[tuple[Admin, Producer]]:
    async with trio.open_nursery() as nursery:
        opened = FakeNetwork(nursery, cluster.brokers).open_stream
        async with (
            Admin(ADDRESSES, open_stream=opened) as admin,
            Producer(ADDRESSES, group=RESEND_GROUP, open_stream=opened) as producer,
        ):
            yield admin, producer
        nursery.cancel_scope.cancel()


async def test_each_time_has_a_key_of_its_own_in_one_queue(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    letter = cluster.dead_letter(b"body", KEY)
    async with clients(cluster) as (admin, producer):
        assert await find_resent(admin, letter) is None
        for number in range(3):
            sent = await send_again(admin, producer, letter, by="shop", again=number > 0)
            assert (sent.message_id, sent.copies) == (key_again(letter, number), 1)
        found = await find_resent(admin, letter)
        assert found is not None
        assert (found.times, found.by, found.message_id) == (3, "shop", key_again(letter, 2))
    used = [len(queue) for queue in cluster.queues["Orders"]]
    assert sorted(used) == [0, 3]


async def test_messages_in_order_stay_with_their_sharding_key(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    letter = cluster.dead_letter(b"body", KEY, __SHARDINGKEY="customer 1")
    async with clients(cluster) as (admin, producer):
        await send_again(admin, producer, letter)
    (message,) = [each for queue in cluster.queues["Orders"] for each in queue]
    assert message.properties["__SHARDINGKEY"] == "customer 1"
    assert "TANDEM_RESENT_BY" not in message.properties


async def test_a_letter_that_does_not_say_its_topic_is_not_sent(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    letter = cluster.store("%DLQ%g", b"?", UNIQ_KEY=KEY)
    async with clients(cluster) as (admin, producer):
        assert await find_resent(admin, letter) is None
        with pytest.raises(ArgumentError):
            await send_again(admin, producer, letter)


async def test_that_nobody_may_look_is_an_error_before_and_none_after(
    autojump_clock: MockClock,
) -> None:
    cluster = FakeCluster()
    letter = cluster.dead_letter(b"body", KEY)
    asked = 0

    async with clients(cluster) as (admin, producer):
        query = cluster._query

        def once(request: RemotingCommand) -> RemotingCommand:
            nonlocal asked
            asked += 1
            return query(request) if asked == 1 else answer_to(request, ResponseCode.NO_PERMISSION)

        for broker in cluster.brokers.values():
            broker.handlers[RequestCode.QUERY_MESSAGE] = once
        assert (await send_again(admin, producer, letter, again=True)).copies is None


async def test_who_has_found_nothing_but_is_second_is_told_of_two_copies(
    autojump_clock: MockClock,
) -> None:
    cluster = FakeCluster()
    letter = cluster.dead_letter(b"body", KEY)
    async with clients(cluster) as (admin, producer):
        for copies in (1, 2):  # both of them have looked by now
            assert (await send_again(admin, producer, letter)).copies == copies
