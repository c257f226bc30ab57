import os
import time

import pytest

from tandem.client.blocking_shell import IN_FLIGHT_MAX, BlockingShell
from tandem.client.core import UPKEEP_SECONDS, ClientCore
from tandem.client.errors import (
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    NotOpenError,
    RequestTimeoutError,
)
from tandem.client.flow import Call, CallMany, Flow, Pause, Shared
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    FakeSockets,
    answer_to,
)

CODE = RequestCode.HEART_BEAT


class FakeTime:
    """`time` as the blocking shell uses it; nobody really sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Bench:
    def __init__(self, clock: FakeTime) -> None:
        self.clock = clock
        self.broker = FakeBroker()
        self.sockets = FakeSockets({MASTER: self.broker, NAME_SERVER: self.broker})
        self.core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=clock.monotonic)
        self.shell = BlockingShell(self.core, self.sockets.open)

    def call(self, address: str = MASTER) -> RemotingCommand:
        return self.shell.run(one(Call(address, CODE, None, self.clock.now + 3.0)))

    def call_many(self, *addresses: str) -> list[RemotingCommand | ClientError]:
        deadline = self.clock.now + 3.0
        return self.shell.run(many([Call(each, CODE, None, deadline) for each in addresses]))


def one(effect: Call) -> Flow[RemotingCommand]:
    answer: RemotingCommand = yield effect
    return answer


def many(calls: list[Call]) -> Flow[list[RemotingCommand | ClientError]]:
    answers: list[RemotingCommand | ClientError] = yield CallMany(calls)
    return answers


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    clock = FakeTime()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return Bench(clock)


def test_calls_share_one_socket_per_address(bench: Bench) -> None:
    for _ in range(3):
        assert bench.call().code == 0
    assert len(bench.sockets.opened) == 1


def test_many_calls_are_answered_in_order(bench: Bench) -> None:
    answers = bench.call_many(*[MASTER, SLAVE, MASTER] * IN_FLIGHT_MAX)
    kinds = [type(answer) for answer in answers]
    assert kinds == [RemotingCommand, ConnectionLostError, RemotingCommand] * IN_FLIGHT_MAX
    assert bench.call_many() == []


def test_nobody_there_is_known_not_to_have_got_it(bench: Bench) -> None:
    with pytest.raises(ConnectionLostError) as caught:
        bench.call(SLAVE)
    assert caught.value.cause is ConnectionCause.UNREACHABLE
    assert not caught.value.outcome_unknown


def test_an_address_that_is_none_is_nobody(bench: Bench) -> None:
    with pytest.raises(ConnectionLostError) as caught:
        bench.call("nowhere")
    assert caught.value.cause is ConnectionCause.UNREACHABLE


def test_a_dead_address_is_dialled_at_a_falling_rate(bench: Bench) -> None:
    for _ in range(24):
        with pytest.raises(ConnectionLostError):
            bench.call(SLAVE)
    assert [round(pause, 3) for pause in bench.clock.slept] == [0.05] * 20 + [0.1, 0.2, 0.4]


def test_a_deadline_ends_the_wait_for_a_connection(bench: Bench) -> None:
    for _ in range(30):
        bench.core.backoff.failed(MASTER, bench.clock.now)
    with pytest.raises(RequestTimeoutError) as caught:
        bench.shell.run(one(Call(MASTER, CODE, None, bench.clock.now + 0.5)))
    assert not caught.value.outcome_unknown
    assert bench.sockets.opened == []


def test_a_connection_that_breaks_leaves_the_outcome_unknown(bench: Bench) -> None:
    bench.call()
    bench.sockets.opened[0].break_on_send = True
    with pytest.raises(ConnectionLostError) as caught:
        bench.call()
    assert caught.value.cause is ConnectionCause.ENDED
    assert caught.value.outcome_unknown
    assert bench.sockets.opened[0].closed
    bench.call()
    assert len(bench.sockets.opened) == 2


def test_a_connection_that_ended_unseen_is_replaced_before_anything_is_sent(
    bench: Bench,
) -> None:
    bench.call()
    bench.sockets.opened[0].broker = None
    bench.call()
    assert len(bench.sockets.opened) == 2


def test_an_end_instead_of_an_answer_leaves_the_outcome_unknown(bench: Bench) -> None:
    def hang_up(_: RemotingCommand) -> None:
        bench.sockets.opened[0].broker = None

    bench.broker.handlers[CODE] = hang_up
    with pytest.raises(ConnectionLostError) as caught:
        bench.call()
    assert caught.value.cause is ConnectionCause.ENDED
    assert caught.value.outcome_unknown


def test_no_answer_in_time_is_unknown_and_the_connection_lives_on(bench: Bench) -> None:
    def be_silent(_: RemotingCommand) -> None:
        bench.clock.now += 3.0

    bench.broker.handlers[CODE] = be_silent
    with pytest.raises(RequestTimeoutError) as caught:
        bench.call()
    assert caught.value.outcome_unknown
    bench.broker.handlers[CODE] = answer_to
    assert bench.call().code == 0
    assert len(bench.sockets.opened) == 1


def test_a_broker_that_breaks_the_protocol_is_dropped(bench: Bench) -> None:
    bench.broker.answer = lambda request: b"\xff" * 8  # type: ignore[method-assign]
    with pytest.raises(ConnectionLostError) as caught:
        bench.call()
    assert caught.value.cause is ConnectionCause.MALFORMED
    assert bench.sockets.opened[0].closed


class _InterruptedError(BaseException):
    """What the handler of a signal raises."""


@pytest.mark.parametrize("where", ["recv", "sendall"])
def test_an_answer_to_a_call_that_was_interrupted_is_not_taken_for_one_to_the_next(
    where: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.broker.handlers[CODE] = lambda request: answer_to(request, remark=f"to {request.opaque}")
    bench.call()
    (opened,) = bench.sockets.opened

    real = opened.recv

    def interrupted(data: object, flags: int = 0) -> bytes:
        if flags:  # a look whether the broker has hung up
            return real(1, flags)
        raise _InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(opened, where, interrupted)
        with pytest.raises(_InterruptedError):
            bench.call()
    bench.broker.handlers[CODE] = lambda request: answer_to(request, remark="to the next")
    assert bench.call().remark == "to the next"
    assert len(bench.sockets.opened) == 2


def test_what_cannot_be_written_leaves_no_request_of_its_call_behind(bench: Bench) -> None:
    bench.call()
    deadline = bench.clock.now + 3.0
    good = Call(MASTER, CODE, None, deadline)
    bad = Call(MASTER, CODE, {"topic": "\ud800"}, deadline)
    with pytest.raises(UnicodeEncodeError):
        bench.shell.run(many([good, bad]))
    bench.broker.requests.clear()
    assert bench.call().code == 0
    assert len(bench.broker.requests) == 1


def test_a_fork_does_not_use_the_sockets_nor_the_name_of_its_parent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.call()
    bench.core._greeted.add(MASTER)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    bench.broker.requests.clear()
    with pytest.raises(NotOpenError):
        bench.call()
    bench.shell.close()
    assert bench.broker.requests == []


def test_pauses_and_shared_flows_are_carried_out(bench: Bench) -> None:
    def work() -> Flow[None]:
        yield Pause(2.0)
        raise ConnectionLostError(MASTER, ConnectionCause.ENDED, "reset")

    def share() -> Flow[None]:
        yield Shared("work", bench.clock.now + 3.0, work)

    with pytest.raises(ConnectionLostError):
        bench.shell.run(share())
    assert bench.clock.slept == [2.0]


@pytest.mark.parametrize("is_many", [False, True])
def test_what_a_shared_flow_waits_for_ends_at_its_deadline_without_an_error(
    bench: Bench, *, is_many: bool
) -> None:
    began = bench.clock.now

    def work() -> Flow[None]:
        call = Call(MASTER, CODE, None, began + 30.0)
        yield Pause(0.5)
        if is_many:
            yield CallMany([call])
            assert bench.clock.now == began + 2.0
        else:
            yield call
            raise AssertionError

    def share() -> Flow[str]:
        yield Shared("work", began + 2.0, work)
        return "goes on"

    def be_silent(_: RemotingCommand) -> None:
        bench.clock.now = began + 2.0

    bench.broker.handlers[CODE] = be_silent
    assert bench.shell.run(share()) == "goes on"
    assert bench.clock.now == began + 2.0


def test_what_has_no_time_left_is_not_sent(bench: Bench) -> None:
    bench.call()
    sent = len(bench.broker.requests)
    with pytest.raises(RequestTimeoutError) as caught:
        bench.shell.run(one(Call(MASTER, CODE, None, bench.clock.now)))
    assert not caught.value.outcome_unknown
    assert len(bench.broker.requests) == sent


def test_upkeep_is_done_when_it_is_due(bench: Bench) -> None:
    bench.shell.run(bench.core.route("orders", bench.clock.now + 3.0))
    bench.call()
    bench.broker.requests.clear()
    bench.clock.now += UPKEEP_SECONDS
    bench.call()
    bench.call()
    assert bench.broker.codes() == [RequestCode.GET_ROUTEINFO_BY_TOPIC, CODE, CODE]


def test_closing_closes_the_sockets(bench: Bench) -> None:
    bench.call()
    bench.shell.close()
    assert [opened.closed for opened in bench.sockets.opened] == [True]


def test_a_request_of_the_broker_is_served_while_an_answer_is_awaited(bench: Bench) -> None:
    bench.core.broker_requests.on(307, lambda request: request.answer(body=b"{}"))

    def ask_first(request: RemotingCommand) -> RemotingCommand:
        (opened,) = bench.sockets.opened
        opened._answers += encode_frame(RemotingCommand(307, 9))
        return answer_to(request)

    bench.broker.handlers[CODE] = ask_first
    assert bench.call().code == 0
    _, answer = bench.broker.requests
    assert (answer.is_response, answer.opaque, answer.body) == (True, 9, b"{}")
