"""What operators and RocketMQ's brokers ask of a name server."""

from pathlib import Path

import msgspec

from node.name_server.name_server_admin import NameServerAdmin
from node.name_server.route_table import RouteTable
from node.remoting.remoting_client import RemotingClient, RequestFailedError
from node.security.request import handler_table
from node.simulated.disk import SimulatedDisk
from node.tables.kv_config_table import KvConfigTable
from store.machine.table_file import TableFile
from tandem.wire.acl_signature import acl_signature
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    DataVersion,
    RegisterBrokerRequestHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key
from tests.node.doubles import Client
from tests.node.security.guarded_server import open_server
from tests.support.secret import SECRET

MASTER = "127.0.0.1:10911"


def client_of(routes: RouteTable) -> Client:
    values = KvConfigTable(TableFile(SimulatedDisk(), "kvConfig.json"))
    return Client(handler_table(NameServerAdmin(routes, values, 9876)))


def register(routes: RouteTable, *topics: str, counter: int = 1, whole: bool = True) -> None:
    header = RegisterBrokerRequestHeader(
        "broker-a", MASTER, "C", MASTER, 0, enable_acting_master=False, whole_table=whole
    )
    table = {name: TopicConfig(topic_name=name) for name in topics}
    wrapper = TopicConfigSerializeWrapper(table, DataVersion(counter=counter))
    routes.register(header, wrapper, connection=None, now=0)


def perms(routes: RouteTable) -> dict[str, int]:
    found = {}
    for topic in routes.topics():
        route = routes.route(topic)
        assert route is not None
        found[topic] = route.queue_datas[0].perm
    return found


async def test_values_are_kept_by_namespace() -> None:
    client = client_of(RouteTable(20))
    asked = {"namespace": "n", "key": "k"}
    assert client.call(RequestCode.GET_KV_CONFIG, asked).code == ResponseCode.QUERY_NOT_FOUND
    assert client.call(RequestCode.PUT_KV_CONFIG, {**asked, "value": "v"}).code == 0
    assert client.call(RequestCode.GET_KV_CONFIG, asked).ext_fields() == {"value": "v"}
    listed = client.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert msgspec.json.decode(listed.body) == {"table": {"k": "v"}}
    assert client.call(RequestCode.DELETE_KV_CONFIG, asked).code == 0
    listed = client.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert listed.code == ResponseCode.QUERY_NOT_FOUND
    assert client.call(RequestCode.PUT_KV_CONFIG, {"namespace": "", "key": "k"}).code == 1


async def test_a_broker_is_not_written_to_until_it_may_be_again() -> None:
    routes = RouteTable(20)
    register(routes, "T", "U")
    client = client_of(routes)
    answer = client.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert answer.ext_fields() == {"wipeTopicCount": "2"}
    assert perms(routes) == {"T": 4, "U": 4}
    answer = client.call(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert answer.ext_fields() == {"addTopicCount": "2"}
    assert perms(routes) == {"T": 6, "U": 6}
    answer = client.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "other"})
    assert answer.ext_fields() == {"wipeTopicCount": "0"}


async def test_topics_that_a_whole_registration_does_not_list_are_gone() -> None:
    routes = RouteTable(20)
    register(routes, "T", "U")
    register(routes, "T", "V", counter=2, whole=False)
    assert routes.topics() == ["T", "U", "V"]
    register(routes, "V", "W", counter=3)
    assert routes.topics() == ["V", "W"]


async def test_a_topic_is_deleted_where_it_is() -> None:
    routes = RouteTable(20)
    register(routes, "T", "U")
    assert client_of(routes).call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}).code == 0
    assert routes.topics() == ["T", "U"]


async def test_lists_of_topics() -> None:
    routes = RouteTable(20)
    register(routes, "T", "U")
    client = client_of(routes)
    for cluster, topics in (("C", ["T", "U"]), ("D", [])):
        answer = client.call(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        assert msgspec.json.decode(answer.body) == {"topicList": topics}
    answer = client.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert msgspec.json.decode(answer.body) == {
        "topicList": ["C", "broker-a"],
        "brokerAddr": MASTER,
    }
    for code in (311, 312, 313):
        assert msgspec.json.decode(client.call(code).body) == {"topicList": []}


async def test_a_broker_asks_whether_it_has_to_register_again() -> None:
    routes = RouteTable(20)
    register(routes, "T", "U", counter=7)
    client = client_of(routes)
    asked = {"brokerName": "broker-a", "brokerAddr": MASTER, "clusterName": "C", "brokerId": "0"}
    known = msgspec.json.encode(DataVersion(counter=7))
    for body, changed in ((known, "false"), (b"", "true"), (b'{"counter":8}', "true")):
        answer = client.call(RequestCode.QUERY_DATA_VERSION, asked, body)
        assert answer.ext_fields() == {"changed": changed}
        assert msgspec.json.decode(answer.body, type=DataVersion).counter == 7
    answer = client.call(RequestCode.QUERY_DATA_VERSION, {**asked, "brokerAddr": "x"}, known)
    assert (answer.ext_fields(), answer.body) == ({"changed": "true"}, b"")


async def test_the_brokers_of_a_name() -> None:
    routes = RouteTable(20)
    register(routes, "T", "U")
    client = client_of(routes)
    for name, addresses in (("broker-a", {"0": MASTER}), ("other", {})):
        asked = {"brokerName": name, "clusterName": "C"}
        answer = client.call(RequestCode.GET_BROKER_MEMBER_GROUP, asked)
        assert msgspec.json.decode(answer.body) == {
            "brokerMemberGroup": {
                "brokerAddrs": addresses,
                "brokerName": name,
                "cluster": "C",
            }
        }


async def test_a_heartbeat_keeps_who_registered_by_that_connection() -> None:
    routes = RouteTable(20)
    client = client_of(routes)
    header = RegisterBrokerRequestHeader("broker-a", MASTER, "C", MASTER, 0)
    routes.register(header, TopicConfigSerializeWrapper(), connection=client.connection, now=-50)
    beat = {"clusterName": "C", "brokerAddr": MASTER, "brokerName": "broker-a"}
    assert client_of(routes).call(RequestCode.BROKER_HEARTBEAT, beat).code == 0
    client.call(RequestCode.BROKER_HEARTBEAT, {**beat, "brokerAddr": "unknown"})
    kept = RouteTable(20)
    kept.register(header, TopicConfigSerializeWrapper(), connection=client.connection, now=-50)
    beating = client_of(kept)
    kept.register(header, TopicConfigSerializeWrapper(), connection=beating.connection, now=-50)
    beating.call(RequestCode.BROKER_HEARTBEAT, beat)
    assert (routes.expire(0), kept.expire(0)) == ([MASTER], [])


async def test_nothing_of_a_name_server_can_be_set() -> None:
    client = client_of(RouteTable(20))
    text = client.call(RequestCode.GET_NAMESRV_CONFIG).body.decode()
    assert "orderMessageEnable=false\n" in text
    assert "listenPort=9876\n" in text
    assert "/" not in text
    answer = client.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true")
    assert answer.code == ResponseCode.NO_PERMISSION
    same = b"clusterTest=false\nlistenPort=9876\n"
    assert client.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, same).code == 0


async def code_of(client: RemotingClient, code: int, ext: dict[str, str]) -> tuple[int, str]:
    try:
        await client.request(code, ext=ext)
    except RequestFailedError as error:
        return error.answer.code, str(error)
    return 0, ""


async def test_only_operators_stop_the_writing(tmp_path: Path, autojump_clock: object) -> None:
    """RocketMQ's tools with the credentials that this project prints."""
    code, fields = RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}
    async with open_server(tmp_path) as server, server.client() as client:
        refused, remark = await code_of(client, code, fields)
        assert refused == ResponseCode.NO_PERMISSION
        assert "tandem cluster credentials" in remark
        said = {**fields, "AccessKey": OPERATOR_ACCESS_KEY}
        for key, outcome in (("wrong", 16), (operator_secret_key(SECRET), 0)):
            signed = {**said, "Signature": acl_signature(key, said, b"")}
            assert (await code_of(client, code, signed))[0] == outcome
        stranger = {**fields, "AccessKey": "mine", "Signature": "x"}
        assert (await code_of(client, code, stranger))[0] == ResponseCode.NO_PERMISSION
