"""Which messages a request gets."""

import pytest
import trio
from trio.testing import MockClock

from node.errors import RequestError
from node.receive import taking as module
from node.receive.requests import Found
from node.receive.taking import queue_offsets
from tandem.wire.message import decode_messages
from tandem.wire.receipt_handle import TopicMark
from tests.node.receive.pop_world import GROUP, RETRY, TOPIC, PopWorld, handles, messages


async def test_offsets_are_read_off_the_records(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"", b"22", b"333" * 100)
    (batch,) = world.receive().batches
    assert queue_offsets(batch.records) == list(batch.offsets) == [0, 1, 2]
    assert [each.queue_offset for each in decode_messages(batch.records)] == [0, 1, 2]
    assert batch.start_offset == 0


async def test_one_queue_can_be_asked_for(autojump_clock: MockClock) -> None:
    world = PopWorld(queues=3)
    for queue_id in range(3):
        world.put(b"%d" % queue_id, queue_id=queue_id)
    assert world.bodies(queue_id=1) == [b"1"]
    assert sorted(world.bodies()) == [b"0", b"2"]


@pytest.mark.slow
async def test_what_comes_again_is_asked_first_sometimes_and_last_else(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    first = 0
    for number in range(60):
        world.put(b"x")
        world.receive(1, invisible_ms=1)
        await world.wait(0.01)
        world.put(b"y%d" % number)
        got = messages(world.receive(1, invisible_ms=100_000))
        first += got[0].topic == RETRY
        world.receive(32, invisible_ms=100_000)
    assert 3 <= first <= 25


@pytest.mark.parametrize("mark", [TopicMark.RETRY_V1, TopicMark.RETRY_V2])
async def test_both_kinds_of_retry_topics_are_read(
    mark: TopicMark, autojump_clock: MockClock
) -> None:
    world = PopWorld(retry_mark=mark)
    world.put(b"1")
    world.receive(invisible_ms=1000)
    await world.wait(1.1)
    (batch,) = world.receive().batches
    assert batch.mark is mark
    assert batch.topic == {TopicMark.RETRY_V1: "%RETRY%g_T", TopicMark.RETRY_V2: "%RETRY%g+T"}[mark]


async def test_a_group_that_starts_at_the_end_of_an_old_queue_gets_its_last_message(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "YOUNG_LOG_BYTES_MAX", 100)
    world = PopWorld(queues=2)
    world.put(b"1", b"2", b"3")
    assert world.bodies(queue_id=0, starts_at_end=True) == [b"3"]
    assert world.receive(queue_id=1, starts_at_end=True).found is Found.NOTHING
    world.put(b"4", b"5", queue_id=1)
    assert world.bodies(queue_id=1, starts_at_end=True) == [b"4", b"5"]


async def test_a_group_that_starts_at_the_end_of_a_young_queue_gets_all_of_it(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    assert world.bodies(starts_at_end=True) == [b"1", b"2"]


async def test_no_more_than_so_many_are_with_a_group(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INVISIBLE_PER_QUEUE_MAX", 4)
    world = PopWorld()
    world.put(*(b"%d" % number for number in range(6)))
    received = world.receive(4)
    full = world.receive()
    assert (full.found, full.rest_count) == (Found.NOTHING, 2)
    world.ack(handles(received)[0])
    assert world.bodies() == [b"4", b"5"]


async def test_no_more_than_so_many_are_with_all_groups(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INVISIBLE_MAX", 2)
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    world.receive(2)
    assert world.receive(group="h").found is Found.NOTHING


async def test_too_many_queues_are_refused_and_those_that_are_known_go_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUEUES_MAX", 1)
    world = PopWorld()
    world.put(b"1", b"2")
    assert world.bodies(1) == [b"1"]
    (refused,) = world.begin(group="h")
    assert isinstance(refused, RequestError)
    assert world.bodies(1) == [b"2"]


# -- in order ------------------------------------------------------------------------------------


def in_order(world: PopWorld, count: int = 32, **changes: object) -> list[bytes]:
    return world.bodies(count, is_orderly=True, **changes)


async def test_in_order_nobody_gets_the_next_ones_before_the_first_are_done(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    received = world.receive(2, is_orderly=True)
    assert received.revive_queue_id == 999
    assert in_order(world) == []
    first, second = handles(received)
    world.ack(first)
    assert in_order(world) == []
    world.ack(second)
    assert in_order(world) == [b"3"]


async def test_in_order_what_is_not_done_comes_again_in_its_place_and_is_counted(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3", b"4")
    received = world.receive(3, is_orderly=True, invisible_ms=5000)
    assert received.batches[0].counts == (1, 1, 1)
    world.ack(handles(received)[1])
    await world.wait(4.9)
    assert in_order(world) == []
    await world.wait(0.2)
    again = world.receive(is_orderly=True, invisible_ms=5000)
    assert [each.body for each in messages(again)] == [b"1", b"3"]
    assert again.batches[0].counts == (2, 2)
    assert world.stored(RETRY) == []
    assert world.ack(*handles(received)) == [False, False, False]
    assert world.ack(*handles(again)) == [True, True]
    assert in_order(world) == [b"4"]


async def test_in_order_the_same_attempt_gets_the_same_messages_also_after_a_switch(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    assert in_order(world, 2, attempt_id="a") == [b"1", b"2"]
    again = world.receive(2, is_orderly=True, attempt_id="a")
    assert [each.body for each in messages(again)] == [b"1", b"2"]
    assert again.batches[0].counts == (1, 1)
    assert in_order(world, 2, attempt_id="b") == []
    after = world.successor()
    assert in_order(after, 2, attempt_id="b") == []
    assert in_order(after, 2, attempt_id="a") == [b"1", b"2"]
    assert after.ack(*handles(again)) == [False, False]


async def test_in_order_a_queue_stays_shut_after_a_switch(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    received = world.receive(1, is_orderly=True)
    after = world.successor()
    assert in_order(after) == []
    assert after.ack(*handles(received)) == [True]
    assert in_order(after) == [b"2"]


async def test_in_order_a_changed_time_keeps_the_handle(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    (handle,) = handles(world.receive(1, is_orderly=True, invisible_ms=5000))
    changed = world.change(handle, 20_000)
    assert changed is not None
    assert changed.pop_time_ms == handle.pop_time_ms
    await world.wait(19)
    assert in_order(world) == []
    assert world.pop.is_held(handle)
    await world.wait(1.1)
    assert in_order(world) == [b"1"]


async def test_in_order_a_waiting_request_gets_a_queue_that_opens(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    (handle,) = handles(world.receive(1, is_orderly=True, invisible_ms=5000))
    answers = world.begin(is_orderly=True, deadline=trio.current_time() + 60)
    world.ack(handle)
    world.work()
    world.confirm()
    assert [each.body for each in messages(answers[0])] == [b"2"]  # type: ignore[arg-type]
    later = world.begin(is_orderly=True, deadline=trio.current_time() + 60)
    await world.wait(10.1)
    world.work()
    world.confirm()
    assert [each.body for each in messages(later[0])] == [b"2"]  # type: ignore[arg-type]


# -- the same attempt ----------------------------------------------------------------------------


async def test_a_repeated_attempt_gets_what_it_got(autojump_clock: MockClock) -> None:
    world = PopWorld(queues=2)
    world.put(b"1", b"2")
    world.put(b"3", queue_id=1)
    first = world.receive(attempt_id="a")
    assert world.bodies(attempt_id="b") == []
    again = world.receive(attempt_id="a")
    assert sorted(handles(again), key=repr) == sorted(handles(first), key=repr)
    world.ack(*handles(first)[:1])
    after = world.successor()
    assert len(after.bodies(attempt_id="a")) == 2
    assert after.bodies(attempt_id="a", group="h") != []


async def test_a_repeated_attempt_of_which_all_is_done_gets_what_is_new(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1")
    world.ack(*handles(world.receive(attempt_id="a")))
    world.put(b"2")
    assert world.bodies(attempt_id="a") == [b"2"]


async def test_what_is_there_is_noticed_and_not_handed_out(autojump_clock: MockClock) -> None:
    world = PopWorld()
    seen: list[Found] = []
    world.pop.notify(world.request(), seen.append)
    waiting = world.pop.notify(world.request(deadline=trio.current_time() + 9), seen.append)
    assert waiting is not None
    world.put(b"1")
    world.work()
    world.pop.notify(world.request(), seen.append)
    assert seen == [Found.NOTHING, Found.FOUND, Found.FOUND]
    assert world.pop.pop_offset(GROUP, TOPIC, 0) is None
    assert world.bodies() == [b"1"]


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_an_offset_behind_the_end_of_the_queue_passes_over_nothing_that_comes(
    *, is_fenced: bool, autojump_clock: MockClock
) -> None:
    world = PopWorld(is_fenced=is_fenced)
    world.put(b"1", b"2")
    world.tables.commit(GROUP, TOPIC, 0, 10)
    if world.is_fenced:
        writer = world.journal_tables.journal.writer
        assert writer is not None
        writer.write_gathered()
    world.confirm()
    assert (world.offset(), world.bodies()) == (10, [])
    came = []
    for number in range(12):
        world.put(b"m%d" % number)
        came += world.bodies()
    assert came == [b"m%d" % number for number in range(12)]


async def test_a_pull_consumer_that_got_further_is_not_put_back(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(is_fenced=False)
    world.put(*[b"%d" % number for number in range(10)])
    popped = world.receive(2)
    world.tables.commit(GROUP, TOPIC, 0, 10)
    world.ack(*handles(popped))
    assert world.offset() == 10
    assert world.bodies() == []


async def test_the_same_attempt_gets_no_handle_that_is_not_good(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3")
    first, *_ = handles(world.receive(attempt_id="a"))
    await trio.sleep(1)
    world.change(first, 60_000)
    again = world.receive(attempt_id="a")
    assert len(again.batches) == 1
    assert world.ack(*handles(again)) == [True, True]
