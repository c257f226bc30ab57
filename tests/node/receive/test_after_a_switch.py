"""What consumers that pop have of an old master, at the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from tandem.wire.message import decode_messages
from tandem.wire.receipt_handle import TopicMark
from tests.node.receive.pop_world import DLQ, RETRY, TOPIC, PopWorld, handles, messages

if TYPE_CHECKING:
    from trio.testing import MockClock

RETRY_V2 = "%RETRY%g+T"


async def test_the_time_of_a_message_is_changed_by_a_handle_of_the_old_master(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2")
    moved, given_back = handles(world.receive(invisible_ms=5000))
    after = world.successor()
    changed = after.change(moved, 20_000)
    assert changed is not None
    assert after.change(given_back, 0) is not None
    await after.wait(0)
    assert [each.body for each in after.stored(RETRY)] == [b"2"]
    await after.wait(19)
    assert [each.body for each in after.stored(RETRY)] == [b"2"]
    assert after.ack(moved) == [False]
    await after.wait(1.1)
    assert [each.body for each in after.stored(RETRY)] == [b"2", b"1"]


async def test_a_changed_handle_of_the_old_master_is_good_and_the_first_one_is_not(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1")
    (first,) = handles(world.receive(invisible_ms=5000))
    changed = world.change(first, 20_000)
    assert changed is not None
    after = world.successor()
    assert after.change(first, 20_000) is None
    assert after.ack(first) == [False]
    later = type(first)(first.group, first.topic, first.queue_id, first.offset, changed.pop_time_ms)
    assert after.ack(later) == [True]
    await after.wait(60)
    assert after.stored(RETRY) == []


async def test_a_handle_of_the_old_master_is_extended_and_stays_good(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1")
    (handle,) = handles(world.receive(invisible_ms=5000))
    after = world.successor()
    answers: list[object] = []
    after.pop.extend(handle, 60_000, answers.append)
    after.confirm()
    await after.wait(30)
    assert after.stored(RETRY) == []
    last = after.successor()
    assert last.ack(handle) == [True]
    await last.wait(120)
    assert last.stored(RETRY) == []


async def test_in_order_what_was_done_before_the_switch_is_not_handed_out_after_it(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1", b"2", b"3", b"4")
    received = world.receive(3, is_orderly=True, invisible_ms=5000)
    world.ack(handles(received)[1])
    after = world.successor()
    assert after.bodies(is_orderly=True) == []
    await after.wait(5.1)
    again = after.receive(is_orderly=True, invisible_ms=5000)
    assert [each.body for each in messages(again)] == [b"1", b"3"]
    assert again.batches[0].counts == (2, 2)
    last = after.successor()
    assert last.ack(*handles(again)) == [True, True]
    assert last.bodies(is_orderly=True) == [b"4"]
    assert last.stored(RETRY) == last.stored(DLQ) == []


async def test_tries_are_counted_across_switches_and_the_last_one_is_one_dead_letter(
    autojump_clock: MockClock,
) -> None:
    world, tries = PopWorld(retries=2), []
    world.put(b"1")
    for _ in range(3):
        tries += [each.reconsume_times for each in messages(world.receive(invisible_ms=1000))]
        assert world.stored(DLQ) == []
        world = world.successor()
        await world.wait(1.1)
    assert tries == [0, 1, 2]
    for _ in range(2):
        assert world.bodies() == []
        assert [each.body for each in world.stored(DLQ)] == [b"1"]
        world = world.successor()
        await world.wait(60)


@pytest.mark.parametrize(
    ("before", "now"),
    [(TopicMark.RETRY_V1, TopicMark.RETRY_V2), (TopicMark.RETRY_V2, TopicMark.RETRY_V1)],
)
async def test_retry_topics_of_the_name_that_was_set_before_are_read_to_their_end(
    before: TopicMark, now: TopicMark, autojump_clock: MockClock
) -> None:
    names = {TopicMark.RETRY_V1: RETRY, TopicMark.RETRY_V2: RETRY_V2}
    world = PopWorld(retry_mark=before, retries=2)
    world.put(b"held", b"waits")
    world.receive(invisible_ms=1000)
    await world.wait(1.1)
    (batch,) = world.receive(1, invisible_ms=5000).batches
    assert batch.topic == names[before]
    # The next master has the other name in its settings.
    world.retry_mark = now
    after = world.successor()
    after.put(b"new")
    received = after.receive(invisible_ms=5000)
    assert sorted(each.body for each in messages(received)) == [b"new", b"waits"]
    await after.wait(5.1)
    # An answer has one of both. From a retry topic into the same one, else into what is set.
    batches = [batch for _ in range(2) for batch in after.receive(invisible_ms=1000).batches]
    assert {
        batch.topic: sorted(each.body for each in decode_messages(batch.records))
        for batch in batches
    } == {names[before]: [b"held", b"waits"], names[now]: [b"new"]}
    await after.wait(1.1)
    assert sorted(each.body for each in after.stored(DLQ)) == [b"held", b"waits"]
    assert {each.properties["DLQ_ORIGIN_TOPIC"] for each in after.stored(DLQ)} == {TOPIC}
    assert after.bodies() == [b"new"]


async def test_one_that_waits_at_the_new_master_gets_what_the_old_one_gave_out(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    world.put(b"1")
    world.receive(invisible_ms=5000)
    after = world.successor()
    answers = after.begin(deadline=trio.current_time() + 60)
    await after.wait(4.9)
    after.work()
    after.confirm()
    assert answers == []
    await after.wait(0.2)
    after.work()
    after.confirm()
    (answer,) = answers
    assert [each.body for each in messages(answer)] == [b"1"]  # type: ignore[arg-type]
