from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
import trio
from trio.testing import MockClock

from tandem.client.async_shell import AsyncShell
from tandem.client.backoff import PAUSE_SECONDS_MIN
from tandem.client.broker_request import BrokerRequest
from tandem.client.core import UPKEEP_SECONDS, ClientCore
from tandem.client.errors import (
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    NotOpenError,
    RequestTimeoutError,
)
from tandem.client.event_loop import LoopClock
from tandem.client.flow import Call, CallMany, Flow, Pause, Shared
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tests.tandem.client.either_loop import EitherNetwork, under_either_loop
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    FakeNetwork,
    answer_to,
)

CODE = RequestCode.HEART_BEAT


def call(address: str = MASTER, seconds: float = 3.0) -> Call:
    return Call(address, CODE, None, trio.current_time() + seconds)


def one(effect: Call) -> Flow[RemotingCommand]:
    answer: RemotingCommand = yield effect
    return answer


def many(calls: list[Call]) -> Flow[list[RemotingCommand | ClientError]]:
    answers: list[RemotingCommand | ClientError] = yield CallMany(calls)
    return answers


class Bench:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.broker = FakeBroker()
        self.network = FakeNetwork(nursery, {MASTER: self.broker, NAME_SERVER: self.broker})
        self.core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=trio.current_time)
        self.shell = AsyncShell(self.core, self.network.open_stream)

    def never_answer(self) -> None:
        self.broker.handlers[CODE] = lambda _: None


@asynccontextmanager
async def open_bench() -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery)
        await bench.shell.open()
        try:
            yield bench
        finally:
            await bench.shell.close(politely=True)
            nursery.cancel_scope.cancel()


async def lose(bench: Bench) -> None:
    with pytest.raises(ConnectionLostError) as caught:
        await bench.shell.run(one(call()))
    assert caught.value.outcome_unknown


async def test_many_tasks_share_one_connection(autojump_clock: MockClock) -> None:
    async with open_bench() as bench, trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(bench.shell.run, one(call()))
    assert bench.network.dials == [MASTER]
    assert bench.broker.codes() == [CODE] * 50


async def test_frames_that_gather_leave_together(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        await bench.shell.run(one(call()))
        answers = await bench.shell.run(many([call() for _ in range(100)]))
    assert len(answers) == 100
    assert {request.opaque for request in bench.broker.requests} == set(range(101))


async def test_nobody_there_is_known_not_to_have_got_it(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        with pytest.raises(ConnectionLostError) as caught:
            await bench.shell.run(one(call(SLAVE)))
        assert (caught.value.address, caught.value.cause) == (
            SLAVE,
            ConnectionCause.UNREACHABLE,
        )
    assert not caught.value.outcome_unknown


async def test_an_address_that_is_none_is_nobody(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        with pytest.raises(ConnectionLostError) as caught:
            await bench.shell.run(one(call("nowhere")))
        assert caught.value.cause is ConnectionCause.UNREACHABLE


async def test_a_connection_that_ends_leaves_what_was_sent_unknown(
    autojump_clock: MockClock,
) -> None:
    async with open_bench() as bench:
        bench.never_answer()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose, bench)
            await trio.testing.wait_all_tasks_blocked()
            await bench.network.cut()


async def test_a_connection_is_opened_again_when_it_is_needed(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        await bench.shell.run(one(call()))
        await bench.network.cut()
        await trio.testing.wait_all_tasks_blocked()
        assert bench.network.dials == [MASTER]
        await bench.shell.run(one(call()))
        assert bench.network.dials == [MASTER, MASTER]


async def test_no_answer_in_time_is_unknown_and_the_connection_lives_on(
    autojump_clock: MockClock,
) -> None:
    async with open_bench() as bench:
        bench.never_answer()
        start = trio.current_time()
        with pytest.raises(RequestTimeoutError) as caught:
            await bench.shell.run(one(call(seconds=3.0)))
        assert trio.current_time() == start + 3.0
        assert caught.value.outcome_unknown
        bench.broker.handlers[CODE] = answer_to
        await bench.shell.run(one(call()))
        assert bench.network.dials == [MASTER]


async def test_an_earlier_deadline_is_kept_while_a_later_one_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with open_bench() as bench:
        bench.never_answer()
        start = trio.current_time()
        ended: list[float] = []

        async def wait(seconds: float) -> None:
            with pytest.raises(RequestTimeoutError):
                await bench.shell.run(one(call(seconds=seconds)))
            ended.append(trio.current_time() - start)

        async with trio.open_nursery() as nursery:
            for seconds in (30.0, 5.0, 1.0):
                nursery.start_soon(wait, seconds)
                await trio.testing.wait_all_tasks_blocked()
    assert ended == [1.0, 5.0, 30.0]


async def test_a_dead_address_is_dialled_at_a_falling_rate(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        start = trio.current_time()
        for _ in range(25):
            with pytest.raises(ClientError):
                await bench.shell.run(one(call(SLAVE)))
        assert trio.current_time() - start > 2.0
        bench.network.brokers[SLAVE] = bench.broker
        await bench.shell.run(one(call(SLAVE)))
        assert bench.core.backoff.seconds_left(SLAVE, trio.current_time()) == 0.0


async def test_a_broker_that_hangs_up_at_once_is_not_dialled_in_a_tight_loop(
    autojump_clock: MockClock,
) -> None:
    async with open_bench() as bench:
        bench.never_answer()
        start = trio.current_time()
        for _ in range(6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lose, bench)
                while not bench.broker.requests:
                    await trio.sleep(0.01)
                await bench.network.cut()
            bench.broker.requests.clear()
        assert trio.current_time() - start >= 5 * PAUSE_SECONDS_MIN


async def test_an_answer_that_comes_too_late_shows_that_the_address_is_not_frozen(
    autojump_clock: MockClock,
) -> None:
    async with open_bench() as bench:
        bench.never_answer()
        with pytest.raises(RequestTimeoutError):
            await bench.shell.run(one(call()))
        bench.core.backoff.fell_silent(MASTER, trio.current_time())
        await bench.network.say(answer_to(bench.broker.requests[0]))
        await trio.sleep(0.1)
        assert not bench.core.backoff.is_silent(MASTER, trio.current_time())


async def test_a_deadline_ends_the_wait_for_a_connection(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        for _ in range(30):
            bench.core.backoff.failed(MASTER, trio.current_time())
        with pytest.raises(RequestTimeoutError) as caught:
            await bench.shell.run(one(call(seconds=0.5)))
        assert not caught.value.outcome_unknown
        assert bench.broker.requests == []


async def test_a_dial_that_hangs_is_given_up(autojump_clock: MockClock) -> None:
    async def hang(host: str, port: int) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError((host, port))

    core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=trio.current_time)
    shell = AsyncShell(core, hang)
    await shell.open()
    with pytest.raises(ConnectionLostError) as caught:
        await shell.run(one(call(seconds=30.0)))
    assert caught.value.cause is ConnectionCause.UNREACHABLE
    await shell.close(politely=True)


async def test_many_calls_have_one_outcome_each(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        answers = await bench.shell.run(many([call(), call(SLAVE), call()]))
        assert isinstance(answers[0], RemotingCommand)
        assert isinstance(answers[1], ConnectionLostError)
        assert isinstance(answers[2], RemotingCommand)
        assert await bench.shell.run(many([])) == []
        bench.never_answer()
        answers = await bench.shell.run(many([call(), call()]))
        assert [type(answer) for answer in answers] == [RequestTimeoutError] * 2


async def test_what_is_shared_is_done_once_and_fails_for_all(autojump_clock: MockClock) -> None:
    runs = []

    def work() -> Flow[None]:
        runs.append("run")
        yield Pause(1.0)
        if len(runs) == 2:
            raise ConnectionLostError(MASTER, ConnectionCause.ENDED, "reset")

    def share() -> Flow[None]:
        yield Shared("work", trio.current_time() + 10.0, work)

    async with open_bench() as bench:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(bench.shell.run, share())
        assert runs == ["run"]
        failures = []

        async def fail() -> None:
            with pytest.raises(ConnectionLostError) as caught:
                await bench.shell.run(share())
            failures.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(fail)
        assert len({id(failure) for failure in failures}) == 3
        assert runs == ["run", "run"]


async def test_a_broker_that_breaks_the_protocol_is_dropped(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bench() as bench:
        bench.broker.answer = lambda request: b"\xff" * 8  # type: ignore[method-assign]
        with pytest.raises(ConnectionLostError) as caught:
            await bench.shell.run(one(call()))
        assert caught.value.cause is ConnectionCause.MALFORMED
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_upkeep_runs_every_half_minute(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        await bench.shell.run(bench.core.route("orders", trio.current_time() + 3))
        bench.broker.requests.clear()
        await trio.sleep(2 * UPKEEP_SECONDS + 1)
        assert bench.broker.codes() == [RequestCode.GET_ROUTEINFO_BY_TOPIC] * 2


async def test_a_client_that_is_not_open_says_so(autojump_clock: MockClock) -> None:
    core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=trio.current_time)
    async with trio.open_nursery() as nursery:
        shell = AsyncShell(core, FakeNetwork(nursery, {}).open_stream)
        with pytest.raises(NotOpenError):
            await shell.run(one(call()))


async def test_closing_ends_requests_in_flight(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery)
        bench.never_answer()
        await bench.shell.open()

        async def wait() -> None:
            with pytest.raises(ConnectionLostError) as caught:
                await bench.shell.run(one(call()))
            assert caught.value.cause is ConnectionCause.CLOSED
            assert caught.value.outcome_unknown
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await bench.shell.close(politely=False)


async def test_one_who_cannot_wait_leaves_the_shared_work_to_the_others(
    autojump_clock: MockClock,
) -> None:
    ended = []

    def work() -> Flow[None]:
        yield Pause(5.0)

    def share(seconds: float) -> Flow[None]:
        yield Shared("work", trio.current_time() + seconds, work)

    async with open_bench() as bench, trio.open_nursery() as nursery:
        start = trio.current_time()

        async def wait(seconds: float) -> None:
            await bench.shell.run(share(seconds))
            ended.append(trio.current_time() - start)

        nursery.start_soon(wait, 1.0)
        nursery.start_soon(wait, 10.0)
    assert ended == [1.0, 5.0]


async def test_an_address_that_lets_dials_hang_counts_as_silent(autojump_clock: MockClock) -> None:
    async def hang(_host: str, _port: int) -> trio.abc.Stream:
        await trio.sleep_forever()

    core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=trio.current_time)
    shell = AsyncShell(core, hang)
    await shell.open()
    with pytest.raises(ConnectionLostError) as caught:
        await shell.run(one(call(seconds=10)))
    assert caught.value.cause is ConnectionCause.UNREACHABLE
    assert core.backoff.is_silent(MASTER, trio.current_time())
    await shell.close(politely=False)


async def test_of_many_calls_to_a_dead_address_one_dials(autojump_clock: MockClock) -> None:
    async with open_bench() as bench:
        bench.network.brokers.clear()
        start = trio.current_time()
        answers = await bench.shell.run(many([call()] * 50))
        assert trio.current_time() == start
        assert all(isinstance(answer, ConnectionLostError) for answer in answers)
        assert bench.network.dials == [MASTER]


@under_either_loop
async def test_a_request_of_the_broker_is_served_and_answered() -> None:
    broker = FakeBroker()
    core = ClientCore(NAME_SERVER, identity=IDENTITY, clock=LoopClock())
    asked: list[BrokerRequest] = []
    core.broker_requests.on(307, asked.append)
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {MASTER: broker})
        shell = AsyncShell(core, network.open_stream)
        await shell.open()
        deadline = core.clock() + 5
        await shell.run(one(Call(MASTER, RequestCode.HEART_BEAT, None, deadline)))
        await network.say(MASTER, RemotingCommand(307, 9))
        while not asked:
            await anyio.sleep(0.001)
        asked[0].answer(body=b"{}")
        while len(broker.requests) < 2:
            await anyio.sleep(0.001)
        answer = broker.requests[1]
        assert (answer.is_response, answer.opaque, answer.body) == (True, 9, b"{}")
        await network.cut(MASTER)
        await anyio.sleep(0.01)
        asked[0].answer(body=b"nobody hears it")
        await shell.close(politely=False)
