import anyio
import pytest

from tandem.client.group_flow import Filter
from tandem.client.inbox import TAKEN_WITHOUT_SLEEPING_MAX, Inbox, Item
from tandem.client.received_message import ReceivedMessage
from tandem.client.running_loop import running_event_loop
from tandem.client.subscription import Subscription
from tests.tandem.client.consumer_world import FakeDelivery, FakeReader, received
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import message_ext


def a_subscription(count: int) -> tuple[Subscription, Inbox, list[FakeDelivery]]:
    deliveries = []

    def hand_out(item: Item) -> ReceivedMessage:
        deliveries.append(FakeDelivery())
        return received(item[1], deliveries[-1])

    inbox = Inbox(running_event_loop().parked)
    for at in range(count):
        inbox.offer(FakeReader(), message_ext(b"%d" % at))
    return Subscription(Filter("orders"), inbox, hand_out), inbox, deliveries


@under_either_loop
async def test_taking_the_next_message_says_that_the_one_before_is_done() -> None:
    subscription, inbox, deliveries = a_subscription(3)
    async for message in subscription:
        assert [each.said for each in deliveries] == [["done"]] * (len(deliveries) - 1) + [[]]
        if message.body == b"2":
            inbox.end()
    assert [each.said for each in deliveries] == [["done"]] * 3


@under_either_loop
async def test_two_loops_share_the_messages_and_each_settles_its_own() -> None:
    subscription, _, deliveries = a_subscription(2)
    one, two = aiter(subscription), aiter(subscription)
    assert [(await anext(one)).body, (await anext(two)).body] == [b"0", b"1"]
    with anyio.move_on_after(0.01):
        await anext(two)
    assert [each.said for each in deliveries] == [[], ["done"]]


@under_either_loop
async def test_a_loop_that_always_finds_something_lets_others_run() -> None:
    subscription, inbox, _ = a_subscription(3 * TAKEN_WITHOUT_SLEEPING_MAX)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while not inbox.is_over:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count_turns)
        async for message in subscription:
            if message.body == b"%d" % (3 * TAKEN_WITHOUT_SLEEPING_MAX - 1):
                inbox.end()
    assert turns >= 2


@under_either_loop
async def test_an_error_comes_out_of_every_loop() -> None:
    subscription, inbox, _ = a_subscription(0)
    inbox.end(KeyError("planned"))
    for _ in range(2):
        with pytest.raises(KeyError):
            await anext(aiter(subscription))


@under_either_loop
async def test_a_paused_subscription_hands_out_nothing() -> None:
    subscription, _, _ = a_subscription(1)
    subscription.pause()
    with anyio.move_on_after(0.01) as scope:
        await anext(aiter(subscription))
    assert scope.cancelled_caught
    subscription.resume()
    assert (await anext(aiter(subscription))).body == b"0"
    assert subscription.topic == "orders"
