"""What is put for a message whose time is over."""

import pytest
from trio.testing import MockClock

from node.errors import RequestError
from node.receive.put_again import check_retry_topic
from store import PutMessage
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.record_rule import BODY_AT
from tandem.wire.response_code import ResponseCode
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.node.doubles import BROKER, NOW_MS
from tests.node.receive.pop_world import DLQ, RETRY, TOPIC, PopWorld, handles, messages


def heal_by_hand(world: PopWorld) -> None:
    damage = world.store.commit_log.damage
    assert damage
    for bad in damage.ranges:
        damage.healed(bad.start, bad.end)


async def test_a_retried_message_keeps_all_but_its_topic_and_its_count(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld()
    properties = b"KEYS\x01k\x02TAGS\x01t\x02DELAY\x013\x02"
    message = PutMessage(TOPIC, 0, b"body", properties, NOW_MS, BROKER.packed, flag=7)
    world.store.puts.put_message(message, hooks=False)
    world.confirm()
    first = world.receive(invisible_ms=1000)
    await world.wait(1.1)
    (again,) = world.stored(RETRY)
    assert (again.body, again.flag, again.born_timestamp_ms) == (b"body", 7, NOW_MS)
    assert again.properties == {
        "KEYS": "k",
        "TAGS": "t",
        "DELAY": "3",
        "1ST_POP_TIME": str(first.pop_time_ms),
    }
    world.receive(invisible_ms=1000)
    await world.wait(1.1)
    third = world.stored(RETRY)[1]
    assert (third.reconsume_times, third.properties) == (2, again.properties)


async def test_a_message_without_room_for_more_properties_comes_again_all_the_same(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(retries=1)
    world.put(b"1", properties=b"k\x01" + b"v" * 32_760 + b"\x02")
    for topic in (RETRY, DLQ):
        assert len(messages(world.receive(invisible_ms=1000))) == 1
        await world.wait(1.1)
        assert [each.body for each in world.stored(topic)] == [b"1"]


async def test_a_group_whose_dead_letters_can_have_no_topic_tries_on(
    autojump_clock: MockClock,
) -> None:
    world = PopWorld(retries=0)
    group = "g" * 125
    world.put(b"1")
    world.receive(group=group, invisible_ms=1000)
    await world.wait(1.1)
    assert len(world.bodies(group=group)) == 1


def test_names_that_are_too_long_are_refused_before_anything_is_handed_out() -> None:
    check_retry_topic("g" * 120, "T" * 120, TopicMark.RETRY_V1)
    with pytest.raises(RequestError) as refused:
        check_retry_topic("g" * 200, "T" * 120, TopicMark.RETRY_V1)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_damaged_record_waits_until_it_is_healed(autojump_clock: MockClock) -> None:
    """It alone: what was handed out with it does not wait, perhaps for ever."""
    world = PopWorld()
    world.put(b"1", b"2")
    world.receive(invisible_ms=1000)
    at = world.place(0)
    world.store.commit_log.damage.note(at, at + 1, "a test")
    for _ in range(2):
        await world.wait(1.1)
        assert [each.body for each in world.stored(RETRY)] == [b"2"]
    world.store.commit_log.damage.healed(at, at + 1)
    await world.wait(1.1)
    assert [each.body for each in world.stored(RETRY)] == [b"2", b"1"]


async def test_a_body_that_has_changed_under_the_node_is_not_put_again(
    autojump_clock: MockClock,
) -> None:
    """The copy would have a CRC of its own, and nobody could see that it is another message."""
    world = PopWorld()
    world.put(b"body")
    world.receive(invisible_ms=1000)
    at = world.place(0) + BODY_AT
    flip(world.store, at)
    await world.wait(1.1)
    assert world.stored(RETRY) == world.stored(DLQ) == []
    flip(world.store, at)
    heal_by_hand(world)
    await world.wait(1.1)
    assert [each.body for each in world.stored(RETRY)] == [b"body"]


async def test_properties_that_have_rotted_in_a_closed_file_are_not_put_again(
    autojump_clock: MockClock,
) -> None:
    """No CRC of RocketMQ covers them: the fingerprint of the file does."""
    world = PopWorld(log_file_bytes=1 << 16)
    world.put(b"body", properties=b"KEYS\x01key\x02")
    world.put(*[b"x" * 8_000] * 9, topic="Other")
    await take_fingerprints(world.store)
    world.receive(invisible_ms=1000)
    record = world.store.commit_log.record_at(world.place(0))
    assert record is not None
    at = world.place(0) + record.index(b"key")
    flip(world.store, at, 0x20)
    await world.wait(1.1)
    assert world.stored(RETRY) == []
    flip(world.store, at, 0x20)
    heal_by_hand(world)
    await world.wait(1.1)
    assert [each.keys for each in world.stored(RETRY)] == ["key"]


async def test_what_the_store_does_not_take_is_tried_again(autojump_clock: MockClock) -> None:
    world = PopWorld()
    world.put(b"1")
    world.receive(invisible_ms=1000)
    world.replication.demote("not now")
    await world.wait(1.1)
    assert world.stored(RETRY) == []
    world.replication.refused = None
    await world.wait(1.1)
    assert len(world.stored(RETRY)) == 1


@pytest.mark.parametrize("is_orderly", [False, True])
async def test_what_has_left_the_log_by_its_age_does_not_come_again(
    autojump_clock: MockClock, *, is_orderly: bool
) -> None:
    world = PopWorld(log_file_bytes=1 << 16)
    world.put(b"1", b"2")
    held = handles(world.receive(invisible_ms=1000, is_orderly=is_orderly))
    world.put(*[b"x" * 8_000] * 9, topic="Other")
    world.put(b"3")
    # As if its queues were on the disk: the log is not deleted before.
    world.store.flush_service.queues_flushed_where = world.store.max_physical_offset
    world.store.clean_service.commit_log.give_up_before(1 << 16)
    assert world.store.commit_log.files.files[0].file_from_offset == 1 << 16
    await world.wait(1.1)
    assert world.bodies(is_orderly=is_orderly) == [b"3"]
    assert world.stored(RETRY) == world.stored(DLQ) == []
    assert world.ack(*held) == [False, False]
