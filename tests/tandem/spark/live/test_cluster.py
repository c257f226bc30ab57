from collections.abc import Iterator

import pytest

from tandem.client.core import ClientCore
from tandem.client.errors import BrokerError, ClientError, RouteNotFoundError
from tandem.spark.errors import SparkSourceError, UnknownTopicError
from tandem.spark.live import cluster as module
from tandem.spark.live.cluster import Cluster, group_of
from tandem.spark.live.options import LiveOptions, parse_options
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import ClusterInfo, TopicList, encode_json_body
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    answer_to,
    route_of,
)
from tests.tandem.spark.live.live_world import TOPIC, LiveWorld, live_world, options, queue

OTHER = "10.0.0.7:10911"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWorld]:
    with live_world() as made:

        def core(_: LiveOptions) -> ClientCore:
            return made.core()

        monkeypatch.setattr(module, "client_core", core)
        made.fill(0, 7)
        made.fill(1, 3)
        yield made


def ask(world: LiveWorld, **given: str) -> Cluster:
    return Cluster(options(**given), world.sockets.open)


def knows_topics(world: LiveWorld, *topics: str) -> None:
    body = encode_json_body(TopicList(topic_list=list(topics)))
    handlers = world.name_server.handlers
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    handlers[code] = lambda request: answer_to(request, body=body)
    info = encode_json_body(ClusterInfo({}, {}))
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    handlers[code] = lambda request: answer_to(request, body=info)


def test_queues_are_those_of_the_route(world: LiveWorld) -> None:
    assert sorted(ask(world).queues()) == [queue(0), queue(1)]


def test_assigned_queues_alone(world: LiveWorld) -> None:
    world.name_server.routes[TOPIC] = route_of(("broker-a", {0: MASTER}), ("broker-b", {0: OTHER}))

    def found(assign: str) -> list[tuple[str, int]]:
        parsed = parse_options({"nameservers": NAME_SERVER, "assign": assign})
        queues = Cluster(parsed, world.sockets.open).queues()
        return [(each.broker_name, each.queue_id) for each in sorted(queues)]

    assert found('{"orders": [1]}') == [("broker-a", 1), ("broker-b", 1)]
    assert found('{"orders": {"broker-b": [0]}}') == [("broker-b", 0)]


def test_chosen_queues_of_every_broker(world: LiveWorld) -> None:
    world.name_server.routes[TOPIC] = route_of(("broker-a", {0: MASTER}), ("broker-b", {0: OTHER}))
    found = ask(world, queues="1,7").queues()
    assert sorted(found) == [queue(1), queue(1, "broker-b")]


def test_when_the_message_at_a_place_was_stored(world: LiveWorld) -> None:
    found = ask(world).stored_at({queue(0): 3, queue(1): 3})
    message = world.master.queues[TOPIC, 0][3]
    # Queue 1 ends at 3: nothing is there.
    assert found == {queue(0): message.store_timestamp_ms}
    del world.name_server.routes[TOPIC]
    with pytest.raises(ClientError):
        ask(world).stored_at({queue(0): 3})


def test_a_pattern_has_to_match_the_whole_name(world: LiveWorld) -> None:
    knows_topics(world, "orders", "orders2", "no-orders", "%RETRY%orders", "rmq_sys_orders")
    for topic in ("orders2", "rmq_sys_orders"):
        world.name_server.routes[topic] = world.name_server.routes[TOPIC]

    def found(**given: str) -> set[str]:
        raw = {"nameservers": NAME_SERVER} | {k.lower(): v for k, v in given.items()}
        queues = Cluster(parse_options(raw), world.sockets.open).queues()
        return {each.topic for each in queues}

    assert found(subscribePattern="orders.*") == {"orders", "orders2"}
    assert found(subscribePattern=".*orders", includeSystemTopics="true") == {
        "orders",
        "rmq_sys_orders",
    }


def test_an_unknown_topic_is_said_with_what_was_meant(world: LiveWorld) -> None:
    knows_topics(world, "orders", "invoices")
    with pytest.raises(UnknownTopicError, match="did you mean 'orders'") as caught:
        ask(world, subscribe="order").queues()
    assert caught.value.topics == ("order",)
    assert ask(world, subscribe="order").queues(unknown_is_error=False) == {}


def test_offsets_of_all_queues_are_asked_for_at_once(world: LiveWorld) -> None:
    assert ask(world).max_offsets([queue(0), queue(1)]) == {queue(0): 7, queue(1): 3}
    assert ask(world).min_offsets([queue(0)]) == {queue(0): 0}


def test_offsets_at_a_time(world: LiveWorld) -> None:
    def search(request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(SearchOffsetRequestHeader)
        assert header.only_master
        return answer_to(request, ext=OffsetResponseHeader(header.timestamp // 100))

    world.master.handlers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = search
    assert ask(world).offsets_at([queue(0)], 500) == {queue(0): 5}


def test_a_master_that_is_lost_is_waited_for(world: LiveWorld) -> None:
    del world.sockets.brokers[MASTER]
    sleep = world.time.sleep

    def elected(seconds: float) -> None:
        sleep(seconds)
        if world.time.now > 1004:
            world.name_server.routes[TOPIC] = route_of(("broker-a", {0: SLAVE}))

    world.time.sleep = elected  # type: ignore[method-assign]
    assert ask(world).max_offsets([queue(0), queue(1)]) == {queue(0): 7, queue(1): 3}


def test_no_master_in_time_is_said(world: LiveWorld) -> None:
    world.name_server.routes[TOPIC] = route_of(("broker-a", {1: SLAVE}))
    with pytest.raises(SparkSourceError) as caught:
        ask(world, retryTimeoutMs="20000").max_offsets([queue(0)])
    assert isinstance(caught.value.__cause__, RouteNotFoundError)
    assert caught.value.__cause__.may_pass
    assert 1019 < world.time.now < 1022


def test_a_route_without_a_master_counts_when_the_time_is_over(world: LiveWorld) -> None:
    world.name_server.routes[TOPIC] = route_of(("broker-a", {1: SLAVE}))
    assert len(ask(world, retryTimeoutMs="5000").queues()) == 2
    assert world.time.now >= 1005


@pytest.mark.parametrize("code", [ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST])
def test_a_refusal_for_good_is_said(world: LiveWorld, code: ResponseCode) -> None:
    world.master.handlers[RequestCode.GET_MAX_OFFSET] = lambda request: answer_to(
        request, code, remark="not so"
    )
    with pytest.raises(SparkSourceError) as caught:
        ask(world).max_offsets([queue(0)])
    assert isinstance(caught.value.__cause__, BrokerError)
    assert caught.value.__cause__.code == code
    assert world.time.now < 1001


def test_name_servers_that_are_away_are_said(world: LiveWorld) -> None:
    world.sockets.brokers.clear()
    with pytest.raises(SparkSourceError):
        ask(world, retryTimeoutMs="3000").queues()


def test_an_answer_that_makes_no_sense_is_said(world: LiveWorld) -> None:
    world.master.handlers[RequestCode.GET_MAX_OFFSET] = answer_to
    with pytest.raises(SparkSourceError, match="does not parse"):
        ask(world).max_offsets([queue(0)])


def test_a_group_is_committed_at_the_masters(world: LiveWorld) -> None:
    committed = {}

    def update(request: RemotingCommand) -> RemotingCommand:
        header = request.decode_header(UpdateConsumerOffsetRequestHeader)
        committed[header.consumer_group, header.queue_id] = header.commit_offset
        return answer_to(request)

    world.master.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = update
    with ask(world) as asked:
        asked.commit("g", {queue(0): 5, queue(1): 6})
    assert committed == {("g", 0): 5, ("g", 1): 6}
    del world.sockets.brokers[MASTER]
    with pytest.raises(ClientError):
        ask(world).commit("g", {queue(0): 5})
    assert world.time.now < 1005


def test_brokers_see_a_group_of_the_source_unless_one_is_named() -> None:
    assert group_of(options()) == "tandem-spark"
    assert group_of(options(groupId="mine")) == "mine"


def test_a_broker_that_is_new_is_found(world: LiveWorld) -> None:
    asked = ask(world)
    assert len(asked.queues()) == 2
    world.name_server.routes[TOPIC] = route_of(("broker-a", {0: MASTER}), ("broker-b", {0: OTHER}))
    world.sockets.brokers[OTHER] = FakeBroker()
    assert len(asked.queues()) == 4
