"""In which order a pop looks at queues, and that messages with priorities come in theirs."""

import random

import pytest
from trio.testing import MockClock

from node.receive.queue_order import HIGHEST_FIRST, PriorityReading, queues_from
from tandem.wire.request_headers import TopicConfig
from tests.node.receive.pop_world import TOPIC, PopWorld, handles

KINDS = pytest.mark.parametrize("is_fenced", [False, True], ids=["classic", "fenced"])


def world_of(
    *, is_fenced: bool, factor: str = "", priorities: PriorityReading = HIGHEST_FIRST
) -> PopWorld:
    world = PopWorld(queues=4, is_fenced=is_fenced, priorities=priorities)
    world.tables.change_topics(TopicConfig(TOPIC, 4, 4, attributes={"message.type": "PRIORITY"}))
    world.set_group(attributes={"priority.factor": factor} if factor else {})
    world.confirm()
    return world


def put_each(world: PopWorld) -> None:
    for priority in (1, 3, 0, 2):
        world.put(b"%d" % priority, queue_id=priority)


@KINDS
async def test_what_is_more_urgent_comes_first_each_time(
    autojump_clock: MockClock, *, is_fenced: bool
) -> None:
    world = world_of(is_fenced=is_fenced)
    for _ in range(8):
        put_each(world)
        assert world.bodies(1) == [b"3"]
        assert world.bodies(2) == [b"2", b"1"]
        world.put(b"3", queue_id=3)
        assert world.bodies() == [b"3", b"0"]


async def test_the_order_can_be_the_other_way_round(autojump_clock: MockClock) -> None:
    world = world_of(is_fenced=False, priorities=PriorityReading(order_asc=False))
    for _ in range(8):
        put_each(world)
        assert world.bodies() == [b"0", b"1", b"2", b"3"]


async def test_a_queue_that_is_asked_for_is_that_queue(autojump_clock: MockClock) -> None:
    world = world_of(is_fenced=False)
    put_each(world)
    assert world.bodies(queue_id=1) == [b"1"]


async def test_a_group_without_a_factor_takes_turns(autojump_clock: MockClock) -> None:
    world = world_of(is_fenced=False, factor="0")
    firsts = set()
    for _ in range(40):
        put_each(world)
        firsts.add(world.bodies()[0])
    assert firsts == {b"0", b"1", b"2", b"3"}


async def test_a_group_with_a_small_factor_takes_turns_mostly(autojump_clock: MockClock) -> None:
    world = world_of(is_fenced=False, factor="50")
    firsts = []
    for _ in range(60):
        put_each(world)
        firsts.append(world.bodies()[0])
    assert 25 <= firsts.count(b"3") <= 52  # half of them, and a quarter of the others


async def test_an_ordinary_topic_takes_turns(autojump_clock: MockClock) -> None:
    world = PopWorld(queues=4)
    firsts = set()
    for _ in range(40):
        put_each(world)
        firsts.add(world.bodies()[0])
    assert len(firsts) == 4


async def test_an_orderly_group_takes_turns(autojump_clock: MockClock) -> None:
    world = world_of(is_fenced=False)
    firsts = set()
    for _ in range(40):
        put_each(world)
        received = world.receive(is_orderly=True)
        firsts.add(received.batches[0].queue_id)
        world.ack(*handles(received))
    assert len(firsts) == 4


@pytest.mark.parametrize("percent", [0, 100])
async def test_what_comes_again_is_last_or_as_often_first_as_is_set(
    percent: int, autojump_clock: MockClock
) -> None:
    world = world_of(is_fenced=False, priorities=PriorityReading(retry_percent=percent))
    for _ in range(10):
        world.put(b"again", queue_id=3)
        world.receive(1, invisible_ms=1)
        await world.wait(0.01)
        world.put(b"new", queue_id=0)
        received = world.receive(invisible_ms=100_000)
        order = [each.topic == TOPIC for each in received.batches]
        assert order == [True, False] if percent == 0 else [False, True]
        world.ack(*handles(received))


def test_the_order_of_queues() -> None:
    assert list(PriorityReading().queues(3)) == [2, 1, 0]
    assert list(PriorityReading(order_asc=False).queues(3)) == [0, 1, 2]
    assert list(PriorityReading().queues(0)) == []
    assert queues_from(2, 4) == [2, 3, 0, 1]
    assert sorted(queues_from(random.Random(1).randrange(7), 7)) == list(range(7))
