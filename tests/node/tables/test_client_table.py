import pytest

import node.tables.client_table
from node.remoting.connection import Connection, Outbox
from node.tables.client_table import CLIENT_EXPIRED_SECONDS, ClientTable, TooManyClientsError
from tandem.wire.request_headers import ConsumerData, HeartbeatData, SubscriptionData
from tests.node.doubles import FakeStream


def connection() -> Connection:
    return Connection(FakeStream(), Outbox())


def beat(
    client_id: str, *topics: str, group: str = "g", version: int = 1, model: str = "CLUSTERING"
) -> HeartbeatData:
    subscriptions = [SubscriptionData(topic=t, sub_version=version) for t in topics]
    data = ConsumerData(group_name=group, message_model=model, subscription_data_set=subscriptions)
    return HeartbeatData(client_id=client_id, consumer_data_set=[data])


async def test_members_of_a_group_are_listed() -> None:
    table = ClientTable()
    table.heartbeat(beat("c1", "T"), connection(), 0)
    table.heartbeat(beat("c2", "T"), connection(), 0)
    assert sorted(table.client_ids("g")) == ["c1", "c2"]
    assert table.client_ids("other") == []
    assert table.has_group("g")


async def test_a_new_member_is_told_to_the_whole_group_once() -> None:
    table = ClientTable()
    first, second = connection(), connection()
    table.heartbeat(beat("c1", "T"), first, 0)
    assert table.heartbeat(beat("c2", "T"), second, 0) == {"g": [first, second]}
    assert table.heartbeat(beat("c2", "T"), second, 1) == {}


async def test_a_changed_set_of_topics_is_told() -> None:
    table = ClientTable()
    first = connection()
    table.heartbeat(beat("c1", "T"), first, 0)
    assert table.heartbeat(beat("c1", "T", "U"), first, 0) == {"g": [first]}
    assert table.heartbeat(beat("c1", "U"), first, 0) == {"g": [first]}
    assert table.subscription("g", "T") is None


async def test_broadcasting_groups_are_told_nothing() -> None:
    table = ClientTable()
    changed = table.heartbeat(beat("c1", "T", model="BROADCASTING"), connection(), 0)
    assert changed == {"g": []}


async def test_the_newer_version_of_a_subscription_wins() -> None:
    table = ClientTable()
    first = connection()
    table.heartbeat(beat("c1", "T", version=5), first, 0)
    table.heartbeat(beat("c2", "T", version=4), first, 0)
    known = table.subscription("g", "T")
    assert known is not None
    assert known.sub_version == 5


async def test_leaving_is_told_to_those_who_stay() -> None:
    table = ClientTable()
    first, second = connection(), connection()
    table.heartbeat(beat("c1"), first, 0)
    table.heartbeat(beat("c2"), second, 0)
    assert table.leave("g", "c2") == [first]
    assert table.leave("g", "c2") == []
    assert table.leave("g", "c1") == []
    assert not table.has_group("g")


async def test_a_closed_connection_takes_its_clients_with_it() -> None:
    table = ClientTable()
    first, second = connection(), connection()
    table.heartbeat(beat("c1"), first, 0)
    table.heartbeat(beat("c2"), second, 0)
    table.heartbeat(beat("c3", group="h"), second, 0)
    assert table.connection_closed(second) == {"g": [first], "h": []}
    assert table.client_ids("h") == []


async def test_a_client_that_reconnected_stays_when_its_old_connection_closes() -> None:
    table = ClientTable()
    old, new = connection(), connection()
    table.heartbeat(beat("c1"), old, 0)
    table.heartbeat(beat("c1"), new, 1)
    assert table.connection_closed(old) == {}
    assert table.client_ids("g") == ["c1"]


async def test_a_silent_client_is_forgotten() -> None:
    table = ClientTable()
    first, second = connection(), connection()
    table.heartbeat(beat("c1"), first, 0)
    table.heartbeat(beat("c2"), second, 10)
    assert table.expire(CLIENT_EXPIRED_SECONDS) == {}
    assert table.expire(CLIENT_EXPIRED_SECONDS + 1) == {"g": [second]}
    assert table.client_ids("g") == ["c2"]


async def test_the_table_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.tables.client_table, "MEMBERSHIPS_MAX", 2)
    table = ClientTable()
    table.heartbeat(beat("c1"), connection(), 0)
    table.heartbeat(beat("c2"), connection(), 0)
    with pytest.raises(TooManyClientsError) as caught:
        table.heartbeat(beat("c3", group="h"), connection(), 0)
    assert caught.value.count == 3
    assert not table.has_group("h")
    table.heartbeat(beat("c1"), connection(), 1)
    table.leave("g", "c2")
    table.heartbeat(beat("c3", group="h"), connection(), 1)


async def test_a_heartbeat_that_does_not_fit_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.client_table, "MEMBERSHIPS_MAX", 2)
    table = ClientTable()
    groups = [ConsumerData(name) for name in ("a", "b", "c")]
    with pytest.raises(TooManyClientsError):
        table.heartbeat(HeartbeatData("c1", consumer_data_set=groups), connection(), 0)
    assert not any(table.has_group(name) for name in "abc")


async def test_one_connection_cannot_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.tables.client_table, "MEMBERSHIPS_PER_CONNECTION_MAX", 2)
    table = ClientTable()
    greedy = connection()
    table.heartbeat(beat("c1"), greedy, 0)
    table.heartbeat(beat("c2"), greedy, 0)
    with pytest.raises(TooManyClientsError) as caught:
        table.heartbeat(beat("c3"), greedy, 0)
    assert (caught.value.count, caught.value.most) == (3, 2)
    table.heartbeat(beat("c2"), greedy, 1)
    table.heartbeat(beat("c3"), connection(), 1)
    assert table.connection_closed(greedy).keys() == {"g"}
    assert table.client_ids("g") == ["c3"]


async def test_subscriptions_have_a_bound_in_bytes_and_give_back_their_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.client_table, "SUBSCRIPTION_BYTES_MAX", 1000)
    table = ClientTable()
    one, other = connection(), connection()
    table.heartbeat(beat("c1", "T", "U"), one, 0)
    with pytest.raises(TooManyClientsError) as caught:
        table.heartbeat(beat("c2", "T", "U", "V", group="h"), other, 0)
    assert caught.value.count > caught.value.most
    table.connection_closed(one)
    table.heartbeat(beat("c2", "T", "U", "V", group="h"), other, 0)


async def test_a_connection_with_many_clients_is_told_once() -> None:
    table = ClientTable()
    proxy = connection()
    table.heartbeat(beat("c1"), proxy, 0)
    assert table.heartbeat(beat("c2"), proxy, 0) == {"g": [proxy]}


async def test_the_same_version_of_a_subscription_changes_nothing() -> None:
    table = ClientTable()
    first = connection()
    table.heartbeat(beat("c1", "T", version=5), first, 0)
    other = beat("c1", "T", version=5)
    other.consumer_data_set[0].subscription_data_set[0] = SubscriptionData(
        topic="T", sub_string="another", sub_version=5
    )
    table.heartbeat(other, first, 1)
    found = table.subscription("g", "T")
    assert found is not None
    assert found.sub_string != "another"


async def test_how_a_group_reads_is_what_its_last_heartbeat_said() -> None:
    table = ClientTable()
    first = connection()
    table.heartbeat(beat("c1", "T"), first, 0)
    table.heartbeat(beat("c1", "T", model="BROADCASTING"), first, 1)
    assert table.is_broadcasting("g")


async def test_a_group_whose_last_client_has_left_is_told_once() -> None:
    gone: list[str] = []
    table = ClientTable(on_group_gone=gone.append)
    first, second = connection(), connection()
    table.heartbeat(beat("c1", "T"), first, 0)
    table.heartbeat(beat("c2", "T"), second, 0)
    table.leave("g", "c1")
    assert gone == []
    table.connection_closed(second)
    assert gone == ["g"]


async def test_a_heartbeat_that_is_repeated_takes_no_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.tables.client_table, "SUBSCRIPTION_BYTES_MAX", 900)
    table = ClientTable()
    first = connection()
    for now in range(20):
        table.heartbeat(beat("c1", "T"), first, now)
    assert [consumer.client_id for consumer in table.consumers("g")] == ["c1"]
    with pytest.raises(TooManyClientsError):
        table.heartbeat(beat("c2", *"TUVWXY", group="h"), connection(), 20)


async def test_a_heartbeat_of_one_that_is_known_keeps_it() -> None:
    table, first = ClientTable(), connection()
    table.heartbeat(beat("c1"), first, 0)
    table.heartbeat(beat("c1"), first, 100)
    assert table.expire(CLIENT_EXPIRED_SECONDS + 1) == {}
    assert table.client_ids("g") == ["c1"]


async def test_one_that_has_left_is_not_found_silent_later() -> None:
    table, first = ClientTable(), connection()
    table.heartbeat(beat("c1"), first, 0)
    table.heartbeat(beat("c1", group="h"), first, 0)
    table.leave("g", "c1")
    table.connection_closed(first)
    assert table.expire(CLIENT_EXPIRED_SECONDS + 1) == {}
