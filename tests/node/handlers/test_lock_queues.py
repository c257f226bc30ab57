import msgspec

from node.handlers import lock_queues
from node.handlers.lock_queues import LockQueues
from tandem.wire.remoting_command import ONEWAY_FLAG
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, Client, FakeReplication

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ

JAVA = (
    b'{"clientId":"10.0.0.9@1","consumerGroup":"CG","mqSet":[{"brokerName":"broker-a","queueId":0,'
    b'"topic":"T1"}],"onlyThisBroker":false}'
)
"""As RocketMQ 5.3.3's Java client writes it."""


def client_of(broker: Broker, replication: FakeReplication | None = None) -> Client:
    handler = LockQueues(broker.locks, replication or FakeReplication())
    return Client({LOCK: handler.lock, UNLOCK: handler.unlock}, broker.outbox)


async def test_a_client_is_told_which_queues_it_holds() -> None:
    client = client_of(Broker())
    answer = client.call(LOCK, None, JAVA)
    assert answer.code == 0
    assert msgspec.json.decode(answer.body) == {
        "lockOKMQSet": [{"brokerName": "broker-a", "queueId": 0, "topic": "T1"}]
    }
    other = client.call(LOCK, None, JAVA.replace(b"@1", b"@2"))
    assert (other.code, msgspec.json.decode(other.body)) == (0, {"lockOKMQSet": []})


async def test_a_client_that_leaves_gives_its_queues_back() -> None:
    broker = Broker()
    client = client_of(broker)
    client.call(LOCK, None, JAVA)
    client.send(UNLOCK, None, JAVA, flag=ONEWAY_FLAG)
    assert client.answers() == []
    again = client.call(LOCK, None, JAVA.replace(b"@1", b"@2"))
    assert len(msgspec.json.decode(again.body)["lockOKMQSet"]) == 1
    assert client.call(UNLOCK, None, JAVA).code == 0


async def test_only_a_master_grants() -> None:
    replication = FakeReplication()
    client = client_of(Broker(), replication)
    replication.demote("a2 is the master")
    answer = client.call(LOCK, None, JAVA)
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "a2 is the master")


async def test_a_body_that_is_none_is_answered() -> None:
    client = client_of(Broker())
    for body in (b"", b"{}", b"[" * 5_000, b'{"clientId":1}', b"\xff"):
        for code in (LOCK, UNLOCK):
            answer = client.call(code, None, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "a bug" not in (answer.remark or "")


async def test_a_request_for_too_many_queues_is_refused_unread() -> None:
    client = client_of(Broker())
    many = b"{" * (lock_queues.QUEUES_PER_REQUEST_MAX + 2)
    for code in (LOCK, UNLOCK):
        for body in (many, b"[" * (lock_queues.BYTES_MAX + 1)):
            answer = client.call(code, None, body)
            assert answer.code == ResponseCode.INVALID_PARAMETER
