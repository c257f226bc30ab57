import msgspec
import pytest
import trio

from ha.results import Ack, PutWait, Refusal
from node.handlers import parked_puts
from node.handlers.send_message import SendMessage
from node.handlers.send_properties import PropertyStamp
from store import PutMessageStatus
from tandem.wire.message import Message, decode_messages, encode_batch_body
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import ONEWAY_FLAG, SerializeType
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    TopicConfig,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client, FakeReplication
from tests.node.handlers.send_requests import HEADER, Waiters

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


def answered_at_once(status: PutMessageStatus, reason: str) -> PutWait:
    return PutWait(lambda end_offset, deadline, done: done(status, reason), lambda: 0, 3.0)


class Sender(Client):
    """A client of one send handler; looking for answers ends a round."""

    def __init__(
        self,
        broker: Broker,
        flush: PutWait | None = None,
        replication: PutWait | None = None,
        disks: PutWait | None = None,
    ) -> None:
        self.replication = FakeReplication()
        self.replication.put_waits = {Ack.REPLICATED: replication, Ack.FLUSHED: disks}
        stamp = PropertyStamp("C", lambda: "NEW")
        handler = SendMessage(
            broker.store,
            broker.tables,
            stamp,
            self.replication,
            flush,
            broker.random,
            broker.locks,
            "broker-a",
            broker.put_times,
        )
        codes = (RequestCode.SEND_MESSAGE, SEND, BATCH)
        super().__init__(dict.fromkeys(codes, handler.handle), broker.outbox)


def sender(
    broker: Broker, flush: PutWait | None = None, replication: PutWait | None = None
) -> Sender:
    return Sender(broker, flush, replication, replication)


def header(**changes: object) -> SendMessageRequestHeaderV2:
    return msgspec.structs.replace(HEADER, **changes)


def stored_bodies(broker: Broker, topic: str = "T", queue_id: int = 1) -> list[bytes]:
    result = broker.store.reads.get_message(topic, queue_id, 0, 32)
    return [message.body for message in decode_messages(b"".join(result.body))]


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_a_message_is_stored_and_described(serialize_type: SerializeType) -> None:
    broker = Broker()
    answer = sender(broker).call(SEND, HEADER, b"hello", serialize_type=serialize_type)
    assert (answer.code, answer.remark) == (0, None)
    told = answer.decode_header(SendMessageResponseHeader)
    assert (told.msg_id, told.queue_id, told.queue_offset) == (
        "7F00000100002A9F0000000000000000",
        1,
        0,
    )
    message = decode_messages(b"".join(broker.store.reads.get_message("T", 1, 0, 1).body))[0]
    assert (message.body, message.flag, message.born_timestamp_ms) == (b"hello", 3, NOW_MS - 5)
    assert str(message.born_host) == "10.1.2.3:1234"
    assert message.properties == {
        "KEYS": "k",
        "UNIQ_KEY": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "C",
    }


async def test_clients_of_rocketmq_are_told_what_they_expect() -> None:
    answer = sender(Broker()).call(SEND, HEADER, b"hello")
    assert answer.ext_fields() == {
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "1",
        "queueOffset": "0",
        "transactionId": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_long_names_are_the_same_request() -> None:
    broker = Broker()
    fields = {name: getattr(HEADER, name) for name in HEADER.__struct_fields__}
    client = sender(broker)
    assert client.call(RequestCode.SEND_MESSAGE, SendMessageRequestHeader(**fields), b"x").code == 0
    assert stored_bodies(broker) == [b"x"]


async def test_a_oneway_send_is_stored_and_not_answered() -> None:
    broker = Broker()
    waiters = Waiters()
    client = sender(broker, replication=waiters.wait())
    client.send(SEND, HEADER, b"x", flag=ONEWAY_FLAG)
    assert client.answers() == []
    assert waiters.waiting == []
    assert stored_bodies(broker) == [b"x"]


async def test_without_a_queue_the_broker_picks_one() -> None:
    broker = Broker()
    client = sender(broker)
    queues = {
        client.call(SEND, header(queue_id=-1), b"x").ext_fields()["queueId"] for _ in range(50)
    }
    assert queues == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("properties", "queue_id", "keeps"),
    [
        ("", 2, True),
        ("TAGS\x01t\x02", 2, True),
        ("DELAY\x010\x02", 1, False),
        ("__SHARDINGKEY\x01k\x02", 1, False),
        ("TRAN_MSG\x01false\x02", 2, True),
    ],
)
async def test_a_message_with_a_priority_goes_to_its_queue(
    properties: str, queue_id: int, *, keeps: bool
) -> None:
    """SendMessageProcessor.sendMessage of 5.5.0: not beside something else that chooses."""
    broker = Broker()
    client = sender(broker)
    given = f"{properties}_SYS_MSG_PRIORITY_\x012\x02K\x01v\x02"
    answer = client.call(SEND, header(queue_id=1, properties=given), b"hello")
    assert answer.code == 0
    assert answer.decode_header(SendMessageResponseHeader).queue_id == queue_id
    (record,) = broker.store.reads.get_message("T", queue_id, 0, 32).body
    (message,) = decode_messages(bytes(record))
    assert message.priority == (2 if keeps else None)
    assert message.properties["K"] == "v"


@pytest.mark.parametrize(("priority", "queue_id"), [("9", 3), ("3", 3), ("-1", 1), ("soon", 1)])
async def test_a_priority_beyond_the_queues_is_the_last_and_none_is_no_matter(
    priority: str, queue_id: int
) -> None:
    broker = Broker()
    given = f"_SYS_MSG_PRIORITY_\x01{priority}\x02"
    sender(broker).call(SEND, header(queue_id=1, properties=given), b"hello")
    assert stored_bodies(broker, queue_id=queue_id) == [b"hello"]


async def test_a_message_for_a_lite_topic_is_refused_and_not_stored() -> None:
    broker = Broker()
    client = sender(broker)
    given = header(properties="__LITE_TOPIC\x01l\x02")
    answer = client.call(SEND, given, b"hello")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert stored_bodies(broker) == []
    # One that comes from elsewhere, and was received before, goes on.
    again = msgspec.structs.replace(given, reconsume_times=1)
    assert client.call(SEND, again, b"hello").code == 0


async def test_a_batch_becomes_consecutive_records() -> None:
    broker = Broker()
    body = encode_batch_body([Message("T", b"a", keys="k1"), Message("T", b"b", keys="k2")])
    answer = sender(broker).call(BATCH, header(batch=True), body)
    told = answer.decode_header(SendMessageResponseHeader)
    assert told.queue_offset == 0
    assert len(told.msg_id.split(",")) == 2
    assert stored_bodies(broker) == [b"a", b"b"]
    first = decode_messages(b"".join(broker.store.reads.get_message("T", 1, 0, 1).body))[0]
    assert first.properties == {"KEYS": "k1", "CLUSTER": "C"}


async def test_the_flag_makes_a_batch_whatever_the_code() -> None:
    broker = Broker()
    body = encode_batch_body([Message("T", b"a"), Message("T", b"b")])
    assert sender(broker).call(SEND, header(batch=True), body).code == 0
    assert stored_bodies(broker) == [b"a", b"b"]


async def test_a_batch_to_a_retry_topic_is_illegal() -> None:
    body = encode_batch_body([Message("T", b"a")])
    answer = sender(Broker()).call(BATCH, header(batch=True, topic="%RETRY%g", queue_id=0), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_malformed_batch_is_illegal() -> None:
    broker = Broker()
    answer = sender(broker).call(BATCH, header(batch=True), b"\0\0\0\x05garbage")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert stored_bodies(broker) == []


async def test_an_unknown_topic_is_created_with_the_queues_asked_for() -> None:
    broker = Broker()
    answer = sender(broker).call(SEND, header(topic="Fresh", queue_id=3), b"x")
    assert answer.code == 0
    config = broker.topics.get("Fresh")
    assert config is not None
    assert (config.write_queue_nums, config.perm) == (4, 6)
    assert stored_bodies(broker, "Fresh", 3) == [b"x"]


REFUSED = {
    "blank topic": (header(topic=""), ResponseCode.INVALID_PARAMETER, "blank"),
    "bad topic": (header(topic="a b"), ResponseCode.INVALID_PARAMETER, "illegal characters"),
    "path as topic": (header(topic="../x"), ResponseCode.INVALID_PARAMETER, "illegal characters"),
    "system topic": (header(topic="SELF_TEST_TOPIC"), ResponseCode.NO_PERMISSION, "forbidden"),
    "absent system topic": (
        header(topic="SCHEDULE_TOPIC_XXXX"),
        ResponseCode.NO_PERMISSION,
        "forbidden",
    ),
    "no default topic": (
        header(topic="New", default_topic="nope"),
        ResponseCode.TOPIC_NOT_EXIST,
        "not exist",
    ),
    "queue out of range": (header(queue_id=4), ResponseCode.INVALID_PARAMETER, "queueId[4]"),
    "half message": (header(sys_flag=4), ResponseCode.MESSAGE_ILLEGAL, "part of a transaction"),
    "no delay level": (header(properties="DELAY\x01x\x02"), ResponseCode.MESSAGE_ILLEGAL, "'x'"),
    "a blank": (header(properties="DELAY\x01 3\x02"), ResponseCode.MESSAGE_ILLEGAL, "' 3'"),
    "grouped": (header(properties="DELAY\x011_0\x02"), ResponseCode.MESSAGE_ILLEGAL, "'1_0'"),
    "timer": (header(properties="TIMER_DELAY_MS\x015\x02"), ResponseCode.SYSTEM_ERROR, "TIMER"),
    "timer in the future": (
        header(properties="TIMER_DELIVER_MS\x019999999999999\x02"),
        ResponseCode.SYSTEM_ERROR,
        "TIMER",
    ),
    "long properties": (
        header(properties="k\x01" + "v" * 33_000 + "\x02"),
        ResponseCode.MESSAGE_ILLEGAL,
        "limit is 32767",
    ),
}


@pytest.mark.parametrize(("ext", "code", "remark"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_stored_is_refused_with_a_reason(
    ext: SendMessageRequestHeaderV2, code: ResponseCode, remark: str
) -> None:
    """The order and the codes of SendMessageProcessor and msgCheck."""
    broker = Broker()
    answer = sender(broker).call(SEND, ext, b"x")
    assert answer.code == code
    assert remark in str(answer.remark)
    assert broker.store.max_physical_offset == 0


@pytest.mark.parametrize("level", ["3", "+3", "\uff13"])
async def test_a_delayed_message_waits_in_the_schedule_topic_and_is_told_its_own_queue(
    level: str,
) -> None:
    """SendMessageProcessor.handlePutMessageResult: the queue id of the request."""
    broker = Broker()
    delayed = header(properties=f"DELAY\x01{level}\x02UNIQ_KEY\x01U1\x02")
    answer = sender(broker).call(SEND, delayed, b"later")
    assert (answer.code, answer.decode_header(SendMessageResponseHeader).queue_id) == (0, 1)
    assert stored_bodies(broker) == []
    assert stored_bodies(broker, "SCHEDULE_TOPIC_XXXX", 2) == [b"later"]


@pytest.mark.parametrize("level", ["3", "x"])
async def test_a_batch_cannot_be_delayed(level: str) -> None:
    """CommitLog.asyncPutMessages."""
    broker = Broker()
    body = encode_batch_body([Message("T", b"a"), Message("T", b"b")])
    answer = sender(broker).call(
        BATCH, header(batch=True, properties=f"DELAY\x01{level}\x02"), body
    )
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.max_physical_offset == 0


async def test_a_body_above_the_limit_is_illegal() -> None:
    answer = sender(Broker()).call(SEND, HEADER, bytes(100_001))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_header_without_its_topic_is_answered_with_the_field() -> None:
    answer = sender(Broker()).call(SEND, {"a": "PG"}, b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "missing" in str(answer.remark)


async def test_a_full_disk_refuses_the_put_with_a_reason_and_reads_go_on() -> None:
    broker = Broker()
    client = sender(broker)
    assert client.call(SEND, HEADER, b"before").code == 0
    broker.simulated_disk.capacity_bytes = broker.simulated_disk.used_bytes
    codes = {client.call(SEND, HEADER, bytes(90_000)).code for _ in range(15)}
    assert codes == {0, ResponseCode.SYSTEM_ERROR}
    refused = client.call(SEND, HEADER, bytes(90_000))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert stored_bodies(broker)[0] == b"before"


async def test_the_answer_waits_for_a_slave() -> None:
    broker, waiters = Broker(), Waiters()
    client = sender(broker, replication=waiters.wait())
    client.send(SEND, HEADER, b"x")
    assert client.answers() == []
    assert client.connection.owed_count == 1
    assert waiters.waiting[0][0] == broker.store.max_physical_offset
    waiters.answer(PutMessageStatus.PUT_OK)
    assert [answer.code for answer in client.answers()] == [0]
    assert client.connection.owed_count == 0


STORED_BUT = [
    (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT),
    (PutMessageStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
    (PutMessageStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
]


@pytest.mark.parametrize(("status", "code"), STORED_BUT)
async def test_a_stored_message_with_a_bad_outcome_has_id_offset_and_reason(
    status: PutMessageStatus, code: ResponseCode
) -> None:
    broker = Broker()
    replication = answered_at_once(status, "no slave connected")
    answer = sender(broker, replication=replication).call(SEND, HEADER, b"x")
    assert (answer.code, answer.remark) == (code, "no slave connected")
    assert answer.ext_fields()["msgId"] == "7F00000100002A9F0000000000000000"
    assert stored_bodies(broker) == [b"x"]


async def test_the_puts_of_one_round_wait_together_for_the_last_of_them() -> None:
    broker, waiters = Broker(), Waiters()
    client = sender(broker, replication=waiters.wait())
    opaques = [client.send(SEND, HEADER, b"%d" % number) for number in range(3)]
    assert client.answers() == []
    assert [end for end, _, _ in waiters.waiting] == [broker.store.max_physical_offset]
    opaques.append(client.send(SEND, HEADER, b"next round"))
    assert client.answers() == []
    assert len(waiters.waiting) == 2
    waiters.answer(PutMessageStatus.PUT_OK)
    answers = client.answers()
    assert [(answer.opaque, answer.code) for answer in answers] == [(o, 0) for o in opaques]


async def test_of_a_round_that_timed_out_only_the_unreached_puts_are_told() -> None:
    broker, waiters = Broker(), Waiters()
    client = sender(broker, replication=waiters.wait())
    for number in range(3):
        client.send(SEND, HEADER, b"%d" % number)
        if number == 1:
            waiters.reached = broker.store.max_physical_offset
    assert client.answers() == []
    waiters.answer(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, "a1 acknowledged too little")
    told = [(answer.code, answer.remark) for answer in client.answers()]
    assert told == [(0, None), (0, None), (12, "a1 acknowledged too little")]


async def test_a_put_that_does_not_wait_overtakes_those_that_do() -> None:
    waiters = Waiters()
    client = sender(Broker(), replication=waiters.wait())
    client.send(SEND, HEADER, b"waits")
    quick = client.send(SEND, header(properties="WAIT\x01false\x02"), b"does not")
    assert [answer.opaque for answer in client.answers()] == [quick]
    waiters.answer(PutMessageStatus.PUT_OK)
    assert len(client.answers()) == 1


async def test_wait_false_is_answered_at_once() -> None:
    broker, waiters = Broker(), Waiters()
    client = sender(broker, waiters.wait(), waiters.wait())
    assert client.call(SEND, header(properties="WAIT\x01false\x02"), b"x").code == 0
    assert waiters.waiting == []


async def test_a_batch_waits_by_the_properties_of_its_header() -> None:
    broker, waiters = Broker(), Waiters()
    client = sender(broker, replication=waiters.wait())
    body = encode_batch_body([Message("T", b"a"), Message("T", b"b")])
    client.send(BATCH, header(batch=True, properties="WAIT\x01true\x02"), body)
    assert client.answers() == []
    assert waiters.waiting[0][0] == broker.store.max_physical_offset
    quick = header(batch=True, properties="WAIT\x01false\x02")
    assert client.call(BATCH, quick, body).code == 0


OK = PutMessageStatus.PUT_OK
DISK = PutMessageStatus.FLUSH_DISK_TIMEOUT
SLAVE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize("flush_first", [True, False])
@pytest.mark.parametrize(
    ("flushed", "replicated", "code"),
    [(OK, OK, 0), (DISK, OK, 10), (OK, SLAVE, 12), (DISK, SLAVE, 12)],
)
async def test_disk_and_slave_are_waited_for_and_the_slave_has_the_last_word(
    flushed: PutMessageStatus, replicated: PutMessageStatus, code: int, *, flush_first: bool
) -> None:
    """CommitLog.handleDiskFlushAndHA: a bad replica status overrides a bad flush status."""
    disk, slave = Waiters(), Waiters()
    client = sender(Broker(), disk.wait(), slave.wait())
    client.send(SEND, HEADER, b"x")
    steps = [(disk, flushed, "disk"), (slave, replicated, "slave")]
    for waiters, status, reason in steps if flush_first else reversed(steps):
        assert client.answers() == []
        waiters.answer(status, reason if status is not OK else "")
    (answer,) = client.answers()
    assert answer.code == code
    assert answer.remark == {0: None, 10: "disk", 12: "slave"}[code]


async def test_deadlines_are_those_of_the_settings(autojump_clock: object) -> None:
    disk, slave = Waiters(), Waiters()
    now = trio.current_time()
    client = sender(Broker(), disk.wait(5.0), slave.wait(3.0))
    client.send(SEND, HEADER, b"x")
    assert client.answers() == []
    assert disk.waiting[0][1] == pytest.approx(now + 5)
    assert slave.waiting[0][1] == pytest.approx(now + 3)


async def test_too_many_owed_count_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_puts, "PARKED_PUTS_MAX", 2)
    broker, waiters = Broker(), Waiters()
    client = sender(broker, replication=waiters.wait())
    for _ in range(2):
        client.send(SEND, HEADER, b"x")
    answer = client.call(SEND, HEADER, b"x")
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert str(answer.remark).startswith("[OVERLOAD]")
    waiters.answer(OK)
    assert len(client.answers()) == 2
    client.send(SEND, HEADER, b"x")
    assert client.answers() == []
    assert len(waiters.waiting) == 1


async def test_a_parked_answer_for_a_gone_client_is_dropped() -> None:
    waiters = Waiters()
    client = sender(Broker(), replication=waiters.wait())
    client.send(SEND, HEADER, b"x")
    assert client.answers() == []
    client.connection.close()
    waiters.answer(OK)
    assert client.answers() == []


async def test_properties_of_a_49_client_lose_nothing() -> None:
    broker = Broker()
    sender(broker).call(SEND, header(properties="UNIQ_KEY\x01U\x02TAGS\x01TagA"), b"x")
    record = decode_messages(b"".join(broker.store.reads.get_message("T", 1, 0, 1).body))[0]
    assert record.tags == "TagA"
    assert decode_properties(b"TAGS\x01TagA") == {"TAGS": "TagA"}


async def test_a_put_that_is_refused_is_not_stored() -> None:
    broker = Broker()
    client = sender(broker)
    client.replication.demote("a1 is the master, at 10.0.0.2:10911")
    for properties in ("", "WAIT\x01false\x02"):
        answer = client.call(SEND, header(properties=properties), b"x")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark == "a1 is the master, at 10.0.0.2:10911"
    assert broker.store.max_physical_offset == 0


async def test_replication_decides_on_the_code_of_its_refusal() -> None:
    client = sender(Broker())
    client.replication.refused = Refusal(ResponseCode.SYSTEM_ERROR, "1 of 2", is_short=True)
    assert client.call(SEND, HEADER, b"x").code == ResponseCode.SYSTEM_ERROR


async def test_what_the_store_refuses_is_said_to_be_not_stored() -> None:
    broker = Broker()
    broker.store.fence("stepping down")
    answer = sender(broker).call(SEND, HEADER, b"x")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == "stepping down; nothing was stored"
    assert broker.put_times.failed_count == 1


async def test_how_long_puts_wait_is_counted(autojump_clock: object) -> None:
    broker, slave = Broker(), Waiters()
    client = sender(broker, replication=slave.wait(3.0))
    for _ in range(3):
        client.send(SEND, HEADER, b"x")
    assert client.answers() == []
    await trio.sleep(0.03)
    slave.answer(PutMessageStatus.PUT_OK)
    assert len(client.answers()) == 3
    assert (broker.put_times.waited_count, round(broker.put_times.max_ms)) == (3, 30)
    assert broker.put_times.counts(3)[2] == 3


async def test_a_put_that_wants_disks_waits_for_them_and_not_for_the_group() -> None:
    disks, replicas = Waiters(), Waiters()
    client = Sender(Broker(), None, replicas.wait(), disks.wait())
    flushed = client.send(SEND, header(properties="TANDEM_ACK\x01flushed\x02"), b"x")
    written = client.send(SEND, header(properties="TANDEM_ACK\x01other\x02"), b"x")
    assert client.answers() == []
    assert len(disks.waiting) == len(replicas.waiting) == 1
    replicas.answer(PutMessageStatus.PUT_OK)
    assert [answer.opaque for answer in client.answers()] == [written]
    disks.answer(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, "may be in the log")
    (answer,) = client.answers()
    assert (answer.opaque, answer.code) == (flushed, ResponseCode.FLUSH_SLAVE_TIMEOUT)


async def test_a_compaction_topic_takes_only_messages_with_a_key() -> None:
    broker = Broker()
    compacted = {"cleanup.policy": "COMPACTION"}
    broker.tables.change_topics(TopicConfig(topic_name="K", attributes=compacted))
    client = sender(broker)
    for properties in ("", "UNIQ_KEY\x01U1\x02", "KEYS\x01 \x02"):
        answer = client.call(SEND, header(topic="K", properties=properties), b"x")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert str(answer.remark).startswith("Required message key is missing")
    assert stored_bodies(broker, "K") == []
    assert client.call(SEND, header(topic="K", properties="KEYS\x01k\x02"), b"x").code == 0
    batch = encode_batch_body([Message("K", b"a"), Message("K", b"b", keys="k")])
    assert client.call(BATCH, header(topic="K", batch=True), batch).code == 0
    assert stored_bodies(broker, "K") == [b"x", b"a", b"b"]
