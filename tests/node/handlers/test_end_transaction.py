"""Transactions over the wire: the send that is put aside, its end, and the question about it."""

import msgspec
import pytest

from ha.results import Ack
from node.handlers.end_transaction import TransactionTables
from store import PutMessageStatus
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import ONEWAY_FLAG
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, FakeReplication
from tests.node.handlers.halves import (
    COMMIT,
    END,
    GIVEN_UP,
    HALF,
    KINDS,
    OP,
    PREPARED,
    ROLLBACK,
    SEND,
    UNKNOWN,
    check,
    client_of,
    heartbeat,
    prepare,
    stored,
)
from tests.node.handlers.send_requests import HEADER, Waiters
from tests.support.logged import logged


def rolled_back(end: EndTransactionRequestHeader) -> EndTransactionRequestHeader:
    return msgspec.structs.replace(end, commit_or_rollback=ROLLBACK)


@KINDS
async def test_a_half_is_put_aside_and_described_as_it_was_asked_for(
    is_fenced: bool,  # noqa: FBT001
) -> None:
    broker = Broker(is_fenced=is_fenced)
    client = client_of(broker)
    client.call(SEND, HEADER, b"another")
    answer = client.call(SEND, PREPARED, b"x")
    (half,) = stored(broker, HALF)
    assert answer.ext_fields() == {
        "msgId": half.offset_msg_id,
        "queueId": "1",
        "queueOffset": "0",
        "transactionId": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert (half.body, half.queue_id, half.sys_flag) == (b"x", 0, 0)
    assert half.properties["REAL_TOPIC"] == "T"
    assert half.properties["REAL_QID"] == "1"
    assert half.properties["__transactionId__"] == "U1"
    assert len(stored(broker, "T", 1)) == 1


@KINDS
async def test_a_commit_delivers_the_message(is_fenced: bool) -> None:  # noqa: FBT001
    broker = Broker(is_fenced=is_fenced)
    client = client_of(broker)
    end = prepare(client)
    answer = client.call(END, end)
    assert (answer.code, answer.ext_fields()) == (0, {})
    (message,) = stored(broker, "T", 1)
    assert (message.body, message.sys_flag) == (b"x", 8)
    assert message.prepared_transaction_offset == end.commit_log_offset
    assert message.properties["TRAN_MSG"] == "true"
    assert [op.body for op in stored(broker, OP)] == [b"0,"]


async def test_a_rollback_delivers_nothing() -> None:
    broker = Broker()
    client = client_of(broker)
    end = prepare(client)
    assert client.call(END, rolled_back(end)).code == 0
    answer = client.call(END, end)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "the transaction has ended before, in the other way; nothing was changed",
    )
    assert stored(broker, "T", 1) == []


async def test_a_commit_that_is_said_twice_delivers_once() -> None:
    broker = Broker()
    client = client_of(broker)
    end = prepare(client)
    assert [client.call(END, end).code for _ in range(3)] == [0, 0, 0]
    assert len(stored(broker, "T", 1)) == 1


async def test_ends_that_ask_for_no_answer_get_none() -> None:
    """As all clients of RocketMQ send them."""
    waiters = Waiters()
    replication = FakeReplication()
    broker = Broker()
    client = client_of(broker, replication)
    end = prepare(client)
    replication.put_waits[Ack.REPLICATED] = waiters.wait()
    client.send(END, end, flag=ONEWAY_FLAG)
    client.send(END, rolled_back(end), flag=ONEWAY_FLAG)
    assert client.answers() == []
    assert waiters.waiting == []
    assert len(stored(broker, "T", 1)) == 1


@pytest.mark.parametrize("is_repeated", [False, True])
async def test_the_answer_waits_for_replicas(is_repeated: bool) -> None:  # noqa: FBT001
    waiters = Waiters()
    replication = FakeReplication()
    broker = Broker()
    end = prepare(client_of(broker, replication))
    replication.put_waits[Ack.REPLICATED] = waiters.wait()
    client = client_of(broker, replication)
    if is_repeated:
        client.send(END, end, flag=ONEWAY_FLAG)
    client.send(END, end)
    assert client.answers() == []
    ((end_offset, _, _),) = waiters.waiting
    assert end_offset == broker.store.max_physical_offset
    waiters.answer(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, "no slave has it")
    (answer,) = client.answers()
    assert (answer.code, answer.remark) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, "no slave has it")


async def test_who_does_not_know_changes_nothing() -> None:
    broker = Broker()
    client = client_of(broker)
    end = msgspec.structs.replace(prepare(client), commit_or_rollback=UNKNOWN)
    assert client.call(END, end).code == 0
    assert stored(broker, OP) == []


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producer_group": "other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 1}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1 << 40}, "Find prepared transaction message failed"),
    ],
)
async def test_what_names_no_half_is_refused(changes: dict[str, object], remark: str) -> None:
    broker = Broker()
    client = client_of(broker)
    end = prepare(client)
    answer = client.call(END, msgspec.structs.replace(end, **changes))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_a_half_with_an_immunity_has_to_be_ended_within_it() -> None:
    broker = Broker()
    client = client_of(broker)
    properties = f"{PREPARED.properties}CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02"
    header = msgspec.structs.replace(PREPARED, properties=properties)
    told = client.call(SEND, header, b"x").decode_header(SendMessageResponseHeader)
    end = EndTransactionRequestHeader("PG", told.queue_offset, 0, COMMIT)
    broker.now_ms += 20_000
    assert client.call(END, end).code == ResponseCode.ILLEGAL_OPERATION
    checked = msgspec.structs.replace(end, from_transaction_check=True)
    assert client.call(END, checked).code == 0


async def test_a_slave_ends_nothing() -> None:
    replication = FakeReplication()
    client = client_of(Broker(is_slave=True), replication)
    replication.demote("this is a slave")
    answer = client.call(END, EndTransactionRequestHeader("PG", 0, 0, COMMIT))
    assert (answer.code, answer.remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, "this is a slave")


async def test_a_master_that_takes_no_puts_ends_nothing() -> None:
    replication = FakeReplication()
    broker = Broker()
    client = client_of(broker, replication)
    end = prepare(client)
    replication.demote("too few replicas")
    replication.is_master = True
    assert client.call(END, end).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert stored(broker, "T", 1) == []


async def test_a_commit_without_room_is_refused_and_can_be_said_again() -> None:
    broker = Broker()
    client = client_of(broker)
    end = prepare(client)
    broker.store.fence("no room today")
    assert client.call(END, end).code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.store.unfence()
    assert client.call(END, end).code == 0


async def test_a_broker_can_refuse_transactions() -> None:
    broker = Broker()
    broker.set(reject_transaction_message=True)
    client = client_of(broker)
    answer = client.call(SEND, PREPARED, b"x")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert client.call(SEND, HEADER, b"x").code == 0


async def test_a_half_with_a_time_of_its_own_is_refused() -> None:
    client = client_of(Broker())
    header = msgspec.structs.replace(
        PREPARED, properties=f"{PREPARED.properties}TIMER_DELAY_MS\x015000\x02"
    )
    answer = client.call(SEND, header, b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


# -- the question ----------------------------------------------------------------------------------


@KINDS
async def test_a_live_member_of_the_group_is_asked(is_fenced: bool) -> None:  # noqa: FBT001
    broker = Broker(is_fenced=is_fenced)
    client = client_of(broker)
    heartbeat(client, "c1")
    prepare(client)
    check(broker)
    (question,) = client.answers()
    assert question.code == RequestCode.CHECK_TRANSACTION_STATE
    assert question.flag == ONEWAY_FLAG
    _, copy = stored(broker, HALF)
    assert question.ext_fields() == {
        "topic": HALF,
        "tranStateTableOffset": "1",
        "commitLogOffset": str(copy.physical_offset),
        "msgId": "U1",
        "transactionId": "U1",
        "offsetMsgId": copy.offset_msg_id,
        "bname": "broker-a",
    }
    (message,) = decode_messages(question.body)
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"x")
    assert message.queue_offset == 1
    assert message.properties["PGROUP"] == "PG"
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    asked = question.decode_header(CheckTransactionStateRequestHeader)
    end = EndTransactionRequestHeader(
        "PG",
        asked.tran_state_table_offset,
        asked.commit_log_offset,
        COMMIT,
        from_transaction_check=True,
    )
    assert client.call(END, end).code == 0
    assert len(stored(broker, "T", 1)) == 1
    check(broker, 30_000)
    assert client.answers() == []


async def test_the_members_are_asked_in_turn() -> None:
    broker = Broker()
    first, second = client_of(broker), client_of(broker)
    heartbeat(first, "c1")
    heartbeat(second, "c2")
    for _ in range(4):
        prepare(first)
    check(broker)
    assert (len(first.answers()), len(second.answers())) == (2, 2)


async def test_without_a_producer_nobody_is_asked_and_the_half_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    client = client_of(broker)
    prepare(client)
    for _ in range(17):
        check(broker, 30_000)
    told = logged(caplog, "node.handlers.end_transaction")
    assert len([line for line in told if "PG" in line]) == 1
    (given_up,) = stored(broker, GIVEN_UP)
    assert given_up.body == b"x"
    assert broker.topics.get(GIVEN_UP) is not None


async def test_progress_is_that_of_an_ordinary_group() -> None:
    broker = Broker()
    client = client_of(broker)
    client.call(END, prepare(client))
    check(broker)
    broker.store.sync_log()
    check(broker, 30_000)
    offsets = broker.tables.offsets
    assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 1
    assert offsets.query("CID_RMQ_SYS_TRANS", OP, 0) == 1


async def test_what_the_tables_refuse_is_logged_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    tables = TransactionTables(broker.tables)
    progress = tables.progress(is_journaled=False)
    for _ in range(2):
        tables.create_topic("no topic")
    assert len(logged(caplog, "node.handlers.end_transaction")) == 1
    assert progress.query(HALF, 0) == -1
