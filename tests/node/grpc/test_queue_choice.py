import random

import pytest

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from node.grpc.queue_choice import ANY_QUEUE, choose_queue, consistent_hash
from tandem.wire.message_properties import java_string_hash
from tandem.wire.route import BrokerData, QueueData, TopicRouteData


@pytest.mark.parametrize(
    ("group", "buckets"),
    [
        ("g", (0, 1, 1, 1, 12)),
        ("order-1", (0, 0, 3, 3, 3)),
        ("a much longer group of messages", (0, 2, 2, 2, 2)),
        ("ключ", (0, 2, 2, 5, 5)),
    ],
)
def test_the_hash_is_that_of_guava(group: str, buckets: tuple[int, ...]) -> None:
    """What Hashing.consistentHash of Guava 32 printed for 1, 3, 4, 8 and 16 buckets."""
    number = java_string_hash(group)
    assert tuple(consistent_hash(number, count) for count in (1, 3, 4, 8, 16)) == buckets


def route(**queues: tuple[int, int]) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[BrokerData(broker_name=name, broker_addrs={0: "a:1"}) for name in queues],
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=count, write_queue_nums=count)
            for name, (count, perm) in queues.items()
        ],
    )


def test_a_group_is_in_one_queue_of_all_brokers_whatever_their_order() -> None:
    one, other = route(a=(3, 6), b=(5, 6)), route(b=(5, 6), a=(3, 6))
    found = set()
    for number in range(200):
        choice = choose_queue(one, f"g{number}", random.Random(number))
        assert choice == choose_queue(other, f"g{number}", random.Random())
        found.add(choice)
    assert len(found) == 8


def test_other_messages_go_to_any_queue_of_a_broker_that_can_be_written() -> None:
    found = {
        choose_queue(route(a=(3, 6), b=(5, 2), c=(5, 4), d=(0, 6)), None, random.Random(number))
        for number in range(50)
    }
    assert {choice.broker_name for choice in found} == {"a", "b"}
    assert {choice.queue_id for choice in found} == {ANY_QUEUE}


def test_a_topic_that_nobody_may_write_is_forbidden() -> None:
    for group in (None, "g"):
        with pytest.raises(CallError) as caught:
            choose_queue(route(a=(3, 4)), group, random.Random())
        assert caught.value.code == pb.FORBIDDEN
