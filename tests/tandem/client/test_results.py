from tandem.client.results import MessageQueue, PullStatus, SendStatus
from tandem.client.send_flow import STORED


def test_the_statuses_are_rocketmqs() -> None:
    assert {status.name for status in PullStatus} == {
        "FOUND",
        "NO_NEW_MSG",
        "NO_MATCHED_MSG",
        "OFFSET_ILLEGAL",
    }
    assert set(STORED.values()) == set(SendStatus)


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [MessageQueue("T", "b", 0), MessageQueue("T", "a", 10), MessageQueue("T", "a", 9)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]
