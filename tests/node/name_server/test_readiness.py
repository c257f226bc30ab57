import msgspec

from node.name_server.readiness import NOT_READY_SECONDS_MAX, Readiness
from node.name_server.route_table import RouteTable
from tandem.wire.request_headers import (
    RegisterBrokerRequestHeader,
    RegistrationPart,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.support.reasons import words

TOPICS = TopicConfigSerializeWrapper({name: TopicConfig(topic_name=name) for name in "TU"})
OWN, PEER, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def register(routes: RouteTable, address: str, broker_id: int, group: str = "a") -> None:
    header = RegisterBrokerRequestHeader(group, address, "C", "10.0.0.1:10912", broker_id)
    routes.register(header, TOPICS, connection=address, now=0.0)


def started(**groups: list[str]) -> tuple[RouteTable, Readiness]:
    routes = RouteTable(20)
    return routes, Readiness(routes, groups or {"a": [OWN, PEER]}, 100.0)


def test_a_name_server_that_knows_only_itself_is_not_ready_and_says_whom_it_misses() -> None:
    routes, readiness = started()
    register(routes, OWN, 1)
    reason = readiness.why_not(101.5, is_known=True)
    assert f"master of a (not heard of: {PEER})" in words(reason)
    assert "again in 3.5 s" in words(reason)


def test_a_master_makes_it_ready_and_it_stays_so() -> None:
    routes, readiness = started()
    register(routes, OWN, 1)
    register(routes, PEER, 0)
    assert readiness.why_not(100.0, is_known=True) is None
    routes.connection_closed(PEER)
    assert readiness.why_not(100.0, is_known=True) is None


def test_all_nodes_of_a_group_without_a_master_are_all_there_is() -> None:
    routes, readiness = started()
    register(routes, OWN, 1)
    assert readiness.why_not(100.0, is_known=True)
    register(routes, PEER, 2)
    assert readiness.why_not(100.0, is_known=True) is None


def test_every_group_is_waited_for_or_its_queues_would_be_missing() -> None:
    routes, readiness = started(a=[OWN, PEER], b=[OTHER])
    register(routes, OWN, 0)
    assert readiness.why_not(100.0, is_known=True) == (
        "this name server has not been up for long enough to know a master of b (not heard of:"
        f" {OTHER}); ask another, or again in 5.0 s"
    )
    register(routes, OTHER, 0, "b")
    assert readiness.why_not(100.0, is_known=True) is None


def test_nodes_that_are_down_are_waited_for_only_for_a_while() -> None:
    routes, readiness = started()
    register(routes, OWN, 1)
    assert readiness.why_not(100.0 + NOT_READY_SECONDS_MAX - 0.1, is_known=True)
    assert readiness.why_not(100.0 + NOT_READY_SECONDS_MAX, is_known=True) is None


def test_one_that_knows_no_master_never_says_that_a_topic_does_not_exist() -> None:
    routes, readiness = started(a=[OWN, PEER], b=[OTHER])
    register(routes, OWN, 1)
    late = 100.0 + NOT_READY_SECONDS_MAX
    assert words(readiness.why_not(late, is_known=False)).endswith("; ask another, or start them")
    register(routes, OTHER, 0, "b")
    assert readiness.why_not(late, is_known=False) is None


def test_a_cluster_of_one_node_is_ready_when_that_is_there() -> None:
    routes, readiness = started(a=[OWN])
    assert readiness.why_not(100.0, is_known=True)
    register(routes, OWN, 0)
    assert readiness.why_not(100.0, is_known=True) is None


def test_no_topic_is_unknown_while_parts_of_a_table_are_still_to_come() -> None:
    routes, readiness = started()
    header = RegisterBrokerRequestHeader("a", OWN, "C", "10.0.0.1:10912", 0)
    first = msgspec.structs.replace(header, part=RegistrationPart.FIRST, part_to="T")
    last = msgspec.structs.replace(header, part=RegistrationPart.NEXT, part_from="T")
    routes.register(first, TopicConfigSerializeWrapper({}), connection=OWN, now=0.0)
    late = 100.0 + 2 * NOT_READY_SECONDS_MAX
    assert readiness.why_not(late, is_known=True) is None
    assert readiness.why_not(late, is_known=False)
    routes.register(last, TOPICS, connection=OWN, now=0.0)
    assert readiness.why_not(late, is_known=False) is None


def test_a_table_that_comes_whole_ends_one_that_has_begun_in_parts() -> None:
    routes, readiness = started()
    header = RegisterBrokerRequestHeader("a", OWN, "C", "10.0.0.1:10912", 0)
    first = msgspec.structs.replace(header, part=RegistrationPart.FIRST, part_to="T")
    routes.register(first, TopicConfigSerializeWrapper({}), connection=OWN, now=0.0)
    register(routes, OWN, 0)
    assert readiness.why_not(100.0, is_known=False) is None
