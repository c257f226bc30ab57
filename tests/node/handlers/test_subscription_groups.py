"""Requests about what is set for consumer groups."""

from unittest.mock import patch

import msgspec

from node.errors import RequestError
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body
from tandem.wire.subscription_group import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from tests.node.doubles import Broker, Client, FakeReplication, handlers_of, request_table

UPDATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
UPDATE_LIST = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP
ALL = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
ONE = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
FORBID = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

JAVA_CONFIG = (
    b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":false,'
    b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
    b'"groupName":"CG","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
    b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":2,'
    b'"whichBrokerWhenConsumeSlowly":1}'
)
"""The body of RocketMQ 5.3.3's updateSubGroup."""


def client_of(broker: Broker) -> Client:
    return Client(request_table(handlers_of(broker, FakeReplication())), broker.outbox)


async def test_a_group_is_set_up_as_java_says() -> None:
    broker = Broker()
    client = client_of(broker)
    assert client.call(UPDATE, None, JAVA_CONFIG).code == 0
    wanted = SubscriptionGroupConfig(
        "CG", consume_enable=False, retry_max_times=3, retry_queue_nums=2
    )
    assert broker.tables.groups.get("CG") == wanted
    answer = client.call(ONE, {"group": "CG"})
    assert msgspec.json.decode(answer.body) == msgspec.json.decode(JAVA_CONFIG)
    table = decode_json_body(client.call(ALL).body, SubscriptionGroupWrapper)
    assert table == broker.tables.groups.configs
    assert set(msgspec.json.decode(client.call(ALL).body)) == {
        "dataVersion",
        "forbiddenTable",
        "subscriptionGroupTable",
    }


async def test_attributes_come_as_changes_and_stay_where_nothing_is_said_of_them() -> None:
    """SubscriptionGroupManager.updateSubscriptionGroupConfig."""
    broker = Broker()
    client = client_of(broker)

    def changed(**attributes: str) -> tuple[int, dict[str, str]]:
        config = SubscriptionGroupConfig(
            "CG", attributes={name.replace("_", "."): value for name, value in attributes.items()}
        )
        answer = client.call(UPDATE, None, msgspec.json.encode(config))
        return answer.code, broker.tables.groups.find("CG").attributes

    half = {"priority.factor": "50"}
    assert changed(**{"+priority.factor": "50"}) == (0, half)
    assert changed() == (0, half)
    assert changed(**{"+priority.factor": "101"}) == (ResponseCode.INVALID_PARAMETER, half)
    assert changed(**{"+lite.bind.topic": "T"}) == (ResponseCode.INVALID_PARAMETER, half)
    assert changed(**half) == (ResponseCode.INVALID_PARAMETER, half)
    shown = msgspec.json.decode(client.call(ONE, {"group": "CG"}).body)
    assert shown["attributes"] == half
    assert changed(**{"-priority.factor": ""}) == (0, {})


async def test_a_list_is_set_up_as_a_whole() -> None:
    broker = Broker()
    client = client_of(broker)
    configs = [SubscriptionGroupConfig("g"), SubscriptionGroupConfig("a b")]
    answer = client.call(UPDATE_LIST, None, msgspec.json.encode(SubscriptionGroupList(configs)))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.tables.groups.get("g") is None
    body = msgspec.json.encode(SubscriptionGroupList([*configs[:1], SubscriptionGroupConfig("h")]))
    assert client.call(UPDATE_LIST, None, body).code == 0
    assert broker.tables.groups.get("h") is not None


async def test_a_deleted_group_keeps_its_offsets_unless_they_are_to_go() -> None:
    broker = Broker()
    client = client_of(broker)
    client.call(UPDATE, None, JAVA_CONFIG)
    broker.offsets.commit("CG", "T", 0, 5)
    assert client.call(DELETE, {"groupName": "CG"}).code == 0
    assert broker.tables.groups.get("CG") is None
    assert broker.offsets.query("CG", "T", 0) == 5
    assert client.call(DELETE, {"groupName": "CG", "cleanOffset": "true"}).code == 0
    assert broker.offsets.query("CG", "T", 0) is None
    answer = client.call(ONE, {"group": "CG"})
    assert (answer.code, answer.remark) == (26, "No group in this broker: CG")


async def test_a_group_may_be_forbidden_to_read_a_topic() -> None:
    broker = Broker()
    client = client_of(broker)
    asked = {"group": "g", "topic": "T"}
    said = []
    for readable in (None, "false", None, "true", None):
        fields = asked if readable is None else {**asked, "readable": readable}
        body = msgspec.json.decode(client.call(FORBID, fields).body)
        assert (body.pop("group"), body.pop("topic")) == ("g", "T")
        said.append((body.pop("readable"), broker.tables.groups.forbidden("g", "T")))
        assert not body
    assert said == [(True, 0), (False, 1), (False, 1), (True, 0), (True, 0)]


async def test_nothing_changes_where_the_tables_take_no_change() -> None:
    broker = Broker()
    client = client_of(broker)
    requests = [
        (UPDATE, None, JAVA_CONFIG),
        (DELETE, {"groupName": "CG"}, b""),
        (FORBID, {"group": "g", "topic": "T", "readable": "false"}, b""),
    ]
    with patch.object(broker.tables, "check_change", side_effect=RequestError(14, "no master")):
        answers = [client.call(*request) for request in requests]
    assert {(answer.code, answer.remark) for answer in answers} == {(14, "no master")}
    assert broker.tables.groups.get("CG") is None
    assert broker.tables.groups.forbidden("g", "T") == 0


async def test_bodies_that_are_no_groups_are_refused() -> None:
    client = client_of(Broker())
    for body in (b"", b"[]", b'{"groupName":7}', b"{" * 5000, b'{"groupName":"\xff"}'):
        assert client.call(UPDATE, None, body).code == ResponseCode.SYSTEM_ERROR
    assert client.call(UPDATE, None, b'{"groupName":""}').code == ResponseCode.INVALID_PARAMETER


async def test_who_is_not_the_master_follows_in_deleting() -> None:
    """RocketMQ's tools ask every address of a broker, and stop at the first error."""
    broker, replication = Broker(), FakeReplication()
    client_of(broker).call(UPDATE, None, JAVA_CONFIG)
    replication.demote("another node is the master")
    client = Client(request_table(handlers_of(broker, replication)), broker.outbox)
    with patch.object(broker.tables, "check_change", side_effect=RequestError(14, "no master")):
        assert client.call(DELETE, {"groupName": "CG"}).code == 0
        assert client.call(UPDATE, None, JAVA_CONFIG).code == 14
    assert broker.tables.groups.get("CG") is not None
