import pytest

from tandem.client.admin_results import TopicQueue
from tandem.client.errors import RouteCause, RouteNotFoundError
from tandem.client.topic_admin import is_of_system
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CreateTopicRequestHeader, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import GroupList, TopicOffset, TopicStatsTable
from tests.tandem.client.admin_bench import INFO, AdminBench, by_queue
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, OTHER_MASTER, SLAVE, answer_to


def bench_with_topic() -> AdminBench:
    """Topic T has a queue at broker-a and two at broker-b."""
    bench = AdminBench()
    counts = {"broker-a": 1, "broker-b": 2}
    bench.bodies(
        RequestCode.GET_TOPIC_CONFIG,
        lambda name: TopicConfig(
            "T", counts[name], counts[name], 6, topic_sys_flag=3, attributes={"a": name}
        ),
    )
    bench.bodies(
        RequestCode.GET_TOPIC_STATS_INFO,
        lambda name: TopicStatsTable(
            by_queue(name, [(each, TopicOffset(17, 10, 4)) for each in range(counts[name])]), 0.0
        ),
    )
    bench.bodies(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, lambda _: GroupList(["g", "T"]))
    return bench


def test_a_topic_is_described_over_all_brokers() -> None:
    bench = bench_with_topic()
    found = bench.run(bench.topics.describe("T"))
    assert [each.broker_name for each in found.brokers] == ["broker-a", "broker-b"]
    assert found.brokers[0].addresses == {0: MASTER, 1: SLAVE}
    assert found.brokers[1].attributes == {"a": "broker-b"}
    assert found.queues[0] == TopicQueue("broker-a", 0, 4, 10, 17)
    assert len(found.queues) == 3
    assert found.message_count == 18
    assert found.groups == ["g"]


def test_a_topic_that_no_broker_has_is_an_error() -> None:
    bench = AdminBench()
    for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO):
        bench.refuse(code, ResponseCode.TOPIC_NOT_EXIST)
    flows = [
        bench.topics.describe("X"),
        bench.topics.queues("X"),
        bench.topics.delete("X"),
        bench.topics.alter("X", queue_nums=1, perm=None, attributes={}),
    ]
    for flow in flows:
        with pytest.raises(RouteNotFoundError) as caught:
            bench.run(flow)
        assert (caught.value.topic, caught.value.cause) == ("X", RouteCause.NO_TOPIC)


def test_what_is_not_altered_stays_as_each_broker_has_it() -> None:
    bench = bench_with_topic()
    bench.answer(RequestCode.UPDATE_AND_CREATE_TOPIC, lambda request, name: answer_to(request))
    bench.run(bench.topics.alter("T", queue_nums=None, perm=4, attributes={"n": "v", "gone": None}))
    asked = bench.requests(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert [address for address, _ in asked] == [MASTER, OTHER_MASTER]
    header = asked[1][1].decode_header(CreateTopicRequestHeader)
    assert (header.read_queue_nums, header.write_queue_nums, header.perm) == (2, 2, 4)
    assert header.topic_sys_flag == 3
    assert header.attributes == "+n=v,-gone"


def test_a_topic_is_deleted_at_masters_and_name_servers() -> None:
    bench = bench_with_topic()
    bench.answer(RequestCode.DELETE_TOPIC_IN_BROKER, lambda request, name: answer_to(request))
    bench.run(bench.topics.delete("T"))
    asked = bench.requests(RequestCode.DELETE_TOPIC_IN_BROKER)
    assert [address for address, _ in asked] == [MASTER, OTHER_MASTER]
    assert bench.shell.calls_to(RequestCode.DELETE_TOPIC_IN_NAMESRV) == [NAME_SERVER]


def test_only_some_brokers_change_a_topic_or_forget_it_and_then_name_servers_keep_it() -> None:
    bench = bench_with_topic()
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER):
        bench.answer(code, lambda request, name: answer_to(request))
    bench.run(bench.topics.alter("T", perm=4, broker_names=["broker-b"]))
    bench.run(bench.topics.delete("T", broker_names=["broker-b"]))
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER):
        assert [address for address, _ in bench.requests(code)] == [OTHER_MASTER]
    assert bench.shell.calls_to(RequestCode.DELETE_TOPIC_IN_NAMESRV) == []


def test_topics_of_the_system_are_listed_only_if_they_are_asked_for() -> None:
    bench = AdminBench()
    assert bench.run(bench.topics.names(of_system=False)) == ["T"]
    assert len(bench.run(bench.topics.names(of_system=True))) == 4


@pytest.mark.parametrize(
    ("topic", "is_systems"),
    [
        ("Orders", False),
        ("%DLQ%g", False),
        ("%RETRY%g", True),
        ("rmq_sys_x", True),
        ("DefaultCluster", True),
        ("DefaultCluster_REPLY_TOPIC", True),
        ("Other_REPLY_TOPIC", False),
    ],
)
def test_what_is_a_topic_of_the_system(topic: str, *, is_systems: bool) -> None:
    assert is_of_system(topic, INFO) is is_systems
