import pytest

from node.errors import RequestError
from node.pop.changes import QueueKey
from node.receive.requests import (
    ALL_QUEUES,
    INVISIBLE_MS_MAX,
    Handle,
    Receive,
    check_invisible,
)
from tandem.wire.receipt_handle import TopicMark


def test_a_handle_names_its_queue() -> None:
    assert Handle("g", "%RETRY%g_T", 0, 7, 1000).key == QueueKey("g", "%RETRY%g_T", 0)


def test_marks_are_rocketmqs_numbers() -> None:
    assert [int(mark) for mark in TopicMark] == [0, 1, 2]


def test_a_request_asks_for_all_queues_and_does_not_wait_unless_it_says_so() -> None:
    request = Receive(group="g", topic="T", queue_count=4, count_max=1, invisible_ms=1000)
    assert (request.queue_id, request.deadline) == (ALL_QUEUES, 0.0)


@pytest.mark.parametrize("wrong", [-1, 0, INVISIBLE_MS_MAX + 1])
def test_no_message_is_invisible_for_no_time_or_for_ever(wrong: int) -> None:
    check_invisible(INVISIBLE_MS_MAX, 1)
    with pytest.raises(RequestError):
        check_invisible(wrong, 1)
