"""What a member does by itself. What its user sees: test_consumer.py."""

from pathlib import Path

import anyio
import pytest

from tandem.client import group_reader as module
from tandem.client.consumer import Consumer
from tandem.client.results import MessageQueue
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import retry_topic
from tests.tandem.client.consumer_world import a_world, until
from tests.tandem.client.either_loop import under_either_loop, under_either_loop_with_threads
from tests.tandem.client.fake_broker import MASTER, answer_to, route_of
from tests.tandem.client.group_broker import GROUP

QUEUES = [MessageQueue("orders", "broker-a", at) for at in (0, 1)]


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REBALANCE_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(module, "GREET_SECONDS", 0.01)


@under_either_loop
async def test_brokers_hear_what_is_subscribed_and_hear_it_again_on_a_new_connection() -> None:
    async with a_world() as world, world.consumer() as consumer:
        consumer.subscribe("orders", tags="a || b")
        await until(lambda: consumer.assignment)
        (data,) = world.broker.subscriptions.values()
        assert {each.topic: each.sub_string for each in data} == {
            "orders": "a || b",
            retry_topic(GROUP): "*",
        }
        world.broker.members.clear()
        await world.network.cut(MASTER)
        await until(lambda: world.broker.members)
        consumer.subscribe("payments")
        await until(lambda: len(next(iter(world.broker.subscriptions.values()))) == 3)


@under_either_loop
async def test_a_topic_is_read_as_soon_as_it_exists() -> None:
    async with a_world() as world, world.consumer() as consumer:
        route = world.broker.routes.pop("orders")
        consumer.subscribe("orders")
        await anyio.sleep(0.05)
        assert QUEUES[0] not in consumer.assignment
        world.broker.routes["orders"] = route
        await until(lambda: consumer.assignment[-2:] == QUEUES)


@under_either_loop
async def test_a_list_without_this_member_changes_nothing() -> None:
    async with a_world() as world, world.consumer() as consumer:
        consumer.subscribe("orders")
        await until(lambda: len(consumer.assignment) == 3)
        world.broker.members[:] = ["another"]
        await world.notify()
        await anyio.sleep(0.05)
        assert len(consumer.assignment) == 3
        world.broker.members.append(consumer.client_id)


@under_either_loop
async def test_where_a_group_begins_is_stored_before_anything_is_read() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b")
        async with world.consumer(start="latest") as consumer:
            consumer.subscribe("orders")
            await until(lambda: len(consumer.assignment) == 3)
            await until(lambda: RequestCode.PULL_MESSAGE in world.broker.codes())
            codes = world.broker.codes()
            assert codes.index(RequestCode.UPDATE_CONSUMER_OFFSET) < codes.index(
                RequestCode.PULL_MESSAGE
            )
            assert world.broker.offsets["orders", 0] == 2
            assert world.broker.offsets[retry_topic(GROUP), 0] == 0


@under_either_loop
async def test_a_time_is_looked_up_and_a_stored_offset_wins_over_it() -> None:
    async with a_world() as world:
        world.broker.offsets["orders", 1] = 7
        async with world.consumer(start=1_700_000_000_042) as consumer:
            consumer.subscribe("orders")
            await until(lambda: len(consumer.assignment) == 3)
        assert (world.broker.offsets["orders", 0], world.broker.offsets["orders", 1]) == (42, 7)


def all_is_stored(consumer: Consumer) -> bool:
    held = [each.process_queue for each in consumer._reader.readers.values()]
    return all(each.committed == each.commit_offset for each in held)


@under_either_loop
async def test_an_offset_that_cannot_be_stored_is_stored_later() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        world.broker.offsets = {("orders", 0): 0, ("orders", 1): 0, (retry_topic(GROUP), 0): 0}
        update = world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]
        world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: answer_to(
            request, ResponseCode.NO_PERMISSION
        )
        async with world.consumer(commit_interval_ms=5) as consumer:
            async for message in consumer.subscribe("orders"):
                message.done()
                await anyio.sleep(0.03)
                assert world.broker.offsets["orders", 0] == 0
                world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = update
                await until(lambda: world.broker.offsets["orders", 0] == 1)
                await until(lambda: all_is_stored(consumer))
                commits = world.broker.codes().count(RequestCode.UPDATE_CONSUMER_OFFSET)
                await anyio.sleep(0.03)
                # What has not changed is not stored again.
                assert world.broker.codes().count(RequestCode.UPDATE_CONSUMER_OFFSET) == commits
                break


@under_either_loop
async def test_what_is_handled_while_an_offset_is_being_stored_is_stored_next() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b")
        update = world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]

        def update_and_finish(request: RemotingCommand) -> RemotingCommand | None:
            second.done()
            return update(request)

        async with world.consumer() as consumer:
            subscription = consumer.subscribe("orders")
            first, second = await anext(aiter(subscription)), await anext(aiter(subscription))
            first.done()
            world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = update_and_finish
            await consumer.commit()
            assert world.broker.offsets["orders", 0] == 1
        assert world.broker.offsets["orders", 0] == 2


@under_either_loop
async def test_a_member_that_is_cancelled_stores_how_far_it_came() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        with anyio.CancelScope() as scope:
            async with world.consumer() as consumer:
                async for message in consumer.subscribe("orders"):
                    message.done()
                    scope.cancel()
        assert scope.cancelled_caught
        assert world.broker.offsets["orders", 0] == 1
        assert world.broker.members == []


@under_either_loop
async def test_a_member_that_is_cancelled_gives_its_locks_back() -> None:
    async with a_world() as world:
        with anyio.CancelScope() as scope:
            async with world.consumer(orderly=True) as consumer:
                consumer.subscribe("orders")
                await until(lambda: world.broker.locks)
                scope.cancel()
        assert world.broker.locks == {}


@under_either_loop
async def test_a_member_that_is_cancelled_before_it_hears_of_its_locks_gives_them_back() -> None:
    async with a_world() as world:
        lock = world.broker.handlers[RequestCode.LOCK_BATCH_MQ]
        with anyio.CancelScope() as scope:

            def lock_and_cancel(request: RemotingCommand) -> RemotingCommand | None:
                answer = lock(request)
                scope.cancel()
                return answer

            world.broker.handlers[RequestCode.LOCK_BATCH_MQ] = lock_and_cancel
            async with world.consumer(orderly=True) as consumer:
                consumer.subscribe("orders")
                await anyio.sleep_forever()
        assert world.broker.locks == {}


@under_either_loop
async def test_a_member_that_leaves_waits_for_the_offset_of_a_queue_it_has_just_lost() -> None:
    async with a_world() as world:
        world.broker.store("orders", 1, b"a")
        update = world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]
        refused: list[RemotingCommand] = []

        def refuse_once(request: RemotingCommand) -> RemotingCommand | None:
            world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = update
            refused.append(request)
            return answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE)

        async with world.consumer() as consumer:
            message = await anext(aiter(consumer.subscribe("orders")))
            message.done()
            world.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse_once
            world.broker.members.append("zzz")
            await world.notify()
            await until(lambda: refused)
        assert world.broker.offsets["orders", 1] == 1


@under_either_loop
async def test_a_message_that_comes_again_of_a_topic_not_subscribed_waits_for_it() -> None:
    async with a_world() as world:
        world.broker.routes["payments"] = route_of(("broker-a", {0: MASTER}), queue_nums=1)
        world.broker.store(retry_topic(GROUP), 0, b"again")
        world.broker.queue(retry_topic(GROUP), 0)[0].properties["RETRY_TOPIC"] = "payments"
        async with world.consumer() as consumer:
            consumer.subscribe("orders")
            await until(lambda: len(consumer.assignment) == 3)
            await anyio.sleep(0.02)
            async for message in consumer.subscribe("payments"):
                assert message.body == b"again"
                break
        assert world.broker.offsets[retry_topic(GROUP), 0] == 0


@under_either_loop
async def test_an_ordered_queue_stays_locked_while_a_message_of_it_is_being_handled() -> None:
    async with a_world() as world:
        world.broker.store("orders", 1, b"a", b"b")
        lost = ("orders", 1)
        async with world.consumer(orderly=True) as consumer:
            message = await anext(aiter(consumer.subscribe("orders")))
            world.broker.members.append("zzz")
            await world.notify()
            await until(lambda: lost not in {(q.topic, q.queue_id) for q in consumer.assignment})
            await anyio.sleep(3)
            assert lost in world.broker.locks
            message.done()
            await until(lambda: lost not in world.broker.locks)
            assert world.broker.offsets[lost] == 1


@under_either_loop
async def test_an_ordered_queue_is_not_kept_locked_for_ever() -> None:
    async with a_world() as world:
        world.broker.store("orders", 1, b"a", b"b")
        lost = ("orders", 1)
        async with world.consumer(orderly=True) as consumer:
            await anext(aiter(consumer.subscribe("orders")))
            world.broker.members.append("zzz")
            await world.notify()
            await until(lambda: lost not in {(q.topic, q.queue_id) for q in consumer.assignment})
            began = anyio.current_time()
            await until(lambda: lost not in world.broker.locks)
            assert 19 < anyio.current_time() - began < 30


@under_either_loop
async def test_an_ordered_queue_that_comes_back_meanwhile_is_read_again() -> None:
    async with a_world() as world:
        world.broker.store("orders", 1, b"a", b"b")
        async with world.consumer(orderly=True) as consumer:
            messages = aiter(consumer.subscribe("orders"))
            message = await anext(messages)
            world.broker.members.append("zzz")
            await world.notify()
            await until(lambda: len(consumer.assignment) < 3)
            world.broker.members.remove("zzz")
            await world.notify()
            await anyio.sleep(3)
            assert len(consumer.assignment) < 3, "what is in hand is of the reader before"
            message.done()
            assert (await anext(messages)).body == b"b"


@under_either_loop
async def test_what_nobody_took_is_not_kept_when_its_queue_is_lost_or_moved() -> None:
    async with a_world() as world:
        world.broker.store("orders", 1, b"a", b"b")
        world.broker.store(retry_topic(GROUP), 0, b"again")
        world.broker.queue(retry_topic(GROUP), 0)[0].properties["RETRY_TOPIC"] = "payments"
        async with world.consumer() as consumer:
            subscription = consumer.subscribe("orders")
            subscription.pause()
            group = consumer._reader
            await until(lambda: len(subscription._inbox._items) == 2 and group._unclaimed)
            moved, retried = (
                [each for each in consumer.assignment if each.queue_id == 1],
                [each for each in consumer.assignment if each.topic == retry_topic(GROUP)],
            )
            for _ in range(3):
                consumer.seek(moved[0], 0)
                await until(lambda: len(subscription._inbox._items) == 2)
                consumer.seek(retried[0], 0)
                await until(lambda: len(group._unclaimed) == 1)


@under_either_loop_with_threads
async def test_offsets_that_cannot_be_written_do_not_end_a_broadcasting_member() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b")
        missing = Path("/nowhere/at/all/offsets.json")
        broadcasting = world.consumer(
            message_model="broadcasting", offsets_file=missing, commit_interval_ms=2
        )
        seen = []
        async with broadcasting as consumer:
            async for message in consumer.subscribe("orders"):
                seen.append(message.body)
                await anyio.sleep(0.02)
                if len(seen) == 2:
                    consumer.stop()
        assert seen == [b"a", b"b"]


@under_either_loop
async def test_a_queue_that_is_moved_while_it_is_given_up_is_read_by_nobody() -> None:
    async with a_world() as world:
        world.broker.store("orders", 1, b"a")
        async with world.consumer() as consumer:
            messages = aiter(consumer.subscribe("orders"))
            message = await anext(messages)
            group = consumer._reader
            lost = group.readers[QUEUES[1]]
            world.broker.members.append("zzz")
            await world.notify()
            await until(lambda: lost.process_queue.is_dropped)
            consumer.seek(QUEUES[1], 0)
            moved = group.readers[QUEUES[1]]
            assert moved is not lost
            await until(lambda: QUEUES[1] not in group.readers)
            assert moved.process_queue.is_dropped
            assert message.body == b"a"


@under_either_loop
async def test_an_ordered_queue_that_is_moved_keeps_its_lock_and_gets_no_longer_one() -> None:
    async with a_world() as world, world.consumer(orderly=True) as consumer:
        consumer.subscribe("orders")
        await until(lambda: QUEUES[0] in consumer.assignment)
        reader = consumer._reader.readers[QUEUES[0]]
        reader.locked_until -= 5
        consumer.seek(QUEUES[0], 0)
        moved = consumer._reader.readers[QUEUES[0]]
        assert moved is not reader
        assert moved.locked_until == reader.locked_until


@under_either_loop
async def test_a_member_that_leaves_takes_no_queues_meanwhile() -> None:
    async with a_world() as world:
        async with world.consumer(orderly=True) as consumer:
            consumer.subscribe("orders")
            await until(lambda: consumer.assignment)
        await anyio.sleep(0.05)
        assert world.broker.locks == {}
