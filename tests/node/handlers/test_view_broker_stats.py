import pytest

from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import ViewBrokerStatsDataRequestHeader
from tests.node.doubles import Broker
from tests.node.handlers.inspected import looking_at, put, tick

VIEW = RequestCode.VIEW_BROKER_STATS_DATA


@pytest.mark.parametrize(("name", "key"), [("TOPIC_PUT_NUMS", "T"), ("BROKER_PUT_NUMS", "C")])
async def test_an_item_in_its_windows(name: str, key: str) -> None:
    broker = Broker()
    put(broker, 5)
    tick(broker)
    for _ in range(2):
        tick(broker)
    answer = looking_at(broker).call(VIEW, ViewBrokerStatsDataRequestHeader(name, key))
    average = b"1.0" if key == "T" else b"0.0"
    assert answer.body.startswith(b'{"statsDay":{"avgpt":' + average + b',"sum":5,')
    assert b'"statsMinute":{"avgpt":' + average + b',"sum":5,"tps":0.5}}' in answer.body


@pytest.mark.parametrize(("name", "key"), [("NOPE", "x"), ("TOPIC_PUT_NUMS", "x")])
async def test_an_unknown_one(name: str, key: str) -> None:
    answer = looking_at(Broker()).call(VIEW, ViewBrokerStatsDataRequestHeader(name, key))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"The stats <{name}> <{key}> not exist"
