"""What each order does to a cluster that is up, and how what cannot be done is answered."""

import json
from typing import Any

import pytest

import tandem
from tandem.cluster.errors import OrderRefusedError, SupervisorGoneError
from tandem.testing import RunningCluster
from tandem.testing.errors import FaultNeed, FaultNotPossibleError
from tandem.testing.plugin import MakeTandemCluster
from tandem.testing.serve_orders import ClusterOrders, trouble_of
from tandem.testing.serve_protocol import ORDERS, Code

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("serve_orders")]


def ask(orders: ClusterOrders, name: str, /, **arguments: object) -> dict[str, Any]:
    """Give an order; return the whole answer."""
    answer = orders.answer(json.dumps({name: arguments, "id": name}).encode())
    assert answer.endswith(b"\n")
    found: dict[str, Any] = json.loads(answer)
    assert found.pop("id") == name
    return found


def do(orders: ClusterOrders, name: str, /, **arguments: object) -> dict[str, Any]:
    """Give an order that is carried out; return its result."""
    found = ask(orders, name, **arguments)
    assert found["done"] == name, found
    result: dict[str, Any] = found["result"]
    return result


def states(orders: ClusterOrders) -> list[str]:
    return [node["state"] for node in do(orders, "status")["nodes"]]


def test_a_fenced_group_is_hurt_and_recovers(make_tandem_cluster: MakeTandemCluster) -> None:
    # Of a master that is cut off the lease has to end, of a busy one it may not.
    cluster = make_tandem_cluster(fenced=True, settings={"coordinator": {"lease_ttl_ms": 15_000}})
    orders = ClusterOrders(cluster)
    assert do(orders, "topic", name="Orders", queues=2) == {"topic": "Orders"}
    topic = do(orders, "topic")["topic"]
    first = do(orders, "kill_master")["node"]
    second = do(orders, "wait_for_master", other_than=first)["node"]
    assert first != second
    assert do(orders, "master") == {"node": second}
    assert sorted(states(orders)) == ["RUNNING", "RUNNING", "STOPPED"]
    do(orders, "start", node=first)
    do(orders, "wait_in_sync", seconds_max=120)
    fault = do(orders, "partition", nodes=[second])["fault"]
    third = do(orders, "wait_for_master", other_than=second, seconds_max=120)["node"]
    assert third != second
    do(orders, "undo", fault=fault)
    do(orders, "undo", fault=fault)
    do(orders, "recover")
    assert states(orders) == ["RUNNING"] * 3
    with tandem.BlockingProducer(cluster.name_servers, group="test") as producer:
        for name in ("Orders", topic):
            assert producer.send(tandem.Message(name, b"one")).status is tandem.SendStatus.SEND_OK


@pytest.fixture
def orders(tandem_session_cluster: RunningCluster) -> ClusterOrders:
    return ClusterOrders(tandem_session_cluster)


def test_nodes_are_ended_frozen_and_started(orders: ClusterOrders) -> None:
    assert do(orders, "freeze", node="broker-a-1") == {"fault": 1}
    assert states(orders) == ["RUNNING", "PAUSED"]
    do(orders, "thaw", node="broker-a-1")
    do(orders, "freeze", node="broker-a-1")
    do(orders, "heal")
    do(orders, "kill", node="broker-a-1")
    assert states(orders) == ["RUNNING", "STOPPED"]
    do(orders, "start", node="broker-a-1")
    do(orders, "stop", node="broker-a-1")
    do(orders, "restart", node="broker-a-1")
    do(orders, "wait_in_sync", seconds_max=120)
    assert states(orders) == ["RUNNING"] * 2


def test_links_are_cut_and_slowed(orders: ClusterOrders) -> None:
    link = {"node": "broker-a-0", "other": "broker-a-1"}
    assert do(orders, "cut", **link, direction="in") == {"fault": 1}
    assert do(orders, "slow_link", **link, delay_ms=5, bytes_per_second=1e6) == {"fault": 2}
    do(orders, "recover")


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("kill", {"node": "broker-a-7"}, Code.UNKNOWN_NODE),
        ("wait_for_master", {"other_than": "broker-a-7"}, Code.UNKNOWN_NODE),
        ("partition", {"nodes": ["broker-a-0", "x"]}, Code.UNKNOWN_NODE),
        ("partition", {"nodes": ["broker-a-0", "broker-a-1"]}, Code.WRONG_ARGUMENTS),
        ("cut", {"node": "broker-a-0", "other": "coordinator"}, Code.UNKNOWN_NODE),
        ("cut", {"node": "broker-a-0", "other": "broker-a-0"}, Code.NOT_POSSIBLE),
        ("slow_link", {"node": "broker-a-0", "other": "broker-a-1"}, Code.WRONG_ARGUMENTS),
        ("fill_disk", {"node": "broker-a-0"}, Code.NOT_POSSIBLE),
        ("thaw", {"node": "broker-a-0"}, Code.REFUSED),
        ("start", {"node": "broker-a-0"}, Code.REFUSED),
        ("undo", {"fault": 1}, Code.UNKNOWN_FAULT),
        ("undo", {"fault": -1}, Code.UNKNOWN_FAULT),
        ("topic", {"name": "no spaces, please"}, Code.REFUSED),
        ("wait_for_master", {"other_than": "broker-a-0", "seconds_max": 0.05}, Code.TIMEOUT),
    ],
)
def test_what_cannot_be_done_has_a_code_and_the_cluster_lives_on(
    orders: ClusterOrders, name: str, arguments: dict[str, object], code: Code
) -> None:
    found = ask(orders, name, **arguments)
    assert found["error"]["code"] == code.value, found
    assert found["error"]["text"]
    assert do(orders, "master") == {"node": "broker-a-0"}


def test_lines_that_are_none_are_answered(orders: ClusterOrders) -> None:
    for line, code in ((None, Code.TOO_LONG), (b"\xff", Code.NOT_JSON), (b"{}", Code.NO_ORDER)):
        assert json.loads(orders.answer(line))["error"]["code"] == code.value


def test_each_order_is_carried_out_by_something(orders: ClusterOrders) -> None:
    assert set(orders._calls) == set(ORDERS)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FaultNotPossibleError("x", FaultNeed.DISKS), Code.NOT_POSSIBLE),
        (OrderRefusedError("x", "NodeCommandError"), Code.REFUSED),
        (SupervisorGoneError("x"), Code.GONE),
        (tandem.BrokerError(1, "x"), Code.REFUSED),
        (tandem.RequestTimeoutError("x"), Code.NO_ANSWER),
        (TimeoutError("x"), Code.TIMEOUT),
        (OSError(28, "No space left on device"), Code.SYSTEM),
        (ValueError("x"), Code.WRONG_ARGUMENTS),
    ],
)
def test_each_error_of_a_cluster_has_its_code(error: Exception, code: Code) -> None:
    trouble = trouble_of(error)
    assert trouble.code is code
    assert trouble.text
