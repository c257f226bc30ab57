"""A broker with messages, groups and clients, and a client that looks at it."""

from store import PutMessage
from tandem.wire.request_headers import ConsumerData, HeartbeatData, SubscriptionData
from tests.node.doubles import NOW_MS, Broker, Client, FakeReplication, handlers_of, request_table


def looking_at(broker: Broker, replication: FakeReplication | None = None) -> Client:
    return Client(request_table(handlers_of(broker, replication)), broker.outbox)


def put(
    broker: Broker, count: int = 1, *, topic: str = "T", queue_id: int = 0, tag: str = ""
) -> None:
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    for _ in range(count):
        message = PutMessage(topic, queue_id, b"x", properties, NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
        assert broker.store.puts.put_message(message).status == 0
    broker.store.announce()


def join(broker: Broker, client_id: str, group: str, *topics: str, sub_string: str = "*") -> None:
    """Have a client of a group want these topics."""
    client = Client({}, broker.outbox)
    wanted = [SubscriptionData(topic, sub_string) for topic in topics]
    data = ConsumerData(group, subscription_data_set=wanted)
    broker.clients.heartbeat(
        HeartbeatData(client_id, consumer_data_set=[data]), client.connection, 0.0
    )


def tick(broker: Broker) -> None:
    """Count what has come, and take the snapshots."""
    broker.counting.refresh()
    for _ in broker.stats.snapshots(NOW_MS):
        pass
