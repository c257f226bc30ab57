"""How long a reader waits is tested with the pulls, in test_pull_flow.py."""

import pytest

from tandem.client.cursor import DAMAGED_SECONDS, Cursor, check_damaged, has_to_wait, is_reset
from tandem.client.errors import MessageDamagedError
from tandem.client.results import MessageQueue, PullResult, PullStatus

QUEUE = MessageQueue("orders", "broker-a", 0)
DAMAGED = MessageDamagedError(14, "damaged", "127.0.0.1:1", 5, 1000)


def result(status: PullStatus, next_offset: int) -> PullResult:
    return PullResult(status, next_offset, 0, 9, [])


def test_a_reader_with_an_end_gives_up_on_a_damaged_message_in_time() -> None:
    cursor = Cursor(QUEUE, 5, 9, "*")
    check_damaged(cursor, DAMAGED, 100.0)
    check_damaged(cursor, DAMAGED, 99.9 + DAMAGED_SECONDS)
    with pytest.raises(MessageDamagedError):
        check_damaged(cursor, DAMAGED, 100.0 + DAMAGED_SECONDS)


def test_a_reader_without_an_end_waits_for_ever() -> None:
    cursor = Cursor(QUEUE, 5, None, "*")
    for now in range(0, 100_000, 1000):
        check_damaged(cursor, DAMAGED, float(now))


def test_what_does_not_move_a_reader_on_is_waited_for() -> None:
    cursor = Cursor(QUEUE, 5, 9, "*")
    assert has_to_wait(cursor, result(PullStatus.NO_NEW_MSG, 5))
    assert has_to_wait(cursor, result(PullStatus.OFFSET_ILLEGAL, 5))
    assert not has_to_wait(cursor, result(PullStatus.OFFSET_ILLEGAL, 7))
    assert not has_to_wait(Cursor(QUEUE, 5, None, "*"), result(PullStatus.NO_NEW_MSG, 5))


def test_an_operator_moves_a_reader_whose_offset_is_in_the_queue() -> None:
    cursor = Cursor(QUEUE, 5, None, "*")
    assert is_reset(cursor, result(PullStatus.OFFSET_ILLEGAL, 2))
    assert not is_reset(cursor, result(PullStatus.FOUND, 6))
    cursor.offset = 10
    assert not is_reset(cursor, result(PullStatus.OFFSET_ILLEGAL, 9))
