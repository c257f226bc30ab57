import pytest

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.recovery.queue_fronts import lost_front
from tests.store.store_world import a_message, open_store, put, put_many
from tests.support.reasons import words


def _without_front(store: MessageStore, topic: str = "TopicA") -> None:
    """Take the first file out of the row, as if it had not been there at the start."""
    queue = store.queues.find(topic, 0)
    assert queue is not None
    queue.files.files.pop(0)


def _store() -> MessageStore:
    store = open_store(SimulatedDisk())
    put_many(store, 90)
    return store


def test_whole_queues_lack_nothing() -> None:
    store = _store()
    assert lost_front(store.commit_log, store.queues) is None


def test_units_that_are_gone_while_their_records_are_there_are_missed() -> None:
    store = _store()
    _without_front(store)
    found = lost_front(store.commit_log, store.queues)
    assert found == "TopicA-0: it begins with number 10, and the log has number 0 at 0"


def test_units_that_went_with_their_records_are_not_missed() -> None:
    store = open_store(SimulatedDisk())
    put_many(store, 30)
    for number in range(25):
        put(store, a_message(number, "Later"))
    put_many(store, 60)
    _without_front(store, "Later")
    # Its first records went with the log.
    first = store.queues.find("Later", 0)
    assert first is not None
    at, _, _ = first.unit(10)
    files = store.commit_log.files
    while files.files[0].file_from_offset + files.files[0].size <= at:
        files.files.pop(0)
    for name in (("TopicA", 0), ("TopicA", 1), ("TopicB", 0)):
        queue = store.queues.find(*name)
        assert queue is not None
        queue.delete_expired_files(store.min_physical_offset)
    found = lost_front(store.commit_log, store.queues)
    assert "Later-0: it begins with number 10" in words(found)
    while files.files[0].file_from_offset < at:
        files.files.pop(0)
    assert lost_front(store.commit_log, store.queues) is None


def test_only_the_beginning_of_a_long_log_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.recovery.queue_fronts.WALKED_BYTES_MAX", 0)
    store = _store()
    _without_front(store)
    assert lost_front(store.commit_log, store.queues) is None


def test_a_damaged_record_ends_the_look() -> None:
    store = _store()
    _without_front(store)
    store.commit_log.files.files[0].buffer[5] ^= 1
    assert lost_front(store.commit_log, store.queues) is None
