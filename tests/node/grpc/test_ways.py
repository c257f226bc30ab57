from collections.abc import Callable

import trio
from trio.testing import MockClock

from node.grpc.ways import PASSED_ON, RESERVE_SECONDS, WAIT_SECONDS, Ways
from node.remoting.connection import Connection, Outbox
from node.remoting.dispatcher import Dispatcher, response_to
from tandem.wire.remoting_command import RemotingCommand
from tests.node.doubles import FakeStream


class Asked:
    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.done: list[Callable[[RemotingCommand], None]] = []

    def ask(
        self,
        broker_name: str,
        command: RemotingCommand,
        deadline: float,
        done: Callable[[RemotingCommand], None],
    ) -> None:
        self.asked.append((broker_name, deadline))
        self.done.append(done)


async def test_the_own_broker_answers_while_it_takes_puts_and_links_do_else(
    autojump_clock: MockClock,
) -> None:
    links, local, takes = Asked(), Dispatcher({}), [True]
    ways = Ways("a", lambda: local, lambda: takes[0], dict, links, lambda name: name == "a")
    assert ways.local is ways.to("a") is local
    assert ways.to("b") is not local
    takes[0] = False
    assert ways.to("a") is not local


async def test_a_request_is_passed_on_with_the_time_that_its_call_has(
    autojump_clock: MockClock,
) -> None:
    links, outbox, stream = Asked(), Outbox(), FakeStream()
    ways = Ways("a", lambda: Dispatcher({}), lambda: False, dict, links, lambda _: True)
    connection, now = Connection(stream, outbox), trio.current_time()
    for deadline in (now + 3, None, now + 100):
        ways.to("b", deadline).dispatch(connection, RemotingCommand(PASSED_ON[0], 77))
    assert [name for name, _ in links.asked] == ["b"] * 3
    waits = [round(at - now, 6) for _, at in links.asked]
    assert waits == [3 - RESERVE_SECONDS, WAIT_SECONDS, WAIT_SECONDS]
    assert connection.owed_count == 3
    links.done[0](response_to(RemotingCommand(0, 1), 2, "busy"))
    outbox.flush()
    (answer,) = stream.take_frames()
    assert (answer.opaque, answer.code, connection.owed_count) == (77, 2, 2)


async def test_other_requests_are_not_passed_on(autojump_clock: MockClock) -> None:
    links, outbox, stream = Asked(), Outbox(), FakeStream()
    ways = Ways("a", lambda: Dispatcher({}), lambda: False, dict, links, lambda _: True)
    ways.to("b").dispatch(Connection(stream, outbox), RemotingCommand(17, 1))
    outbox.flush()
    assert (links.asked, len(stream.take_frames())) == ([], 1)
