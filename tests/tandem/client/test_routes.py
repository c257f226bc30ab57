import math
from collections import Counter

import msgspec
import pytest

from tandem.client.results import MessageQueue
from tandem.client.routes import (
    TopicRoute,
    default_route,
    lacks_masters,
    masters_of,
    newest_cluster,
    newest_route,
)
from tandem.wire.route import BrokerData, ClusterInfo, TopicRouteData
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


def with_epoch(epoch: int, master: str) -> TopicRouteData:
    route = route_of(("broker-a", {0: master, 1: SLAVE}))
    (broker,) = route.broker_datas
    return msgspec.structs.replace(
        route, broker_datas=[msgspec.structs.replace(broker, master_epoch=epoch)]
    )


def test_of_two_routes_the_one_with_the_higher_master_epoch_is_right() -> None:
    old, new = with_epoch(3, MASTER), with_epoch(4, OTHER_MASTER)
    assert newest_route([old, new]) == newest_route([new, old]) == new


def test_without_epochs_the_first_route_is_taken_and_others_add_what_it_lacks() -> None:
    classic = route_of(("broker-a", {0: MASTER}))
    elsewhere = route_of(("broker-a", {0: OTHER_MASTER}), ("broker-b", {0: SLAVE}))
    merged = newest_route([classic, elsewhere])
    assert masters_of(merged) == {"broker-a": (-1, MASTER), "broker-b": (-1, SLAVE)}
    assert [queue.broker_name for queue in merged.queue_datas] == ["broker-a", "broker-b"]


def test_a_broker_name_without_master_has_an_empty_address() -> None:
    assert masters_of(route_of(("broker-a", {1: SLAVE}))) == {"broker-a": (-1, "")}


def test_a_route_with_a_master_is_worth_more_than_one_without() -> None:
    without, with_master = route_of(("broker-a", {1: SLAVE})), route_of(("broker-a", {0: MASTER}))
    assert newest_route([without, with_master]) == with_master


def test_what_is_known_wins_only_with_a_higher_epoch() -> None:
    told = with_epoch(3, MASTER)
    assert newest_route([told], with_epoch(4, OTHER_MASTER)) == with_epoch(4, OTHER_MASTER)
    assert newest_route([told], with_epoch(3, OTHER_MASTER)) == told
    classic = route_of(("broker-a", {1: SLAVE}))
    assert newest_route([classic], route_of(("broker-a", {0: MASTER}))) == classic
    gone = route_of(("broker-b", {0: MASTER}))
    assert newest_route([classic], gone) == classic


def test_of_two_that_know_the_master_the_one_with_more_queues_has_heard_more() -> None:
    few, many = (route_of(("broker-a", {0: MASTER}), queue_nums=count) for count in (2, 8))
    assert newest_route([few, many]) == newest_route([many, few]) == many
    alone = route_of(("broker-a", {1: SLAVE}), queue_nums=16)
    assert newest_route([alone, few]) == few


def test_a_route_that_lacks_a_master_is_known_by_it() -> None:
    assert not lacks_masters(TWO)
    assert lacks_masters(route_of(("broker-a", {0: MASTER}), ("broker-b", {1: SLAVE})))
    assert lacks_masters(route_of())


def test_what_name_servers_know_of_a_cluster_is_put_together() -> None:
    def info(name: str, addresses: dict[int, str]) -> ClusterInfo:
        return ClusterInfo(
            {name: BrokerData(broker_name=name, broker_addrs=addresses)}, {"C": [name]}
        )

    restarted, other = info("a", {1: SLAVE}), info("b", {0: OTHER_MASTER})
    whole = newest_cluster([restarted, other, info("a", {0: MASTER, 1: SLAVE})])
    assert whole.broker_addr_table["a"].broker_addrs == {0: MASTER, 1: SLAVE}
    assert whole.broker_addr_table["b"].broker_addrs == {0: OTHER_MASTER}
    assert whole.cluster_addr_table == {"C": ["a", "b"]}


@pytest.mark.parametrize("sharding_hash", [5, -7, -2147483648, 0])
def test_a_sharding_key_has_the_queue_that_javas_producers_choose(sharding_hash: int) -> None:
    """SelectMessageQueueByHash: the remainder as Java has it, then its absolute value."""
    route = TopicRoute("T", TWO)
    java_remainder = int(math.fmod(sharding_hash, 4))
    queues = [each.queue for each in route.publish_queues]
    chosen = route.hashed_queue(sharding_hash)
    assert chosen is not None
    assert chosen.queue == queues[abs(java_remainder)]


def test_a_sharding_key_waits_for_the_master_of_its_queue() -> None:
    without_b = route_of(("broker-a", {0: MASTER}), ("broker-b", {1: SLAVE}), queue_nums=2)
    route = TopicRoute("T", without_b)
    for sharding_hash in range(4):
        chosen, before = route.hashed_queue(sharding_hash), TopicRoute("T", TWO)
        expected = before.hashed_queue(sharding_hash)
        assert expected is not None
        if expected.queue.broker_name == "broker-a":
            assert chosen is not None
            assert chosen.queue == expected.queue
        else:
            assert chosen is None
    assert TopicRoute("T", TopicRouteData()).hashed_queue(1) is None
