"""Messages that come back: CONSUMER_SEND_MSG_BACK, and sends to a retry topic."""

import msgspec
import pytest

from ha.results import Ack
from store import PutMessageStatus
from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import ONEWAY_FLAG
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerSendMsgBackRequestHeader,
    LockBatchRequestBody,
    MessageQueueBody,
    SendMessageRequestHeaderV2,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.node.doubles import Broker, Client, FakeReplication, handlers_of, request_table
from tests.node.handlers.send_requests import HEADER, Waiters

SEND, BACK = RequestCode.SEND_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK

FIRST = ConsumerSendMsgBackRequestHeader(
    0, "g", 0, "7F00000100002A9F0000000000000000", "T", None, 16
)


def client_of(broker: Broker, replication: FakeReplication | None = None) -> Client:
    return Client(request_table(handlers_of(broker, replication)), broker.outbox)


def back(**changes: object) -> ConsumerSendMsgBackRequestHeader:
    return msgspec.structs.replace(FIRST, **changes)


def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[MessageExt]:
    return decode_messages(b"".join(broker.store.reads.get_message(topic, queue_id, 0, 32).body))


async def test_a_message_comes_back_after_the_delay_of_its_level() -> None:
    broker = Broker()
    client = client_of(broker)
    client.call(SEND, HEADER, b"x")
    answer = client.call(BACK, FIRST)
    assert (answer.code, answer.remark, answer.ext_fields()) == (0, None, {})
    (waiting,) = stored(broker, SCHEDULE_TOPIC, 2)
    assert (waiting.body, waiting.reconsume_times, waiting.flag) == (b"x", 1, 3)
    assert waiting.born_timestamp_ms == HEADER.born_timestamp
    properties = waiting.properties
    assert properties["REAL_TOPIC"] == "%RETRY%g"
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["ORIGIN_MESSAGE_ID"] == FIRST.origin_msg_id
    assert properties["DELAY"] == "3"
    assert broker.topics.get("%RETRY%g") is not None
    assert len(stored(broker, "T", 1)) == 1, "the record itself stays"


@pytest.mark.parametrize("changes", [{"delay_level": -1}, {"max_reconsume_times": 0}])
async def test_a_message_without_tries_left_is_a_dead_letter(changes: dict[str, int]) -> None:
    broker = Broker()
    client = client_of(broker)
    client.call(SEND, HEADER, b"x")
    assert client.call(BACK, back(**changes)).code == 0
    (dead,) = stored(broker, "%DLQ%g")
    assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"x", "T")
    assert stored(broker, SCHEDULE_TOPIC, 2) == []


async def test_a_group_tries_sixteen_times_unless_the_client_says_otherwise() -> None:
    broker = Broker()
    client = client_of(broker)
    last = msgspec.structs.replace(HEADER, reconsume_times=15)
    given_up = msgspec.structs.replace(HEADER, reconsume_times=16)
    client.call(SEND, last, b"once more")
    second = broker.store.max_physical_offset
    client.call(SEND, given_up, b"no more")
    for offset in (0, second):
        assert client.call(BACK, back(offset=offset, max_reconsume_times=None)).code == 0
    assert [message.body for message in stored(broker, "%DLQ%g")] == [b"no more"]


async def test_the_consumer_is_answered_when_replicas_have_it() -> None:
    """It goes on to the next message then: an answer too early could lose this one."""
    broker, replication, waiters = Broker(), FakeReplication(), Waiters()
    client = client_of(broker, replication)
    client.call(SEND, HEADER, b"x")
    replication.put_waits = dict.fromkeys(Ack, waiters.wait())
    client = client_of(broker, replication)
    opaque = client.send(BACK, FIRST)
    assert client.answers() == []
    assert [end for end, _, _ in waiters.waiting] == [broker.store.max_physical_offset]
    waiters.answer(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, "a2 is slow")
    (answer,) = client.answers()
    assert (answer.opaque, answer.code) == (opaque, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    client.send(BACK, FIRST, flag=ONEWAY_FLAG)
    assert client.answers() == []
    assert waiters.waiting == []


async def test_what_cannot_be_sent_back_is_answered_in_words() -> None:
    broker, replication = Broker(), FakeReplication()
    client = client_of(broker, replication)
    client.call(SEND, HEADER, b"x")
    for offset in (-1, 5, 1 << 62, -(1 << 63)):
        answer = client.call(BACK, back(offset=offset))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {offset}",
        )
    for group in ("", "a b", "x" * 256):
        answer = client.call(BACK, back(group=group))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    replication.demote("a2 is the master")
    assert client.call(BACK, FIRST).remark == "a2 is the master"
    assert broker.topics.get("%RETRY%g") is None


async def test_properties_that_hold_a_separator_come_back_as_they_are() -> None:
    broker = Broker()
    client = client_of(broker)
    odd = msgspec.structs.replace(HEADER, properties="CLUSTER\x01a\x01b\x02k\x01v\x01w\x02")
    assert client.call(SEND, odd, b"x").code == 0
    assert client.call(BACK, FIRST).code == 0
    (waiting,) = stored(broker, SCHEDULE_TOPIC, 2)
    assert waiting.properties["k"] == "v\x01w"


async def test_properties_that_have_rotted_in_a_closed_file_do_not_come_back() -> None:
    """The copy would have a place and a fingerprint of its own, and nobody could see it."""
    broker = Broker()
    client = client_of(broker)
    keyed = msgspec.structs.replace(HEADER, properties="KEYS\x01key\x02")
    assert client.call(SEND, keyed, b"x").code == 0
    while len(broker.store.commit_log.files.files) < 2:
        assert client.call(SEND, HEADER, b"x" * 90_000).code == 0
    await take_fingerprints(broker.store)
    record = broker.store.commit_log.record_at(0)
    assert record is not None
    flip(broker.store, record.index(b"key"), 0x20)
    answer = client.call(BACK, FIRST)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.decode_header(DamagedMessageHeader).damaged_physical_offset == 0
    assert stored(broker, SCHEDULE_TOPIC, 2) == []


# sends to a retry topic


def retry(times: int, most: int | None = 16) -> SendMessageRequestHeaderV2:
    return msgspec.structs.replace(
        HEADER,
        topic="%RETRY%g",
        queue_id=0,
        reconsume_times=times,
        max_reconsume_times=most,
        properties="k\x01v\x02DELAY\x014\x02",
    )


@pytest.mark.parametrize(("times", "most"), [(3, 2), (17, None)])
async def test_a_retry_that_is_one_too_many_is_a_dead_letter(times: int, most: int | None) -> None:
    broker = Broker()
    client = client_of(broker)
    assert client.call(SEND, retry(times, most), b"x").code == 0
    (dead,) = stored(broker, "%DLQ%g")
    assert (dead.body, dead.properties["k"], dead.properties["DELAY"]) == (b"x", "v", "-1")


@pytest.mark.parametrize(("times", "most"), [(2, 2), (16, None), (0, 0)])
async def test_a_retry_that_is_not_one_too_many_waits_for_its_time(
    times: int, most: int | None
) -> None:
    broker = Broker()
    assert client_of(broker).call(SEND, retry(times, most), b"x").code == 0
    (waiting,) = stored(broker, SCHEDULE_TOPIC, 3)
    assert waiting.properties["REAL_TOPIC"] == "%RETRY%g"
    assert broker.topics.get("%DLQ%g") is None


async def test_a_group_that_reads_in_order_has_tried_by_itself() -> None:
    broker = Broker()
    client = client_of(broker)
    asked = LockBatchRequestBody("c", "g", [MessageQueueBody("broker-a", 0, "T")])
    client.call(RequestCode.LOCK_BATCH_MQ, None, encode_json_body(asked))
    assert client.call(SEND, retry(1), b"x").code == 0
    assert [message.body for message in stored(broker, "%DLQ%g")] == [b"x"]


def test_property_strings_are_read_as_they_were_written() -> None:
    assert decode_properties(b"k\x01v\x01w\x02") == {"k": "v\x01w"}


async def test_what_came_back_is_counted_under_its_own_topic() -> None:
    broker = Broker()
    client = client_of(broker)
    client.call(SEND, HEADER, b"x")
    for changes in ({}, {"delay_level": -1}, {"offset": 7}):
        client.call(BACK, back(**changes))
    (dead,) = stored(broker, "%DLQ%g")
    client.call(BACK, back(offset=dead.physical_offset))
    item = broker.stats.find("SNDBCK_PUT_NUMS", "T@g")
    assert item is not None
    assert item.value == 3
