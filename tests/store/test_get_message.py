"""The reads themselves are tested through the store: tests/store/test_message_store.py."""

import pytest

from store import GetMessageStatus
from store.get_message import collect, position_status
from tests.store.store_world import a_message, open_store, put
from tests.support.simulated_disk import SimulatedDisk


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
        (0, GetMessageStatus.FOUND, 0),
        (2, GetMessageStatus.FOUND, 2),
        (3, GetMessageStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_every_position_has_its_status(
    offset: int, status: GetMessageStatus, next_offset: int
) -> None:
    with open_store(SimulatedDisk()) as store:
        for number in range(3):
            put(store, a_message(number))
        queue = store.queues.find("TopicA", 0)
        assert position_status(queue, offset) == (status, next_offset)


def test_no_queue_has_a_status_of_its_own() -> None:
    assert position_status(None, 7) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_neighbours_in_the_log_leave_as_one_view() -> None:
    with open_store(SimulatedDisk()) as store:
        for number, queue_id in enumerate((0, 0, 1, 0)):
            put(store, a_message(number, queue_id=queue_id))
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        result = collect(store.commit_log, queue, 0, 32, 1 << 20, None)
        assert result.message_count == 3
        assert len(result.body) == 2
        for view in result.body:
            view.release()
