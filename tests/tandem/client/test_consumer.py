import logging
from pathlib import Path

import anyio
import pytest

from tandem.client.consumer import Consumer
from tandem.client.errors import BrokerError, NotOpenError, OffsetsFileError
from tandem.client.received_message import ReceivedMessage
from tandem.client.results import MessageQueue
from tandem.wire.errors import ArgumentError
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import retry_topic
from tests.tandem.client.consumer_world import a_world, until
from tests.tandem.client.either_loop import under_either_loop, under_either_loop_with_threads
from tests.tandem.client.fake_broker import NAME_SERVER, answer_to
from tests.tandem.client.group_broker import GROUP

QUEUES = [MessageQueue("orders", "broker-a", at) for at in (0, 1)]


@under_either_loop
async def test_a_loop_gets_every_message_and_leaving_stores_how_far_it_came() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b")
        world.broker.store("orders", 1, b"c")
        seen = []
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                seen.append(message.body)
                if len(seen) == 3:
                    consumer.stop()
        assert sorted(seen) == [b"a", b"b", b"c"]
        assert world.broker.offsets["orders", 0] == 2
        assert world.broker.offsets["orders", 1] == 1
        assert world.broker.members == []


@under_either_loop
async def test_a_message_in_hand_when_the_loop_is_left_counts_as_not_handled() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b", b"c")
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                if message.body == b"b":
                    break
        assert world.broker.offsets["orders", 0] == 1
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                assert message.body == b"b"
                message.done()
                break
        assert world.broker.offsets["orders", 0] == 2


@under_either_loop
async def test_an_exception_in_the_loop_comes_out_and_loses_nothing() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        with pytest.raises(KeyError):
            async with world.consumer() as consumer:
                async for _ in consumer.subscribe("orders"):
                    raise KeyError("planned")
        assert world.broker.offsets["orders", 0] == 0


@under_either_loop
async def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves() -> None:
    async with a_world() as world, world.consumer(1) as one:
        one.subscribe("orders")
        await until(lambda: one.assignment[-2:] == QUEUES)
        async with world.consumer(2) as two:
            two.subscribe("orders")
            await until(lambda: len(world.broker.members) == 2)
            await world.notify()
            await until(lambda: QUEUES[1] not in one.assignment)
            await until(lambda: two.assignment == QUEUES[1:])
            assert QUEUES[0] in one.assignment
        await world.notify()
        await until(lambda: one.assignment[-2:] == QUEUES)


@under_either_loop
async def test_a_handler_that_fails_gives_the_message_back() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"bad", b"good")
        handled = []

        async def handle(message: ReceivedMessage) -> None:
            handled.append(message.body)
            if message.body == b"bad":
                raise ValueError("planned")
            consumer.stop()

        logging.getLogger("tandem.client.consumer").disabled = True
        async with world.consumer() as consumer:
            await consumer.consume("orders", handle, concurrency=2)
        logging.getLogger("tandem.client.consumer").disabled = False
        assert sorted(handled) == [b"bad", b"good"]
        assert [each.delay_level for each in world.broker.sent_back] == [0]
        assert world.broker.offsets["orders", 0] == 2


@under_either_loop
async def test_at_most_so_many_handlers_run_at_once() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, *[b"%d" % each for each in range(30)])
        running, most, count = 0, 0, 0

        async def handle(_: ReceivedMessage) -> None:
            nonlocal running, most, count
            running += 1
            most = max(most, running)
            await anyio.sleep(0.002)
            running -= 1
            count += 1
            if count == 30:
                consumer.stop()

        async with world.consumer() as consumer:
            await consumer.consume("orders", handle, concurrency=4)
        assert most == 4


@under_either_loop
async def test_a_message_that_comes_again_has_its_first_topic() -> None:
    async with a_world() as world:
        async with world.consumer() as consumer:
            subscription = consumer.subscribe("orders")
            world.broker.store(retry_topic(GROUP), 0, b"again")
            queue = world.broker.queue(retry_topic(GROUP), 0)
            queue[0].properties["RETRY_TOPIC"] = "orders"
            async for message in subscription:
                assert (message.topic, message.body) == ("orders", b"again")
                consumer.stop()
        assert world.broker.offsets[retry_topic(GROUP), 0] == 1


@under_either_loop
async def test_pausing_seeking_and_lag() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b", b"c")
        async with world.consumer() as consumer:
            subscription = consumer.subscribe("orders")
            subscription.pause()
            await until(lambda: len(consumer.assignment) == 3)
            assert (await consumer.lag())[QUEUES[0]] == 3
            with pytest.raises(ArgumentError) as caught:
                consumer.seek(MessageQueue("orders", "broker-z", 0), 0)
            assert caught.value.names == ("queue",)
            with pytest.raises(ArgumentError) as caught:
                consumer.seek(QUEUES[0], -1)
            assert caught.value.names == ("offset",)
            consumer.seek(QUEUES[0], 2)
            subscription.resume()
            async for message in subscription:
                assert message.body == b"c"
                consumer.stop()
            assert (await consumer.lag())[QUEUES[0]] == 0
            await consumer.commit()
            assert world.broker.offsets["orders", 0] == 3


@under_either_loop
async def test_an_operator_moves_the_group_and_its_reader_follows() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b", b"c")
        seen = []
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                seen.append(message.body)
                if len(seen) == 3:
                    world.broker.move_to["orders", 0] = 1
                if len(seen) == 5:
                    consumer.stop()
        assert seen == [b"a", b"b", b"c", b"b", b"c"]
        assert world.broker.offsets["orders", 0] == 3


@under_either_loop
async def test_a_refusal_that_does_not_pass_ends_the_loop() -> None:
    async with a_world() as world:
        world.broker.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(
            request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="at column 3"
        )
        async with world.consumer() as consumer:
            subscription = consumer.subscribe("orders", sql="a >")
            with pytest.raises(BrokerError) as caught:
                async for _ in subscription:
                    pass
            assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@under_either_loop
async def test_an_ordered_consumer_locks_and_hands_out_one_of_a_queue() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a0", b"a1", b"a2")
        world.broker.store("orders", 1, b"b0")
        seen: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)
            await anyio.sleep(0.002)
            if message.body == b"a1" and message.reconsume_times < 2:
                await message.retry(0.002)
            elif message.body == b"a2":
                consumer.stop()

        async with world.consumer(orderly=True) as consumer:
            await consumer.consume("orders", handle)
            assert ("orders", 0) in world.broker.locks
        assert [each for each in seen if each[:1] == b"a"] == [b"a0", b"a1", b"a1", b"a1", b"a2"]
        assert world.broker.locks == {}
        assert world.broker.offsets["orders", 0] == 3
        assert world.broker.sent_back == []


@under_either_loop
async def test_a_queue_that_another_member_has_locked_is_not_read() -> None:
    async with a_world() as world:
        world.broker.locks["orders", 0] = "another"
        async with world.consumer(orderly=True) as consumer:
            consumer.subscribe("orders")
            await until(lambda: QUEUES[1] in consumer.assignment)
            assert QUEUES[0] not in consumer.assignment
            del world.broker.locks["orders", 0]
            await until(lambda: QUEUES[0] in consumer.assignment)


@under_either_loop_with_threads
async def test_a_broadcasting_member_reads_all_queues_and_tells_nobody() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        async with (
            world.consumer(1, message_model="broadcasting") as one,
            world.consumer(2, message_model="broadcasting") as two,
        ):
            for each in (one, two):
                tries = 0
                async for message in each.subscribe("orders"):
                    assert message.body == b"a"
                    tries += 1
                    assert message.reconsume_times == tries - 1
                    if tries == 2:
                        each.stop()
                    else:
                        await message.retry(0.001)
            assert two.assignment == QUEUES
        assert world.broker.commits == []
        assert world.broker.sent_back == []


def test_a_broadcasting_member_goes_on_where_its_file_says(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"

    async def read() -> list[bytes]:
        async with a_world() as world:
            world.broker.store("orders", 0, b"a", b"b")
            seen = []
            broadcasting = world.consumer(message_model="broadcasting", offsets_file=file)
            async with broadcasting as consumer:
                async for message in consumer.subscribe("orders"):
                    seen.append(message.body)
                    message.done()
                    break
            return seen

    assert anyio.run(read) == [b"a"]
    assert anyio.run(read, backend="trio") == [b"b"]
    file.write_text("{")
    with pytest.raises(OffsetsFileError):
        Consumer(NAME_SERVER, GROUP, offsets_file=file)


@under_either_loop
async def test_a_dead_letter_is_done_when_a_broker_has_it() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                await message.dead_letter()
                break
        assert [each.delay_level for each in world.broker.sent_back] == [-1]
        assert world.broker.offsets["orders", 0] == 1


@under_either_loop
async def test_wrong_arguments_are_named() -> None:
    async with a_world() as world, world.consumer() as consumer:
        with pytest.raises(ArgumentError) as caught:
            consumer.subscribe("orders", tags="a", sql="a > 1")
        assert caught.value.names == ("tags", "sql")
        consumer.subscribe("orders", tags="a")
        with pytest.raises(ArgumentError) as caught:
            consumer.subscribe("orders")
        assert "topic" in caught.value.names
        with pytest.raises(ArgumentError) as caught:
            await consumer.consume("payments", print, concurrency=0)  # type: ignore[arg-type]
        assert caught.value.names == ("concurrency",)


def test_outside_of_async_with_it_says_so() -> None:
    consumer = Consumer(NAME_SERVER, GROUP)
    consumer.subscribe("orders")
    with pytest.raises(NotOpenError):
        anyio.run(consumer.__aexit__, None)
