import pytest

import node.tables.producer_table
from node.errors import RequestError
from node.remoting.connection import Connection, Outbox
from node.tables.client_table import TooManyClientsError
from node.tables.producer_table import PRODUCER_EXPIRED_SECONDS, ProducerTable
from tandem.wire.request_headers import HeartbeatData, ProducerData
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import FakeStream


def connection() -> Connection:
    return Connection(FakeStream(), Outbox())


def beat(client_id: str, *groups: str) -> HeartbeatData:
    return HeartbeatData(client_id, producer_data_set=[ProducerData(group) for group in groups])


def take(
    table: ProducerTable, client_id: str, *groups: str, on: Connection, now: float = 0
) -> None:
    data = beat(client_id, *groups)
    table.check(data, on)
    table.heartbeat(data, on, "JAVA", 479, now)


async def test_members_of_a_group_are_listed_with_what_they_speak() -> None:
    table, first, second = ProducerTable(), connection(), connection()
    take(table, "c1", "g", "h", on=first, now=1)
    take(table, "c2", "g", on=second, now=2)
    assert table.groups() == ["g", "h"]
    assert [(p.client_id, p.connection, p.last) for p in table.producers("g")] == [
        ("c1", first, 1),
        ("c2", second, 2),
    ]
    assert {(p.language, p.version) for p in table.producers("g")} == {("JAVA", 479)}
    assert table.producers("other") == []


async def test_members_are_asked_in_turn() -> None:
    table, connections = ProducerTable(), [connection() for _ in range(3)]
    for number, each in enumerate(connections):
        take(table, f"c{number}", "g", on=each)
    assert [table.next_connection("g") for _ in range(4)] == [*connections, connections[0]]
    take(table, "c1", "g", on=connections[1], now=30)
    assert table.next_connection("g") is connections[1], "a heartbeat does not change the turns"
    assert table.next_connection("other") is None


async def test_a_member_that_does_not_read_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    table, slow, other = ProducerTable(), connection(), connection()
    take(table, "slow", "g", on=slow)
    take(table, "other", "g", on=other)
    monkeypatch.setattr(Connection, "is_congested", property(lambda each: each is slow))
    assert [table.next_connection("g") for _ in range(2)] == [other, other]
    table.connection_closed(other)
    assert table.next_connection("g") is slow, "better than nobody"


async def test_the_connection_of_a_client_is_that_of_its_last_heartbeat() -> None:
    table, old, new = ProducerTable(), connection(), connection()
    take(table, "c", "g", "h", on=old)
    assert table.connection_of("c") is old
    take(table, "c", "g", on=new, now=1)
    assert table.connection_of("c") is new
    table.connection_closed(old)
    assert table.connection_of("c") is new
    assert table.groups() == ["g"]
    table.leave("g", "c", old)
    assert table.groups() == ["g"], "its old connection does not speak for it any more"
    table.leave("g", "c", new)
    assert table.connection_of("c") is None
    assert table.groups() == []


async def test_a_client_is_known_as_long_as_one_of_its_groups_is() -> None:
    table, only = ProducerTable(), connection()
    take(table, "c", "g", "CLIENT_INNER_PRODUCER", on=only)
    table.leave("g", "c", only)
    table.leave("g", "c", only)
    table.leave("g", "nobody", only)
    assert table.connection_of("c") is only


async def test_a_silent_producer_is_forgotten() -> None:
    table, first, second = ProducerTable(), connection(), connection()
    take(table, "c1", "g", on=first, now=0)
    take(table, "c2", "g", on=second, now=10)
    table.expire(PRODUCER_EXPIRED_SECONDS)
    assert len(table.producers("g")) == 2
    table.expire(PRODUCER_EXPIRED_SECONDS + 1)
    assert [p.client_id for p in table.producers("g")] == ["c2"]
    assert table.connection_of("c1") is None


async def test_the_table_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.tables.producer_table, "MEMBERSHIPS_MAX", 2)
    table, only = ProducerTable(), connection()
    take(table, "c1", "g", "h", on=only)
    take(table, "c1", "g", "h", on=connection())
    with pytest.raises(TooManyClientsError) as caught:
        table.check(beat("c2", "g"), only)
    assert caught.value.count == 3
    table.expire(1_000)
    take(table, "c2", "g", on=only)


async def test_one_connection_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.tables.producer_table, "MEMBERSHIPS_PER_CONNECTION_MAX", 2)
    table, only = ProducerTable(), connection()
    take(table, "c1", "g", "h", on=only)
    table.check(beat("c1", "g", "h"), only)
    with pytest.raises(TooManyClientsError) as caught:
        table.check(beat("c1", "i"), only)
    assert caught.value.count == 3
    take(table, "c1", "g", on=connection())
    table.check(beat("c1", "i"), only)


@pytest.mark.parametrize(
    "data",
    [
        beat("c" * 256, "g"),
        beat("c", "\u4e2d" * 86),
        beat("c", *map(str, range(1_025))),
    ],
)
async def test_what_is_too_much_for_one_heartbeat_is_refused(data: HeartbeatData) -> None:
    with pytest.raises(RequestError) as caught:
        ProducerTable().check(data, connection())
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


async def test_one_that_has_left_is_not_found_silent_later() -> None:
    table, only = ProducerTable(), connection()
    take(table, "c", "g", "h", on=only)
    table.leave("g", "c", only)
    table.connection_closed(only)
    table.expire(PRODUCER_EXPIRED_SECONDS + 1)
    assert table.groups() == []
