import inspect
from functools import partial

import msgspec
import trio
from trio.testing import MockClock

from tandem.client.admin import Admin, BlockingAdmin
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import HARuntimeInfo
from tandem.wire.route import BrokerData, ClusterInfo, TopicList, encode_json_body
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    ONE_BROKER,
    FakeBroker,
    FakeNetwork,
    FakeSockets,
    answer_to,
)
from tests.tandem.client.samples import FENCED_STATUS

INFO = ClusterInfo({"broker-a": BrokerData(broker_name="broker-a", broker_addrs={0: MASTER})})
RESULT = FencedCommandResult(done=True, text="done")
HA_INFO = HARuntimeInfo(master=True)


def administered_broker() -> FakeBroker:
    broker = FakeBroker()
    broker.store("orders", 0, b"1", b"2")
    bodies = {
        RequestCode.GET_BROKER_CLUSTER_INFO: INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: TopicList(["orders"]),
        RequestCode.GET_BROKER_HA_STATUS: HA_INFO,
    }
    for code, body in bodies.items():
        broker.handlers[code] = partial(answer_to, body=encode_json_body(body))
    fenced: dict[RequestCode, msgspec.Struct] = {
        RequestCode.FENCED_STATUS: FENCED_STATUS,
        RequestCode.FENCED_COMMAND: RESULT,
    }
    for code, answer in fenced.items():
        broker.handlers[code] = partial(answer_to, body=msgspec.json.encode(answer))
    broker.handlers[RequestCode.UPDATE_AND_CREATE_TOPIC] = answer_to
    return broker


async def test_everything_an_administrator_can_ask(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = administered_broker()
    network = FakeNetwork(nursery, {NAME_SERVER: broker, MASTER: broker})
    async with Admin(NAME_SERVER, open_stream=network.open_stream) as admin:
        await admin.create_topic("orders", queue_nums=2)
        assert await admin.cluster_info() == INFO
        assert await admin.topics() == ["orders"]
        assert await admin.topic_route("orders") == ONE_BROKER
        assert await admin.ha_runtime_info(MASTER) == HA_INFO
        assert await admin.fenced_status(MASTER) == FENCED_STATUS
        assert await admin.fenced_command(MASTER, FencedCommand(command="resign")) == RESULT
        assert await admin.min_offset(MASTER, "orders", 0) == 0
        assert await admin.max_offset(MASTER, "orders", 0) == 2


def test_plain_code_administers_by_the_same_rules() -> None:
    broker = administered_broker()
    sockets = FakeSockets({NAME_SERVER: broker, MASTER: broker})
    with BlockingAdmin(NAME_SERVER, opener=sockets.open) as admin:
        admin.create_topic("orders", queue_nums=2)
        assert admin.cluster_info() == INFO
        assert admin.topics() == ["orders"]
        assert admin.topic_route("orders") == ONE_BROKER
        assert admin.ha_runtime_info(MASTER) == HA_INFO
        assert admin.fenced_status(MASTER) == FENCED_STATUS
        assert admin.fenced_command(MASTER, FencedCommand(command="resign")) == RESULT
        assert admin.min_offset(MASTER, "orders", 0) == 0
        assert admin.max_offset(MASTER, "orders", 0) == 2
    assert all(opened.closed for opened in sockets.opened)


def test_plain_code_can_ask_everything_that_tasks_can() -> None:
    def questions(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert questions(Admin) == questions(BlockingAdmin)
