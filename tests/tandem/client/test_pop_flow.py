"""Whom a consumer that pops asks, and what it says of what it got."""

import msgspec
import pytest

from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import (
    BrokerError,
    ConnectionCause,
    ConnectionLostError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.pop_flow import CONSUME_POP, TURN_SECONDS, Popper, Wish
from tandem.client.popped_message import PoppedMessage
from tandem.client.pull_answer import Sql92
from tandem.wire.pop_headers import PopMessageResponseHeader
from tandem.wire.pop_offsets import PoppedQueue, encode_start_offsets
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import HeartbeatData
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body
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
from tests.tandem.client.pop_broker import POP_MS, PopBroker, pop_answer, record

WISH = Wish("orders", "*", 32, 60_000, 15_000)
NOW_MS = 1_700_000_000_123


class Bench:
    """A popper, and brokers that answer in no time."""

    def __init__(self, broker: FakeBroker, *, is_orderly: bool = False) -> None:
        self.broker = broker
        self.shell = HandShell({NAME_SERVER: broker, MASTER: broker})
        self.core = ClientCore(
            NAME_SERVER, identity=IDENTITY, clock=self.shell.clock, consumer_group="CG"
        )
        self.popper = Popper(self.core, "CG", is_orderly=is_orderly, wall_clock_ms=lambda: NOW_MS)

    def receive(self, wish: Wish = WISH) -> list[PoppedMessage]:
        return self.shell.run(self.popper.receive(wish))

    def ack(self, messages: list[PoppedMessage]) -> bool:
        return self.shell.run(self.popper.ack(messages, 5.0))


def test_the_only_broker_is_asked_as_long_as_the_caller_waits() -> None:
    broker = PopBroker([record(b"a", 7)])
    bench = Bench(broker)
    (message,) = bench.receive()
    assert message.body == b"a"
    (asked,) = broker.asked()
    assert (asked.topic, asked.consumer_group, asked.queue_id) == ("orders", "CG", -1)
    assert (asked.max_msg_nums, asked.invisible_time, asked.poll_time) == (32, 60_000, 15_000)
    assert (asked.born_time, asked.exp_type, asked.exp) == (NOW_MS, "TAG", "*")
    assert (asked.order, asked.init_mode) == (False, 0)
    assert asked.attempt_id == f"{IDENTITY.client_id}#1"


def test_each_call_is_an_attempt_of_its_own_and_its_tries_are_one() -> None:
    broker = PopBroker([record(b"a", 0)], [record(b"b", 1)])
    bench = Bench(broker, is_orderly=True)
    bench.shell.failures[MASTER] = [ConnectionLostError(MASTER, ConnectionCause.ENDED, "gone")]
    assert [each.body for each in bench.receive()] == [b"a"]
    assert [each.body for each in bench.receive()] == [b"b"]
    assert [(each.order, each.attempt_id) for each in broker.asked()] == [
        (True, f"{IDENTITY.client_id}#1"),
        (True, f"{IDENTITY.client_id}#2"),
    ]


def test_an_expression_is_said_as_one() -> None:
    broker = PopBroker([record(b"a", 0)])
    Bench(broker).receive(Wish("orders", Sql92("a > 5"), 1, 1, 0))
    assert (broker.asked()[0].exp_type, broker.asked()[0].exp) == ("SQL92", "a > 5")


def test_nothing_in_time_is_an_empty_list() -> None:
    broker = PopBroker()
    assert Bench(broker).receive(Wish("orders", "*", 1, 1, 0)) == []
    assert len(broker.asked()) == 1


def test_several_brokers_are_asked_at_once_and_then_in_turns() -> None:
    first, other = PopBroker(), PopBroker([], [], [record(b"x", 1)])
    first.routes["orders"] = route_of(("broker-a", {0: MASTER}), ("broker-b", {0: OTHER_MASTER}))
    bench = Bench(first)
    bench.shell.brokers[OTHER_MASTER] = other
    (message,) = bench.receive()
    assert message.lease.handle.broker_name == "broker-b"
    waits = [each.poll_time for each in first.asked() + other.asked()]
    assert sorted(set(waits)) == [0, round(TURN_SECONDS * 1000)]
    bench.ack([message])
    assert (first.acked, other.acked) == ([], [("orders", 0, 1)])


def test_one_broker_of_several_that_is_gone_is_no_error() -> None:
    first = PopBroker()
    first.routes["orders"] = route_of(("broker-a", {0: MASTER}), ("broker-b", {0: OTHER_MASTER}))
    gone = ConnectionLostError(OTHER_MASTER, ConnectionCause.UNREACHABLE, "refuses")
    bench = Bench(first)
    bench.shell.failures[OTHER_MASTER] = [gone] * 9
    assert bench.receive(Wish("orders", "*", 1, 1, 0)) == []


def test_a_master_that_is_gone_is_waited_for_and_then_it_is_an_error() -> None:
    bench = Bench(PopBroker())
    gone = ConnectionLostError(MASTER, ConnectionCause.UNREACHABLE, "refuses")
    bench.shell.failures[MASTER] = [gone] * 999
    began = bench.shell.now
    with pytest.raises(ConnectionLostError):
        bench.receive(Wish("orders", "*", 1, 1, 0))
    assert bench.shell.now - began >= SWITCH_SECONDS


def test_a_topic_without_a_master_is_waited_for_and_then_it_is_an_error() -> None:
    broker = PopBroker()
    broker.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    with pytest.raises(RouteNotFoundError) as caught:
        Bench(broker).receive()
    assert caught.value.cause is RouteCause.NO_MASTER


def test_a_topic_that_is_not_there_is_an_error_at_once() -> None:
    bench = Bench(PopBroker())
    with pytest.raises(RouteNotFoundError) as caught:
        bench.receive(Wish("none", "*", 1, 1, 15_000))
    assert caught.value.cause is RouteCause.NO_TOPIC


def test_a_refusal_that_does_not_pass_is_an_error_at_once() -> None:
    broker = PopBroker()
    broker.handlers[RequestCode.POP_MESSAGE] = lambda request: answer_to(
        request, ResponseCode.NO_PERMISSION
    )
    with pytest.raises(BrokerError):
        Bench(broker).receive()


def test_what_nobody_wants_is_acknowledged() -> None:
    broker = PopBroker([record(b"a", 5, TAGS="Aa"), record(b"b", 6, TAGS="BB")])
    found = Bench(broker).receive(Wish("orders", "BB", 32, 60_000, 0))
    assert [each.body for each in found] == [b"b"]
    assert broker.acked == [("orders", 0, 5)]


def test_heartbeats_say_that_the_group_pops_and_what() -> None:
    broker = PopBroker([record(b"a", 0)], [], [])
    bench = Bench(broker)
    bench.receive()
    bench.receive(Wish("orders", "a || b", 1, 1, 0))
    bench.shell.run(bench.core.heartbeat([MASTER]))
    beat = next(each for each in broker.requests if each.code == RequestCode.HEART_BEAT)
    (data,) = decode_json_body(beat.body, HeartbeatData).consumer_data_set
    assert (data.group_name, data.consume_type) == ("CG", CONSUME_POP)
    assert [each.sub_string for each in data.subscription_data_set] == ["a || b"]


def test_one_message_is_acknowledged_by_itself_and_many_by_queue_and_pop() -> None:
    again = record(b"c", 3, POP_CK=f"1 {POP_MS} 60000 3 2 broker-a 0 3")
    broker = PopBroker([record(b"a", 7), record(b"b", 9), again])
    bench = Bench(broker)
    found = bench.receive()
    assert bench.ack(found[:1])
    assert broker.acked == [("orders", 0, 7)]
    assert bench.ack(found[1:])
    assert broker.acked[1:] == [("orders", 0, 9), ("%RETRY%CG+orders", 0, 3)]
    assert broker.codes().count(RequestCode.BATCH_ACK_MESSAGE) == 1
    assert bench.ack([])


@pytest.mark.parametrize("count", [1, 2])
def test_a_handle_that_is_not_good_is_said(count: int) -> None:
    broker = PopBroker([record(b"a", 7), record(b"b", 9)])
    bench = Bench(broker)
    found = bench.receive()
    broker.is_stale = True
    assert not bench.ack(found[:count])
    assert not bench.shell.run(bench.popper.extend(found[0], 1, 5.0))


def test_a_place_that_the_broker_does_not_have_any_more_is_not_good() -> None:
    broker = PopBroker([record(b"a", 7)])
    bench = Bench(broker)
    found = bench.receive()
    broker.handlers[RequestCode.ACK_MESSAGE] = lambda request: answer_to(
        request, ResponseCode.NO_MESSAGE
    )
    assert not bench.ack(found)


def test_a_refused_acknowledgement_is_an_error() -> None:
    broker = PopBroker([record(b"a", 7)])
    bench = Bench(broker)
    found = bench.receive()
    for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        broker.handlers[code] = lambda request: answer_to(request, ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerError):
        bench.ack(found)
    with pytest.raises(BrokerError):
        bench.shell.run(bench.popper.extend(found[0], 1, 5.0))


def test_a_new_master_is_waited_for_to_acknowledge() -> None:
    broker = PopBroker([record(b"a", 7)])
    bench = Bench(broker)
    found = bench.receive()
    gone = ConnectionLostError(MASTER, ConnectionCause.ENDED, "gone")
    bench.shell.failures[MASTER] = [gone, gone]
    assert bench.ack(found)
    assert broker.acked == [("orders", 0, 7)]


def test_a_message_that_is_extended_has_the_new_handle() -> None:
    broker = PopBroker([record(b"a", 7), record(b"b", 9)])
    bench = Bench(broker)
    message = bench.receive()[1]
    assert bench.shell.run(bench.popper.extend(message, 90_000, 5.0))
    assert message.handle == f"9 {POP_MS + 500} 90000 3 0 broker-a 0 9"
    assert bench.ack([message])


@pytest.mark.parametrize("code", [ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT])
def test_a_broker_that_does_not_hold_a_request_is_not_asked_without_a_pause(
    code: ResponseCode,
) -> None:
    """It has no room, or its clock says that the request came too late (RocketMQ's)."""
    broker = PopBroker()
    bench = Bench(broker)
    began = bench.shell.now

    def refuse(request: RemotingCommand) -> RemotingCommand:
        bench.shell.now += 0.001
        return msgspec.structs.replace(pop_answer(request), code=code)

    broker.handlers[RequestCode.POP_MESSAGE] = refuse
    assert bench.receive() == []
    assert bench.shell.now - began == pytest.approx(WISH.wait_ms / 1000, abs=0.01)
    assert len(broker.asked()) < 100


def test_after_what_nobody_wants_there_is_no_pause() -> None:
    broker = PopBroker([record(b"a", 7, TAGS="a")], [record(b"b", 8, TAGS="b")])
    bench = Bench(broker)
    began = bench.shell.now
    (message,) = bench.receive(msgspec.structs.replace(WISH, tags="b"))
    assert (message.body, bench.shell.now) == (b"b", began)


@pytest.mark.parametrize(("start", "first"), [(9, 7), (0, 1 << 40)])
def test_where_a_broker_says_that_a_handout_began_makes_no_request_impossible(
    start: int, first: int
) -> None:
    """Later than its first message, or a terabit before it."""
    broker = PopBroker()
    bench = Bench(broker)

    def pop(request: RemotingCommand) -> RemotingCommand:
        answer = pop_answer(request, record(b"a", first), record(b"b", first + 1))
        header = answer.decode_header(PopMessageResponseHeader)
        starts = encode_start_offsets({PoppedQueue(TopicMark.NORMAL, 0): start})
        header = msgspec.structs.replace(header, start_offset_info=starts)
        return msgspec.structs.replace(answer, ext=header)

    broker.handlers[RequestCode.POP_MESSAGE] = pop
    assert bench.ack(bench.receive())
    assert broker.acked == [("orders", 0, first), ("orders", 0, first + 1)]
