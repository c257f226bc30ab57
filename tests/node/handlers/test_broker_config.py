import json

import pytest

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


async def test_how_long_files_are_kept_can_be_changed_until_the_node_stops() -> None:
    broker = Broker()
    client = looking_at(broker)
    body = b"# by hand\n\nfileReservedTime=50\nbrokerName=broker-a\n"
    assert client.call(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0
    assert b"fileReservedTime=50\n" in client.call(RequestCode.GET_BROKER_CONFIG).body
    assert broker.store.clean_service.commit_log.file_reserved_time_hours == 50


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"fileReservedTime=50\nbrokerName=other\n", ResponseCode.NO_PERMISSION),
        (b"brokerConfigPath=/x", ResponseCode.NO_PERMISSION),
        (b"fileReservedTime=0", ResponseCode.INVALID_PARAMETER),
        (b"fileReservedTime=-5", ResponseCode.INVALID_PARAMETER),
        (b"fileReservedTime=" + b"9" * 5000, ResponseCode.INVALID_PARAMETER),
        (b"fileReservedTime=x", ResponseCode.INVALID_PARAMETER),
        (b"nonsense", ResponseCode.SYSTEM_ERROR),
        (b"\xff=\xfe", ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_anything_else_is_refused_and_nothing_changes(
    body: bytes, code: ResponseCode
) -> None:
    client = looking_at(Broker())
    answer = client.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == code
    assert b"fileReservedTime=72\n" in client.call(RequestCode.GET_BROKER_CONFIG).body
