import pytest

from tandem.client.backoff import Backoff
from tandem.client.errors import BrokerError, ClientError, ConnectionCause, ConnectionLostError
from tandem.client.flow import Call
from tandem.client.name_servers import (
    FIRST_SECONDS,
    FURTHER_SECONDS,
    REQUEST_TIMEOUT_SECONDS,
    NameServers,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import FakeBroker, HandShell, answer_to

CODE = RequestCode.GET_BROKER_CLUSTER_INFO
FIRST, SECOND, THIRD = ("10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876")


class AnySearch:
    """Content with any answer of SUCCESS; over after as many as it wants."""

    def __init__(self, wanted_count: int = 99) -> None:
        self.wanted_count = wanted_count
        self.answers: list[str] = []
        self.failures: list[str] = []

    @property
    def has_answer(self) -> bool:
        return bool(self.answers)

    @property
    def is_over(self) -> bool:
        return len(self.answers) >= self.wanted_count

    def heard(self, address: str, answer: RemotingCommand | ClientError) -> None:
        is_good = isinstance(answer, RemotingCommand) and answer.code == 0
        (self.answers if is_good else self.failures).append(address)


class Bench:
    """Three name servers that answer, and a shell."""

    def __init__(self, *addresses: str) -> None:
        self.brokers = {address: FakeBroker() for address in addresses or (FIRST, SECOND, THIRD)}
        for broker in self.brokers.values():
            broker.handlers[CODE] = answer_to
        self.shell = HandShell(dict(self.brokers))
        self.backoff = Backoff()
        self.it = NameServers(list(self.brokers), self.backoff, self.shell.clock)

    def ask(self, search: AnySearch | None = None) -> AnySearch:
        search = search or AnySearch()
        self.shell.effects.clear()
        self.shell.run(self.it.ask(CODE, None, search))
        return search

    def silence(self, *addresses: str) -> None:
        for address in addresses:
            self.brokers[address].handlers[CODE] = lambda _: None


def test_all_of_them_are_asked_and_heard() -> None:
    assert Bench().ask().answers == [FIRST, SECOND, THIRD]


def test_nobody_else_is_asked_once_the_search_is_over() -> None:
    bench = Bench()
    bench.ask(AnySearch(wanted_count=2))
    assert bench.shell.calls_to(CODE) == [FIRST, SECOND]


def deadlines(bench: Bench) -> list[float]:
    return [effect.deadline for effect in bench.shell.effects if isinstance(effect, Call)]


def test_the_first_answer_makes_the_others_hurry() -> None:
    bench = Bench()
    now = bench.shell.now
    bench.ask()
    assert deadlines(bench) == [now + FIRST_SECONDS, *[now + FURTHER_SECONDS] * 2]


def test_a_silent_one_costs_a_second_and_then_nothing_for_a_while() -> None:
    bench = Bench()
    bench.silence(FIRST)
    start = bench.shell.now
    assert bench.ask().answers == [SECOND, THIRD]
    assert bench.shell.now == start + FIRST_SECONDS
    assert bench.ask().answers == [SECOND, THIRD]
    assert bench.shell.calls_to(CODE) == [SECOND, THIRD]
    assert bench.shell.now == start + FIRST_SECONDS


def test_one_that_fails_is_heard_and_the_next_one_is_asked() -> None:
    bench = Bench()
    bench.shell.failures[FIRST] = [
        ConnectionLostError(FIRST, ConnectionCause.ENDED, "reset", outcome_unknown=True)
    ]
    search = bench.ask()
    assert (search.answers, search.failures) == ([SECOND, THIRD], [FIRST])
    assert bench.ask().answers == [SECOND, THIRD, FIRST]


def test_if_nobody_answers_the_slow_ones_get_all_the_time_there_is() -> None:
    bench = Bench()
    bench.silence(FIRST, THIRD)
    del bench.shell.brokers[SECOND]
    start = bench.shell.now
    assert bench.ask().answers == []
    assert bench.shell.calls_to(CODE) == [FIRST, SECOND, THIRD, FIRST, THIRD]
    assert bench.shell.now == start + 2 * (FIRST_SECONDS + REQUEST_TIMEOUT_SECONDS)


def test_a_refusal_is_an_answer_for_which_nobody_waits_again() -> None:
    bench = Bench()
    bench.silence(FIRST)
    for address in (SECOND, THIRD):
        bench.brokers[address].handlers[CODE] = lambda request: answer_to(request, 1)
    assert bench.ask().failures == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_single_one_has_rocketmqs_patience(*, is_silent: bool) -> None:
    bench = Bench(FIRST)
    if is_silent:
        bench.silence(FIRST)
    now = bench.shell.now
    bench.ask()
    assert deadlines(bench) == [now + REQUEST_TIMEOUT_SECONDS]


def test_who_may_not_ask_is_told_so_unless_somebody_answers() -> None:
    """A name server that has just started may not know the user yet."""

    def refuse(command: RemotingCommand) -> RemotingCommand:
        return answer_to(command, ResponseCode.NO_PERMISSION, remark="check signature failed.")

    bench = Bench()
    bench.brokers[FIRST].handlers[CODE] = refuse
    assert bench.ask().answers == [SECOND, THIRD]
    for address in (SECOND, THIRD):
        bench.brokers[address].handlers[CODE] = refuse
    with pytest.raises(BrokerError) as caught:
        bench.ask()
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert caught.value.address in (SECOND, THIRD)
    assert caught.value.address in bench.brokers
