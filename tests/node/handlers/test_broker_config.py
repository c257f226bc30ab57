from __future__ import annotations

import json

from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import GetBrokerConfigResponseHeader
from tests.node.doubles import Broker, FakeReplication
from tests.node.handlers.inspected import looking_at


def properties_of(body: bytes) -> dict[str, str]:
    return dict(line.split("=", 1) for line in body.decode().splitlines())


async def test_settings_under_rocketmqs_names() -> None:
    answer = looking_at(Broker()).call(RequestCode.GET_BROKER_CONFIG)
    found = properties_of(answer.body)
    expected = {
        "brokerClusterName": "C",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerRole": "SYNC_MASTER",
        "listenPort": "10911",
        "autoCreateTopicEnable": "true",
        "flushDiskType": "ASYNC_FLUSH",
        "fileReservedTime": "72",
        "deleteWhen": "04",
    }
    assert {key: found[key] for key in expected} == expected
    version = json.loads(answer.decode_header(GetBrokerConfigResponseHeader).version)
    assert version.keys() == {"stateVersion", "timestamp", "counter"}


async def test_no_path_and_no_secret_is_told() -> None:
    found = properties_of(looking_at(Broker()).call(RequestCode.GET_BROKER_CONFIG).body)
    told = [key for key, value in found.items() if "/" in value or "ecret" in key or "ath" in key]
    assert told == []


async def test_a_slave_says_that_it_is_one() -> None:
    replication = FakeReplication()
    replication.demote("a slave")
    answer = looking_at(Broker(), replication).call(RequestCode.GET_BROKER_CONFIG)
    assert properties_of(answer.body)["brokerRole"] == "SLAVE"


async def test_nothing_is_changed_and_the_answer_says_what_to_do() -> None:
    client = looking_at(Broker())
    answer = client.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=1\n")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "cluster file" in str(answer.remark)
    assert b"fileReservedTime=72\n" in client.call(RequestCode.GET_BROKER_CONFIG).body
