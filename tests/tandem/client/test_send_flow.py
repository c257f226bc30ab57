import copy
from collections.abc import Callable

import msgspec
import pytest

from tandem.client import sending
from tandem.client.ack import Ack
from tandem.client.backoff import PAUSE_SECONDS_MAX
from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
    SendInDoubtError,
    SendTimeoutError,
)
from tandem.client.flow import Call, CallMany, Pause
from tandem.client.results import MessageQueue, SendResult, SendStatus
from tandem.client.send_flow import Sender
from tandem.client.sending import SendOptions, SendSettings
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicRouteData
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    OTHER_MASTER,
    SLAVE,
    FakeBroker,
    Handler,
    HandShell,
    answer_to,
    route_of,
)

MESSAGE = Message("orders", b"hello")
SEND = RequestCode.SEND_MESSAGE_V2
NOW_MS = 1_700_000_000_000
LOST_UNKNOWN = ConnectionLostError(MASTER, ConnectionCause.ENDED, "reset", outcome_unknown=True)
NEVER_LEFT = ConnectionLostError(
    MASTER, ConnectionCause.UNREACHABLE, "refused", outcome_unknown=False
)


class Bench:
    """A sender, one broker that is everything, and a shell."""

    def __init__(
        self,
        retries: int | None = 2,
        *,
        ack: Ack = Ack.REPLICATED,
        timeout_ms: int = 3000,
        resend_until_ok: bool | None = None,
        fenced: bool = False,
    ) -> None:
        self.broker = FakeBroker()
        self.shell = HandShell({NAME_SERVER: self.broker, MASTER: self.broker})
        self.core = ClientCore(
            NAME_SERVER, identity=IDENTITY, clock=self.shell.clock, producer_group="PG"
        )
        settings = SendSettings("PG", ack, retries, timeout_ms, resend_until_ok=resend_until_ok)
        self.sender = Sender(self.core, settings, lambda: NOW_MS)
        if fenced:
            self.broker.routes["orders"] = fenced_route()

    def send(
        self,
        message: Message = MESSAGE,
        queue_id: int | None = None,
        *,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
    ) -> SendResult:
        return self.shell.run(
            self.sender.send(message, SendOptions(queue_id, wait_store_msg_ok, ack))
        )

    def send_many(self, *messages: Message) -> list[SendResult | ClientError]:
        return self.shell.run(self.sender.send_many(messages, SendOptions()))

    def send_batch(self, *messages: Message) -> SendResult:
        return self.shell.run(self.sender.send_batch(messages, SendOptions()))

    def tries(self) -> int:
        return len(self.shell.calls_to(SEND))

    def headers(self) -> list[SendMessageRequestHeaderV2]:
        return [
            request.decode_header(SendMessageRequestHeaderV2)
            for request in self.broker.requests
            if request.code in {SEND, RequestCode.SEND_BATCH_MESSAGE}
        ]


def properties_of(header: SendMessageRequestHeaderV2) -> dict[str, str]:
    return decode_properties((header.properties or "").encode())


def refuses(code: int) -> Callable[[RemotingCommand], RemotingCommand]:
    return lambda request: answer_to(request, code, remark="no")


def stores_with(code: int) -> Callable[[RemotingCommand], RemotingCommand]:
    ext = SendMessageResponseHeader("0A00000100002A9F0000000000000000", 1, 7)
    return lambda request: answer_to(request, code, ext, remark="why")


def test_a_send_says_everything_that_rocketmq_wants_to_know() -> None:
    bench = Bench()
    bench.send(Message("orders", b"hello", keys="k", tags="TagA", flag=5, properties={"a": "b"}))
    (header,) = bench.headers()
    assert header.producer_group == "PG"
    assert (header.topic, header.default_topic, header.default_topic_queue_nums) == (
        "orders",
        "TBW102",
        4,
    )
    assert (header.flag, header.sys_flag, header.born_timestamp) == (5, 0, NOW_MS)
    assert (header.batch, header.broker_name) == (False, "broker-a")
    properties = properties_of(header)
    assert len(properties.pop("UNIQ_KEY")) == 32
    assert properties == {"a": "b", "KEYS": "k", "TAGS": "TagA", "WAIT": "true"}


def test_the_result_tells_where_the_message_lies() -> None:
    bench = Bench()
    bench.send(queue_id=1)
    result = bench.send(queue_id=1)
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue("orders", "broker-a", 1)
    assert result.queue_offset == 1
    assert result.offset_msg_id == "0A00000100002A9F00000000000003E8"
    assert result.msg_id == properties_of(bench.headers()[1])["UNIQ_KEY"]


def test_messages_go_round_the_queues() -> None:
    bench = Bench()
    assert sorted(bench.send().queue.queue_id for _ in range(6)) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("producer", "message", "send", "expected"),
    [
        (True, None, None, "true"),
        (False, None, None, "false"),
        (True, False, None, "false"),
        (False, True, None, "true"),
        (True, True, False, "false"),
        (False, False, True, "true"),
    ],
)
def test_wait_is_taken_from_the_send_the_message_or_the_producer(
    producer: bool,  # noqa: FBT001
    message: bool | None,  # noqa: FBT001
    send: bool | None,  # noqa: FBT001
    expected: str,
) -> None:
    bench = Bench(ack=Ack.REPLICATED if producer else Ack.ASYNC)
    for keys in ("", "k"):
        bench.send(
            Message("orders", b"", keys=keys, wait_store_msg_ok=message), wait_store_msg_ok=send
        )
    assert [properties_of(header)["WAIT"] for header in bench.headers()] == [expected] * 2


def test_a_unique_key_of_the_user_is_kept() -> None:
    bench = Bench()
    result = bench.send(Message("orders", b"", properties={"UNIQ_KEY": "mine"}))
    assert result.msg_id == "mine"
    assert properties_of(bench.headers()[0])["UNIQ_KEY"] == "mine"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_a_message_that_is_stored_but_not_safe_is_a_result_and_is_not_sent_again(
    code: int, status: SendStatus
) -> None:
    bench = Bench()
    bench.broker.handlers[SEND] = stores_with(code)
    result = bench.send()
    assert (result.status, result.reason, result.queue_offset) == (status, "why", 7)
    assert bench.tries() == 1


def test_a_refusal_that_will_not_pass_is_not_tried_again() -> None:
    bench = Bench()
    bench.broker.handlers[SEND] = refuses(ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(BrokerError) as caught:
        bench.send()
    assert (caught.value.code, caught.value.remark, caught.value.address) == (13, "no", MASTER)
    assert bench.tries() == 1


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17])
def test_a_refusal_that_may_pass_is_tried_three_times(code: int) -> None:
    bench = Bench()
    bench.broker.handlers[SEND] = refuses(code)
    with pytest.raises(BrokerError):
        bench.send()
    assert bench.tries() == 3


@pytest.mark.parametrize("error", [LOST_UNKNOWN, NEVER_LEFT])
def test_with_no_retries_a_send_is_one_request(error: ClientError) -> None:
    bench = Bench(retries=0)
    bench.shell.failures[MASTER] = [error]
    with pytest.raises(ConnectionLostError) as caught:
        bench.send()
    assert caught.value.outcome_unknown is error.outcome_unknown
    assert bench.tries() == 1
    bench.broker.handlers[SEND] = refuses(2)
    with pytest.raises(BrokerError):
        bench.send()
    assert bench.tries() == 2


def test_a_lost_connection_is_tried_again_and_may_succeed() -> None:
    bench = Bench()
    bench.shell.failures[MASTER] = [LOST_UNKNOWN]
    assert bench.send().status is SendStatus.SEND_OK
    assert bench.tries() == 2


def test_all_tries_carry_the_same_unique_key() -> None:
    bench = Bench()
    bench.broker.handlers[SEND] = refuses(2)
    with pytest.raises(BrokerError):
        bench.send()
    keys = [properties_of(header)["UNIQ_KEY"] for header in bench.headers()]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize("last", [NEVER_LEFT, BrokerError(2, "busy", MASTER)])
def test_what_was_unknown_stays_unknown_whatever_came_after_it(last: ClientError) -> None:
    bench = Bench()
    bench.shell.failures[MASTER] = [NEVER_LEFT, LOST_UNKNOWN, last]
    if isinstance(last, BrokerError):
        bench.shell.failures[MASTER].pop()
        bench.broker.handlers[SEND] = refuses(2)
    with pytest.raises(ConnectionLostError) as caught:
        bench.send()
    assert caught.value.outcome_unknown
    assert caught.value.__cause__ is not None
    assert bench.tries() == 3


def test_no_route_after_an_unknown_try_is_still_unknown() -> None:
    bench = Bench()
    bench.send()
    bench.shell.failures[MASTER] = [LOST_UNKNOWN]
    bench.broker.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    bench.shell.now += 1
    with pytest.raises(ConnectionLostError) as caught:
        bench.send()
    assert caught.value.outcome_unknown


def test_a_send_without_an_answer_times_out_once_and_for_all_tries() -> None:
    bench = Bench()
    bench.broker.handlers[SEND] = lambda _: None
    with pytest.raises(SendTimeoutError) as caught:
        bench.send()
    assert caught.value.outcome_unknown
    assert bench.tries() == 1
    assert bench.shell.now == 1003.0


def test_a_timeout_before_the_request_left_is_known() -> None:
    bench = Bench(retries=0)
    bench.shell.failures[MASTER] = [RequestTimeoutError(MASTER, outcome_unknown=False)]
    with pytest.raises(SendTimeoutError) as caught:
        bench.send()
    assert not caught.value.outcome_unknown


def test_another_broker_name_is_tried_after_a_failure() -> None:
    bench = Bench()
    bench.broker.routes["orders"] = route_of(
        ("broker-a", {0: MASTER}), ("broker-b", {0: OTHER_MASTER})
    )
    bench.shell.brokers[OTHER_MASTER] = bench.broker
    del bench.shell.brokers[MASTER]
    for _ in range(8):
        assert bench.send().queue.broker_name == "broker-b"


def test_without_a_master_nothing_is_sent() -> None:
    bench = Bench()
    bench.broker.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    with pytest.raises(RouteNotFoundError) as caught:
        bench.send()
    assert caught.value.cause is RouteCause.NO_MASTER
    assert bench.tries() == 0


def test_a_queue_that_does_not_exist_is_named() -> None:
    with pytest.raises(
        RouteNotFoundError, match="no queue 9; the writable ones are 0, 1"
    ) as caught:
        Bench().send(queue_id=9)
    assert caught.value.cause is RouteCause.NO_QUEUE


def test_a_topic_that_is_only_read_is_told_from_one_without_a_master() -> None:
    bench = Bench()
    bench.broker.routes["orders"] = route_of(("broker-a", {0: MASTER}), perm=4)
    with pytest.raises(RouteNotFoundError) as caught:
        bench.send()
    assert (caught.value.cause, bench.tries()) == (RouteCause.READ_ONLY, 0)


def test_an_answer_that_does_not_parse_leaves_the_outcome_unknown() -> None:
    bench = Bench(retries=0)
    bench.broker.handlers[SEND] = answer_to
    with pytest.raises(ConnectionLostError) as caught:
        bench.send()
    assert caught.value.cause is ConnectionCause.MALFORMED
    assert caught.value.outcome_unknown


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (Message("orders", b"x" * (4 * 1024 * 1024 + 1)), "body"),
        (Message("orders", b"", properties={"a": "x" * 32_700}), "properties"),
        (Message("orders", b"", properties={"a": "\x01"}), "a"),
        (Message("orders", b"", properties={"": "a"}), ""),
    ],
)
def test_a_message_that_no_broker_takes_is_refused_here(message: Message, name: str) -> None:
    bench = Bench()
    with pytest.raises(ArgumentError) as caught:
        bench.send(message)
    assert caught.value.names == (name,)
    assert bench.shell.effects == []


def test_a_batch_is_one_request_with_a_key_for_each_message() -> None:
    bench = Bench()
    bench.broker.handlers[RequestCode.SEND_BATCH_MESSAGE] = stores_with(0)
    result = bench.send_batch(
        Message("orders", b"1", keys="k1"), Message("orders", b"2", properties={"UNIQ_KEY": "u2"})
    )
    (header,) = bench.headers()
    assert header.batch
    assert properties_of(header)["WAIT"] == "true"
    entries = list(decode_batch_body(bench.broker.requests[-1].body))
    assert [entry.body for entry in entries] == [b"1", b"2"]
    keys = [decode_properties(entry.properties)["UNIQ_KEY"] for entry in entries]
    assert result.msg_id == ",".join(keys)
    assert keys[1] == "u2"
    assert result.queue_offset == 7


def test_a_batch_has_exactly_one_topic() -> None:
    with pytest.raises(ArgumentError) as caught:
        Bench().send_batch(MESSAGE, Message("other", b""))
    assert caught.value.names == ("topic",)
    with pytest.raises(ArgumentError) as caught:
        Bench().send_batch()
    assert caught.value.names == ("topic",)


def test_the_messages_of_a_batch_cannot_be_delayed() -> None:
    with pytest.raises(ArgumentError) as caught:
        Bench().send_batch(MESSAGE, Message(MESSAGE.topic, b"", delay_time_level=1))
    assert "delay_time_level" in caught.value.names


def test_many_are_sent_at_once_and_answered_in_order() -> None:
    bench = Bench()
    outcomes = bench.send_many(*(Message("orders", bytes([i])) for i in range(10)))
    assert all(isinstance(outcome, SendResult) for outcome in outcomes)
    (many,) = [effect for effect in bench.shell.effects if isinstance(effect, CallMany)]
    assert [call.body for call in many.calls] == [bytes([i]) for i in range(10)]
    assert bench.send_many() == []


def test_of_many_only_the_failed_ones_are_tried_again() -> None:
    bench = Bench()
    bench.send()
    bench.shell.failures[MASTER] = [LOST_UNKNOWN] * 2
    bench.shell.effects.clear()
    outcomes = bench.send_many(*(Message("orders", bytes([i])) for i in range(4)))
    assert all(isinstance(outcome, SendResult) for outcome in outcomes)
    rounds = [effect for effect in bench.shell.effects if isinstance(effect, CallMany)]
    assert [len(each.calls) for each in rounds] == [4, 2]
    assert [call.body for call in rounds[1].calls] == [b"\0", b"\1"]


def test_failures_of_many_are_outcomes_in_their_place() -> None:
    bench = Bench(retries=0)
    bench.send()
    bench.shell.failures[MASTER] = [LOST_UNKNOWN]
    outcomes = bench.send_many(MESSAGE, MESSAGE, Message("unknown", b""))
    assert isinstance(outcomes[0], ConnectionLostError)
    assert isinstance(outcomes[1], SendResult)
    assert isinstance(outcomes[2], RouteNotFoundError)


def test_many_are_cut_into_parts_that_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MANY_MESSAGES_MAX", 3)
    monkeypatch.setattr(sending, "MANY_BYTES_MAX", 100)
    bench = Bench()
    bench.send_many(*(Message("orders", b"x" * size) for size in (1, 1, 1, 1, 90, 20, 200, 1)))
    rounds = [effect for effect in bench.shell.effects if isinstance(effect, CallMany)]
    assert [[len(call.body) for call in each.calls] for each in rounds] == [
        [1, 1, 1],
        [1, 90],
        [20],
        [200],
        [1],
    ]


def new_master_after(bench: Bench, seconds: float) -> None:
    """Take the master away; another one is in the route so much later."""
    bench.send()
    bench.shell.effects.clear()
    bench.broker.requests.clear()
    takes_over_at = bench.shell.now + seconds
    del bench.shell.brokers[MASTER]
    route = bench.broker.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

    def told(request: RemotingCommand) -> RemotingCommand | None:
        if bench.shell.now >= takes_over_at:
            bench.broker.routes["orders"] = route_of(("broker-a", {0: OTHER_MASTER}))
            bench.shell.brokers[OTHER_MASTER] = bench.broker
        return route(request)

    bench.broker.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = told


def follows(*, resend_until_ok: bool | None = None) -> Bench:
    return Bench(None, timeout_ms=12_000, resend_until_ok=resend_until_ok)


def test_a_send_follows_a_switch_and_finds_the_new_master_soon() -> None:
    bench = follows()
    new_master_after(bench, 6.0)
    start = bench.shell.now
    assert bench.send().status is SendStatus.SEND_OK
    assert 6.0 <= bench.shell.now - start < 6.0 + 2 * PAUSE_SECONDS_MAX
    assert bench.shell.calls_to(SEND)[-1] == OTHER_MASTER


def test_a_send_waits_out_a_route_without_master() -> None:
    bench = follows()
    new_master_after(bench, 3.0)
    bench.broker.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    assert bench.send().status is SendStatus.SEND_OK


def test_a_new_topic_waits_for_a_master_also_after_nobody_knew_it() -> None:
    """A name server that was cut off knows no topics at first, then a group between two masters."""
    bench = follows()
    new_master_after(bench, 6.0)
    start = bench.shell.now
    route = bench.broker.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

    def told(request: RemotingCommand) -> RemotingCommand | None:
        answer = route(request)
        if bench.shell.now >= start + 6.0:
            bench.broker.routes["TBW102"] = bench.broker.routes["orders"]
        elif bench.shell.now >= start + 0.5:
            bench.broker.routes["TBW102"] = route_of(("broker-a", {1: SLAVE}))
        return answer

    bench.broker.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = told
    assert bench.send(Message("new", b"")).status is SendStatus.SEND_OK
    assert bench.shell.now - start >= 6.0


def test_a_frozen_master_does_not_use_up_all_the_time() -> None:
    bench = follows()
    new_master_after(bench, 6.0)
    frozen = FakeBroker()
    frozen.handlers[SEND] = lambda _: None
    bench.shell.brokers[MASTER] = frozen
    start = bench.shell.now
    assert bench.send().status is SendStatus.SEND_OK
    assert bench.shell.now - start < 8.0
    deadlines = [
        effect.deadline
        for effect in bench.shell.effects
        if isinstance(effect, Call) and effect.address == MASTER
    ]
    assert deadlines[0] - start == 4.0
    assert len(deadlines) == 5
    keys = {
        properties_of(request.decode_header(SendMessageRequestHeaderV2))["UNIQ_KEY"]
        for request in (*frozen.requests, *bench.broker.requests)
        if request.code == SEND
    }
    assert len(keys) == 1


def test_an_address_that_speaks_again_gets_its_full_time() -> None:
    bench = follows()
    bench.core.backoff.fell_silent(MASTER, bench.shell.now)
    bench.send()
    bench.send()
    limits = [
        effect.deadline - bench.shell.now
        for effect in bench.shell.effects
        if isinstance(effect, Call) and effect.code == SEND
    ]
    assert limits == [0.5, 4.0]


def test_a_send_that_is_refused_all_the_time_ends_with_the_refusal_in_time() -> None:
    bench = follows()
    bench.broker.handlers[SEND] = refuses(ResponseCode.SERVICE_NOT_AVAILABLE)
    start = bench.shell.now
    with pytest.raises(BrokerError) as caught:
        bench.send()
    assert not caught.value.outcome_unknown
    assert 11.0 < bench.shell.now - start <= 12.0
    pauses = [effect.seconds for effect in bench.shell.effects if isinstance(effect, Pause)]
    assert pauses[:20] == [0.05] * 20
    assert pauses[20:24] == [0.1, 0.2, 0.4, 0.5]
    assert bench.tries() < 50


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION])
def test_what_mostly_does_not_pass_is_tried_three_times_only(code: int) -> None:
    bench = follows()
    bench.broker.handlers[SEND] = refuses(code)
    with pytest.raises(BrokerError):
        bench.send()
    assert bench.tries() == 3


def test_a_topic_that_was_never_there_is_looked_for_three_times() -> None:
    bench = follows()
    with pytest.raises(RouteNotFoundError) as caught:
        bench.send(Message("typo", b""))
    assert caught.value.cause is RouteCause.NO_TOPIC
    assert len(bench.shell.calls_to(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 2 * 3


def test_a_message_that_is_not_known_to_be_safe_is_sent_again_if_that_is_wanted() -> None:
    bench = follows(resend_until_ok=True)
    bench.send()
    answers = iter([stores_with(12), refuses(14), stores_with(0)])

    def answer_next(request: RemotingCommand) -> RemotingCommand:
        return next(answers)(request)

    bench.broker.handlers[SEND] = answer_next
    assert bench.send().status is SendStatus.SEND_OK
    keys = [properties_of(header)["UNIQ_KEY"] for header in bench.headers()]
    assert len(set(keys[1:])) == 1
    assert len(keys) == 4


def test_what_is_not_known_to_be_safe_in_the_end_is_a_result_with_its_reason() -> None:
    bench = follows(resend_until_ok=True)
    answers = [stores_with(12)]
    bench.broker.handlers[SEND] = lambda request: (
        answers.pop(0)(request) if answers else answer_to(request, 14, remark="no master")
    )
    result = bench.send()
    assert (result.status, result.reason) == (SendStatus.FLUSH_SLAVE_TIMEOUT, "why")


def fenced_route(*, epoch: int = 1) -> TopicRouteData:
    route = route_of(("broker-a", {0: MASTER, 1: SLAVE}))
    brokers = [msgspec.structs.replace(each, master_epoch=epoch) for each in route.broker_datas]
    return msgspec.structs.replace(route, broker_datas=brokers)


def in_turn(*handlers: Handler) -> Handler:
    left = list(handlers)

    def answer_next(request: RemotingCommand) -> RemotingCommand | None:
        return left.pop(0)(request)

    return answer_next


def in_fenced_group(*, resend_until_ok: bool | None = None, retries: int | None = None) -> Bench:
    return Bench(retries, timeout_ms=12_000, fenced=True, resend_until_ok=resend_until_ok)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_fenced_group_is_asked_until_the_message_is_safe(code: int) -> None:
    bench = in_fenced_group()
    bench.broker.handlers[SEND] = in_turn(stores_with(code), refuses(14), stores_with(0))
    assert bench.send().status is SendStatus.SEND_OK
    keys = [properties_of(header)["UNIQ_KEY"] for header in bench.headers()]
    assert (len(keys), len(set(keys))) == (3, 1)


def test_a_batch_is_sent_again_with_the_keys_that_it_had() -> None:
    bench = in_fenced_group()
    handlers = bench.broker.handlers
    handlers[RequestCode.SEND_BATCH_MESSAGE] = in_turn(stores_with(12), stores_with(0))
    bench.shell.run(bench.sender.send_batch([MESSAGE, MESSAGE], SendOptions()))
    first, second = (
        request.body
        for request in bench.broker.requests
        if request.code == RequestCode.SEND_BATCH_MESSAGE
    )
    assert first == second


@pytest.mark.parametrize("retries", [None, 0])
def test_what_stays_in_doubt_in_a_fenced_group_raises(retries: int | None) -> None:
    bench = in_fenced_group(retries=retries)
    bench.broker.handlers[SEND] = stores_with(12)
    start = bench.shell.now
    with pytest.raises(SendInDoubtError) as caught:
        bench.send()
    assert caught.value.result.reason == "why"
    assert caught.value.outcome_unknown
    assert caught.value.result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert (bench.shell.now - start > 11.0, bench.tries() > 3) == (retries is None,) * 2


def test_a_refusal_does_not_end_the_doubt() -> None:
    bench = in_fenced_group()
    answers = [stores_with(12)]
    bench.broker.handlers[SEND] = lambda request: (
        answers.pop(0)(request) if answers else answer_to(request, 14, remark="no master")
    )
    with pytest.raises(SendInDoubtError) as caught:
        bench.send()
    assert caught.value.result.reason == "why"


def test_each_of_many_that_stays_in_doubt_says_so_itself() -> None:
    bench = in_fenced_group(retries=0)
    bench.broker.handlers[SEND] = stores_with(12)
    outcomes = bench.send_many(MESSAGE, MESSAGE)
    assert [type(outcome) for outcome in outcomes] == [SendInDoubtError] * 2
    again = copy.copy(outcomes[0])
    assert str(again) == str(outcomes[0])


def test_what_was_answered_before_a_cancellation_is_known() -> None:
    bench = Bench()
    bench.send()
    outcomes: dict[int, SendResult | ClientError] = {}
    flow = bench.sender.send_many([MESSAGE] * 4, SendOptions(), outcomes)
    asked = next(flow)
    assert isinstance(asked, CallMany)
    handle = bench.broker.handlers[SEND] = stores_with(0)
    request = next(each for each in bench.broker.requests if each.code == SEND)
    asked.answers.update({3: handle(request), 1: NEVER_LEFT, 0: handle(request)})
    flow.close()
    assert {index: type(outcome) for index, outcome in outcomes.items()} == {
        0: SendResult,
        3: SendResult,
    }


def test_a_fenced_group_is_asked_once_where_the_caller_says_so() -> None:
    bench = in_fenced_group(resend_until_ok=False)
    bench.broker.handlers[SEND] = stores_with(12)
    assert bench.send().status is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert bench.tries() == 1


def test_many_follow_a_switch_together() -> None:
    bench = follows()
    new_master_after(bench, 3.0)
    start = bench.shell.now
    outcomes = bench.send_many(*[MESSAGE] * 100)
    assert all(isinstance(outcome, SendResult) for outcome in outcomes)
    assert bench.shell.now - start < 3.0 + 2 * PAUSE_SECONDS_MAX
    routes = bench.shell.calls_to(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert len(routes) < 30


def test_many_without_a_master_cost_one_look_at_the_route_a_round() -> None:
    bench = follows()
    bench.broker.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    outcomes = bench.send_many(*[MESSAGE] * 100)
    assert all(isinstance(outcome, RouteNotFoundError) for outcome in outcomes)
    assert len(bench.shell.calls_to(RequestCode.GET_ROUTEINFO_BY_TOPIC)) < 60


@pytest.mark.parametrize(
    ("ack", "expected"),
    [
        (None, {"WAIT": "true"}),
        (Ack.ASYNC, {"WAIT": "false"}),
        (Ack.REPLICATED_FLUSHED, {"WAIT": "true", "TANDEM_ACK": "flushed"}),
    ],
)
def test_a_send_says_what_its_answer_has_to_wait_for(
    ack: Ack | None, expected: dict[str, str]
) -> None:
    bench = Bench()
    bench.send(ack=ack)
    properties = properties_of(bench.headers()[0])
    del properties["UNIQ_KEY"]
    assert properties == expected


def test_a_message_may_ask_for_its_contract_itself() -> None:
    bench = Bench()
    message = Message("orders", b"", properties={"TANDEM_ACK": "flushed", "a": "b"})
    bench.send(message)
    bench.send(message, ack=Ack.REPLICATED)
    first, second = map(properties_of, bench.headers())
    assert first["TANDEM_ACK"] == "flushed"
    assert "TANDEM_ACK" not in second


def test_a_send_waits_out_a_name_server_that_has_just_started() -> None:
    bench = Bench(retries=None, timeout_ms=10_000)
    route = bench.broker.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    ready_at = bench.shell.now + 4

    def not_ready(request: RemotingCommand) -> RemotingCommand | None:
        if bench.shell.now < ready_at:
            return answer_to(request, ResponseCode.SYSTEM_ERROR, remark="name remoting not ready")
        return route(request)

    bench.broker.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = not_ready
    assert bench.send().status is SendStatus.SEND_OK
    assert 4 <= bench.shell.now + 4 - ready_at < 5
