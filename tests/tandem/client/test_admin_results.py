from tandem.client.admin_results import GroupDescription, GroupQueue, TopicDescription, TopicQueue


def queue(consumed: int, pulled: int, end: int) -> GroupQueue:
    return GroupQueue(
        topic="T",
        broker_name="b",
        queue_id=0,
        consumer_offset=consumed,
        pull_offset=pulled,
        broker_offset=end,
    )


def test_lag_is_what_is_stored_and_not_consumed() -> None:
    assert (queue(4, 6, 9).lag, queue(4, 6, 9).inflight) == (5, 2)
    # Past the end: an operator's offset, or a node that is behind the one that is read from.
    assert (queue(9, 6, 4).lag, queue(9, 6, 4).inflight) == (-5, 0)
    some = [queue(4, 6, 9), queue(9, 6, 4), queue(0, 0, 1)]
    assert GroupDescription(group="g", members=[], queues=some).lag == 6


def test_a_group_that_is_past_the_end_and_nowhere_else_has_a_lag_below_nothing() -> None:
    past = [queue(9, 6, 4), queue(4, 4, 4), queue(6, 6, 5)]
    assert GroupDescription(group="g", members=[], queues=past).lag == -6


def test_messages_are_counted_from_the_first_that_is_held() -> None:
    queues = [TopicQueue("b", 0, 3, 10), TopicQueue("b", 1, 0, 1)]
    assert [each.message_count for each in queues] == [7, 1]
    assert TopicDescription("T", [], queues).message_count == 8
