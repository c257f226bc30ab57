from collections.abc import Callable

import pytest

from tandem.client import send_flow
from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendTimeoutError,
)
from tandem.client.flow import CallMany
from tandem.client.results import MessageQueue, SendResult, SendStatus
from tandem.client.send_flow import Sender, SendSettings
from tandem.wire.message import Message, decode_batch_body
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    OTHER_MASTER,
    SLAVE,
    FakeBroker,
    HandShell,
    answer_to,
    route_of,
)

MESSAGE = Message("orders", b"hello")
SEND = RequestCode.SEND_MESSAGE_V2
NOW_MS = 1_700_000_000_000
LOST_UNKNOWN = ConnectionLostError(MASTER, "reset", outcome_unknown=True)
NEVER_LEFT = ConnectionLostError(MASTER, "refused", outcome_unknown=False)


class Bench:
    """A sender, one broker that is everything, and a shell."""

    def __init__(self, retries: int = 2, *, wait_store_msg_ok: bool = True) -> None:
        self.broker = FakeBroker()
        self.shell = HandShell({NAME_SERVER: self.broker, MASTER: self.broker})
        self.core = ClientCore(
            NAME_SERVER, identity=IDENTITY, clock=self.shell.clock, producer_group="PG"
        )
        settings = SendSettings("PG", wait_store_msg_ok, retries)
        self.sender = Sender(self.core, settings, lambda: NOW_MS)

    def send(
        self,
        message: Message = MESSAGE,
        queue_id: int | None = None,
        *,
        wait_store_msg_ok: bool | None = None,
    ) -> SendResult:
        return self.shell.run(
            self.sender.send(message, queue_id=queue_id, wait_store_msg_ok=wait_store_msg_ok)
        )

    def send_many(self, *messages: Message) -> list[SendResult | ClientError]:
        return self.shell.run(
            self.sender.send_many(messages, queue_id=None, wait_store_msg_ok=None)
        )

    def send_batch(self, *messages: Message) -> SendResult:
        return self.shell.run(
            self.sender.send_batch(messages, queue_id=None, wait_store_msg_ok=None)
        )

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
    bench = Bench(wait_store_msg_ok=producer)
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
    with pytest.raises(RouteNotFoundError, match="no broker takes sends"):
        bench.send()
    assert bench.tries() == 0


def test_a_queue_that_does_not_exist_is_named() -> None:
    with pytest.raises(RouteNotFoundError, match=r"no queue 9; the writable ones are \[0, 1\]"):
        Bench().send(queue_id=9)


def test_an_answer_that_does_not_parse_leaves_the_outcome_unknown() -> None:
    bench = Bench(retries=0)
    bench.broker.handlers[SEND] = answer_to
    with pytest.raises(ConnectionLostError, match="does not parse") as caught:
        bench.send()
    assert caught.value.outcome_unknown


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"x" * (4 * 1024 * 1024 + 1)),
        Message("orders", b"", properties={"a": "x" * 32_700}),
        Message("orders", b"", properties={"a": "\x01"}),
        Message("orders", b"", properties={"": "a"}),
    ],
)
def test_a_message_that_no_broker_takes_is_refused_here(message: Message) -> None:
    bench = Bench()
    with pytest.raises(ValueError, match=r"limit|cannot be stored"):
        bench.send(message)
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
    with pytest.raises(ValueError, match="has 2"):
        Bench().send_batch(MESSAGE, Message("other", b""))
    with pytest.raises(ValueError, match="has 0"):
        Bench().send_batch()


def test_the_messages_of_a_batch_cannot_be_delayed() -> None:
    with pytest.raises(ValueError, match="cannot be delayed"):
        Bench().send_batch(MESSAGE, Message(MESSAGE.topic, b"", delay_time_level=1))


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
    monkeypatch.setattr(send_flow, "MANY_MESSAGES_MAX", 3)
    monkeypatch.setattr(send_flow, "MANY_BYTES_MAX", 100)
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
