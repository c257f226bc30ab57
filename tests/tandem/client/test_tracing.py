"""What a client says of its messages, and how much of it."""

import itertools
import tracemalloc

import pytest

from tandem.client.blocking_producer import BlockingProducer
from tandem.client.errors import RouteCause, RouteNotFoundError
from tandem.client.hooks import ConsumeOutcome, TransactionEnd
from tandem.client.results import MessageQueue, SendResult, SendStatus
from tandem.client.tracing import (
    BODY_BYTES_MAX,
    KEYS_CHARS_MAX,
    RECORDS_PER_MESSAGE_MAX,
    WAITING_BYTES_MAX,
    WAITING_RECORDS_MAX,
    Tracer,
    trace_topic,
)
from tandem.client.transaction_flow import TransactionState
from tandem.wire.message import Host, Message, MessageExt, offset_msg_id
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import TRACE_TOPIC
from tandem.wire.trace_records import (
    ContextCode,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_traces,
)
from tests.tandem.client.fake_broker import (
    MASTER,
    NAME_SERVER,
    ONE_BROKER,
    FakeBroker,
    FakeSockets,
    answer_to,
    message_ext,
)

QUEUE = MessageQueue("T", "broker-a", 0)
PLACE = offset_msg_id(Host("127.0.0.1", 10_911), 77)


class Bench:
    def __init__(self, topic: str = "traces") -> None:
        self.now_ms = 1_000
        keys = itertools.count()
        self.tracer = Tracer(topic, lambda: self.now_ms, lambda: f"K{next(keys)}")

    def send(
        self, *messages: Message, outcomes: list[SendResult | BaseException], is_half: bool = False
    ) -> None:
        given, ended = self.tracer.sending("PG", messages, is_half=is_half)
        assert list(given) == list(messages)
        self.now_ms += 5
        ended(outcomes)

    def records(self) -> list[TraceRecord]:
        found: list[TraceRecord] = []
        while (message := self.tracer.take_message()) is not None:
            assert message.topic == self.tracer.topic
            found += decode_traces(message.body)
        return found


def stored(msg_id: str = "ID", status: SendStatus = SendStatus.SEND_OK) -> SendResult:
    return SendResult(status, msg_id, PLACE, QUEUE, 3)


def test_a_send_is_said_with_its_time_its_place_and_its_outcome() -> None:
    bench = Bench()
    bench.send(Message("T", b"12345", keys="a b", tags="x"), outcomes=[stored()])
    assert bench.records() == [
        Pub(
            *(1_000, "DefaultRegion", "PG", "T", "ID", "x", "a b", "127.0.0.1:10911", 5, 5),
            *(MessageType.NORMAL, PLACE, True),
        )
    ]


@pytest.mark.parametrize(
    ("message", "is_half", "kind"),
    [
        (Message("T", b""), False, MessageType.NORMAL),
        (Message("T", b""), True, MessageType.HALF),
        (Message("T", b"", delay_time_level=1), False, MessageType.DELAY),
        (Message("T", b"", sharding_key="k"), False, MessageType.ORDER),
    ],
)
def test_what_kind_of_message_it_was(message: Message, kind: MessageType, *, is_half: bool) -> None:
    bench = Bench()
    bench.send(message, outcomes=[stored()], is_half=is_half)
    [record] = bench.records()
    assert isinstance(record, Pub)
    assert record.msg_type == kind


@pytest.mark.parametrize(
    "outcome",
    [
        RouteNotFoundError("T", RouteCause.NO_TOPIC, "gone"),
        ValueError(),
        stored(status=SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_what_is_not_ok_is_no_success(outcome: SendResult | BaseException) -> None:
    bench = Bench()
    bench.send(Message("T", b"", properties={"UNIQ_KEY": "OWN"}), outcomes=[outcome])
    [record] = bench.records()
    assert isinstance(record, Pub)
    assert not record.is_success
    assert record.msg_id == ("ID" if isinstance(outcome, SendResult) else "OWN")


def test_each_message_of_a_batch_has_a_record_of_its_own() -> None:
    bench = Bench()
    batch = SendResult(SendStatus.SEND_OK, "A,B", f"{PLACE},{PLACE}", QUEUE, 3)
    bench.send(Message("T", b"1"), Message("T", b"22"), outcomes=[batch])
    bench.send(Message("T", b"1"), Message("T", b"22"), outcomes=[ValueError()])
    records = bench.records()
    assert [(r.msg_id, r.is_success) for r in records if isinstance(r, Pub)] == [
        *(("A", True), ("B", True), ("", False), ("", False))
    ]


def test_the_end_of_a_transaction() -> None:
    bench = Bench()
    states: tuple[TransactionState, ...] = ("commit", "rollback", "unknown")
    for state in states:
        is_asked = state == "unknown"
        bench.tracer.transaction_ended(
            "PG", TransactionEnd("T", "ID", "", "k", PLACE, state, from_check=is_asked)
        )
    found = [r for r in bench.records() if isinstance(r, EndTransaction)]
    assert (found[0].store_host, found[0].keys) == ("127.0.0.1:10911", "k")
    assert [(r.state, r.msg_type, r.from_check) for r in found] == [
        ("COMMIT_MESSAGE", MessageType.COMMIT, False),
        ("ROLLBACK_MESSAGE", MessageType.HALF, False),
        ("UNKNOW", MessageType.HALF, True),
    ]


def received(topic: str = "T") -> MessageExt:
    return message_ext(topic=topic, properties={"UNIQ_KEY": "ID", "KEYS": "k"})


@pytest.mark.parametrize(
    ("outcome", "is_success", "code"),
    [
        (ConsumeOutcome.DONE, True, ContextCode.SUCCESS),
        (ConsumeOutcome.RETRY, False, ContextCode.FAILED),
        (ConsumeOutcome.DEAD_LETTER, False, ContextCode.FAILED),
    ],
)
def test_consuming_has_a_beginning_and_an_end(
    outcome: ConsumeOutcome, code: ContextCode, *, is_success: bool
) -> None:
    bench = Bench()
    consumption = bench.tracer.consuming("CG", received())
    with consumption.handling():
        bench.now_ms += 7
    [before] = bench.records()
    assert before == SubBefore(1_000, "DefaultRegion", "CG", "K0", "ID", 0, "k")
    consumption.ended(outcome)
    assert bench.records() == [SubAfter("K0", "ID", 7, is_success, "k", code, 1_007, "CG")]


def test_what_was_put_back_has_no_end() -> None:
    bench = Bench()
    bench.tracer.consuming("CG", received()).ended(ConsumeOutcome.PUT_BACK)
    assert [type(each) for each in bench.records()] == [SubBefore]


def test_traces_are_not_traced() -> None:
    bench = Bench()
    bench.send(Message("traces", b""), outcomes=[stored()])
    bench.tracer.consuming("CG", received("traces")).ended(ConsumeOutcome.DONE)
    assert bench.records() == []


def test_a_message_of_traces_is_found_by_ids_and_keys() -> None:
    bench = Bench()
    bench.send(Message("T", b"", keys="a b"), outcomes=[stored("ID1")])
    bench.send(Message("T", b"", keys="b"), outcomes=[stored("ID2")])
    message = bench.tracer.take_message()
    assert message is not None
    assert str(message.keys).split() == ["ID1", "a", "b", "ID2"]
    assert message.properties["UNIQ_KEY"] == "K0"
    assert bench.tracer.take_message() is None


def test_messages_of_traces_have_bounds_and_no_record_is_lost_by_them() -> None:
    bench = Bench()
    for index in range(250):
        bench.send(Message("T", b"", keys=f"{index}-" + "k" * 200), outcomes=[stored(f"ID{index}")])
    sizes, ids = [], []
    while (message := bench.tracer.take_message()) is not None:
        records = decode_traces(message.body)
        sizes.append(len(records))
        ids += [record.msg_id for record in records]
        assert len(str(message.keys)) <= KEYS_CHARS_MAX
        assert len(message.body) <= BODY_BYTES_MAX
    assert ids == [f"ID{index}" for index in range(250)]
    assert max(sizes) <= RECORDS_PER_MESSAGE_MAX


def test_one_record_that_is_too_large_goes_alone_with_the_beginning_of_its_keys() -> None:
    bench = Bench()
    bench.send(Message("T", b"", keys="k" * 20_000), outcomes=[stored()])
    bench.send(Message("T", b""), outcomes=[stored()])
    first, second = bench.tracer.take_message(), bench.tracer.take_message()
    assert first is not None
    assert second is not None
    assert len(str(first.keys)) == KEYS_CHARS_MAX


def test_what_there_is_no_room_for_is_left_out_and_counted() -> None:
    bench = Bench()
    for _ in range(WAITING_RECORDS_MAX + 3):
        bench.send(Message("T", b""), outcomes=[stored()])
    assert bench.tracer.left_out == 3
    assert len(bench.records()) == WAITING_RECORDS_MAX


@pytest.mark.parametrize(
    ("trace", "topic"), [(False, None), ("", None), (True, TRACE_TOPIC), ("own", "own")]
)
def test_where_traces_go(trace: bool | str, topic: str | None) -> None:  # noqa: FBT001
    assert trace_topic(trace) == topic


def sends_of(broker: FakeBroker) -> list[SendMessageRequestHeaderV2]:
    return [
        request.decode_header(SendMessageRequestHeaderV2)
        for request in broker.requests
        if request.code == RequestCode.SEND_MESSAGE_V2
    ]


def test_a_blocking_producer_sends_them_along_and_the_rest_at_the_end() -> None:
    broker = FakeBroker()
    broker.routes["traces"] = ONE_BROKER
    sockets = FakeSockets({MASTER: broker, NAME_SERVER: broker})
    with BlockingProducer(NAME_SERVER, "PG", trace="traces", opener=sockets.open) as producer:
        producer.send(Message("orders", b""))
        assert [each.topic for each in sends_of(broker)] == ["orders", "traces"]
        producer.send(Message("orders", b""))
        assert [each.topic for each in sends_of(broker)] == ["orders", "traces", "orders"]
    assert [each.topic for each in sends_of(broker)] == ["orders", "traces", "orders", "traces"]
    last = sends_of(broker)[-1]
    assert last.producer_group == "_INNER_TRACE_PRODUCER-PG"
    assert "WAIT\x01false" in (last.properties or "")


def test_a_send_does_not_fail_because_of_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker()
    broker.routes["traces"] = ONE_BROKER
    sockets = FakeSockets({MASTER: broker, NAME_SERVER: broker})
    send = broker.handlers[RequestCode.SEND_MESSAGE_V2]
    broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda request: (
        answer_to(request, ResponseCode.MESSAGE_ILLEGAL)
        if request.decode_header(SendMessageRequestHeaderV2).topic == "traces"
        else send(request)
    )
    with BlockingProducer(NAME_SERVER, "PG", trace="traces", opener=sockets.open) as producer:
        assert producer.send(Message("orders", b"")).status is SendStatus.SEND_OK
        producer.send(Message("orders", b""))
    assert [record.name for record in caplog.records] == ["tandem.client.tracing"]


@pytest.mark.parametrize("key", ["k", "\u00fc", "\U0001f600"])
def test_long_keys_are_bounded_in_bytes_and_what_was_sent_makes_room(key: str) -> None:
    bench = Bench()
    keys = key * (30_000 // len(key.encode()))
    message = Message("T", b"", keys=keys)
    tracemalloc.start()
    for _ in range(WAITING_RECORDS_MAX):
        bench.send(message, outcomes=[stored()])
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 1.1 * WAITING_BYTES_MAX
    waiting = len(bench.records())
    assert waiting + bench.tracer.left_out == WAITING_RECORDS_MAX
    assert 50 < waiting < 300
    bench.send(message, outcomes=[stored()])
    assert len(bench.records()) == 1
