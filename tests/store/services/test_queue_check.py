import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from store.log.log_end import find_log_end
from store.queue.consume_queue import ConsumeQueue
from store.services.queue_check import QueueCheck
from tandem.wire.store_layout import is_ext_address
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.store.store_world import a_message, check_store, open_store, put, put_many
from tests.support.reasons import words


def test_each_wrong_unit_of_any_queue_is_written_anew_and_right_ones_are_left() -> None:
    store = open_store(SimulatedDisk(), consume_queue_bytes=20 * 100)
    put_many(store, 60)
    check = QueueCheck(store.commit_log, store.queues)
    rewritten: list[int] = []

    def look() -> int:
        rewritten.clear()
        find_log_end(
            store.commit_log.files.files,
            lambda data, rows: rewritten.append(check.check(data, rows)),
        )
        return sum(rewritten)

    assert look() == 0
    before = {}
    for key in store.list_queues():
        queue = store.queues.find(*key)
        assert queue is not None
        file = queue.file_queues[0].files[0]
        before[key] = bytes(file.buffer)
        file.buffer[0:60] = bytes(60)
        file.buffer[100:112] = file.buffer[120:132]
    assert look() == 4 * len(before)
    for key, content in before.items():
        queue = store.queues.find(*key)
        assert queue is not None
        assert bytes(queue.file_queues[0].files[0].buffer) == content
    check_store(store)


def test_a_wrong_code_of_tags_is_written_anew() -> None:
    """Readers of the message's tags would never get it."""
    with open_store(SimulatedDisk(), consume_queue_bytes=20 * 100) as store:
        for number in range(4):
            message = a_message(number)
            properties = message.properties + b"TAGS\x01red\x02"
            put(store, msgspec.structs.replace(message, properties=properties))
        queue = store.queues.find("TopicA", 0)
        assert isinstance(queue, ConsumeQueue)
        right = [queue.unit(number) for number in range(4)]
        queue.rewrite_unit(2, *right[2][:2], right[2][2] ^ 16)
        check = QueueCheck(store.commit_log, store.queues)
        rewritten: list[int] = []
        for _ in range(2):
            find_log_end(
                store.commit_log.files.files,
                lambda data, rows: rewritten.append(check.check(data, rows)),
            )
        assert [queue.unit(number) for number in range(4)] == right
        assert rewritten == [1, 0]


def test_a_record_of_an_earlier_life_of_a_topic_gets_no_unit_of_the_next_one() -> None:
    """It has the number of a unit that is wrong, but is not between the records around that."""
    store = open_store(SimulatedDisk(), consume_queue_bytes=20 * 100)
    put_many(store, 60)
    check = QueueCheck(store.commit_log, store.queues)
    queue = store.queues.find("TopicA", 0)
    assert isinstance(queue, ConsumeQueue)
    earlier, right, later = queue.unit(2), queue.unit(5), queue.unit(9)
    queue.rewrite_unit(5, 0, 0, 0)

    for offset, size, code in (earlier, later):
        assert not check._is_rewritten(queue, 5, offset, size, code)
    assert check._is_rewritten(queue, 5, *right)
    assert queue.unit(5) == right


@pytest.mark.parametrize("has_extensions", [False, True])
def test_a_unit_of_a_delayed_message_is_written_anew_with_its_time_and_without_its_extension(
    has_extensions: bool,  # noqa: FBT001
) -> None:
    store = open_store(
        SimulatedDisk(), consume_queue_bytes=20 * 100, enable_consume_queue_ext=has_extensions
    )
    for number in range(4):
        message = a_message(number)
        properties = message.properties + b"DELAY\x013\x02"
        put(store, msgspec.structs.replace(message, properties=properties))
    queue = store.queues.find(SCHEDULE_TOPIC, 2)
    assert isinstance(queue, ConsumeQueue)
    offset, size, _ = queue.unit(1)
    (_, _, due_ms), *_ = queue.units(1, 1)
    queue.rewrite_unit(1, *queue.unit(2))
    check = QueueCheck(store.commit_log, store.queues, store.delay_levels)

    find_log_end(store.commit_log.files.files, check.check)

    assert queue.unit(1) == (offset, size, due_ms)
    assert queue.ext_unit(1) is None
    assert (queue.ext_unit(2) is not None) is has_extensions
    assert not is_ext_address(due_ms)


def test_records_that_queues_have_yet_to_get_and_hidden_ones_are_not_missed() -> None:
    """As on a slave, whose log is ahead of its queues, and of a topic that was deleted."""
    store = open_store(SimulatedDisk())
    put_many(store, 60)
    del store.queues._queues["TopicA", 0]
    second = store.commit_log.files.files[1].file_from_offset

    def lost(dispatched: int) -> str | None:
        check = QueueCheck(store.commit_log, store.queues, dispatched=lambda: dispatched)
        find_log_end(store.commit_log.files.files, check.check)
        return check.lost

    assert lost(0) is None
    assert "TopicA-0: there is no such queue, and the log has number 0 at 0" in words(lost(second))
    store.queues.hidden_before = lambda _: second
    assert lost(second) is None
