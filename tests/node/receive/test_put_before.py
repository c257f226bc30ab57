"""A log that is cut anywhere, while messages are put again: none is lost, none comes twice."""

from collections import Counter

import pytest
import trio
from trio.testing import MockClock

from tests.node.receive.pop_world import DLQ, RETRY, PopWorld, handles


def record_ends(world: PopWorld, begin: int) -> list[int]:
    """Where in the log records end, from `begin` on."""
    ends = []
    for topic, queue_id in world.store.queues.queues():
        queue = world.store.queues.find(topic, queue_id)
        assert queue is not None
        ends += [
            offset + size
            for offset, size, _ in queue.units_below(world.store.max_physical_offset)
            if offset >= begin
        ]
    return sorted(ends)


@pytest.mark.slow
@pytest.mark.parametrize("retries", [16, 0])
async def test_a_log_cut_at_any_record_has_every_message_once(
    retries: int, autojump_clock: MockClock
) -> None:
    target = RETRY if retries else DLQ
    world = PopWorld(queues=2, retries=retries)
    for body in (b"1", b"2", b"3"):
        world.put(body)
    world.put(b"4", b"5", queue_id=1)
    received = handles(world.receive(invisible_ms=5000))
    done = world.stored("T")[1].body if received[1].queue_id == 0 else b"5"
    world.ack(received[1])
    begin = world.store.max_physical_offset
    await trio.sleep(6)
    world.work()
    assert len(world.stored(target)) == 4
    cuts = [begin, *record_ends(world, begin)]
    assert len(cuts) > 6
    for cut in cuts:
        after = world.successor(cut)
        await after.wait(6)
        came = Counter(each.body for each in after.stored(target))
        expected = Counter([b"1", b"2", b"3", b"4", b"5"]) - Counter([done])
        assert came == expected, cut
        assert after.state() == after.confirmed_state()
        again = after.successor()
        await again.wait(20)
        assert Counter(each.body for each in again.stored(target)) == expected


async def test_a_log_cut_once_more_while_its_next_master_opens_has_every_message_once(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    world.receive(invisible_ms=5000)
    begin = world.store.max_physical_offset
    await trio.sleep(6)
    world.work()
    for first in record_ends(world, begin):
        after = world.successor(first)
        for second in record_ends(after, first):
            again = after.successor(second)
            await again.wait(6)
            came = Counter(each.body for each in again.stored(RETRY))
            assert came == Counter([b"1", b"2"]), (first, second)
