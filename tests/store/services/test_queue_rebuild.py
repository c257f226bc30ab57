import trio

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.log.log_end import DELAY_LEVELS
from store.queue.consume_queue import ConsumeQueue
from store.services.queue_rebuild import QueueRebuild, Rebuilt
from tests.store.store_world import check_store, open_store, put_many


async def _go_on(_: float) -> None:
    await trio.lowlevel.checkpoint()


def _store() -> tuple[MessageStore, ConsumeQueue]:
    store = open_store(SimulatedDisk())
    put_many(store, 90)
    queue = store.queues.find("TopicA", 0)
    assert isinstance(queue, ConsumeQueue)
    queue.doubt("a test")
    return store, queue


async def _rebuild(store: MessageStore, *queues: ConsumeQueue) -> Rebuilt:
    return await QueueRebuild(store.commit_log, store.queues, DELAY_LEVELS).run(queues, _go_on)


async def test_a_queue_that_is_right_stays_as_it_is() -> None:
    store, queue = _store()
    assert await _rebuild(store, queue) == Rebuilt(0, "")
    assert not queue.trouble
    check_store(store)


async def test_what_has_no_sound_record_stays_wrong_and_is_not_read() -> None:
    store, queue = _store()
    offset, size, _ = queue.unit(12)
    file = store.commit_log.files.find_by_offset(offset)
    assert file is not None
    file.buffer[offset - file.file_from_offset + 5] ^= 1
    for number in (11, 12, 13):
        queue.rewrite_unit(number, 0, 0, 0)

    assert await _rebuild(store, queue) == Rebuilt(2, "")

    assert not queue.trouble
    assert queue.unit(12) == (0, 0, 0)
    assert size
    result = store.reads.get_message("TopicA", 0, 11, 32, tags_codes=frozenset({1, 2, 3}))
    assert result.next_begin_offset == 12
    result = store.reads.get_message("TopicA", 0, 12, 32, tags_codes=frozenset({1, 2, 3}))
    assert (result.status.name, result.next_begin_offset) == ("MESSAGE_DAMAGED", 12)
    assert store.reads.get_message("TopicA", 0, 13, 32).status.name == "FOUND"


async def test_records_of_an_earlier_life_of_a_topic_get_no_unit() -> None:
    store, queue = _store()
    right = [queue.unit(number) for number in range(queue.next_offset)]
    store.queues.find("TopicA", 0)
    queue.destroy()
    put_many(store, 45, start=90)  # numbers begin at 0 again
    assert queue.next_offset == 15
    second = [queue.unit(number) for number in range(15)]
    assert second != right[:15]
    for number in range(3):
        queue.rewrite_unit(number, *right[number])
    queue.doubt("a test")

    assert await _rebuild(store, queue) == Rebuilt(3, "")

    assert [queue.unit(number) for number in range(15)] == second


async def test_a_queue_that_begins_anew_meanwhile_is_left_alone() -> None:
    store, queue = _store()
    queue.rewrite_unit(3, 0, 0, 0)

    async def destroy(_: float) -> None:
        await trio.lowlevel.checkpoint()
        queue.destroy()

    rebuild = QueueRebuild(store.commit_log, store.queues, DELAY_LEVELS)
    assert await rebuild.run([queue], destroy) == Rebuilt(0, "")
    assert not queue.trouble


async def test_a_lost_unit_is_no_deleted_one_while_a_queue_has_yet_to_hear_of_retention() -> None:
    store, queue = _store()
    await _rebuild(store, queue)
    store.commit_log.files.delete_expired_file_by_time(
        now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=1
    )
    assert queue.corrected_to < store.min_physical_offset
    last = queue.next_offset - 1
    queue.rewrite_unit(last, 0, 0, 0)
    queue.confirmed_from = queue.next_offset
    result = store.reads.get_message("TopicA", 0, last, 32)
    assert (result.status.name, result.next_begin_offset) == ("MESSAGE_DAMAGED", last)
    first = store.reads.get_message("TopicA", 0, 0, 32)
    assert first.status.name in ("MESSAGE_WAS_REMOVING", "FOUND")
