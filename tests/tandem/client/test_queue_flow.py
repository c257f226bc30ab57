import pytest

from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    CompressedBodyError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.queue_flow import QueueBrokers, decode, expect_success, may_pass
from tandem.client.results import MessageQueue
from tandem.wire.compression import CompressionFault
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import OffsetResponseHeader, QueueRequestHeader
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    HandShell,
    answer_to,
    message_ext,
    route_of,
)

QUEUE = MessageQueue("orders", "broker-a", 0)
MAX = RequestCode.GET_MAX_OFFSET


class Bench:
    """The brokers of one queue: a master and a slave, each with messages of its own."""

    def __init__(self) -> None:
        self.master, self.slave = FakeBroker(), FakeBroker()
        self.master.store("orders", 0, b"0", b"1", b"2")
        self.slave.store("orders", 0, b"0")
        self.shell = HandShell({NAME_SERVER: self.master, MASTER: self.master, SLAVE: self.slave})
        core = ClientCore(
            NAME_SERVER, identity=IDENTITY, clock=self.shell.clock, consumer_group="CG"
        )
        self.brokers = QueueBrokers(core)

    def ask(self) -> str:
        ext = QueueRequestHeader("orders", 0)
        return self.shell.run(self.brokers.ask(QUEUE, MAX, ext))[1]

    def ask_master(self, timeout_seconds: float = 12.0) -> str:
        ext = QueueRequestHeader("orders", 0)
        return self.shell.run(self.brokers.ask_master(QUEUE, MAX, ext, timeout_seconds))[1]


def test_the_master_is_asked_and_another_node_if_it_cannot_be_reached() -> None:
    bench = Bench()
    assert bench.ask() == MASTER
    del bench.shell.brokers[MASTER]
    assert bench.ask() == SLAVE


def test_what_only_a_master_may_answer_waits_for_one() -> None:
    bench = Bench()
    refusals = iter(range(3))
    answer = bench.master.handlers[MAX]

    def refuse_at_first(request: RemotingCommand) -> RemotingCommand | None:
        if next(refusals, None) is not None:
            return answer_to(request, ResponseCode.SERVICE_NOT_AVAILABLE)
        return answer(request)

    bench.master.handlers[MAX] = refuse_at_first
    start = bench.shell.now
    assert bench.ask_master() == MASTER
    assert bench.shell.now > start
    assert set(bench.shell.calls_to(MAX)) == {MASTER}


def test_without_a_master_the_wait_has_an_end() -> None:
    bench = Bench()
    bench.master.routes["orders"] = route_of(("broker-a", {1: SLAVE}))
    start = bench.shell.now
    with pytest.raises(RouteNotFoundError) as caught:
        bench.ask_master(5.0)
    assert caught.value.cause is RouteCause.NO_MASTER
    assert 4 <= bench.shell.now - start <= 5


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionLostError("a:1", ConnectionCause.ENDED, "reset"), True),
        (RequestTimeoutError("a:1"), True),
        (RouteNotFoundError("T", RouteCause.NO_MASTER, "between two masters", may_pass=True), True),
        (RouteNotFoundError("T", RouteCause.NO_TOPIC, "no such topic"), False),
        (BrokerError(ResponseCode.SYSTEM_BUSY, ""), True),
        (BrokerError(ResponseCode.NO_PERMISSION, ""), False),
        (CompressedBodyError(message_ext(), CompressionFault.NO_LIBRARY, "no LZ4"), False),
    ],
)
def test_what_passes_by_itself_is_known_by_its_error(error: ClientError, *, passes: bool) -> None:
    assert may_pass(error) == passes


def test_an_answer_is_a_header_a_refusal_or_nonsense() -> None:
    request = RemotingCommand(code=MAX.value)
    good = answer_to(request, ext=OffsetResponseHeader(7))
    assert decode(expect_success(good, "a:1"), OffsetResponseHeader, "a:1").offset == 7
    with pytest.raises(BrokerError):
        expect_success(answer_to(request, ResponseCode.SYSTEM_ERROR), "a:1")
    with pytest.raises(ConnectionLostError) as caught:
        decode(answer_to(request), OffsetResponseHeader, "a:1")
    assert caught.value.cause is ConnectionCause.MALFORMED
