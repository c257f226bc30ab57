import math
import zlib

import msgspec
import pytest

from tandem.client.backoff import SILENT_SECONDS
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.cursor import DAMAGED_SECONDS, Cursor
from tandem.client.errors import (
    BrokerError,
    CompressedBodyError,
    ConnectionCause,
    ConnectionLostError,
    MessageDamagedError,
    OffsetBeyondEndError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.flow import Call, Flow
from tandem.client.pull_answer import Sql92
from tandem.client.pull_flow import (
    BEYOND_END_SECONDS,
    FENCED_SUSPEND_MS,
    RETRY_SECONDS,
    Puller,
    Start,
)
from tandem.client.results import MessageQueue, PullResult, PullStatus
from tandem.wire.compression import CompressionFault
from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.message import Message, encode_batch_body, encode_record
from tandem.wire.message_properties import PROPERTY_TAGS
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    Handler,
    HandShell,
    answer_to,
    message_ext,
    route_of,
)

QUEUE = MessageQueue("orders", "broker-a", 0)
PULL = RequestCode.PULL_MESSAGE
LOST = ConnectionLostError(MASTER, ConnectionCause.ENDED, "reset", outcome_unknown=True)


class Bench:
    """A puller, a master and a slave with the same three messages, and a shell."""

    def __init__(self) -> None:
        self.master = FakeBroker()
        self.slave = FakeBroker()
        for broker in (self.master, self.slave):
            broker.store("orders", 0, b"0", b"1", b"2")
        self.shell = HandShell({NAME_SERVER: self.master, MASTER: self.master, SLAVE: self.slave})
        self.core = ClientCore(
            NAME_SERVER, identity=IDENTITY, clock=self.shell.clock, consumer_group="CG"
        )
        self.puller = Puller(self.core, "CG")

    def pull(
        self, offset: int = 0, tags: str = "*", suspend_timeout_ms: int = 0, max_msg_nums: int = 32
    ) -> PullResult:
        return self.shell.run(
            self.puller.pull(QUEUE, offset, max_msg_nums, tags, suspend_timeout_ms)
        )

    def answer_pulls_with(self, code: int, body: bytes = b"") -> None:
        def handler(request: RemotingCommand) -> RemotingCommand:
            return answer_to(request, code, PullMessageResponseHeader(0, 5, 2, 9), body, "words")

        self.master.handlers[PULL] = handler


def test_a_pull_returns_messages_and_where_to_go_on() -> None:
    result = Bench().pull(offset=1, max_msg_nums=1)
    assert result.status is PullStatus.FOUND
    assert [message.body for message in result.messages] == [b"1"]
    assert (result.next_begin_offset, result.min_offset, result.max_offset) == (2, 0, 3)


def test_a_pull_says_everything_that_rocketmq_wants_to_know() -> None:
    bench = Bench()
    bench.pull(offset=1, tags="A || B", suspend_timeout_ms=5000)
    header = bench.master.requests[-1].decode_header(PullMessageRequestHeader)
    assert header == PullMessageRequestHeader(
        "CG", "orders", 0, 1, 32, 6, 0, 5000, 0, "A || B", "TAG", None, "broker-a"
    )
    bench.pull()
    assert bench.master.requests[-1].decode_header(PullMessageRequestHeader).sys_flag == 4


def test_an_expression_is_for_the_broker_alone() -> None:
    bench = Bench()
    assert len(bench.pull(tags=Sql92("a > 5 AND b = 'x'")).messages) == 3
    header = bench.master.requests[-1].decode_header(PullMessageRequestHeader)
    assert (header.subscription, header.expression_type) == ("a > 5 AND b = 'x'", "SQL92")


def test_a_held_pull_may_take_longer() -> None:
    bench = Bench()
    bench.pull(suspend_timeout_ms=15_000)
    call = bench.shell.effects[-1]
    assert isinstance(call, Call)
    assert call.deadline == bench.shell.now + 33.0


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (19, PullStatus.NO_NEW_MSG),
        (20, PullStatus.NO_MATCHED_MSG),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_an_empty_answer_has_a_status(code: int, status: PullStatus) -> None:
    bench = Bench()
    bench.answer_pulls_with(code)
    assert bench.pull() == PullResult(status, 5, 2, 9, [])


def test_any_other_code_is_a_refusal() -> None:
    bench = Bench()
    bench.answer_pulls_with(ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerError) as caught:
        bench.pull()
    assert caught.value.code == ResponseCode.NO_PERMISSION


def test_tags_are_compared_as_text_since_the_broker_compares_hashes() -> None:
    bench = Bench()
    # "Aa" and "BB" have the same hash.
    records = [
        message_ext(b"x", queue_offset=number, properties={PROPERTY_TAGS: tag})
        for number, tag in enumerate(("Aa", "BB", "C"))
    ]
    bench.answer_pulls_with(0, b"".join(map(encode_record, records)))
    assert [message.tags for message in bench.pull(tags="BB || C").messages] == ["BB", "C"]
    result = bench.pull(tags="D")
    assert (result.status, result.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 5)
    assert len(bench.pull(tags="").messages) == 3


def test_compressed_bodies_are_undone() -> None:
    bench = Bench()
    bench.answer_pulls_with(0, encode_record(message_ext(zlib.compress(b"text"), sys_flag=0x301)))
    assert [message.body for message in bench.pull().messages] == [b"text"]
    bench.answer_pulls_with(0, encode_record(message_ext(b"?", sys_flag=0x701)))
    with pytest.raises(CompressedBodyError) as caught:
        bench.pull()
    assert caught.value.fault is CompressionFault.UNKNOWN_CODEC


def inner_batch(body: bytes) -> bytes:
    return encode_record(message_ext(body, sys_flag=0xC0, queue_offset=3))


def test_records_that_hold_a_batch_come_apart() -> None:
    """PullAPIWrapper.processPullResult; what lies before the offset asked for is left out."""
    bench = Bench()
    messages = [Message("orders", b"%d" % n, tags="AB"[n % 2]) for n in range(4)]
    bench.answer_pulls_with(0, inner_batch(encode_batch_body(messages)))
    found = bench.pull(offset=4).messages
    assert [(m.queue_offset, m.body) for m in found] == [(4, b"1"), (5, b"2"), (6, b"3")]
    assert [m.body for m in bench.pull(tags="A").messages] == [b"0", b"2"]


def test_a_batch_that_does_not_parse_is_given_out_whole() -> None:
    bench = Bench()
    bench.answer_pulls_with(0, inner_batch(b"no batch"))
    assert [(m.body, m.sys_flag) for m in bench.pull().messages] == [(b"no batch", 0xC0)]


@pytest.mark.parametrize("body", [b"x", encode_record(message_ext())[:-1]])
def test_a_body_that_does_not_parse_is_damaged_at_the_broker(body: bytes) -> None:
    """So another node is asked."""
    bench = Bench()
    bench.answer_pulls_with(0, body)
    assert [message.body for message in bench.pull().messages] == [b"0", b"1", b"2"]
    assert bench.shell.calls_to(PULL) == [MASTER, SLAVE]
    del bench.shell.brokers[SLAVE]
    with pytest.raises(MessageDamagedError) as caught:
        bench.pull()
    assert (caught.value.address, caught.value.queue_offset) == (MASTER, 0)


def test_an_answer_without_its_fields_is_refused() -> None:
    bench = Bench()
    bench.master.handlers[PULL] = answer_to
    with pytest.raises(ConnectionLostError) as caught:
        bench.pull()
    assert caught.value.cause is ConnectionCause.MALFORMED


def test_reads_fall_over_to_the_slave_and_come_back() -> None:
    bench = Bench()
    del bench.shell.brokers[MASTER]
    assert bench.pull().status is PullStatus.FOUND
    assert bench.shell.calls_to(PULL) == [MASTER, SLAVE]
    bench.core.backoff.failed(MASTER, bench.shell.now)
    bench.pull()
    assert bench.shell.calls_to(PULL)[2:] == [SLAVE]
    bench.shell.brokers[MASTER] = bench.master
    bench.shell.now += 5
    bench.pull()
    assert bench.shell.calls_to(PULL)[3:] == [MASTER]


def test_a_master_that_is_silent_is_asked_last_for_a_while() -> None:
    bench = Bench()
    bench.master.handlers[PULL] = lambda _: None
    bench.pull()
    bench.pull()
    assert bench.shell.calls_to(PULL) == [MASTER, SLAVE, SLAVE]
    bench.shell.now += SILENT_SECONDS
    bench.pull()
    assert bench.shell.calls_to(PULL)[3:] == [MASTER, SLAVE]


def test_when_all_fail_the_last_error_is_raised() -> None:
    bench = Bench()
    del bench.shell.brokers[SLAVE]
    bench.master.handlers[PULL] = lambda _: None
    with pytest.raises(ConnectionLostError) as caught:
        bench.pull()
    assert caught.value.address == SLAVE
    with pytest.raises(RequestTimeoutError) as late:
        bench.pull()
    assert late.value.address == MASTER
    assert bench.shell.calls_to(PULL) == [MASTER, SLAVE, SLAVE, MASTER]


def test_a_broker_name_without_addresses_is_told() -> None:
    bench = Bench()
    with pytest.raises(RouteNotFoundError) as caught:
        bench.shell.run(bench.puller.max_offset(MessageQueue("orders", "broker-x", 0)))
    assert caught.value.cause is RouteCause.NO_BROKER


def test_queues_of_a_slave_alone_can_be_read() -> None:
    bench = Bench()
    bench.master.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    queues = bench.shell.run(bench.puller.fetch_message_queues("orders"))
    assert queues == [MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)]
    assert bench.pull().status is PullStatus.FOUND
    assert bench.shell.calls_to(PULL) == [SLAVE]


def test_offsets_are_asked_for_and_set() -> None:
    bench = Bench()
    run, puller, master = bench.shell.run, bench.puller, bench.master
    assert run(puller.min_offset(QUEUE)) == 0
    assert run(puller.max_offset(QUEUE)) == 3
    master.handlers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda request: answer_to(
        request, ext=OffsetResponseHeader(2)
    )
    assert run(puller.search_offset(QUEUE, 17)) == 2
    assert master.requests[-1].decode_header(SearchOffsetRequestHeader).timestamp == 17
    master.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = answer_to
    run(puller.update_consume_offset(QUEUE, 3))
    assert master.requests[-1].decode_header(
        UpdateConsumerOffsetRequestHeader
    ) == UpdateConsumerOffsetRequestHeader("CG", "orders", 0, 3)


def test_a_group_without_an_offset_has_none() -> None:
    bench = Bench()
    query = RequestCode.QUERY_CONSUMER_OFFSET
    bench.master.handlers[query] = lambda request: answer_to(request, 22)
    assert bench.shell.run(bench.puller.fetch_consume_offset(QUEUE)) is None
    header = bench.master.requests[-1].decode_header(QueryConsumerOffsetRequestHeader)
    assert header.set_zero_if_not_found is False
    bench.master.handlers[query] = lambda request: answer_to(request, ext=OffsetResponseHeader(7))
    assert bench.shell.run(bench.puller.fetch_consume_offset(QUEUE)) == 7


def test_a_refused_commit_is_an_error() -> None:
    with pytest.raises(BrokerError):
        bench = Bench()
        bench.shell.run(bench.puller.update_consume_offset(QUEUE, 3))


@pytest.mark.parametrize(
    ("start", "committed", "offsets"),
    [
        (Start.EARLIEST, 2, [0, 0]),
        (Start.LATEST, 2, [3, 0]),
        (Start.COMMITTED, 2, [2, 2]),
        (Start.COMMITTED, None, [0, 0]),
    ],
)
def test_cursors_begin_where_they_are_told(
    start: Start, committed: int | None, offsets: list[int]
) -> None:
    bench = Bench()
    bench.master.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: (
        answer_to(request, 22)
        if committed is None
        else answer_to(request, ext=OffsetResponseHeader(committed))
    )
    cursors = bench.shell.run(bench.puller.open_cursors("orders", start, "*", until_end=False))
    assert [cursor.offset for cursor in cursors] == offsets
    assert not any(cursor.at_end for cursor in cursors)


def test_a_reader_until_the_end_stops_at_what_was_there() -> None:
    bench = Bench()
    cursors = bench.shell.run(
        bench.puller.open_cursors("orders", Start.EARLIEST, "*", until_end=True)
    )
    assert [cursor.at_end for cursor in cursors] == [False, True]
    bench.master.store("orders", 0, b"later")
    messages = bench.shell.run(bench.puller.read(cursors[0], 32, 15_000))
    assert [message.body for message in messages] == [b"0", b"1", b"2"]
    assert cursors[0].at_end
    assert bench.master.requests[-1].decode_header(PullMessageRequestHeader).sys_flag == 4


def test_a_reader_waits_out_what_passes() -> None:
    bench = Bench()
    (cursor, _) = bench.shell.run(
        bench.puller.open_cursors("orders", Start.EARLIEST, "*", until_end=False)
    )
    bench.shell.failures[MASTER] = [LOST]
    bench.shell.failures[SLAVE] = [
        ConnectionLostError(SLAVE, ConnectionCause.ENDED, "reset", outcome_unknown=True)
    ]
    assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    for code in (ResponseCode.SYSTEM_BUSY, ResponseCode.TOPIC_NOT_EXIST):
        bench.answer_pulls_with(code)
        assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert bench.shell.now == 1003.0
    assert cursor.offset == 0
    bench.answer_pulls_with(ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerError):
        bench.shell.run(bench.puller.read(cursor, 32, 0))


def test_a_reader_follows_a_corrected_offset() -> None:
    bench = Bench()
    (cursor, _) = bench.shell.run(
        bench.puller.open_cursors("orders", Start.EARLIEST, "*", until_end=False)
    )
    bench.answer_pulls_with(ResponseCode.PULL_OFFSET_MOVED)
    assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert cursor.offset == 5


def fence(bench: Bench, master: str = MASTER, epoch: int = 1) -> None:
    """Make the group one that elects its master; this one now."""
    slave = SLAVE if master == MASTER else MASTER
    route = route_of(("broker-a", {0: master, 1: slave}))
    (broker,) = route.broker_datas
    broker = msgspec.structs.replace(broker, master_epoch=epoch)
    bench.master.routes["orders"] = msgspec.structs.replace(route, broker_datas=[broker])
    bench.core.suspect_route("orders")
    bench.shell.now += 1


def cursor_at(bench: Bench, offset: int) -> Cursor:
    (cursor, _) = bench.shell.run(
        bench.puller.open_cursors("orders", Start.EARLIEST, "*", until_end=False)
    )
    cursor.offset = offset
    return cursor


def test_nothing_new_leaves_a_reader_where_it_is() -> None:
    bench = Bench()
    cursor = cursor_at(bench, 3)
    bench.answer_pulls_with(ResponseCode.PULL_NOT_FOUND)
    assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert cursor.offset == 3


def test_a_reader_beyond_the_end_waits_for_the_queue_to_reach_it_again() -> None:
    bench = Bench()
    cursor = cursor_at(bench, 6)
    bench.answer_pulls_with(ResponseCode.PULL_OFFSET_MOVED)
    for _ in range(5):
        assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert cursor.offset == 6
    bench.master.handlers[PULL] = lambda request: answer_to(
        request,
        0,
        PullMessageResponseHeader(0, 7, 0, 7),
        encode_record(message_ext(b"6", queue_offset=6)),
    )
    assert [m.body for m in bench.shell.run(bench.puller.read(cursor, 32, 0))] == [b"6"]
    assert cursor.beyond_end_since is None


def test_a_queue_that_stays_shorter_than_what_was_read_is_an_error() -> None:
    bench = Bench()
    cursor = cursor_at(bench, 6)
    bench.answer_pulls_with(ResponseCode.PULL_OFFSET_MOVED)
    start = bench.shell.now
    with pytest.raises(OffsetBeyondEndError) as caught:
        while True:
            bench.shell.run(bench.puller.read(cursor, 32, 0))
    assert (caught.value.offset, caught.value.queue_end) == (6, 9)
    assert bench.shell.now - start >= BEYOND_END_SECONDS


def test_a_slave_that_is_behind_is_never_such_an_error() -> None:
    bench = Bench()
    cursor = cursor_at(bench, 6)
    del bench.shell.brokers[MASTER]
    bench.shell.brokers[NAME_SERVER] = bench.master
    bench.slave.handlers[PULL] = lambda request: answer_to(
        request, ResponseCode.PULL_OFFSET_MOVED, PullMessageResponseHeader(0, 3, 0, 3)
    )
    for _ in range(40):
        assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert cursor.offset == 6


def keeps_offsets(broker: FakeBroker, offset: int | None = None) -> list[int]:
    """Let a broker keep one group offset; the list is what it was told."""
    told: list[int] = []

    def query(request: RemotingCommand) -> RemotingCommand:
        known = told[-1] if told else offset
        if known is None:
            return answer_to(request, ResponseCode.QUERY_NOT_FOUND)
        return answer_to(request, ext=OffsetResponseHeader(known))

    def update(request: RemotingCommand) -> RemotingCommand:
        told.append(request.decode_header(UpdateConsumerOffsetRequestHeader).commit_offset)
        return answer_to(request)

    broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = query
    broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = update
    return told


def test_a_commit_waits_for_the_next_master_and_never_goes_to_a_slave() -> None:
    bench = Bench()
    told_slave = keeps_offsets(bench.slave)
    bench.shell.run(bench.core.route("orders", bench.shell.now + 3))
    del bench.shell.brokers[MASTER]
    takes_over_at = bench.shell.now + 6
    route = bench.master.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

    def told(request: RemotingCommand) -> RemotingCommand | None:
        if bench.shell.now >= takes_over_at:
            bench.master.routes["orders"] = route_of(("broker-a", {0: SLAVE}))
        return route(request)

    bench.master.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = told
    start = bench.shell.now
    bench.shell.run(bench.puller.update_consume_offset(QUEUE, 2))
    assert told_slave == [2]
    assert 6 <= bench.shell.now - start < 7.5


def test_a_commit_that_nobody_takes_fails_when_its_time_is_over() -> None:
    bench = Bench()
    bench.master.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    start = bench.shell.now
    with pytest.raises(RouteNotFoundError) as caught:
        bench.shell.run(bench.puller.update_consume_offset(QUEUE, 2, 5.0))
    assert caught.value.cause is RouteCause.NO_MASTER
    assert 4 <= bench.shell.now - start <= 5


def test_a_refusal_that_passes_is_waited_out_by_a_commit() -> None:
    bench = Bench()
    told = keeps_offsets(bench.master)
    update = bench.master.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]
    refusals = iter(range(3))

    def refuse_at_first(request: RemotingCommand) -> RemotingCommand | None:
        if next(refusals, None) is not None:
            return answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE)
        return update(request)

    bench.master.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse_at_first
    bench.shell.run(bench.puller.update_consume_offset(QUEUE, 2))
    assert told == [2]


@pytest.mark.parametrize(("known", "told"), [(None, [2]), (1, [2]), (2, []), (3, [])])
def test_the_next_master_is_told_what_was_committed_unless_it_knows_more(
    known: int | None, told: list[int]
) -> None:
    bench = Bench()
    fence(bench)
    keeps_offsets(bench.master)
    told_next = keeps_offsets(bench.slave, known)
    bench.shell.run(bench.puller.update_consume_offset(QUEUE, 2))
    fence(bench, SLAVE, epoch=2)
    for _ in range(3):
        bench.pull()
    assert told_next == told
    assert bench.shell.run(bench.puller.fetch_consume_offset(QUEUE)) == max(known or 0, 2)


def test_that_the_next_master_cannot_be_told_does_not_keep_a_reader_from_reading() -> None:
    bench = Bench()
    fence(bench)
    keeps_offsets(bench.master)
    bench.shell.run(bench.puller.update_consume_offset(QUEUE, 2))
    fence(bench, SLAVE, epoch=2)
    assert bench.pull().status is PullStatus.FOUND
    told_next = keeps_offsets(bench.slave)
    bench.pull()
    assert told_next == [2]


@pytest.mark.parametrize(
    "code", [RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET]
)
def test_a_master_that_could_not_be_told_is_told_with_the_next_pull(code: RequestCode) -> None:
    bench = Bench()
    fence(bench)
    keeps_offsets(bench.master)
    bench.shell.run(bench.puller.update_consume_offset(QUEUE, 2))
    told_next = keeps_offsets(bench.slave)
    usual = bench.slave.handlers[code]
    bench.slave.handlers[code] = lambda request: answer_to(request, ResponseCode.SYSTEM_BUSY)
    fence(bench, SLAVE, epoch=2)
    while code not in bench.slave.codes():
        bench.pull()
    assert told_next == []
    bench.slave.handlers[code] = usual
    bench.pull()
    assert told_next == [2]


def test_a_queue_that_was_left_to_others_is_not_told_to_the_next_master() -> None:
    bench = Bench()
    fence(bench)
    keeps_offsets(bench.master)
    bench.shell.run(bench.puller.update_consume_offset(QUEUE, 2))
    bench.puller.forget(QUEUE)
    fence(bench, SLAVE, epoch=2)
    told_next = keeps_offsets(bench.slave, 1)
    for _ in range(3):
        bench.pull()
    assert PULL in bench.slave.codes()
    assert told_next == []


def test_the_offset_of_a_group_is_asked_of_the_master_while_a_fenced_group_has_none() -> None:
    bench = Bench()
    fence(bench)
    keeps_offsets(bench.slave, 1)
    bench.pull()
    bench.shell.failures[MASTER] = [LOST] * 5
    keeps_offsets(bench.master, 2)
    assert bench.shell.run(bench.puller.fetch_consume_offset(QUEUE)) == 2


def test_opening_a_reader_waits_out_a_switch() -> None:
    bench = Bench()
    bench.shell.failures[MASTER] = [LOST] * 3
    bench.shell.failures[SLAVE] = [
        ConnectionLostError(SLAVE, ConnectionCause.ENDED, "reset", outcome_unknown=True)
    ] * 3
    cursors = bench.shell.run(
        bench.puller.open_cursors("orders", Start.EARLIEST, "*", until_end=True)
    )
    assert len(cursors) == 2


def test_opening_a_reader_fails_when_its_time_is_over_or_at_once_if_that_will_not_pass() -> None:
    bench = Bench()
    bench.shell.brokers = {NAME_SERVER: bench.master}
    start = bench.shell.now
    with pytest.raises(ConnectionLostError):
        bench.shell.run(
            bench.puller.open_cursors(
                "orders", Start.EARLIEST, "*", until_end=False, timeout_seconds=2.0
            )
        )
    assert 1 < bench.shell.now - start <= 2
    with pytest.raises(RouteNotFoundError) as caught:
        bench.shell.run(bench.puller.open_cursors("typo", Start.EARLIEST, "*", until_end=False))
    assert caught.value.cause is RouteCause.NO_TOPIC


def test_a_reader_lets_a_fenced_groups_broker_hold_its_pulls_only_shortly() -> None:
    bench = Bench()
    cursor = cursor_at(bench, 3)
    bench.shell.run(bench.puller.read(cursor, 32, 15_000))
    fence(bench)
    bench.shell.run(bench.puller.read(cursor, 32, 15_000))
    bench.shell.run(bench.puller.read(cursor, 32, 15_000))
    holds = [
        request.decode_header(PullMessageRequestHeader).suspend_timeout_millis
        for request in bench.master.requests
        if request.code == PULL
    ]
    assert (holds[0], holds[-1]) == (15_000, FENCED_SUSPEND_MS)


SECOND_NAME_SERVER = "10.0.0.3:9876"


def answers_offset(offset: int) -> Handler:
    return lambda request: answer_to(request, ext=OffsetResponseHeader(offset))


class Restarted:
    """A master with three messages, and a node that has just started: it has one of them.

    Each is a name server, too. The one that has started is asked first and, for two seconds, knows
    nobody but itself.
    """

    def __init__(self) -> None:
        self.master, self.slave = FakeBroker(), FakeBroker()
        self.master.store("orders", 0, b"0", b"1", b"2")
        self.slave.store("orders", 0, b"0")
        self.shell = HandShell({MASTER: self.master, SLAVE: self.slave})
        self.shell.brokers[NAME_SERVER] = self.slave
        self.shell.brokers[SECOND_NAME_SERVER] = self.master
        self.knows_more_at = self.shell.now + 2
        self.slave.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route
        for broker, offset in ((self.master, 3), (self.slave, 1)):
            broker.handlers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = answers_offset(offset)
            keeps_offsets(broker, offset)

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        route = route_of(("broker-a", {1: SLAVE}))
        if self.shell.now >= self.knows_more_at:
            route = route_of(("broker-a", {0: MASTER, 1: SLAVE}))
        return answer_to(request, body=encode_json_body(route))

    def puller(self, *name_servers: str) -> Puller:
        core = ClientCore(
            name_servers, identity=IDENTITY, clock=self.shell.clock, consumer_group="CG"
        )
        return Puller(core, "CG")


@pytest.mark.parametrize(
    "name_servers", [[NAME_SERVER], [NAME_SERVER, SECOND_NAME_SERVER]], ids=["alone", "both"]
)
def test_a_reader_until_the_end_does_not_believe_a_node_that_has_just_started(
    name_servers: list[str],
) -> None:
    world = Restarted()
    puller = world.puller(*name_servers)
    start = world.shell.now
    cursors = world.shell.run(puller.open_cursors("orders", Start.EARLIEST, "*", until_end=True))
    assert [cursor.end for cursor in cursors] == [3, 0]
    waited = world.shell.now - start
    assert waited == 0 if len(name_servers) == 2 else 2 <= waited < 3
    assert len(world.shell.run(puller.read(cursors[0], 32, 0))) == 3


@pytest.mark.parametrize("ask", ["max", "search", "group", "latest"])
def test_what_decides_where_a_reader_begins_is_the_masters_word_or_an_error(ask: str) -> None:
    def question(puller: Puller) -> Flow[object]:
        match ask:
            case "max":
                return puller.max_offset(QUEUE)
            case "search":
                return puller.search_offset(QUEUE, 17)
            case "group":
                return puller.fetch_consume_offset(QUEUE)
        return _first_offset(puller, Start.LATEST)

    world = Restarted()
    assert world.shell.run(question(world.puller(NAME_SERVER))) == 3
    world.knows_more_at = math.inf
    start = world.shell.now
    with pytest.raises(RouteNotFoundError) as caught:
        world.shell.run(question(world.puller(NAME_SERVER)))
    assert caught.value.cause is RouteCause.NO_MASTER
    assert SWITCH_SECONDS - 1 < world.shell.now - start <= SWITCH_SECONDS


def _first_offset(puller: Puller, start: Start) -> Flow[int]:
    cursors = yield from puller.open_cursors("orders", start, "*", until_end=False)
    return cursors[0].offset


def test_a_node_that_is_no_master_any_more_is_not_believed_either() -> None:
    bench = Bench()
    fence(bench)

    def no_master(request: RemotingCommand) -> RemotingCommand:
        assert request.decode_header(QueueRequestHeader).only_master
        fence(bench, SLAVE, epoch=2)
        return answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark="a follower")

    bench.master.handlers[RequestCode.GET_MAX_OFFSET] = no_master
    bench.slave.store("orders", 0, b"3")
    assert bench.shell.run(bench.puller.max_offset(QUEUE)) == 4


def test_queues_are_those_of_a_route_with_a_master_if_there_is_one_in_time() -> None:
    world = Restarted()
    world.slave.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: answer_to(
        request,
        body=encode_json_body(
            route_of(("broker-a", {1: SLAVE}), queue_nums=1)
            if world.shell.now < world.knows_more_at
            else route_of(("broker-a", {0: MASTER}), queue_nums=5)
        ),
    )
    queues = world.shell.run(world.puller(NAME_SERVER).fetch_message_queues("orders"))
    assert len(queues) == 5


def test_opening_waits_for_a_name_server_that_has_just_started() -> None:
    bench = Bench()
    route = bench.master.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    ready_at = bench.shell.now + 4

    def not_ready(request: RemotingCommand) -> RemotingCommand | None:
        if bench.shell.now < ready_at:
            return answer_to(request, ResponseCode.SYSTEM_ERROR, remark="name remoting not ready")
        return route(request)

    bench.master.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = not_ready
    cursors = bench.shell.run(
        bench.puller.open_cursors("orders", Start.LATEST, "*", until_end=True)
    )
    assert [cursor.end for cursor in cursors] == [3, 0]
    assert 4 <= bench.shell.now + 4 - ready_at < 5


def deleted_at_slave(bench: Bench, status: int) -> None:
    """Have the slave say that the messages from 0 to 2 are gone; the master cannot be reached."""
    bench.slave.handlers[PULL] = lambda request: answer_to(
        request, status, PullMessageResponseHeader(0, 2, 2, 3)
    )
    bench.shell.failures[MASTER] = [LOST]


@pytest.mark.parametrize(
    "status", [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY]
)
def test_what_another_node_has_deleted_is_waited_for_and_read_from_the_master(status: int) -> None:
    bench = Bench()
    cursor = cursor_at(bench, 0)
    deleted_at_slave(bench, status)
    start = bench.shell.now
    assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert (cursor.offset, bench.shell.now - start) == (0, RETRY_SECONDS)
    messages = bench.shell.run(bench.puller.read(cursor, 32, 0))
    assert [message.body for message in messages] == [b"0", b"1", b"2"]


def test_without_a_master_nothing_is_passed_over() -> None:
    bench = Bench()
    cursor = cursor_at(bench, 0)
    deleted_at_slave(bench, ResponseCode.PULL_OFFSET_MOVED)
    bench.shell.failures[MASTER] = [LOST] * 1000
    for _ in range(5):
        assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert cursor.offset == 0


def test_what_the_master_has_deleted_as_well_is_passed_over() -> None:
    bench = Bench()
    cursor = cursor_at(bench, 0)
    deleted_at_slave(bench, ResponseCode.PULL_OFFSET_MOVED)
    bench.master.handlers[RequestCode.GET_MIN_OFFSET] = answers_offset(1)
    assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert cursor.offset == 1


def test_earliest_is_what_the_master_has_and_without_one_the_very_first() -> None:
    bench = Bench()
    for broker, offset in ((bench.master, 2), (bench.slave, 7)):
        broker.handlers[RequestCode.GET_MIN_OFFSET] = answers_offset(offset)
    assert bench.shell.run(_first_offset(bench.puller, Start.EARLIEST)) == 2
    bench.shell.failures[MASTER] = [LOST] * 2
    assert bench.shell.run(_first_offset(bench.puller, Start.EARLIEST)) == 0


def damage(broker: FakeBroker, *numbers: int) -> None:
    """Have a broker answer pulls that begin at these messages as one where they are damaged."""
    usual = broker.handlers[PULL]

    def handler(request: RemotingCommand) -> RemotingCommand | None:
        offset = request.decode_header(PullMessageRequestHeader).queue_offset
        if offset not in numbers:
            return usual(request)
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        return answer_to(request, code, DamagedMessageHeader(offset, 1000), b"", "it is damaged")

    broker.handlers[PULL] = handler


def test_a_message_that_is_damaged_at_the_master_comes_from_another_node_at_once() -> None:
    bench = Bench()
    damage(bench.master, 1)
    result = bench.pull(offset=1, suspend_timeout_ms=5000)
    assert [message.body for message in result.messages] == [b"1", b"2"]
    header = bench.slave.requests[-1].decode_header(PullMessageRequestHeader)
    assert header.sys_flag & 2 == 0, "it must not be held there"


def test_a_message_that_is_damaged_everywhere_is_an_error_that_names_it() -> None:
    bench = Bench()
    damage(bench.master, 1)
    damage(bench.slave, 1)
    with pytest.raises(MessageDamagedError) as caught:
        bench.pull(offset=1)
    error = caught.value
    assert (error.queue_offset, error.physical_offset, error.address) == (1, 1000, MASTER)


def test_a_node_that_lags_or_has_deleted_it_does_not_stand_in_for_a_damaged_message() -> None:
    for code, next_offset in ((19, 1), (21, 9), (20, 3)):
        bench = Bench()
        damage(bench.master, 1)

        def handler(
            request: RemotingCommand, code: int = code, next_offset: int = next_offset
        ) -> RemotingCommand:
            return answer_to(
                request, code, PullMessageResponseHeader(0, next_offset, 0, 9), b"", ""
            )

        bench.slave.handlers[PULL] = handler
        with pytest.raises(MessageDamagedError):
            bench.pull(offset=1)


def test_a_reader_waits_for_a_damaged_message_and_goes_on_when_it_is_healed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    whole = bench.master.handlers[PULL]
    damage(bench.master, 1)
    damage(bench.slave, 1)
    cursor = Cursor(QUEUE, 1, None, "*")
    for _ in range(40):
        assert bench.shell.run(bench.puller.read(cursor, 32, 15_000)) == []
        assert cursor.offset == 1
    assert bench.shell.now >= 40 * RETRY_SECONDS
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    bench.master.handlers[PULL] = whole
    assert [m.body for m in bench.shell.run(bench.puller.read(cursor, 32, 15_000))] == [b"1", b"2"]


def test_a_reader_up_to_an_end_does_not_wait_for_a_damaged_message_for_ever() -> None:
    bench = Bench()
    damage(bench.master, 1)
    damage(bench.slave, 1)
    cursor = Cursor(QUEUE, 1, 3, "*")
    began = bench.shell.now
    with pytest.raises(MessageDamagedError):
        while True:
            assert bench.shell.run(bench.puller.read(cursor, 32, 0)) == []
    assert DAMAGED_SECONDS <= bench.shell.now - began < DAMAGED_SECONDS + 3
