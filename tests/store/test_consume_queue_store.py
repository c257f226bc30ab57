"""All queues of a store: by topic and queue id, found again on disk."""

import pytest

from store.consume_queue_store import ConsumeQueueStore, is_queued
from store.errors import CorruptLogError
from store.recovery import DispatchRequest
from tests.support.simulated_disk import SimulatedDisk


def a_request(
    number: int, topic: str = "T", queue_id: int = 0, sys_flag: int = 0
) -> DispatchRequest:
    return DispatchRequest(
        topic=topic,
        queue_id=queue_id,
        offset=number * 100,
        size=100,
        tags_code=0,
        queue_offset=number,
        store_timestamp_ms=1,
        sys_flag=sys_flag,
    )


def a_store(disk: SimulatedDisk) -> ConsumeQueueStore:
    return ConsumeQueueStore("/cq", 200, disk)


@pytest.mark.parametrize(
    ("sys_flag", "queued"),
    [(0, True), (4, False), (8, True), (12, False), (0x2C, False), (1, True)],
)
def test_prepared_and_rolled_back_messages_are_not_queued(sys_flag: int, *, queued: bool) -> None:
    """CommitLogDispatcherBuildConsumeQueue: the masked pair of bits, not single ones."""
    assert is_queued(sys_flag) == queued
    queues = a_store(SimulatedDisk())
    assert (queues.dispatch(a_request(0, sys_flag=sys_flag)) is not None) == queued
    assert queues.queues() == [("T", 0)] * queued


def test_queues_are_found_again_by_their_directories() -> None:
    """ConsumeQueueStore.loadConsumeQueues: a directory that is no number is skipped."""
    disk = SimulatedDisk()
    queues = a_store(disk)
    for topic, queue_id in (("B", 10), ("A", 2), ("%RETRY%g", 0), ("A", 1)):
        queue = queues.dispatch(a_request(0, topic, queue_id))
        assert queue is queues.find(topic, queue_id)
        assert queues.dispatch(a_request(0, topic, queue_id)) is None
    disk.replace("/cq/A/notes/readme", b"")
    disk.replace("/cq/stray", b"")
    again = a_store(disk)
    again.load()
    assert again.recover() == 100
    assert again.queues() == [("%RETRY%g", 0), ("A", 1), ("A", 2), ("B", 10)]
    assert again.find("A", 0) is None


def test_no_queues_know_no_record() -> None:
    queues = a_store(SimulatedDisk())
    queues.load()
    assert queues.recover() == -1


def test_what_all_queues_have_to_do_they_do() -> None:
    disk = SimulatedDisk()
    queues = a_store(disk)
    for number in range(15):
        queues.dispatch(a_request(number, "A"))
        queues.dispatch(a_request(number, "B"))
    assert len(queues.dirty_files(0)) == 4
    queues.sync_all()
    assert queues.dirty_files(0) == []
    queues.truncate_dirty(700)
    queues.correct_min_offset(300)
    for topic in ("A", "B"):
        queue = queues.find(topic, 0)
        assert queue is not None
        assert (queue.min_offset, queue.next_offset) == (3, 7)
    queues.destroy()
    assert queues.queues() == []
    assert disk.list_directories("/cq") == []


def test_a_wrong_file_in_any_queue_is_an_error() -> None:
    disk = SimulatedDisk()
    disk.replace(f"/cq/A/0/{0:020d}", bytes(100))
    with pytest.raises(CorruptLogError, match="has 100 bytes"):
        a_store(disk).load()
