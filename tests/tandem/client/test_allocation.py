from hypothesis import given
from hypothesis import strategies as st

from tandem.client.allocation import allocated_queues
from tandem.client.results import MessageQueue


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("orders", "broker-a", at) for at in range(count)]


def test_queues_are_shared_as_rocketmq_shares_them() -> None:
    shares = [allocated_queues(queues(8), ["c", "a", "b"], each) for each in "abc"]
    assert [[q.queue_id for q in share] for share in shares] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_more_members_than_queues_leave_some_without() -> None:
    shares = [allocated_queues(queues(1), ["a", "b"], each) for each in "ab"]
    assert [len(share) for share in shares] == [1, 0]


def test_who_is_no_member_gets_nothing() -> None:
    assert allocated_queues(queues(4), ["a"], "b") == []


@given(st.integers(0, 40), st.sets(st.text(max_size=5), min_size=1, max_size=12))
def test_each_queue_has_one_member_and_no_share_is_two_larger(count: int, ids: set[str]) -> None:
    shares = [allocated_queues(queues(count), list(ids), each) for each in ids]
    assert sorted(queue for share in shares for queue in share) == queues(count)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
