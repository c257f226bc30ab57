from tandem.client.life_groups import LifeGroups
from tandem.client.life_nodes import LifeNodes
from tandem.life.evidence import Evidence, GroupAt
from tandem.wire.admin_headers import ClientConnection, ConsumerConnection
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SubscriptionData
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import GroupList
from tests.tandem.client.fake_broker import MASTER, answer_to
from tests.tandem.client.life_world import LifeWorld


def groups_of(world: LifeWorld) -> tuple[LifeGroups, Evidence]:
    evidence = world.evidence()
    nodes = world.run(LifeNodes(world.calls).gather(evidence))
    return LifeGroups(nodes, evidence), evidence


def gathered(world: LifeWorld) -> tuple[GroupAt, Evidence]:
    groups, evidence = groups_of(world)
    world.run(groups.gather("g", {"T"}))
    (group,) = evidence.groups
    return group, evidence


def connect(world: LifeWorld, model: str = "CLUSTERING") -> None:
    world.bodies(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        lambda _: ConsumerConnection(
            connection_set=[ClientConnection("c1", "10.1.1.1:5", "JAVA", 479)],
            subscription_table={"T": SubscriptionData(topic="T", sub_string="paid")},
            consume_type="CONSUME_PASSIVELY",
            message_model=model,
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
        ),
    )


def test_the_groups_that_read_a_topic_are_those_of_users() -> None:
    world = LifeWorld()
    world.bodies(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, lambda _: GroupList(["g", "CID_RMQ_SYS_TRANS", "T"])
    )
    groups, evidence = groups_of(world)
    assert world.run(groups.readers("T")) == {"g"}
    assert evidence.readers_known == {"T"}


def test_a_topic_whose_readers_nobody_says_is_not_one_without_readers() -> None:
    world = LifeWorld()
    world.refuse(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ResponseCode.NO_PERMISSION)
    groups, evidence = groups_of(world)
    assert world.run(groups.readers("T")) == set()
    assert evidence.readers_known == set()
    assert evidence.gaps


def test_how_far_a_group_is_and_that_nobody_is_online() -> None:
    group, _ = gathered(LifeWorld(read=5))
    (queue,) = group.queues
    assert (queue.topic, queue.broker, queue.queue_id, queue.committed) == ("T", "broker-a", 0, 5)
    assert group.members_count == 0


def test_members_say_what_they_want() -> None:
    world = LifeWorld()
    connect(world)
    group, _ = gathered(world)
    assert (group.members_count, group.subscriptions) == (1, {"T": "paid"})
    assert not group.is_broadcasting
    connect(world, "BROADCASTING")
    assert gathered(world)[0].is_broadcasting


def test_an_answer_that_does_not_parse_is_a_gap() -> None:
    world = LifeWorld()
    world.answer(
        RequestCode.GET_CONSUME_STATS, lambda request, name: answer_to(request, body=b"\xff")
    )
    group, evidence = gathered(world)
    assert group.queues == ()
    assert any("offsets of group g" in gap.what for gap in evidence.gaps)


def test_a_client_that_does_not_answer_is_not_held_against_its_broker() -> None:
    world = LifeWorld()
    connect(world)
    world.brokers[MASTER].handlers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda request: None
    evidence = world.evidence()
    nodes = world.run(LifeNodes(world.calls).gather(evidence))
    world.run(LifeGroups(nodes, evidence).gather("g", {"T"}))
    assert MASTER in nodes.addresses("broker-a")
