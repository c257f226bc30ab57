import anyio
import pytest

from tandem.client import delivery as module
from tandem.client.errors import BrokerError
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.consumer_world import World, a_world
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import answer_to


def refuse(world: World) -> None:
    world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: answer_to(
        request, ResponseCode.NO_PERMISSION
    )


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_HERE_SECONDS", 0.01)
    monkeypatch.setattr(module, "SUSPEND_SECONDS", 0.01)


@under_either_loop
async def test_only_the_first_word_about_a_message_counts() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                message.done()
                await message.retry()
                await message.dead_letter()
                message.done()
                break
        assert world.broker.sent_back == []
        assert world.broker.offsets["orders", 0] == 1


@under_either_loop
async def test_a_message_that_nobody_takes_back_is_handled_again_here() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        give_back = world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK]
        refuse(world)
        tries = []
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                tries.append(message.reconsume_times)
                if len(tries) == 3:
                    world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = give_back
                await message.retry(60)
                if len(tries) == 3:
                    break
        assert tries == [0, 1, 2]
        assert [each.delay_level for each in world.broker.sent_back] == [5]
        assert world.broker.offsets["orders", 0] == 1


@under_either_loop
async def test_a_dead_letter_that_nobody_takes_is_not_done() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        refuse(world)
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                with pytest.raises(BrokerError):
                    await message.dead_letter()
                break
        assert world.broker.offsets["orders", 0] == 0


@under_either_loop
async def test_an_ordered_message_is_a_dead_letter_after_its_last_try() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b")
        tries = []
        async with world.consumer(orderly=True, max_reconsume_times=2) as consumer:
            async for message in consumer.subscribe("orders"):
                if message.body == b"b":
                    break
                tries.append(message.reconsume_times)
                await message.retry()
        assert tries == [0, 1, 2]
        assert [each.delay_level for each in world.broker.sent_back] == [-1]
        assert world.broker.offsets["orders", 0] == 1


@under_either_loop
async def test_a_message_that_is_put_back_is_handed_out_next_and_only_once() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b")
        async with world.consumer() as consumer:
            subscription = consumer.subscribe("orders")
            (message,) = await subscription.take_some(1)
            subscription.put_back([message])
            subscription.put_back([message])
            message.done()  # it is not in anybody's hands any more
            await consumer.commit()
            assert world.broker.offsets["orders", 0] == 0
            again = await subscription.take_some(5)
            assert [each.body for each in again] == [b"a", b"b"]


@under_either_loop
async def test_a_message_whose_retry_is_cancelled_is_handled_again_here() -> None:
    await cancel_a_retry(orderly=False)


@under_either_loop
async def test_an_ordered_queue_goes_on_after_a_retry_that_was_cancelled() -> None:
    await cancel_a_retry(orderly=True)


async def cancel_a_retry(*, orderly: bool) -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        give_back = world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK]
        world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: answer_to(
            request, ResponseCode.SYSTEM_BUSY
        )
        tries = 0
        async with world.consumer(orderly=orderly, max_reconsume_times=0) as consumer:
            with anyio.fail_after(5):
                async for message in consumer.subscribe("orders"):
                    tries += 1
                    if tries == 2:
                        message.done()
                        break
                    with anyio.move_on_after(0.02) as scope:
                        await message.retry()
                    assert scope.cancelled_caught
                    world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = give_back
        assert tries == 2
        assert world.broker.offsets["orders", 0] == 1
