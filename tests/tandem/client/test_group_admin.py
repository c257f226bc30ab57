import msgspec
import pytest

from tandem.client.admin_results import ResetWay
from tandem.client.errors import BrokerError, GroupNotFoundError
from tandem.client.group_admin import ResetTo, is_group_of_system
from tandem.wire.admin_headers import (
    ClientConnection,
    ConsumerConnection,
    DeleteSubscriptionGroupRequestHeader,
    ResetOffsetRequestHeader,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SubscriptionData,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)
from tandem.wire.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from tests.tandem.client.admin_bench import AdminBench, by_queue
from tests.tandem.client.fake_broker import MASTER, OTHER_MASTER, answer_to

PROGRESS = OffsetWrapper(broker_offset=9, consumer_offset=4, last_timestamp=17, pull_offset=6)


def stats(name: str) -> ConsumeStats:
    return ConsumeStats(0.0, by_queue(name, [(0, PROGRESS)]))


def bench_with_group(*, online: bool = True) -> AdminBench:
    """Group g has read a queue at each broker; client c-1 reads that of broker-a."""
    bench = AdminBench()
    bench.bodies(RequestCode.GET_CONSUME_STATS, stats)
    bench.bodies(
        RequestCode.GET_BROKER_CONSUME_STATS,
        lambda name: ConsumeStatsList(
            MASTER, [{"g": [stats(name)]}, {"TOOLS_CONSUMER": []}, {"idle": []}], 5, 0
        ),
    )
    bench.bodies(
        RequestCode.GET_TOPIC_STATS_INFO,
        lambda name: TopicStatsTable(by_queue(name, [(0, TopicOffset(17, 9, 2))]), 0.0),
    )
    bench.bodies(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        lambda _: SubscriptionGroupWrapper({"idle": SubscriptionGroupConfig("idle")}),
    )
    bench.refuse(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE)
    if online:
        bench.bodies(RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda _: connections())
    bench.answer(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info)
    return bench


def connections() -> ConsumerConnection:
    return ConsumerConnection(
        connection_set=[
            ClientConnection("c-1", "10.0.0.7:1", "JAVA", 479),
            ClientConnection("c-2", "10.0.0.8:1", "GO", 317),
        ],
        subscription_table={"T": SubscriptionData("T", "a || b")},
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
    )


def running_info(request: RemotingCommand, name: str) -> RemotingCommand:
    if request.ext_fields()["clientId"] != "c-1":
        return answer_to(request, ResponseCode.SYSTEM_ERROR)  # too old to say
    body = (
        b'{"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"commitOffset":4}},'
        b'"properties":{}}'
    )
    return answer_to(request, body=body)


def test_groups_are_listed_over_all_brokers() -> None:
    bench = bench_with_group()
    group, idle = bench.run(bench.groups.summaries(of_system=False))
    assert (idle.group, idle.lag, idle.topics) == ("idle", 0, [])
    assert (group.group, group.lag, group.topics, group.members_count) == ("g", 10, ["T"], 2)
    everything = bench.run(bench.groups.summaries(of_system=True))
    assert [each.group for each in everything] == ["TOOLS_CONSUMER", "g", "idle"]


def test_a_group_is_described_with_members_queues_and_who_reads_which() -> None:
    bench = bench_with_group()
    found = bench.run(bench.groups.describe("g"))
    first, second = found.members
    assert (first.client_id, first.language, first.version) == ("c-1", "JAVA", "5.3.3")
    assert (first.queues_count, second.queues_count) == (1, None)
    queue, other = found.queues
    assert (queue.broker_name, queue.client_id, other.client_id) == ("broker-a", "c-1", "")
    assert (queue.lag, queue.inflight, queue.last_consumed_timestamp_ms) == (5, 2, 17)
    assert found.lag == 10
    assert found.subscriptions == {"T": "a || b"}
    assert found.message_model == "CLUSTERING"


def test_a_group_without_members_has_its_offsets() -> None:
    bench = bench_with_group(online=False)
    found = bench.run(bench.groups.describe("g"))
    assert (found.members, len(found.queues), found.message_model) == ([], 2, "")


def test_a_group_that_is_only_set_up_is_one_and_others_are_not() -> None:
    bench = bench_with_group(online=False)
    bench.bodies(RequestCode.GET_CONSUME_STATS, lambda _: ConsumeStats(0.0, msgspec.Raw(b"{}")))
    assert bench.run(bench.groups.describe("idle")).queues == []
    with pytest.raises(GroupNotFoundError) as caught:
        bench.run(bench.groups.describe("x"))
    assert caught.value.group == "x"


def offset_answers(bench: AdminBench, old: int | None) -> None:
    bench.answer(
        RequestCode.QUERY_CONSUMER_OFFSET,
        lambda request, name: (
            answer_to(request, ResponseCode.QUERY_NOT_FOUND)
            if old is None
            else answer_to(request, ext=OffsetResponseHeader(old))
        ),
    )
    bench.answer(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        lambda request, name: answer_to(request, ext=OffsetResponseHeader(7)),
    )


@pytest.mark.parametrize(
    ("to", "number", "new"),
    [
        (ResetTo.EARLIEST, 0, 2),
        (ResetTo.LATEST, 0, 9),
        (ResetTo.TIME, 1_700_000_000_000, 7),
        (ResetTo.OFFSET, 5, 5),
        (ResetTo.OFFSET, 0, 2),
        (ResetTo.OFFSET, 100, 9),
    ],
)
def test_a_plan_says_where_each_queue_would_go_on(to: ResetTo, number: int, new: int) -> None:
    bench = bench_with_group()
    offset_answers(bench, 4)
    plan = bench.run(bench.groups.plan_reset("g", "T", to, number))
    assert plan.members_count == 2
    assert [(each.broker_name, each.old_offset, each.new_offset) for each in plan.changes] == [
        ("broker-a", 4, new),
        ("broker-b", 4, new),
    ]


def test_a_group_without_an_offset_has_none_before() -> None:
    bench = bench_with_group()
    offset_answers(bench, None)
    plan = bench.run(bench.groups.plan_reset("g", "T", ResetTo.LATEST, 0))
    assert plan.changes[0].old_offset is None


def test_the_brokers_carry_a_plan_out() -> None:
    bench = bench_with_group()
    offset_answers(bench, 4)
    plan = bench.run(bench.groups.plan_reset("g", "T", ResetTo.OFFSET, 5))
    bench.answer(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, lambda request, name: answer_to(request)
    )
    assert bench.run(bench.groups.apply_reset(plan)) is ResetWay.BROKER
    asked = bench.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert [address for address, _ in asked] == [MASTER, OTHER_MASTER]
    header = asked[0][1].decode_header(ResetOffsetRequestHeader)
    assert (header.group, header.topic, header.queue_id, header.offset) == ("g", "T", 0, 5)


def test_where_brokers_cannot_offsets_are_committed() -> None:
    bench = bench_with_group(online=False)
    offset_answers(bench, 4)
    plan = bench.run(bench.groups.plan_reset("g", "T", ResetTo.OFFSET, 5))
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    bench.refuse(code, ResponseCode.CONSUMER_NOT_ONLINE)
    bench.answer(RequestCode.UPDATE_CONSUMER_OFFSET, lambda request, name: answer_to(request))
    assert bench.run(bench.groups.apply_reset(plan)) is ResetWay.COMMIT
    asked = bench.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [address for address, _ in asked] == [MASTER, OTHER_MASTER]
    header = asked[0][1].decode_header(UpdateConsumerOffsetRequestHeader)
    assert (header.consumer_group, header.commit_offset) == ("g", 5)
    bench.refuse(code, ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerError):
        bench.run(bench.groups.apply_reset(plan))


@pytest.mark.parametrize("with_dead_letters", [False, True])
def test_a_group_is_deleted_with_its_retries(*, with_dead_letters: bool) -> None:
    bench = bench_with_group(online=False)
    for code in (RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.DELETE_TOPIC_IN_BROKER):
        bench.answer(code, lambda request, name: answer_to(request))
    bench.run(bench.groups.delete("g", with_dead_letters=with_dead_letters))
    asked = bench.requests(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    header = asked[0][1].decode_header(DeleteSubscriptionGroupRequestHeader)
    assert (len(asked), header.group_name, header.clean_offset) == (2, "g", True)
    topics = {
        request.ext_fields()["topic"]
        for _, request in bench.requests(RequestCode.DELETE_TOPIC_IN_BROKER)
    }
    assert topics == {"%RETRY%g", "%DLQ%g"} if with_dead_letters else {"%RETRY%g"}


def test_offsets_are_asked_for_by_group_topic_and_queue() -> None:
    bench = bench_with_group()
    offset_answers(bench, 4)
    bench.run(bench.groups.plan_reset("g", "T", ResetTo.LATEST, 0))
    _, request = bench.requests(RequestCode.QUERY_CONSUMER_OFFSET)[0]
    header = request.decode_header(QueryConsumerOffsetRequestHeader)
    assert (header.consumer_group, header.topic, header.queue_id) == ("g", "T", 0)


def test_groups_of_the_system_are_known_by_their_names() -> None:
    assert is_group_of_system("CID_RMQ_SYS_TRANS")
    assert is_group_of_system("TOOLS_CONSUMER")
    assert not is_group_of_system("billing")
