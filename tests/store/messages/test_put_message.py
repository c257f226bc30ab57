"""Puts that need a closer look. Plain ones: tests/store/test_message_store.py."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store import PutMessage, PutMessageStatus
from store.message_store import MessageStore
from store.messages.put_message import MessagePuts
from store.running_flags import RunningFlag
from tandem.wire.message import (
    INNER_BATCH_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Host,
    decode_message,
)
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.store.store_world import (
    BORN_HOST,
    BORN_MS,
    Clock,
    a_batch,
    a_message,
    check_store,
    files_of,
    log_messages,
    open_store,
    put,
    queue_messages,
)
from tests.support.listening import told_by


def open_with_batch_topic(disk: SimulatedDisk) -> MessageStore:
    return open_store(disk, is_batch_topic=lambda topic: topic == "Batches")


@pytest.mark.parametrize("kind", [TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE])
def test_prepared_and_rolled_back_messages_get_queue_offset_0_and_no_unit(kind: int) -> None:
    with open_store(SimulatedDisk()) as store:
        put(store, a_message(0))
        result = store.puts.put_message(msgspec.structs.replace(a_message(1), sys_flag=kind))
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 0)
        put(store, msgspec.structs.replace(a_message(2), sys_flag=TRANSACTION_COMMIT_TYPE))
        assert [m.queue_offset for m in queue_messages(store, "TopicA", 0)] == [0, 1]
        assert [m.queue_offset for m in log_messages(store)] == [0, 0, 1]


def test_a_delayed_message_goes_to_the_schedule_topic_with_its_deliver_time() -> None:
    with open_store(SimulatedDisk()) as store:
        plain = a_message(1)
        delayed = msgspec.structs.replace(plain, properties=plain.properties + b"DELAY\x013\x02")
        result = store.puts.put_message(delayed)
        assert result.status is PutMessageStatus.PUT_OK
        store.announce()
        (message,) = queue_messages(store, SCHEDULE_TOPIC, 2)
        assert message.properties["REAL_TOPIC"] == "TopicA"
        queue = store.queues.find(SCHEDULE_TOPIC, 2)
        assert queue is not None
        assert queue.unit(0)[2] == message.store_timestamp_ms + 10_000
        assert ("TopicA", 0) not in store.list_queues()


def test_without_hooks_a_message_with_a_delay_goes_where_it_says() -> None:
    with open_store(SimulatedDisk()) as store:
        plain = a_message(1)
        delayed = msgspec.structs.replace(plain, properties=plain.properties + b"DELAY\x013\x02")
        store.puts.put_message(delayed, hooks=False)
        assert len(queue_messages(store, "TopicA", 0)) == 1


def test_a_time_of_its_own_is_refused_by_name() -> None:
    with open_store(SimulatedDisk()) as store:
        plain = a_message(1)
        timed = plain.properties + b"TIMER_DELAY_MS\x01500\x02"
        result = store.puts.put_message(msgspec.structs.replace(plain, properties=timed))
        assert result.status is PutMessageStatus.WHEEL_TIMER_NOT_ENABLE


def test_an_inner_batch_is_one_record_and_moves_the_queue_by_its_messages() -> None:
    disk = SimulatedDisk()
    with open_with_batch_topic(disk) as store:
        first = store.puts.put_batch(a_batch(range(3), "Batches"))
        second = store.puts.put_batch(a_batch(range(3, 5), "Batches"))
        assert (first.status, first.queue_offset, first.msg_num) == (0, 0, 3)
        assert (second.queue_offset, second.msg_num) == (3, 2)
        store.announce()
        records = log_messages(store)
        assert [m.properties["INNER_BASE"] for m in records] == ["0", "3"]
        found = store.reads.get_message("Batches", 0, 1, 32)
        assert (found.message_count, found.next_begin_offset) == (5, 5)
        body = b"".join(found.body)
        assert decode_message(body, 0)[0].sys_flag & INNER_BATCH_FLAG
        for view in found.body:
            view.release()
        few = store.reads.get_message("Batches", 0, 0, 3)
        assert (few.message_count, few.next_begin_offset) == (3, 3)
        for view in few.body:
            view.release()
    with open_with_batch_topic(disk.crashed()) as again:
        assert again.reads.max_offset_in_queue("Batches", 0) == 5


def test_what_nobody_could_ever_read_from_a_batch_queue_is_refused() -> None:
    with open_with_batch_topic(SimulatedDisk()) as store:
        result = store.puts.put_message(a_message(0, "Batches"))
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("sys_flag", [0, INNER_BATCH_FLAG])
def test_flag_and_property_of_an_inner_batch_have_to_agree(sys_flag: int) -> None:
    with open_store(SimulatedDisk()) as store:
        plain = a_message(0)
        inner = msgspec.structs.replace(
            plain, sys_flag=sys_flag, properties=plain.properties + b"INNER_NUM\x012\x02"
        )
        assert store.puts.put_message(inner).status is PutMessageStatus.MESSAGE_ILLEGAL


def test_what_waited_behind_a_put_that_took_too_long_is_refused_until_the_round_ends() -> None:
    clock = Clock()
    with open_store(SimulatedDisk(), clock=clock) as store:
        assert store.puts.put_message(a_message(0)).status is PutMessageStatus.PUT_OK
        clock.now_ms += 1500
        refused = store.puts.put_message(a_message(1))
        assert refused.status is PutMessageStatus.OS_PAGE_CACHE_BUSY
        assert store.puts.put_batch(a_batch(range(2))).status is PutMessageStatus.OS_PAGE_CACHE_BUSY
        store.announce()
        assert store.puts.put_message(a_message(2)).status is PutMessageStatus.PUT_OK


def test_the_statuses_come_in_rocketmqs_order() -> None:
    """Not writeable, then the topic, then busy, then what is wrong with the message itself."""
    clock = Clock()
    with open_store(SimulatedDisk(), clock=clock, max_message_size_bytes=100) as store:
        put(store, a_message(0))
        store.puts.put_message(a_message(0))
        clock.now_ms += 1500
        wrong = msgspec.structs.replace(
            a_message(1, body_bytes=200), properties=b"a\x01" + b"b" * 32_768 + b"\x02"
        )
        assert store.puts.put_message(wrong).status is PutMessageStatus.OS_PAGE_CACHE_BUSY
        nowhere = msgspec.structs.replace(wrong, topic="T" * 128)
        assert store.puts.put_message(nowhere).status is PutMessageStatus.MESSAGE_ILLEGAL
        store.announce()
        assert store.puts.put_message(wrong).status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        too_large = a_message(1, body_bytes=200)
        assert store.puts.put_message(too_large).status is PutMessageStatus.MESSAGE_ILLEGAL
        store.flags.set(RunningFlag.DISK_FULL, "the disk is full")
        assert store.puts.put_message(wrong).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert store.puts.put_message(wrong).reason == "the disk is full"
        store.flags.clear(RunningFlag.DISK_FULL)


def test_a_message_keeps_the_store_host_it_brings_along() -> None:
    with open_store(SimulatedDisk()) as store:
        host = Host("10.9.8.7", 99)
        put(store, msgspec.structs.replace(a_message(0), store_host=host.packed))
        v6 = Host("::1", 99)
        put(store, msgspec.structs.replace(a_message(1), store_host=v6.packed))
        assert [m.store_host for m in log_messages(store)] == [host, Host("127.0.0.1", 10911)]


def test_with_a_pool_messages_enter_their_queue_when_they_are_committed() -> None:
    disk = SimulatedDisk()
    with open_store(disk, transient_store_pool_enable=True) as store:
        for number in range(3):
            assert store.puts.put_message(a_message(number)).queue_offset == number
        batch = store.puts.put_batch(a_batch(range(3, 6)))
        assert (batch.queue_offset, batch.msg_num) == (3, 3)
        store.announce()
        assert store.reads.max_offset_in_queue("TopicA", 0) == 0
        assert store.max_physical_offset == 0
        assert store.commit_log.files.commit(0)
        store.reput_service.dispatch_some()
        assert store.reads.max_offset_in_queue("TopicA", 0) == 6
        assert store.puts.put_message(a_message(6)).queue_offset == 6
    with open_store(disk) as again:
        assert len(check_store(again)) == 7


def test_a_put_after_the_clock_was_put_back_takes_back_what_the_checkpoint_says() -> None:
    """Recovery would take what was stored then, and is not on disk, for what was there before."""
    disk = SimulatedDisk()
    clock = Clock()
    with open_store(disk, clock=clock) as store:
        put(store, a_message(0))
    with open_store(disk, clock=clock) as store:
        before_ms = store.checkpoint.physic_msg_timestamp_ms
        clock.now_ms -= 60_000
        assert store.puts.put_message(a_message(1)).status is PutMessageStatus.PUT_OK
        assert store.checkpoint.physic_msg_timestamp_ms < before_ms - 59_000
        durable = disk.open("/store/checkpoint").durable
        assert int.from_bytes(durable[:8], "big") == store.checkpoint.physic_msg_timestamp_ms
        assert store.puts.put_batch(a_batch(range(2, 4))).status is PutMessageStatus.PUT_OK
        assert store.commit_log.clock_steps == 1
        store.announce()


# -- usual messages take a plain path ------------------------------------------------------------

LIMIT_BYTES = 66_000
"""The largest body here: a little more than the largest one that surely fits, whatever else."""

LOG_FILE_BYTES = 100_000


def mostly(usual: Any, *odd: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401
    """One in three is odd, so that few messages are odd in two ways."""
    return st.one_of(st.just(usual), st.just(usual), st.sampled_from(odd))


MESSAGES = st.builds(
    PutMessage,
    topic=mostly("TopicA", SCHEDULE_TOPIC, SCHEDULE_TOPIC, "Batches", "", "T" * 128),
    queue_id=st.sampled_from((0, 1)),
    body=mostly(9, 0, 464, 465, 33_000, 65_900, LIMIT_BYTES, LIMIT_BYTES + 1).map(bytes),
    properties=st.tuples(
        mostly(b"TAGS\x01TagA\x02", b"TAGS\x01TagB\x02", b"", b"KEYS\x01k\x02"),
        mostly(
            b"", b"DELAY\x013\x02", b"DELAY\x013\x02", b"INNER_NUM\x012\x02", b"DELIVER\x011\x02"
        ),
        mostly(
            b"",
            b"c\x01" + b"x" * 509 + b"\x02",
            b"d\x01" + b"x" * 32_000 + b"\x02",
            bytes(512) + b"e",
        ),
        mostly(b"", b"\0"),
    ).map(b"".join),
    born_timestamp_ms=st.just(BORN_MS),
    born_host=st.sampled_from((BORN_HOST.packed, Host("::1", 1).packed)),
    sys_flag=mostly(0, 1, 16, TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, INNER_BATCH_FLAG),
)

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"enabled_append_prop_crc": True},
    {"transient_store_pool_enable": True},
    {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext_bytes": 200},
)


def what_becomes_of(
    messages: list[tuple[PutMessage, bool]], capacity_bytes: int, variant: dict[str, Any]
) -> tuple[object, ...]:
    """Put messages, with or without hooks; return all that can be seen of it."""
    disk = SimulatedDisk(capacity_bytes=capacity_bytes)
    store = open_store(
        disk,
        clock=Clock(),
        commit_log_bytes=LOG_FILE_BYTES,
        max_message_size_bytes=LIMIT_BYTES,
        is_batch_topic=lambda topic: topic == "Batches",
        **variant,
    )
    told = told_by(store)
    results = []
    for message, hooks in messages:
        results.append(store.puts.put_message(message, hooks=hooks))
        store.announce()
    queues = [store.queues.find(*key) for key in store.list_queues()]
    ends = [(queue.next_offset, queue.assigned_offset) for queue in queues if queue is not None]
    no_room = store.disk_trouble
    disk.capacity_bytes = 1 << 40
    store.close()
    return results, told, ends, no_room, files_of(disk)


@pytest.mark.slow
@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(
    messages=st.lists(st.tuples(MESSAGES, st.booleans()), min_size=1, max_size=12),
    capacity_bytes=st.sampled_from((1 << 40, 1 << 40, 2 * LOG_FILE_BYTES, LOG_FILE_BYTES + 6_000)),
    variant=st.sampled_from(VARIANTS),
)
def test_the_plain_path_does_what_the_closer_look_does(
    messages: list[tuple[PutMessage, bool]], capacity_bytes: int, variant: dict[str, Any]
) -> None:
    """Byte for byte and status for status."""
    plain = what_becomes_of(messages, capacity_bytes, variant)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MessagePuts, "_is_usual", lambda *_: False)
        assert what_becomes_of(messages, capacity_bytes, variant) == plain


def test_a_pair_stands_side_by_side_in_the_log() -> None:
    with open_store(SimulatedDisk()) as store:
        put(store, a_message(0))
        result = store.puts.put_pair(a_message(1), a_message(2, "TopicB"))
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 0)
        assert result.end_offset == store.max_physical_offset
        assert [m.topic for m in log_messages(store)] == ["TopicA", "TopicA", "TopicB"]
        store.announce()
        check_store(store)


@pytest.mark.parametrize("gap", range(0, 1200, 50))
def test_without_room_for_both_of_a_pair_neither_is_put(gap: int) -> None:
    """The first of them may fit into the last file, and small messages after it."""
    disk = SimulatedDisk()
    with open_store(disk, commit_log_bytes=4096) as store:
        put(store, a_message(0, body_bytes=2600 + gap))
        put(store, a_message(0, "TopicB"))
        disk.capacity_bytes = disk.used_bytes
        before = len(log_messages(store))
        first, second = a_message(1, body_bytes=200), a_message(2, "TopicB", body_bytes=200)
        result = store.puts.put_pair(first, second)
        store.announce()
        added = len(log_messages(store)) - before
        assert added == (2 if result.status.is_stored else 0)
        disk.capacity_bytes += 1 << 20
        assert store.puts.put_pair(first, second).status.is_stored
        assert len(log_messages(store)) == before + added + 2


def test_a_pair_whose_first_message_cannot_be_stored_is_not_put() -> None:
    with open_store(SimulatedDisk(), max_message_size_bytes=100) as store:
        result = store.puts.put_pair(a_message(1, body_bytes=101), a_message(2))
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert log_messages(store) == []


def test_the_second_of_a_pair_is_put_however_long_the_first_took() -> None:
    clock = Clock(step_ms=2000)
    with open_store(SimulatedDisk(), clock=clock) as store:
        assert store.puts.put_pair(a_message(1), a_message(2)).status.is_stored
        result = store.puts.put_pair(a_message(3), a_message(4))
        assert result.status is PutMessageStatus.OS_PAGE_CACHE_BUSY
        assert len(log_messages(store)) == 2


def test_a_store_that_takes_no_messages_takes_no_pair() -> None:
    with open_store(SimulatedDisk(), is_slave=True) as store:
        result = store.puts.put_pair(a_message(1), a_message(2))
        assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
