"""What can be read without a bound is tested in test_message_store.py; here: with one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store import GetMessageStatus, MessageStore, PutMessage
from store.log.message_encoder import inner_batch
from store.machine.errors import RecordDamagedError
from tandem.wire.message import decode_messages
from tests.store.store_world import (
    BORN_MS,
    DIRECTORY,
    Clock,
    a_batch,
    a_message,
    copy_log,
    heal,
    note_damage,
    number_of,
    open_store,
    put,
    put_many,
)


def a_store(count: int = 0, *, is_slave: bool = False, **settings: int) -> MessageStore:
    store = open_store(
        SimulatedDisk(),
        confirm_bounds_reads=True,
        is_slave=is_slave,
        is_batch_topic=lambda topic: topic == "Batches",
        **settings,  # type: ignore[arg-type] # sizes only
    )
    for number in range(count):
        put(store, a_message(number))
    return store


def ends_of(store: MessageStore, topic: str = "TopicA") -> list[int]:
    """Where the record of each message of queue 0 ends."""
    queue = store.queues.find(topic, 0)
    assert queue is not None
    units = [queue.unit(number) for number in range(queue.min_offset, queue.next_offset)]
    return [offset + size for offset, size, _ in units]


def numbers_read(store: MessageStore, offset: int, topic: str = "TopicA") -> list[int]:
    result = store.reads.get_message(topic, 0, offset, 32)
    found = [number_of(m) for view in result.body for m in decode_messages(bytes(view))]
    for view in result.body:
        view.release()
    return found


def test_only_records_that_end_below_the_bound_are_read() -> None:
    with a_store(5) as store:
        ends = ends_of(store)
        for confirmed, end in enumerate(ends):
            store.confirm(end - 1)
            assert numbers_read(store, 0) == list(range(confirmed))
            store.confirm(end)
            assert numbers_read(store, 0) == list(range(confirmed + 1))
            assert store.reads.max_offset_in_queue("TopicA", 0) == confirmed + 1


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
        (1, GetMessageStatus.FOUND, 2),
        (2, GetMessageStatus.OFFSET_OVERFLOW_ONE, 2),
        (3, GetMessageStatus.OFFSET_OVERFLOW_ONE, 3),
        (5, GetMessageStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 2),
    ],
)
def test_nobody_is_sent_back_while_the_queue_reaches_to_where_he_is(
    offset: int, status: GetMessageStatus, next_offset: int
) -> None:
    with a_store(5) as store:
        store.confirm(ends_of(store)[1])
        result = store.reads.get_message("TopicA", 0, offset, 32)
        assert (result.status, result.next_begin_offset) == (status, next_offset)
        assert (result.min_offset, result.max_offset) == (0, 2)
        for view in result.body:
            view.release()


def test_a_filter_that_matches_nothing_goes_no_further_than_the_bound() -> None:
    with a_store(9) as store:
        store.confirm(ends_of(store)[3])
        result = store.reads.get_message("TopicA", 0, 0, 32, tags_codes=frozenset({1}))
        assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
        assert result.next_begin_offset == 4


def test_a_queue_of_batches_ends_at_the_last_batch_that_is_confirmed() -> None:
    with a_store() as store:
        for first in range(0, 12, 4):
            put(store, inner_batch(a_batch(range(first, first + 4), "Batches")))
        queue = store.queues.find("Batches", 0)
        assert queue is not None
        offset, size, _ = queue.unit(4)
        store.confirm(offset)
        assert store.reads.max_offset_in_queue("Batches", 0) == 4
        store.confirm(offset + size - 1)
        result = store.reads.get_message("Batches", 0, 2, 32)
        assert (result.message_count, result.next_begin_offset) == (4, 4)
        for view in result.body:
            view.release()
        store.confirm(offset + size)
        assert store.reads.max_offset_in_queue("Batches", 0) == 8
        ahead = store.reads.get_message("Batches", 0, 9, 32)
        assert ahead.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        assert ahead.next_begin_offset == 9


def test_extensions_do_not_matter_to_the_bound() -> None:
    with a_store(6, enable_consume_queue_ext=True) as store:
        store.confirm(ends_of(store)[2])
        assert numbers_read(store, 0) == [0, 1, 2]


@pytest.mark.parametrize("topic", ["TopicA", "Batches"])
def test_a_search_by_time_ends_at_the_bound(topic: str) -> None:
    disk = SimulatedDisk()
    clock = Clock(step_ms=0)
    with open_store(
        disk,
        clock=clock,
        confirm_bounds_reads=True,
        is_batch_topic=lambda name: name == "Batches",
    ) as store:
        for number in range(6):
            clock.now_ms = BORN_MS + 10 * number
            message: PutMessage = a_message(number, topic)
            put(
                store,
                inner_batch(a_batch(range(number, number + 1), topic))
                if topic == "Batches"
                else message,
            )
        store.confirm(ends_of(store, topic)[3])

        def found(at: int, *, upper: bool = False) -> int:
            return store.reads.offset_in_queue_by_time(topic, 0, BORN_MS + at, upper=upper)

        assert [found(at) for at in (0, 25, 30, 31, 50, 99)] == [0, 3, 3, 4, 4, 4]
        assert [found(at, upper=True) for at in (0, 25, 30, 31, 50, 99)] == [0, 2, 3, 3, 3, 3]


def test_by_place_and_by_key_nothing_behind_the_bound_is_found() -> None:
    with a_store() as store:
        ends = [put(store, a_message(7)) for _ in range(400)]
        while store.reput_service.is_index_behind:
            store.reput_service.index_some()
        assert store.reads.query_message("TopicA", "k7", 32).records == ()
        assert store.reads.look_message_by_offset(0) is None
        store.confirm(ends[1] - 1)
        assert len(store.reads.query_message("TopicA", "k7", 32).records) == 1
        assert store.reads.look_message_by_offset(0) is not None
        assert store.reads.look_message_by_offset(ends[0]) is None
        assert store.commit_log.record_at(ends[0]) is not None


def test_a_message_is_found_by_key_right_after_its_put() -> None:
    with a_store() as store:
        for number in range(3):
            store.confirm(put(store, a_message(number)))
            found = store.reads.query_message("TopicA", f"k{number}", 32)
            assert [number_of(m) for m in decode_messages(found.records[0])] == [number]
            assert not store.reput_service.is_index_behind


def test_a_slave_sees_the_same_and_corrects_nobody() -> None:
    with a_store(5) as master, a_store(is_slave=True) as slave:
        copy_log(master, slave)
        slave.reput_service.dispatch_some()
        slave.confirm(ends_of(master)[1])
        assert numbers_read(slave, 0) == [0, 1]
        result = slave.reads.get_message("TopicA", 0, 9, 32)
        assert result.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
        assert result.next_begin_offset == 9


def test_a_queue_of_which_nothing_is_confirmed_looks_empty() -> None:
    with a_store(3) as store:
        assert store.reads.max_offset_in_queue("TopicA", 0) == 0
        result = store.reads.get_message("TopicA", 0, 0, 32)
        assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        assert store.reads.get_message("TopicB", 0, 0, 1).status is (
            GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
        )


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), max_size=60), st.data())
def test_the_readable_end_is_what_counting_finds(queue_ids: list[int], data: st.DataObject) -> None:
    with a_store() as store:
        ends = []
        for number, queue_id in enumerate(queue_ids):
            end = put(store, a_message(number, queue_id=queue_id))
            ends.append((queue_id, end))
        bound = data.draw(st.integers(0, store.max_physical_offset))
        store.confirm(bound)
        for queue_id in range(3):
            expected = sum(owner == queue_id and end <= bound for owner, end in ends)
            assert store.reads.max_offset_in_queue("TopicA", queue_id) == expected


def test_looking_for_the_readable_end_costs_a_few_looks() -> None:
    with a_store(2000, commit_log_bytes=1 << 20, consume_queue_bytes=40_000) as store:
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        store.confirm(ends_of(store)[1980])
        looks = 0
        unit = queue.unit

        def counted(number: int) -> tuple[int, int, int]:
            nonlocal looks
            looks += 1
            return unit(number)

        queue.unit = counted  # type: ignore[method-assign, assignment]
        assert store.reads.max_offset_in_queue("TopicA", 0) == 1981
        assert looks < 12


def test_messages_of_several_queues_are_bounded_each_on_its_own() -> None:
    with a_store() as store:
        put_many(store, 9)
        store.confirm(ends_of(store)[1])
        ends = [store.reads.max_offset_in_queue(*key) for key in (("TopicA", 0), ("TopicA", 1))]
        assert ends == [2, 1]


def test_when_a_message_was_stored_is_known_of_what_can_be_read() -> None:
    with a_store(3) as store:
        ends = ends_of(store)
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        stored_ms = [store.commit_log.store_timestamp_ms(queue.unit(n)[0]) for n in range(3)]
        assert all(each > 0 for each in stored_ms)
        store.confirm(ends[1])
        queue.correct_min_offset(ends[0])
        found = [
            store.reads.message_store_timestamp_ms("TopicA", 0, offset) for offset in range(-1, 4)
        ]
        assert found == [-1, -1, stored_ms[1], -1, -1]
        assert store.reads.message_store_timestamp_ms("TopicA", 9, 0) == -1


def test_nothing_is_said_of_a_time_that_a_damaged_record_decides() -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(80):
            put(store, a_message(number, body_bytes=700))
        timestamp_ms = store.reads.message_store_timestamp_ms("TopicA", 0, 30)
        at = note_damage(store, "TopicA", 40)
        with pytest.raises(RecordDamagedError):
            store.reads.offset_in_queue_by_time("TopicA", 0, timestamp_ms)
        with pytest.raises(RecordDamagedError):
            store.reads.message_store_timestamp_ms("TopicA", 0, 40)
        with pytest.raises(RecordDamagedError):
            store.reads.look_message_by_offset(at)
        heal(store)
        assert store.reads.offset_in_queue_by_time("TopicA", 0, timestamp_ms) == 30
    # The same without a note, in an older file: its magic is destroyed.
    disk.open(f"{DIRECTORY}/commitlog/{at - at % 8192:020d}").buffer[at % 8192 + 5] ^= 1
    with open_store(disk) as store, pytest.raises(RecordDamagedError):
        store.reads.offset_in_queue_by_time("TopicA", 0, timestamp_ms)


def test_a_query_does_not_leave_out_a_damaged_record() -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(40):
            put(store, a_message(number, body_bytes=700))
        at = note_damage(store, "TopicA", 7)
        with pytest.raises(RecordDamagedError):
            store.reads.query_message("TopicA", "k7", 32)
        assert len(store.reads.query_message("TopicA", "k8", 32).records) == 1
        heal(store)
        assert len(store.reads.query_message("TopicA", "k7", 32).records) == 1
    for byte in (5, 400):
        disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer[at + byte] ^= 1
        with open_store(disk) as store, pytest.raises(RecordDamagedError):
            store.reads.query_message("TopicA", "k7", 32)
        disk.open(f"{DIRECTORY}/commitlog/{0:020d}").buffer[at + byte] ^= 1
