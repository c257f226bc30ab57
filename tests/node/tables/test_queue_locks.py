import pytest

import node.tables.queue_locks
from node.errors import RequestError
from node.tables.queue_locks import LOCK_SECONDS, QueueLocks
from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.response_code import ResponseCode

QUEUES = [MessageQueueBody("broker-a", number, "T") for number in range(3)]


def test_a_queue_is_held_by_one_client_of_a_group_at_a_time() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "c1", QUEUES[:2], 0.0) == QUEUES[:2]
    assert locks.lock("g", "c2", QUEUES, 1.0) == QUEUES[2:]
    assert locks.lock("other", "c2", QUEUES, 1.0) == QUEUES


def test_a_lock_that_is_not_renewed_is_over() -> None:
    locks = QueueLocks()
    locks.lock("g", "c1", QUEUES, 0.0)
    assert locks.lock("g", "c1", QUEUES[:1], 30.0) == QUEUES[:1]
    assert locks.lock("g", "c2", QUEUES, LOCK_SECONDS) == []
    assert locks.lock("g", "c2", QUEUES, LOCK_SECONDS + 1) == QUEUES[1:]
    assert locks.lock("g", "c2", QUEUES, 30 + LOCK_SECONDS + 1) == QUEUES


def test_only_its_holder_gives_a_queue_back() -> None:
    locks = QueueLocks()
    locks.lock("g", "c1", QUEUES, 0.0)
    locks.unlock("g", "c2", QUEUES)
    locks.unlock("nobody", "c1", QUEUES)
    assert locks.lock("g", "c2", QUEUES, 1.0) == []
    locks.unlock("g", "c1", QUEUES[:1])
    assert locks.lock("g", "c2", QUEUES, 1.0) == QUEUES[:1]


def test_a_group_reads_in_order_as_long_as_anybody_holds_anything() -> None:
    locks = QueueLocks()
    assert not locks.is_held("g", 0.0)
    locks.lock("g", "c1", QUEUES[:1], 0.0)
    locks.lock("g", "c2", QUEUES[1:], 50.0)
    assert locks.is_held("g", LOCK_SECONDS + 1)
    assert not locks.is_held("g", 50 + LOCK_SECONDS + 1)
    locks.unlock("g", "c1", QUEUES)
    locks.unlock("g", "c2", QUEUES)
    assert not locks.is_held("g", 50.0)


def test_there_is_room_for_so_many_and_for_others_when_they_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.queue_locks, "LOCKS_MAX", 4)
    locks = QueueLocks()
    locks.lock("g", "c1", QUEUES, 0.0)
    with pytest.raises(RequestError) as refused:
        locks.lock("h", "c1", QUEUES, 1.0)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert not locks.is_held("h", 1.0)
    assert locks.lock("h", "c1", QUEUES, LOCK_SECONDS + 1) == QUEUES
    locks.unlock("h", "c1", QUEUES)
    assert locks.lock("i", "c1", QUEUES, LOCK_SECONDS + 1) == QUEUES


@pytest.mark.parametrize("place", range(4))
def test_long_names_are_refused(place: int) -> None:
    names = ["g", "c", "T", "b"]
    names[place] = "x" * 256
    group, client_id, topic, broker = names
    with pytest.raises(RequestError) as caught:
        QueueLocks().lock(group, client_id, [MessageQueueBody(broker, 0, topic)], 0.0)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


def test_as_many_queues_can_be_locked_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.queue_locks, "LOCKS_MAX", 3)
    locks = QueueLocks()
    assert locks.lock("g", "c1", QUEUES, 0.0) == QUEUES
    with pytest.raises(RequestError):
        locks.lock("h", "c1", QUEUES[:1], 1.0)
