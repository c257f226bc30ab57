from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire import route
from tandem.wire.errors import MalformedFrameError
from tandem.wire.route import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicRouteData,
    decode_json_body,
    encode_json_body,
)

ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(
            broker_name="broker-a",
            broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
            cluster="DefaultCluster",
        )
    ],
    queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6)],
)
ROUTE_JSON = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
    b'"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
    b'"writeQueueNums":4}]}'
)


def test_a_route_is_written_compact_and_in_the_order_of_fastjson() -> None:
    assert encode_json_body(ROUTE) == ROUTE_JSON


def test_a_route_is_read_back() -> None:
    assert decode_json_body(ROUTE_JSON, TopicRouteData) == ROUTE


def test_bare_integer_keys_of_java_are_read() -> None:
    bare = ROUTE_JSON.replace(b'"0":', b"0:").replace(b'"1":', b"1:")
    assert bare != ROUTE_JSON
    assert decode_json_body(bare, TopicRouteData) == ROUTE


def test_text_that_looks_like_a_bare_key_is_left_alone() -> None:
    body = b'{"brokerAddrTable":{"x{1:,2:\\"":{"brokerAddrs":{0:"a:1"},"brokerName":"{3:"}}}'
    info = decode_json_body(body, ClusterInfo)
    assert info.broker_addr_table['x{1:,2:"'] == BrokerData(
        broker_name="{3:", broker_addrs={0: "a:1"}
    )


def test_a_string_without_an_end_is_refused_at_once() -> None:
    with pytest.raises(MalformedFrameError):
        decode_json_body(b'{"' + b'\\"' * 1_000_000, ClusterInfo)


def test_unknown_keys_are_ignored() -> None:
    body = ROUTE_JSON[:-1] + b',"topicQueueMappingByBroker":null}'
    assert decode_json_body(body, TopicRouteData) == ROUTE


@given(st.binary(max_size=60))
def test_random_bodies_are_accepted_or_refused_as_the_peers_fault(body: bytes) -> None:
    with suppress(MalformedFrameError):
        decode_json_body(body, TopicRouteData)


def test_a_number_of_queues_that_nobody_has_is_refused() -> None:
    most = ROUTE_JSON.replace(b'"writeQueueNums":4', b'"writeQueueNums":65535')
    assert decode_json_body(most, TopicRouteData).queue_datas[0].write_queue_nums == 65_535
    with pytest.raises(MalformedFrameError):
        decode_json_body(most.replace(b"65535", b"65536"), TopicRouteData)


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(MalformedFrameError):
        decode_json_body(b'{"queueDatas":5}', TopicRouteData)


@pytest.mark.parametrize("body", [b'{"brokerDatas": 1, "x": {0: ', b'{"brokerDatas": [', b"{}x"])
def test_keys_are_quoted_only_where_that_can_help(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quote(_body: bytes) -> bytes:
        raise AssertionError("looked at each string")

    monkeypatch.setattr(route, "_quote_integer_keys", quote)
    with pytest.raises(MalformedFrameError):
        decode_json_body(body, TopicRouteData)
