"""Halves of transactions over the wire, and the time that passes until they are asked about."""

import msgspec
import pytest

from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    EndTransactionRequestHeader,
    HeartbeatData,
    ProducerData,
    SendMessageResponseHeader,
)
from tandem.wire.route import encode_json_body
from tests.node.doubles import Broker, Client, FakeReplication, handlers_of, request_table
from tests.node.handlers.send_requests import HEADER

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION
HALF, OP, GIVEN_UP = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0

PREPARED = msgspec.structs.replace(
    HEADER,
    sys_flag=4,
    properties="KEYS\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01U1\x02",
)
"""As RocketMQ's clients send it."""

KINDS = pytest.mark.parametrize("is_fenced", [False, True])


def client_of(broker: Broker, replication: FakeReplication | None = None) -> Client:
    return Client(request_table(handlers_of(broker, replication)), broker.outbox)


def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[MessageExt]:
    return decode_messages(
        b"".join(broker.store.whole_log.get_message(topic, queue_id, 0, 32).body)
    )


def prepare(client: Client) -> EndTransactionRequestHeader:
    """Send a half; return what commits it."""
    answer = client.call(SEND, PREPARED, b"x")
    assert answer.code == 0, answer.remark
    told = answer.decode_header(SendMessageResponseHeader)
    return EndTransactionRequestHeader(
        "PG", told.queue_offset, int(told.msg_id[16:], 16), COMMIT, from_transaction_check=False
    )


def heartbeat(client: Client, name: str) -> None:
    beat = HeartbeatData(name, producer_data_set=[ProducerData("PG")])
    assert client.call(RequestCode.HEART_BEAT, {}, encode_json_body(beat)).code == 0


def check(broker: Broker, after_ms: int = 7_000) -> None:
    broker.now_ms += after_ms
    assert broker.transactions.check(lambda: None)
