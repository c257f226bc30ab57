from hypothesis import given
from hypothesis import strategies as st

from tandem.client.process_queue import ProcessQueue
from tandem.client.results import MessageQueue
from tests.tandem.client.fake_broker import message_ext

QUEUE = MessageQueue("orders", "broker-a", 0)


def test_the_offset_stays_before_what_is_unfinished() -> None:
    queue = ProcessQueue(QUEUE, 5)
    assert queue.commit_offset == 5
    queue.took_in([message_ext(b"abc", queue_offset=at) for at in (5, 6, 8)], 10)
    assert (queue.unfinished_count, queue.bytes_count, queue.commit_offset) == (3, 9, 5)
    queue.finished(6)
    assert queue.commit_offset == 5
    queue.finished(5)
    assert queue.commit_offset == 8
    queue.finished(8)
    queue.finished(8)
    assert (queue.unfinished_count, queue.bytes_count, queue.commit_offset) == (0, 0, 10)


def test_a_pull_without_matches_moves_the_offset_too() -> None:
    queue = ProcessQueue(QUEUE, 5)
    queue.took_in([], 30)
    assert queue.commit_offset == 30


@given(st.lists(st.integers(1, 4), max_size=20), st.data())
def test_nothing_before_the_offset_is_unfinished_and_the_one_at_it_is(
    gaps: list[int], data: st.DataObject
) -> None:
    queue = ProcessQueue(QUEUE, 0)
    offsets = []
    at = 0
    for gap in gaps:
        at += gap
        offsets.append(at)
        queue.took_in([message_ext(b"x", queue_offset=at)], at + 1)
    left = set(offsets)
    for done in data.draw(st.permutations(offsets)):
        queue.finished(done)
        left.discard(done)
        assert queue.commit_offset == (min(left) if left else at + 1)
        assert all(queue.is_unfinished(each) == (each in left) for each in offsets)
