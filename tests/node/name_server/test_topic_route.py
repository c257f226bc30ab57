import msgspec
import pytest

from node.name_server.route_table import RouteTable
from node.name_server.topic_route import LARGE_BYTES, TopicRoute
from tandem.wire.compressed_registration import TOPICS_IN_A_PIECE
from tandem.wire.crc import crc32
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    GetRouteInfoRequestHeader,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicList, TopicRouteData, decode_json_body, encode_json_body
from tests.node.doubles import Client
from tests.support.registration_body import compressed_registration

REGISTER = RequestCode.REGISTER_BROKER
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC

TOPICS = TopicConfigSerializeWrapper(
    {name: TopicConfig(topic_name=name) for name in ("T", "U")},
)
BODY = encode_json_body(RegisterBrokerBody(TOPICS))
HEADER = RegisterBrokerRequestHeader("broker-a", "127.0.0.1:10911", "C", "127.0.0.1:10912", 0)


def client_of(routes: RouteTable) -> Client:
    handler = TopicRoute(routes, lambda _: None, lambda _: None)
    handlers = {
        REGISTER: handler.register,
        RequestCode.UNREGISTER_BROKER: handler.unregister,
        ROUTE: handler.route,
        RequestCode.GET_BROKER_CLUSTER_INFO: handler.cluster_info,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: handler.topic_list,
    }
    return Client({int(code): handle for code, handle in handlers.items()})


async def test_a_registered_broker_is_in_the_route() -> None:
    client = client_of(RouteTable(20))
    assert client.call(REGISTER, HEADER, BODY).code == 0
    answer = client.call(ROUTE, GetRouteInfoRequestHeader("T"))
    route = decode_json_body(answer.body, TopicRouteData)
    assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
    assert b" " not in answer.body


async def test_an_unknown_topic_is_code_17() -> None:
    answer = client_of(RouteTable(20)).call(ROUTE, GetRouteInfoRequestHeader("T"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == "No topic route info in name server for the topic: T"


async def test_a_slave_learns_its_master() -> None:
    client = client_of(RouteTable(20))
    client.call(REGISTER, HEADER, BODY)
    slave = msgspec.structs.replace(HEADER, broker_id=1, broker_addr="127.0.0.2:10911")
    answer = client.call(REGISTER, slave, BODY)
    assert answer.decode_header(RegisterBrokerResponseHeader) == RegisterBrokerResponseHeader(
        "127.0.0.1:10912", "127.0.0.1:10911"
    )


async def test_a_registration_lives_as_long_as_its_connection() -> None:
    routes = RouteTable(20)
    client = client_of(routes)
    client.call(REGISTER, HEADER, BODY)
    assert routes.connection_closed(client.connection) == ["127.0.0.1:10911"]
    assert client.call(ROUTE, GetRouteInfoRequestHeader("T")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_crc_of_the_body_is_checked() -> None:
    client = client_of(RouteTable(20))
    good = msgspec.structs.replace(HEADER, body_crc32=crc32(BODY))
    bad = msgspec.structs.replace(HEADER, body_crc32=crc32(BODY) ^ 1)
    assert client.call(REGISTER, bad, BODY).code == ResponseCode.SYSTEM_ERROR
    assert client.call(REGISTER, good, BODY).code == 0


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_compressed_registration_is_a_registration(*, says_so: bool) -> None:
    client = client_of(RouteTable(20))
    body = compressed_registration(["T 4 8 6 SINGLE_TAG {}", "U 1 1 6 SINGLE_TAG"])
    header = msgspec.structs.replace(HEADER, compressed=says_so, body_crc32=crc32(body))
    assert client.call(REGISTER, header, body).code == 0
    route = decode_json_body(
        client.call(ROUTE, GetRouteInfoRequestHeader("T")).body, TopicRouteData
    )
    (queues,) = route.queue_datas
    assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (4, 8, 6)


async def test_a_compressed_registration_that_is_none_is_refused_and_changes_nothing() -> None:
    client = client_of(RouteTable(20))
    client.call(REGISTER, HEADER, BODY)
    compressed = msgspec.structs.replace(HEADER, compressed=True)
    assert client.call(REGISTER, compressed, b"\x78\x9c").code == ResponseCode.SYSTEM_ERROR
    assert client.call(ROUTE, GetRouteInfoRequestHeader("T")).code == 0


async def test_a_large_compressed_registration_is_decoded_in_pieces() -> None:
    client = client_of(RouteTable(20))
    body = compressed_registration([f"T{n} 8 8 6 SINGLE_TAG " for n in range(TOPICS_IN_A_PIECE)])
    client.begin(REGISTER, msgspec.structs.replace(HEADER, compressed=True), body)
    assert client.end().code == 0
    assert client.pieces == 1


async def test_a_registration_without_topics_is_fine() -> None:
    client = client_of(RouteTable(20))
    assert client.call(REGISTER, HEADER).code == 0


async def test_cluster_and_topics_are_listed_until_the_broker_leaves() -> None:
    client = client_of(RouteTable(20))
    client.call(REGISTER, HEADER, BODY)
    info = client.call(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert msgspec.json.decode(info.body) == {
        "brokerAddrTable": {
            "broker-a": {
                "brokerAddrs": {"0": "127.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": "C",
                "enableActingMaster": False,
            }
        },
        "clusterAddrTable": {"C": ["broker-a"]},
    }
    listing = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert decode_json_body(client.call(listing).body, TopicList).topic_list == ["T", "U"]
    leaving = UnregisterBrokerRequestHeader("broker-a", "127.0.0.1:10911", "C", 0)
    assert client.call(RequestCode.UNREGISTER_BROKER, leaving).code == 0
    assert decode_json_body(client.call(listing).body, TopicList).topic_list == []


async def test_a_name_server_that_is_not_ready_gives_no_route_and_says_why() -> None:
    reasons = [None, "knows no master of broker-a", None]
    handler = TopicRoute(RouteTable(20), lambda _: None, lambda _: reasons.pop(0))
    client = Client({int(REGISTER): handler.register, int(ROUTE): handler.route})
    client.call(REGISTER, HEADER, BODY)
    refused = client.call(ROUTE, GetRouteInfoRequestHeader("T"))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "name remoting not ready: knows no master of broker-a"
    assert client.call(ROUTE, GetRouteInfoRequestHeader("T")).code == 0


async def test_a_large_registration_is_decoded_and_taken_in_in_two_pieces() -> None:
    routes = RouteTable(20)
    client = client_of(routes)
    many = {f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(3_000)}
    body = encode_json_body(RegisterBrokerBody(TopicConfigSerializeWrapper(many)))
    assert len(body) > LARGE_BYTES
    client.begin(REGISTER, HEADER, body)
    assert not routes.is_live(HEADER.broker_addr)
    assert client.end().code == 0
    assert (client.pieces, len(routes.topics())) == (1, 3_000)
