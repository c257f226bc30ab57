import msgspec
import pytest

from tandem.client.admin_flow import Administration
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import (
    BrokerError,
    ConnectionCause,
    ConnectionLostError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    HARuntimeInfo,
    OffsetResponseHeader,
)
from tandem.wire.request_signature import (
    CHALLENGE_FIELD,
    SIGNATURE_FIELD,
    TARGET_FIELD,
    ChallengeBody,
    is_rightly_signed,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import BrokerData, ClusterInfo, TopicList, encode_json_body
from tandem.wire.secret_keys import Purpose, key_of
from tests.support.secret import SECRET
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    ONE_BROKER,
    OTHER_MASTER,
    SLAVE,
    FakeBroker,
    HandShell,
    answer_to,
)
from tests.tandem.client.samples import FENCED_STATUS

INFO = ClusterInfo(
    {
        "broker-a": BrokerData(broker_name="broker-a", broker_addrs={0: MASTER, 1: SLAVE}),
        "broker-b": BrokerData(broker_name="broker-b", broker_addrs={0: OTHER_MASTER}),
        "broker-c": BrokerData(broker_name="broker-c", broker_addrs={1: SLAVE}),
    },
    {"DefaultCluster": ["broker-a", "broker-b", "broker-c"]},
)


class Bench:
    def __init__(self, secret: str = "") -> None:
        self.broker = FakeBroker()
        self.shell = HandShell(
            dict.fromkeys((NAME_SERVER, MASTER, SLAVE, OTHER_MASTER), self.broker)
        )
        core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=self.shell.clock)
        self.administration = Administration(core, secret)
        self.answer(RequestCode.GET_BROKER_CLUSTER_INFO, encode_json_body(INFO))

    def answer(self, code: int, body: bytes = b"", response_code: int = 0) -> None:
        self.broker.handlers[code] = lambda request: answer_to(
            request, response_code, OffsetResponseHeader(42), body
        )


def test_a_topic_is_created_at_every_master() -> None:
    bench = Bench()
    bench.answer(RequestCode.UPDATE_AND_CREATE_TOPIC)
    bench.shell.run(bench.administration.create_topic("T", queue_nums=3))
    assert bench.shell.calls_to(RequestCode.UPDATE_AND_CREATE_TOPIC) == [MASTER, OTHER_MASTER]
    header = bench.broker.requests[-1].decode_header(CreateTopicRequestHeader)
    assert (header.topic, header.read_queue_nums, header.write_queue_nums) == ("T", 3, 3)
    assert (header.perm, header.topic_filter_type, header.order) == (6, "SINGLE_TAG", False)


def test_a_topic_is_created_at_one_broker_name() -> None:
    bench = Bench()
    bench.answer(RequestCode.UPDATE_AND_CREATE_TOPIC)
    bench.shell.run(bench.administration.create_topic("T", queue_nums=3, broker_name="broker-b"))
    assert bench.shell.calls_to(RequestCode.UPDATE_AND_CREATE_TOPIC) == [OTHER_MASTER]
    for name, cause in (("broker-c", RouteCause.NO_MASTER), ("broker-x", RouteCause.NO_BROKER)):
        with pytest.raises(RouteNotFoundError) as caught:
            bench.shell.run(bench.administration.create_topic("T", queue_nums=3, broker_name=name))
        assert caught.value.cause is cause


def test_a_refused_topic_is_an_error() -> None:
    bench = Bench()
    bench.answer(RequestCode.UPDATE_AND_CREATE_TOPIC, response_code=29)
    with pytest.raises(BrokerError):
        bench.shell.run(bench.administration.create_topic("T", queue_nums=3))


def test_topics_and_routes_are_listed() -> None:
    bench = Bench()
    topics = encode_json_body(TopicList(["b", "a"]))
    bench.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, topics)
    assert bench.shell.run(bench.administration.topic.names(of_system=True)) == ["a", "b"]
    assert bench.shell.run(bench.administration.topic_route("orders")) == ONE_BROKER
    with pytest.raises(RouteNotFoundError):
        bench.shell.run(bench.administration.topic_route("unknown"))


def test_a_name_server_that_refuses_is_an_error() -> None:
    bench = Bench()
    bench.answer(RequestCode.GET_BROKER_CLUSTER_INFO, response_code=1)
    with pytest.raises(RouteNotFoundError) as caught:
        bench.shell.run(bench.administration.cluster_info())
    assert caught.value.cause is RouteCause.NO_NAME_SERVER
    assert [type(each) for each in caught.value.errors] == [BrokerError]


def test_a_broker_tells_of_its_replicas() -> None:
    bench = Bench()
    info = HARuntimeInfo(master=True, in_sync_slave_nums=2)
    bench.answer(RequestCode.GET_BROKER_HA_STATUS, encode_json_body(info))
    assert bench.shell.run(bench.administration.ha_runtime_info(MASTER)) == info


def test_an_illegible_answer_is_the_brokers_fault() -> None:
    bench = Bench()
    bench.answer(RequestCode.GET_BROKER_HA_STATUS, b"{")
    with pytest.raises(ConnectionLostError) as caught:
        bench.shell.run(bench.administration.ha_runtime_info(MASTER))
    assert caught.value.cause is ConnectionCause.MALFORMED
    bench.broker.handlers[RequestCode.GET_MIN_OFFSET] = answer_to
    with pytest.raises(ConnectionLostError) as caught:
        bench.shell.run(bench.administration.min_offset(MASTER, "T", 0))
    assert caught.value.cause is ConnectionCause.MALFORMED


def test_offsets_are_asked_of_one_broker() -> None:
    bench = Bench()
    bench.answer(RequestCode.GET_MAX_OFFSET)
    code = RequestCode.GET_MAX_OFFSET
    assert bench.shell.run(bench.administration.max_offset(SLAVE, "T", 0)) == 42
    assert bench.shell.calls_to(code) == [SLAVE]


def test_a_node_of_a_fenced_group_tells_how_it_sees_it() -> None:
    bench = Bench()
    bench.answer(RequestCode.FENCED_STATUS, msgspec.json.encode(FENCED_STATUS))
    assert bench.shell.run(bench.administration.fenced_status(MASTER)) == FENCED_STATUS
    bench.answer(RequestCode.FENCED_STATUS, b"{}")
    with pytest.raises(ConnectionLostError) as caught:
        bench.shell.run(bench.administration.fenced_status(MASTER))
    assert caught.value.cause is ConnectionCause.MALFORMED


def test_an_order_is_given_and_a_refusal_is_a_result() -> None:
    bench = Bench()
    refusal = FencedCommandResult(done=False, text="it lacks 3 messages", lost_messages=3)
    bench.answer(RequestCode.FENCED_COMMAND, msgspec.json.encode(refusal))
    order = FencedCommand(command="promote", node="b")
    assert bench.shell.run(bench.administration.fenced_command(MASTER, order)) == refusal
    assert msgspec.json.decode(bench.broker.requests[-1].body, type=FencedCommand) == order
    assert bench.shell.calls_to(RequestCode.FENCED_COMMAND) == [MASTER]


def test_with_the_secret_an_order_is_signed_for_the_node_it_is_for() -> None:
    bench = Bench(SECRET)
    number = msgspec.json.encode(ChallengeBody("n1"))
    bench.answer(RequestCode.NODE_CHALLENGE, number)
    done = FencedCommandResult(done=True, text="")
    bench.answer(RequestCode.FENCED_COMMAND, msgspec.json.encode(done))
    order = FencedCommand(command="resign")
    assert bench.shell.run(bench.administration.fenced_command(MASTER, order)) == done
    assert bench.shell.calls_to(RequestCode.NODE_CHALLENGE) == [MASTER]
    request = bench.broker.requests[-1]
    fields = request.ext_fields()
    assert (fields[CHALLENGE_FIELD], fields[TARGET_FIELD]) == ("n1", MASTER)
    key = key_of(SECRET, Purpose.REQUEST)
    assert is_rightly_signed(key, RequestCode.FENCED_COMMAND, fields, request.body)


def test_a_topic_of_the_system_is_signed_for_if_the_broker_wants_it() -> None:
    """RocketMQ's brokers know no signatures: they are asked without one first."""
    bench = Bench(SECRET)
    bench.answer(RequestCode.NODE_CHALLENGE, msgspec.json.encode(ChallengeBody("n1")))
    wants = RequestCode.UPDATE_AND_CREATE_TOPIC

    def create(request: RemotingCommand) -> RemotingCommand:
        return answer_to(request, 0 if SIGNATURE_FIELD in request.ext_fields() else 16)

    bench.broker.handlers[wants] = create
    bench.shell.run(
        bench.administration.create_topic("TBW102", queue_nums=3, broker_name="broker-b")
    )
    assert bench.shell.calls_to(wants) == [OTHER_MASTER, OTHER_MASTER]
    unknowing = Bench()
    unknowing.broker.handlers[wants] = create
    with pytest.raises(BrokerError):
        unknowing.shell.run(
            unknowing.administration.create_topic("TBW102", queue_nums=3, broker_name="broker-b")
        )


SECOND_NAME_SERVER = "10.0.0.2:9876"


def with_a_restarted_name_server(bench: Bench) -> Administration:
    """Have a second name server, asked first, that has just started: it knows one slave."""
    restarted = FakeBroker()
    alone = BrokerData(broker_name="broker-a", broker_addrs={1: SLAVE})
    bodies = {
        int(RequestCode.GET_BROKER_CLUSTER_INFO): ClusterInfo({"broker-a": alone}, {}),
        int(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER): TopicList(["own"]),
    }
    for code in bodies:
        restarted.handlers[code] = lambda request: answer_to(
            request, body=encode_json_body(bodies[request.code])
        )
    bench.shell.brokers[SECOND_NAME_SERVER] = restarted
    servers = [SECOND_NAME_SERVER, NAME_SERVER]
    core = ClientCore(servers, identity=IDENTITY, clock=bench.shell.clock)
    return Administration(core)


def test_a_name_server_that_has_just_started_hides_no_master_and_no_topic() -> None:
    bench = Bench()
    administration = with_a_restarted_name_server(bench)
    bench.answer(RequestCode.UPDATE_AND_CREATE_TOPIC)
    topics = encode_json_body(TopicList(["b", "a"]))
    bench.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, topics)
    assert bench.shell.run(administration.topic.names(of_system=True)) == ["a", "b", "own"]
    bench.shell.run(administration.create_topic("T", queue_nums=3, broker_name="broker-a"))
    assert bench.shell.calls_to(RequestCode.UPDATE_AND_CREATE_TOPIC) == [MASTER]


def test_a_topic_is_not_created_anywhere_before_every_master_is_there_or_time_is_over() -> None:
    bench = Bench()
    bench.answer(RequestCode.UPDATE_AND_CREATE_TOPIC)
    start = bench.shell.now
    bench.shell.run(bench.administration.create_topic("T", queue_nums=3))
    assert SWITCH_SECONDS - 1 < bench.shell.now - start <= SWITCH_SECONDS


def test_a_node_that_is_not_master_any_more_is_no_failure_of_a_new_topic() -> None:
    bench = Bench()
    refusals = iter(range(3))

    def refuse_at_first(request: RemotingCommand) -> RemotingCommand:
        is_refused = next(refusals, None) is not None
        return answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE if is_refused else 0)

    bench.broker.handlers[RequestCode.UPDATE_AND_CREATE_TOPIC] = refuse_at_first
    bench.shell.run(bench.administration.create_topic("T", queue_nums=3, broker_name="broker-a"))
    assert bench.shell.calls_to(RequestCode.UPDATE_AND_CREATE_TOPIC) == [MASTER] * 4
