from collections import Counter

from tandem.client.results import MessageQueue
from tandem.client.routes import TopicRoute, default_route
from tests.tandem.client.fake_broker import MASTER, OTHER_MASTER, SLAVE, route_of

TWO = route_of(("broker-b", {0: OTHER_MASTER}), ("broker-a", {0: MASTER, 1: SLAVE}), queue_nums=2)


def test_publish_queues_are_the_writable_ones_of_brokers_with_a_master() -> None:
    route = TopicRoute("T", TWO)
    assert [(each.queue, each.address) for each in route.publish_queues] == [
        (MessageQueue("T", "broker-a", 0), MASTER),
        (MessageQueue("T", "broker-a", 1), MASTER),
        (MessageQueue("T", "broker-b", 0), OTHER_MASTER),
        (MessageQueue("T", "broker-b", 1), OTHER_MASTER),
    ]
    assert TopicRoute("T", route_of(("a", {1: SLAVE}))).publish_queues == ()
    assert TopicRoute("T", route_of(("a", {0: MASTER}), perm=4)).publish_queues == ()


def test_subscribe_queues_need_no_master_but_the_right_to_read() -> None:
    assert len(TopicRoute("T", route_of(("a", {1: SLAVE}))).subscribe_queues) == 2
    assert TopicRoute("T", route_of(("a", {0: MASTER}), perm=2)).subscribe_queues == ()


def test_queues_take_turns() -> None:
    route = TopicRoute("T", TWO)
    chosen = Counter(route.next_queue() for _ in range(40))
    assert sorted(chosen.values()) == [10, 10, 10, 10]


def test_a_fresh_route_goes_on_from_the_turn_of_the_old_one() -> None:
    route = TopicRoute("T", TWO, turn=3)
    assert route.next_queue() == route.publish_queues[3]
    assert route.turn == 4


def test_a_broker_that_failed_is_avoided_while_there_is_another() -> None:
    route = TopicRoute("T", TWO)
    for _ in range(5):
        choice = route.next_queue(avoid_broker="broker-a")
        assert choice is not None
        assert choice.queue.broker_name == "broker-b"
    only = TopicRoute("T", route_of(("broker-a", {0: MASTER})))
    assert only.next_queue(avoid_broker="broker-a") is not None


def test_a_queue_id_that_is_asked_for_is_kept() -> None:
    route = TopicRoute("T", TWO)
    for _ in range(5):
        choice = route.next_queue(1, avoid_broker="broker-b")
        assert choice is not None
        assert choice.queue == MessageQueue("T", "broker-a", 1)
    assert route.next_queue(7) is None


def test_without_publish_queues_there_is_no_choice() -> None:
    assert TopicRoute("T", route_of()).next_queue() is None


def test_addresses_come_master_first() -> None:
    route = TopicRoute("T", route_of(("broker-a", {2: "c:1", 0: MASTER, 1: SLAVE})))
    assert list(route.addresses("broker-a")) == [0, 1, 2]
    assert route.addresses("broker-x") == {}


def test_a_new_topic_gets_four_queues_at_most() -> None:
    assert (
        len(
            TopicRoute(
                "T", default_route(route_of(("a", {0: MASTER}), queue_nums=8))
            ).publish_queues
        )
        == 4
    )
    assert (
        len(
            TopicRoute(
                "T", default_route(route_of(("a", {0: MASTER}), queue_nums=2))
            ).publish_queues
        )
        == 2
    )
