import pytest

from tandem.client.core import SWITCH_SECONDS
from tandem.client.errors import (
    BrokerError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import KVTable
from tandem.wire.request_signature import SIGNATURE_FIELD, ChallengeBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import ClusterInfo, encode_json_body
from tests.support.secret import SECRET
from tests.tandem.client.admin_bench import AdminBench
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    OTHER_MASTER,
    SLAVE,
    answer_to,
)

CODE = RequestCode.GET_BROKER_RUNTIME_INFO


def bench_with_answers() -> AdminBench:
    bench = AdminBench()
    bench.bodies(CODE, lambda name: KVTable({"name": name}))
    return bench


def test_every_broker_is_asked_at_its_master() -> None:
    bench = bench_with_answers()
    answers = bench.run(bench.calls.each_broker(CODE, None))
    assert [(each.broker_name, each.address) for each in answers] == [
        ("broker-a", MASTER),
        ("broker-b", OTHER_MASTER),
    ]
    assert answers[1].body(KVTable).table == {"name": "broker-b"}


def test_another_node_is_asked_if_the_master_is_silent() -> None:
    bench = bench_with_answers()
    bench.shell.failures[MASTER] = [
        ConnectionLostError(MASTER, ConnectionCause.UNREACHABLE, "refused")
    ]
    answers = bench.run(bench.calls.each_broker(CODE, None))
    assert [each.address for each in answers] == [SLAVE, OTHER_MASTER]


def test_a_broker_without_any_node_is_waited_for() -> None:
    bench = bench_with_answers()
    bench.shell.failures[OTHER_MASTER] = [RequestTimeoutError(OTHER_MASTER)] * 3
    answers = bench.run(bench.calls.each_broker(CODE, None))
    assert [each.address for each in answers] == [MASTER, OTHER_MASTER]


def test_it_is_not_waited_for_longer_than_a_switch_takes() -> None:
    bench = bench_with_answers()
    del bench.shell.brokers[OTHER_MASTER]
    began = bench.shell.now
    with pytest.raises(ConnectionLostError):
        bench.run(bench.calls.each_broker(CODE, None))
    assert SWITCH_SECONDS - 1 < bench.shell.now - began <= SWITCH_SECONDS


def test_that_no_name_server_answers_is_said_at_once() -> None:
    bench = AdminBench()
    del bench.shell.brokers[NAME_SERVER]
    began = bench.shell.now
    with pytest.raises(RouteNotFoundError) as caught:
        bench.run(bench.calls.each_broker(CODE, None))
    assert caught.value.cause is RouteCause.NO_NAME_SERVER
    assert bench.shell.now == began


def test_name_servers_without_brokers_are_an_error() -> None:
    bench = AdminBench()
    bench.shell.brokers[NAME_SERVER].handlers[RequestCode.GET_BROKER_CLUSTER_INFO] = (
        lambda request: answer_to(request, body=encode_json_body(ClusterInfo()))
    )
    with pytest.raises(RouteNotFoundError) as caught:
        bench.run(bench.calls.each_broker(CODE, None))
    assert caught.value.cause is RouteCause.NO_BROKER
    with pytest.raises(RouteNotFoundError) as caught:
        bench.run(bench.calls.broker("x", CODE, None))
    assert caught.value.cause is RouteCause.NO_BROKER


def test_some_refusals_are_answers_and_others_errors() -> None:
    bench = AdminBench()
    bench.refuse(CODE, ResponseCode.TOPIC_NOT_EXIST)
    asked = bench.calls.each_broker(CODE, None, ResponseCode.TOPIC_NOT_EXIST)
    assert bench.run(asked) == []
    with pytest.raises(BrokerError):
        bench.run(bench.calls.each_broker(CODE, None))


def test_masters_do_a_thing_once_each_and_again_only_where_it_failed() -> None:
    bench = bench_with_answers()
    bench.shell.failures[OTHER_MASTER] = [
        ConnectionLostError(OTHER_MASTER, ConnectionCause.ENDED, "gone")
    ]
    bench.run(bench.calls.each_master("T", CODE, lambda _: None))
    assert [address for address, _ in bench.requests(CODE)] == [MASTER, OTHER_MASTER]
    bench.run(bench.calls.each_master("T", CODE, lambda _: None, names=["broker-b"]))
    assert [address for address, _ in bench.requests(CODE)][1:] == [OTHER_MASTER] * 2


def test_an_order_is_signed_if_the_broker_wants_it_and_we_can() -> None:
    bench = AdminBench(SECRET)
    bench.answer(
        CODE,
        lambda request, name: answer_to(
            request,
            0 if SIGNATURE_FIELD in request.ext_fields() else ResponseCode.NO_PERMISSION,
        ),
    )
    bench.bodies(RequestCode.NODE_CHALLENGE, lambda _: ChallengeBody("c" * 32))
    bench.run(bench.calls.each_master("T", CODE, lambda _: None))
    assert len(bench.requests(RequestCode.NODE_CHALLENGE)) == 2
    poor = AdminBench()
    poor.refuse(CODE, ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerError):
        poor.run(poor.calls.each_master("T", CODE, lambda _: None))
