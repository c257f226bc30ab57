import gc
import weakref

from trio.testing import MockClock

from node.grpc.side_connection import SideConnection
from node.remoting.connection import Connection, Outbox
from node.remoting.dispatcher import response_to
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tests.node.doubles import FakeStream


async def test_commands_and_frames_are_given_at_the_flush(autojump_clock: MockClock) -> None:
    outbox = Outbox()
    taken: list[RemotingCommand] = []
    outer = Connection(FakeStream(), outbox)
    side = SideConnection(outer, outbox, taken.append)
    request = RemotingCommand(7, 5)
    side.respond(request, response_to(request, body=b"a"))
    body = [memoryview(b"b"), memoryview(b"c")]
    side.respond(request, response_to(request), body)
    frame = encode_frame(RemotingCommand(39, 8, body=b"question"))
    side.write(frame[:10])
    side.write_now(memoryview(frame[10:]))
    assert taken == []
    outbox.flush()
    assert [(each.code, each.body) for each in taken] == [(0, b"a"), (0, b"bc"), (39, b"question")]
    assert not side.is_busy
    side.owe().respond(request, response_to(request, body=b"later"))
    outbox.flush()
    assert taken[-1].body == b"later"


async def test_what_is_written_while_it_is_taken_comes_with_the_same_flush(
    autojump_clock: MockClock,
) -> None:
    outbox = Outbox()
    taken: list[RemotingCommand] = []
    outer = Connection(FakeStream(), outbox)
    request = RemotingCommand(7, 5)

    def take(command: RemotingCommand) -> None:
        taken.append(command)
        if len(taken) < 3:
            side.respond(request, response_to(request))

    side = SideConnection(outer, outbox, take)
    side.respond(request, response_to(request))
    outbox.flush()
    assert len(taken) == 3
    side.close()
    side.respond(request, response_to(request))
    outbox.flush()
    assert len(taken) == 3


async def test_who_is_told_of_answers_is_told_here_too(autojump_clock: MockClock) -> None:
    outbox = Outbox()
    told: list[tuple[int, str]] = []
    side = SideConnection(Connection(FakeStream(), outbox), outbox, lambda _: None)
    side.when_answered[5] = lambda code, remark: told.append((code, remark))
    request = RemotingCommand(7, 5)
    side.respond(request, response_to(request, 3, "no"))
    assert told == [(3, "no")]


async def test_one_that_is_closed_leaves_its_taker_not_to_the_collector(
    autojump_clock: MockClock,
) -> None:
    """A session has it, and is who takes; what has come in part would be kept for long."""

    class Taker:
        def __init__(self) -> None:
            outbox = Outbox()
            self.side = SideConnection(Connection(FakeStream(), outbox), outbox, self.take)

        def take(self, command: RemotingCommand) -> None: ...

    gc.disable()
    try:
        taker = Taker()
        gone = weakref.ref(taker)
        taker.side.close()
        del taker
        assert gone() is None
    finally:
        gc.enable()
