import msgspec
import pytest

import node.name_server.route_table
from node.errors import RequestError
from node.name_server.route_table import RouteTable
from tandem.wire.request_headers import (
    DataVersion,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegistrationPart,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import QueueData, encode_json_body

MASTER = "127.0.0.1:10911"
SLAVE = "127.0.0.2:10911"
SLAVE_2 = "127.0.0.3:10911"


def header(
    broker_id: int, address: str, *, name: str = "broker-a", acting_master: bool | None = False
) -> RegisterBrokerRequestHeader:
    return RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=address,
        cluster_name="C",
        ha_server_addr=address.replace("10911", "10912"),
        broker_id=broker_id,
        enable_acting_master=acting_master,
    )


def topics(*names: str, counter: int = 1, state_version: int = 0) -> TopicConfigSerializeWrapper:
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in names
    }
    return TopicConfigSerializeWrapper(table, DataVersion(state_version, 0, counter))


def register(
    table: RouteTable,
    broker_id: int,
    address: str,
    names: str = "T U",
    *,
    connection: object | None = None,
    now: float = 0.0,
    counter: int = 1,
    acting_master: bool | None = False,
) -> RegisterBrokerResponseHeader:
    return table.register(
        header(broker_id, address, acting_master=acting_master),
        topics(*names.split(), counter=counter),
        connection=connection,
        now=now,
    )


def addresses(table: RouteTable, topic: str = "T") -> dict[int, str]:
    route = table.route(topic)
    return {} if route is None else route.broker_datas[0].broker_addrs


def test_the_route_is_compact_with_quoted_addresses() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER)
    register(table, 1, SLAVE)
    route = table.route("T")
    assert route is not None
    assert encode_json_body(route) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"C","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_an_unknown_topic_has_no_route() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER)
    assert table.route("nope") is None


def test_a_slave_is_told_where_its_master_is() -> None:
    table = RouteTable(20)
    assert register(table, 1, SLAVE) == RegisterBrokerResponseHeader()
    assert register(table, 0, MASTER) == RegisterBrokerResponseHeader()
    assert register(table, 1, SLAVE) == RegisterBrokerResponseHeader("127.0.0.1:10912", MASTER)


def test_without_its_master_a_topic_stays_with_the_slave() -> None:
    table = RouteTable(20)
    connection = object()
    register(table, 0, MASTER, connection=connection)
    register(table, 1, SLAVE)
    assert table.connection_closed(connection) == [MASTER]
    assert addresses(table) == {1: SLAVE}


def test_a_slave_alone_brings_its_topics_unless_it_is_an_old_broker() -> None:
    table = RouteTable(20)
    register(table, 1, SLAVE, acting_master=None)
    assert table.route("T") is None
    register(table, 1, SLAVE, counter=2)
    assert addresses(table) == {1: SLAVE}


def test_topics_come_from_the_master_once_it_is_there() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER, "T U")
    register(table, 1, SLAVE, "T U V", counter=9)
    assert table.route("V") is None


def test_a_broker_that_is_silent_for_too_long_leaves() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER, now=100)
    register(table, 1, SLAVE, now=110)
    assert table.expire(120) == []
    assert table.expire(120.1) == [MASTER]
    assert table.expire(130.1) == [SLAVE]
    assert table.route("T") is None
    assert table.topics() == []


def test_hearing_from_a_broker_again_keeps_it() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER, now=100)
    register(table, 0, MASTER, now=115)
    assert table.expire(121) == []


def test_a_broker_that_reconnected_is_not_lost_with_its_old_connection() -> None:
    table = RouteTable(20)
    old, new = object(), object()
    register(table, 0, MASTER, connection=old)
    register(table, 0, MASTER, connection=new)
    assert table.connection_closed(old) == []
    assert addresses(table) == {0: MASTER}


def test_an_unregistered_broker_leaves_and_a_stranger_cannot_send_it_away() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER)
    table.unregister(UnregisterBrokerRequestHeader("broker-b", MASTER, "C", 0))
    table.unregister(UnregisterBrokerRequestHeader("broker-a", SLAVE, "C", 0))
    assert addresses(table) == {0: MASTER}
    table.unregister(UnregisterBrokerRequestHeader("broker-a", MASTER, "C", 0))
    assert table.route("T") is None


def test_one_topic_before_all_is_refused() -> None:
    """RouteInfoManager.registerBroker: a single-topic increment before the first registration."""
    table = RouteTable(20)
    with pytest.raises(RequestError, match="register broker failed"):
        register(table, 0, MASTER, "T")
    assert table.topics() == []
    register(table, 0, MASTER, "")
    register(table, 0, MASTER, "T", counter=2)
    assert addresses(table) == {0: MASTER}


def test_topics_are_taken_again_only_with_a_new_version_and_never_dropped() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER, "T U", counter=1)
    register(table, 0, MASTER, "V W", counter=1)
    assert table.topics() == ["T", "U"]
    register(table, 0, MASTER, "V W", counter=2)
    assert table.topics() == ["T", "U", "V", "W"]


def test_a_slave_that_comes_back_as_master_is_one_broker() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER)
    register(table, 1, SLAVE)
    register(table, 0, SLAVE, counter=2)
    assert addresses(table) == {0: SLAVE}
    assert table.expire(20.1) == [SLAVE]


def test_an_id_held_with_a_higher_state_version_is_not_given_away() -> None:
    table = RouteTable(20)
    table.register(header(0, MASTER), topics("T", "U", state_version=2), connection=None, now=0)
    answer = table.register(
        header(0, SLAVE), topics("T", "U", state_version=1), connection=None, now=0
    )
    assert answer == RegisterBrokerResponseHeader()
    assert addresses(table) == {0: MASTER}


def test_the_cluster_lists_all_brokers() -> None:
    table = RouteTable(20)
    register(table, 0, MASTER)
    register(table, 1, SLAVE)
    table.register(header(0, SLAVE_2, name="broker-b"), topics(), connection=None, now=0)
    info = table.cluster_info()
    assert info.cluster_addr_table == {"C": ["broker-a", "broker-b"]}
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: MASTER, 1: SLAVE}
    assert info.broker_addr_table["broker-b"].broker_addrs == {0: SLAVE_2}


def test_an_expiry_of_its_own_is_respected() -> None:
    table = RouteTable(20)
    impatient = RegisterBrokerRequestHeader("b", MASTER, "C", "", 0, heartbeat_timeout_millis=1000)
    table.register(impatient, topics(), connection=None, now=0)
    assert table.expire(1.1) == [MASTER]


def register_master(table: RouteTable, address: str, epoch: int) -> None:
    table.register(
        header(0, address), topics("T", "U", state_version=epoch), connection=None, now=0.0
    )


def epoch_of(table: RouteTable) -> object:
    route = table.route("T")
    assert route is not None
    return route.broker_datas[0].master_epoch


def test_the_newer_of_two_masters_is_the_one_in_the_route() -> None:
    table = RouteTable(20)
    register_master(table, MASTER, 3)
    register_master(table, SLAVE, 4)
    assert addresses(table) == {0: SLAVE}
    register_master(table, MASTER, 3)
    assert addresses(table) == {0: SLAVE}
    assert epoch_of(table) == 4


def test_an_old_master_that_comes_back_as_a_slave_loses_its_place() -> None:
    table = RouteTable(20)
    register_master(table, MASTER, 3)
    register(table, 1, MASTER)
    assert addresses(table) == {1: MASTER}
    register_master(table, SLAVE, 4)
    assert addresses(table) == {0: SLAVE, 1: MASTER}


def test_a_route_without_a_master_tells_no_epoch() -> None:
    table = RouteTable(20)
    table.register(header(1, SLAVE), topics("T", "U", state_version=4), connection=None, now=0.0)
    assert epoch_of(table) is msgspec.UNSET


def test_topics_have_a_bound_and_give_back_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.name_server.route_table, "ENTRIES_MAX", 5)
    table = RouteTable(20)
    register(table, 0, MASTER, "A B C")
    register(table, 0, MASTER, "A B C D", counter=2)
    other = header(0, SLAVE, name="broker-b")
    with pytest.raises(RequestError) as caught:
        table.register(other, topics("A", "B"), connection=None, now=0)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert not table.is_live(SLAVE)
    register(table, 0, MASTER, "A B C D", counter=3)
    table.unregister(UnregisterBrokerRequestHeader("broker-a", MASTER, "C", 0))
    table.register(other, topics("A", "B", "C", "D", "E"), connection=None, now=0)
    assert len(table.topics()) == 5


@pytest.mark.parametrize("field", ["broker_name", "broker_addr", "cluster_name", "ha_server_addr"])
def test_names_have_a_bound(field: str) -> None:
    table = RouteTable(20)
    long = msgspec.structs.replace(header(0, MASTER), **{field: "x" * 256})
    with pytest.raises(RequestError) as caught:
        table.register(long, topics("A", "B"), connection=None, now=0)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert table.topics() == []


def test_clients_are_told_the_address_that_the_master_asks_for() -> None:
    table = RouteTable(20)
    own = header(0, MASTER)
    other = msgspec.structs.replace(own, client_addr="127.0.0.100:10911")
    table.register(other, topics("T", "U"), connection=None, now=0)
    register(table, 1, SLAVE)
    assert addresses(table) == {0: "127.0.0.100:10911", 1: SLAVE}
    assert table.cluster_info().broker_addr_table["broker-a"].broker_addrs == addresses(table)
    # Slaves copy from the place where it really is.
    assert register(table, 1, SLAVE).master_addr == MASTER
    table.register(own, topics("T", "U"), connection=None, now=0)
    assert addresses(table) == {0: MASTER, 1: SLAVE}


def test_a_slaves_address_for_clients_is_its_own() -> None:
    table = RouteTable(20)
    asks = msgspec.structs.replace(header(1, SLAVE), client_addr="127.0.0.100:10911")
    table.register(asks, topics("T", "U"), connection=None, now=0)
    assert addresses(table) == {1: SLAVE}


class Registered:
    """A broker that registers its whole table, which has the same records again and again."""

    def __init__(self, count: int = 100) -> None:
        self.routes = RouteTable(20)
        self.topics = {
            f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(count)
        }
        self.counter = 0

    def register(self, broker_id: int = 0, address: str = MASTER, **changed: TopicConfig) -> None:
        self.counter += 1
        self.topics = {**self.topics, **changed}
        whole = msgspec.structs.replace(header(broker_id, address), whole_table=True)
        version = DataVersion(0, 0, self.counter)
        wrapper = TopicConfigSerializeWrapper(self.topics, version)
        self.routes.register(whole, wrapper, connection=None, now=0.0)

    def perm(self, topic: str) -> int | None:
        route = self.routes.route(topic)
        return None if route is None else route.queue_datas[0].perm


def test_one_new_topic_of_many_is_the_only_one_that_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each new topic of a node with 30,000 took 20 ms, in which nobody was served."""
    broker = Registered()
    broker.register()
    looked_at: list[str] = []
    made = node.name_server.route_table._queue_data

    def counted(name: str, config: TopicConfig) -> QueueData:
        looked_at.append(config.topic_name)
        return made(name, config)

    monkeypatch.setattr(node.name_server.route_table, "_queue_data", counted)
    broker.register(New=TopicConfig(topic_name="New"))
    broker.register(T7=TopicConfig(topic_name="T7", perm=2))
    assert looked_at == ["New", "T7"]
    assert (broker.perm("New"), broker.perm("T7"), broker.perm("T8")) == (6, 2, 6)
    del broker.topics["T8"]
    broker.register()
    assert (broker.perm("T8"), broker.perm("T9")) == (None, 6)


def test_what_was_changed_otherwise_is_looked_at_again() -> None:
    broker = Registered()
    broker.register()
    broker.routes.set_writable("broker-a", is_writable=False)
    assert broker.perm("T7") == 4
    broker.register()
    assert broker.perm("T7") == 6
    # A broker of RocketMQ in the same place, which lists one topic.
    broker.counter += 1
    one = {"T7": TopicConfig(topic_name="T7", perm=2)}
    wrapper = TopicConfigSerializeWrapper(one, DataVersion(0, 0, broker.counter))
    broker.routes.register(header(0, MASTER), wrapper, connection=None, now=0.0)
    assert broker.perm("T7") == 2
    broker.register()
    assert broker.perm("T7") == 6


def test_a_broker_that_gets_another_id_brings_all_its_topics_again() -> None:
    broker = Registered()
    broker.register(1)
    broker.register(0)
    assert len(broker.routes.topics()) == 100
    broker.routes.expire(1_000)
    assert broker.routes.topics() == []
    broker.register(0)
    assert len(broker.routes.topics()) == 100


class Pieces:
    """A broker whose table comes in pieces by one connection."""

    def __init__(self) -> None:
        self.routes = RouteTable(20)
        self.connection: object | None = object()
        self.counter = 0

    def register(
        self,
        part: RegistrationPart,
        names: str,
        part_from: str | None = None,
        part_to: str | None = None,
        *,
        removed: str = "",
        broker_id: int = 0,
    ) -> None:
        self.counter += 1
        piece = msgspec.structs.replace(
            header(broker_id, MASTER), part=part, part_from=part_from, part_to=part_to
        )
        self.routes.register(
            piece,
            topics(*names.split(), counter=self.counter),
            removed.split(),
            connection=self.connection,
            now=0,
        )

    @property
    def listed(self) -> str:
        return " ".join(sorted(self.routes.topics()))


def test_pieces_say_which_topics_of_their_part_are_no_more() -> None:
    broker = Pieces()
    broker.register(RegistrationPart.FIRST, "A B", part_to="M")
    broker.register(RegistrationPart.NEXT, "M N", part_from="M")
    assert broker.listed == "A B M N"
    broker.register(RegistrationPart.FIRST, "B", part_to="M")
    assert broker.listed == "B M N", "of the other part it says nothing"
    broker.register(RegistrationPart.NEXT, "", part_from="M")
    assert broker.listed == "B"
    assert broker.routes.topic_config("B") == topics("B").topic_config_table["B"]


def test_a_change_says_what_is_new_and_what_is_no_more() -> None:
    broker = Pieces()
    broker.register(RegistrationPart.FIRST, "A B")
    broker.register(RegistrationPart.CHANGE, "C", removed="A unknown")
    assert broker.listed == "B C"
    broker.register(RegistrationPart.CHANGE, "")
    assert broker.listed == "B C"


def test_a_topic_of_another_broker_stays_if_a_piece_does_not_list_it() -> None:
    broker = Pieces()
    other = header(0, SLAVE, name="broker-b")
    broker.routes.register(other, topics("A", "O"), connection=None, now=0)
    broker.register(RegistrationPart.FIRST, "A B")
    broker.register(RegistrationPart.FIRST, "B")
    broker.register(RegistrationPart.CHANGE, "", removed="O")
    assert broker.listed == "A B O"


@pytest.mark.parametrize("part", [RegistrationPart.NEXT, RegistrationPart.CHANGE])
def test_a_part_that_goes_on_with_what_is_not_known_is_refused(part: RegistrationPart) -> None:
    broker = Pieces()
    with pytest.raises(RequestError):
        broker.register(part, "A B")
    broker.register(RegistrationPart.FIRST, "A B")
    assert broker.routes.expire(100.0) == [MASTER]
    with pytest.raises(RequestError):
        broker.register(part, "C D")
    broker.register(RegistrationPart.FIRST, "A B")
    broker.connection = object()
    with pytest.raises(RequestError):
        broker.register(part, "C D")
    assert broker.listed == "A B"


def test_a_slave_whose_changes_were_passed_over_registers_all_once_it_is_first() -> None:
    """Its master has gone before it could say the same."""
    broker = Pieces()
    master, slave = object(), object()

    def register(broker_id: int, part: RegistrationPart, names: str) -> None:
        address, connection = ((MASTER, master), (SLAVE, slave))[broker_id]
        broker.counter += 1
        piece = msgspec.structs.replace(
            header(broker_id, address), part=part, enable_acting_master=False
        )
        new = topics(*names.split(), counter=broker.counter)
        broker.routes.register(piece, new, connection=connection, now=0)

    register(0, RegistrationPart.FIRST, "A")
    register(1, RegistrationPart.FIRST, "A")
    register(1, RegistrationPart.CHANGE, "New")
    broker.routes.connection_closed(master)
    with pytest.raises(RequestError):
        register(1, RegistrationPart.CHANGE, "")
    register(1, RegistrationPart.FIRST, "A New")
    assert broker.listed == "A New"
    register(1, RegistrationPart.CHANGE, "B")
    assert broker.listed == "A B New"


def test_the_number_of_topics_is_bounded_over_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.name_server.route_table.ENTRIES_MAX", 3)
    broker = Pieces()
    broker.register(RegistrationPart.FIRST, "A B", part_to="M")
    with pytest.raises(RequestError):
        broker.register(RegistrationPart.NEXT, "M N", part_from="M")
    broker.register(RegistrationPart.CHANGE, "", removed="A")
    broker.register(RegistrationPart.NEXT, "M N", part_from="M")
    assert broker.listed == "B M N"


def test_the_table_of_the_node_itself_is_not_changed_by_pieces() -> None:
    broker = Pieces()
    broker.connection = None
    whole = topics("A", "B")
    own = msgspec.structs.replace(header(0, MASTER), whole_table=True)
    broker.routes.register(own, whole, connection=None, now=0)
    broker.register(RegistrationPart.CHANGE, "C", removed="A")
    assert sorted(whole.topic_config_table) == ["A", "B"]
    assert broker.listed == "B C"
