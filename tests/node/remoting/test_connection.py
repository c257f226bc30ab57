import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from node.remoting.connection import (
    OUT_BYTES_MAX,
    OWED_ANSWERS_MAX,
    Connection,
    Outbox,
    OwedAnswers,
    give_each,
    overfull,
    owe_each,
)
from node.remoting.dispatcher import Dispatcher, response_to
from node.remoting.server import serve_requests
from node.remoting.turns import Turns
from store.machine.tcp_network import TCPNetwork
from tandem.wire import native
from tandem.wire.errors import FrameTooLargeError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import Host
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, encode_frame
from tests.node.doubles import FakeStream
from tests.support.patience import PATIENCE_SECONDS

ECHO = 7


def echo(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    return response_to(command, body=command.body)


def request(opaque: int, body: bytes = b"", flag: int = 0) -> bytes:
    return encode_frame(RemotingCommand(ECHO, opaque, flag, body=body))


class Rounds:
    def __init__(self, outbox: Outbox) -> None:
        self.count = 0
        self._outbox = outbox

    def __call__(self) -> None:
        self.count += 1
        self._outbox.flush()


async def test_all_requests_of_one_read_are_answered_in_one_round() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection, rounds = Connection(stream, outbox), Rounds(outbox)
    stream.arrive(request(1) + request(2) + request(3)[:5])
    stream.arrive(request(3)[5:])
    stream.end()
    await serve_requests(connection, Dispatcher({ECHO: echo}), rounds, FrameBuffer(), Turns())
    assert [answer.opaque for answer in stream.take_frames()] == [1, 2, 3]
    assert rounds.count == 2


async def test_requests_that_arrive_one_byte_at_a_time_are_answered() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    for byte in request(1, b"hello"):
        stream.arrive(bytes([byte]))
    stream.end()
    await serve_requests(connection, Dispatcher({ECHO: echo}), outbox.flush, FrameBuffer(), Turns())
    assert [answer.body for answer in stream.take_frames()] == [b"hello"]


async def test_good_requests_before_a_bad_one_are_answered() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    stream.arrive(request(1) + b"\x7f\xff\xff\xff" + bytes(8))
    with pytest.raises(FrameTooLargeError):
        await serve_requests(
            connection, Dispatcher({ECHO: echo}), outbox.flush, FrameBuffer(), Turns()
        )
    assert [answer.opaque for answer in stream.take_frames()] == [1]


async def test_a_oneway_request_is_never_answered() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    stream.arrive(request(1, flag=ONEWAY_FLAG) + request(2))
    stream.end()
    await serve_requests(connection, Dispatcher({ECHO: echo}), outbox.flush, FrameBuffer(), Turns())
    assert [answer.opaque for answer in stream.take_frames()] == [2]


async def test_what_the_peer_does_not_take_is_left_to_the_writer(nursery: trio.Nursery) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    nursery.start_soon(connection.run_writer)
    stream.room = 3
    connection.write(b"first")
    outbox.flush()
    assert stream.sent == b"fir"
    connection.write(b"second")
    outbox.flush()
    assert stream.sent == b"fir"
    await trio.testing.wait_all_tasks_blocked()
    stream.make_room(1000)
    await trio.testing.wait_all_tasks_blocked()
    assert stream.sent == b"firstsecond"
    connection.write(b"third")
    outbox.flush()
    assert stream.sent == b"firstsecondthird"
    nursery.cancel_scope.cancel()


async def test_what_is_sent_at_once_does_not_get_into_a_frame_of_the_writer(
    nursery: trio.Nursery,
) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    nursery.start_soon(connection.run_writer)
    stream.room = 3
    connection.write(b"first")
    outbox.flush()
    await trio.testing.wait_all_tasks_blocked()
    # The peer takes bytes again, and the writer has not heard of it yet.
    stream.room = 1000
    connection.write_now(memoryview(b"second"))
    outbox.flush()
    assert stream.sent == b"fir"
    stream.make_room(0)
    await trio.testing.wait_all_tasks_blocked()
    assert stream.sent == b"firstsecond"
    nursery.cancel_scope.cancel()


async def test_what_is_sent_at_once_comes_after_what_was_written_before() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    connection.write(b"first")
    connection.write_now(memoryview(b"second"))
    outbox.flush()
    assert stream.sent == b"firstsecond"


async def test_the_writer_is_alone_until_nothing_is_left(nursery: trio.Nursery) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    nursery.start_soon(connection.run_writer)
    stream.room = 3
    connection.write(b"first")
    outbox.flush()
    await trio.testing.wait_all_tasks_blocked()
    connection.write(b"second")
    outbox.flush()
    stream.make_room(3)
    await trio.testing.wait_all_tasks_blocked()
    assert stream.sent == b"firsts"
    stream.room = 1000
    connection.write(b"third")
    outbox.flush()
    stream.make_room(0)
    await trio.testing.wait_all_tasks_blocked()
    assert stream.sent == b"firstsecondthird"
    nursery.cancel_scope.cancel()


async def test_a_peer_that_takes_no_answers_is_read_no_more(nursery: trio.Nursery) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    nursery.start_soon(connection.run_writer)
    stream.room = 0
    body = bytes(OUT_BYTES_MAX // 4)
    for opaque in range(8):
        stream.arrive(request(opaque, body))
    nursery.start_soon(
        serve_requests, connection, Dispatcher({ECHO: echo}), outbox.flush, FrameBuffer(), Turns()
    )
    await trio.testing.wait_all_tasks_blocked()
    assert stream.reads < 8
    stream.make_room(1 << 30)
    await trio.testing.wait_all_tasks_blocked()
    assert [answer.opaque for answer in stream.take_frames()] == list(range(8))
    nursery.cancel_scope.cancel()


async def test_a_round_is_interrupted_when_its_answers_pile_up(nursery: trio.Nursery) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    handled = 0

    def big(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        nonlocal handled
        handled += 1
        return response_to(command, body=bytes(OUT_BYTES_MAX // 2))

    nursery.start_soon(connection.run_writer)
    stream.room = 0
    stream.arrive(b"".join(request(opaque) for opaque in range(20)))
    nursery.start_soon(
        serve_requests, connection, Dispatcher({ECHO: big}), outbox.flush, FrameBuffer(), Turns()
    )
    await trio.testing.wait_all_tasks_blocked()
    assert handled <= 3
    stream.make_room(1 << 40)
    await trio.testing.wait_all_tasks_blocked()
    assert handled == 20
    nursery.cancel_scope.cancel()


async def test_too_many_answers_owed_stop_the_reading(nursery: trio.Nursery) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)

    owed: list[OwedAnswers] = []

    def park(connection: Connection, command: RemotingCommand) -> None:
        owed.append(connection.owe())

    count = OWED_ANSWERS_MAX + 5
    frame = request(1)
    stream.arrive(frame * count)
    nursery.start_soon(
        serve_requests, connection, Dispatcher({ECHO: park}), outbox.flush, FrameBuffer(), Turns()
    )
    await trio.testing.wait_all_tasks_blocked()
    assert connection.owed_count == OWED_ANSWERS_MAX
    for _ in range(10):
        owed.pop().write(b"")
        await trio.testing.wait_all_tasks_blocked()
    assert connection.owed_count == count - 10
    nursery.cancel_scope.cancel()


async def test_what_the_writer_is_sending_counts_until_the_peer_has_taken_it(
    nursery: trio.Nursery,
) -> None:
    kept: list[int] = []
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox, lambda _, kept_bytes: kept.append(kept_bytes))
    nursery.start_soon(connection.run_writer)
    stream.room = 0
    connection.write(bytes(OUT_BYTES_MAX + 1))
    outbox.flush()
    await trio.testing.wait_all_tasks_blocked()
    assert (connection.is_congested, connection.may_read) == (True, False)
    connection.note_kept()
    assert kept[-1] == OUT_BYTES_MAX + 1
    stream.make_room(1 << 30)
    await trio.testing.wait_all_tasks_blocked()
    assert (connection.is_congested, connection.may_read) == (False, True)
    assert kept[-1] == 0
    nursery.cancel_scope.cancel()


async def test_a_drained_connection_calls_back_once(nursery: trio.Nursery) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    nursery.start_soon(connection.run_writer)
    calls: list[str] = []
    connection.write(b"x" * (OUT_BYTES_MAX + 1))
    assert [connection.is_congested] == [True]
    connection.when_drained(lambda: calls.append("drained"))
    outbox.flush()
    await trio.testing.wait_all_tasks_blocked()
    assert calls == ["drained"]
    assert not connection.is_congested
    nursery.cancel_scope.cancel()


async def test_a_closed_connection_swallows_answers() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    connection.write(b"a")
    connection.close()
    connection.close()
    connection.write(b"b")
    outbox.flush()
    assert stream.sent == b""
    assert not connection.is_busy


async def test_a_broken_stream_closes_the_connection_quietly() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    stream.close_nowait()
    connection.write(b"a")
    outbox.flush()
    assert connection.is_closed


async def test_waiting_for_the_last_answers(nursery: trio.Nursery) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    owed = connection.owe()
    idle = trio.Event()

    async def wait() -> None:
        await connection.wait_idle()
        idle.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not idle.is_set()
    owed.write(b"answer")
    outbox.flush()
    await trio.testing.wait_all_tasks_blocked()
    assert idle.is_set()
    assert stream.sent == b"answer"


async def test_cancelling_the_writer_leaves_the_rest_unsent() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    stream.room = 1
    connection.write(b"abc")
    outbox.flush()
    with trio.move_on_after(0):
        await connection.run_writer()
    assert stream.sent == b"a"


async def test_the_connection_outlives_its_turn_in_the_outbox() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    for text in (b"a", b"b"):
        connection.write(text)
        connection.write(text)
        outbox.flush()
        outbox.flush()
    assert stream.sent == b"aabb"


async def test_an_answer_that_is_given_is_sent_at_once_if_nothing_waits_before_it() -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    connection.owe(3)
    connection.give(b"one", 1)
    assert bytes(stream.sent) == b"one"
    connection.write(b"two")
    connection.give(b"three", 2)
    assert bytes(stream.sent) == b"one"
    outbox.flush()
    assert bytes(stream.sent) == b"onetwothree"
    assert not connection.is_busy


async def test_what_the_peer_does_not_take_of_a_given_answer_is_sent_later_and_in_order(
    nursery: trio.Nursery,
) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    nursery.start_soon(connection.run_writer)
    stream.room = 4
    connection.owe(2)
    connection.give(b"first ", 1)
    connection.give(b"second", 1)
    outbox.flush()
    await trio.testing.wait_all_tasks_blocked()
    assert bytes(stream.sent) == b"firs"
    assert connection.is_busy
    stream.make_room(100)
    await connection.wait_idle()
    assert bytes(stream.sent) == b"first second"
    nursery.cancel_scope.cancel()


async def test_an_answer_given_to_a_connection_that_is_over_wakes_who_waits_for_it() -> None:
    for is_known in (True, False):
        stream = FakeStream()
        connection = Connection(stream, Outbox())
        connection.owe()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.wait_idle)
            await trio.testing.wait_all_tasks_blocked()
            if is_known:
                connection.close()
            else:
                stream.closed = True
            connection.give(b"answer", 1)
        assert connection.is_closed
        assert connection.owed_count == 0


async def test_an_answer_is_not_given_before_what_the_writer_has_still_to_send(
    nursery: trio.Nursery,
) -> None:
    stream, outbox = FakeStream(), Outbox()
    connection = Connection(stream, outbox)
    stream.room = 4
    connection.owe(2)
    connection.give(b"first ", 1)
    outbox.flush()
    stream.room = 100  # and the writer has not had its turn
    connection.give(b"second", 1)
    assert bytes(stream.sent) == b"firs"
    nursery.start_soon(connection.run_writer)
    await connection.wait_idle()
    assert bytes(stream.sent) == b"first second"
    nursery.cancel_scope.cancel()


class SocketStream(FakeStream):
    """Its answers go over a socket if they go with those of others."""

    def __init__(self, number: int) -> None:
        super().__init__(Host("10.0.0.7", number))
        self.ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)  # noqa: FBT003
        self.plain = True

    @property
    def plain_fd(self) -> int:
        return self.ours.fileno() if self.plain else -1

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        super().send_nowait(data)
        return self.ours.send(data, socket.MSG_DONTWAIT)

    def got(self) -> bytes:
        try:
            return self.theirs.recv(100)
        except BlockingIOError:
            return b""


@pytest.fixture
def streams() -> Iterator[list[SocketStream]]:
    made = [SocketStream(number) for number in range(5)]
    yield made
    for stream in made:
        stream.ours.close()
        stream.theirs.close()


@pytest.mark.usefixtures("_in_c_and_python")
async def test_each_gets_its_own_answers_whatever_it_is_at(streams: list[SocketStream]) -> None:
    outbox = Outbox()
    plain, secret, behind, closed, last = [Connection(stream, outbox) for stream in streams]
    streams[1].plain = False
    behind.write(b"<before>")
    all_of_them = [plain, secret, behind, closed, last]
    owe_each(all_of_them, [1, 2, 1, 1, 3])
    assert [one.owed_count for one in all_of_them] == [1, 2, 1, 1, 3]
    assert all(one.has_asked for one in all_of_them)
    closed.close()
    give_each(all_of_them, [1, 2, 1, 1, 3], b"abbcdeee", [1, 3, 4, 5, 8])
    assert [one.owed_count for one in all_of_them] == [0] * 5
    assert [stream.got() for stream in streams] == [b"a", b"bb", b"", b"", b"eee"]
    outbox.flush()
    assert streams[2].got() == b"<before>c"
    has_c = native.loops is not None
    assert [bool(stream.sent) for stream in streams] == [not has_c, True, True, False, not has_c]


@pytest.mark.usefixtures("_in_c_and_python")
async def test_who_waits_until_all_is_answered_hears_of_answers_given_with_others(
    streams: list[SocketStream], nursery: trio.Nursery
) -> None:
    one, other = [Connection(stream, Outbox()) for stream in streams[:2]]
    owe_each([one, other], [1, 2])
    idle: list[Connection] = []

    async def wait(connection: Connection) -> None:
        await connection.wait_idle()
        idle.append(connection)

    nursery.start_soon(wait, one)
    nursery.start_soon(wait, other)
    await trio.testing.wait_all_tasks_blocked()
    give_each([one, other], [1, 1], b"ab", [1, 2])
    await trio.testing.wait_all_tasks_blocked()
    assert idle == [one]
    give_each([other], [1], b"c", [1])
    await trio.testing.wait_all_tasks_blocked()
    assert idle == [one, other]
    assert streams[1].got() == b"bc"


@pytest.mark.usefixtures("_in_c_and_python")
async def test_what_a_peer_does_not_take_of_answers_given_with_others_follows(
    nursery: trio.Nursery,
) -> None:
    network = TCPNetwork()
    listener = await network.listen("127.0.0.1", 0)
    clients = [await network.connect("127.0.0.1", listener.port, source=None) for _ in range(2)]
    outbox = Outbox()
    connections = [Connection(await listener.accept(), outbox) for _ in clients]
    for connection in connections:
        nursery.start_soon(connection.run_writer)
    large = bytes(range(256)) * (1 << 16)
    give_each(connections, [0, 0], large + b"small", [len(large), len(large) + 5])
    outbox.flush()
    with trio.fail_after(PATIENCE_SECONDS):
        assert await clients[1].receive_some(10) == b"small"
        received = b""
        while len(received) < len(large):
            received += await clients[0].receive_some(1 << 20)
    assert received == large
    for stream in (*clients, *(connection.stream for connection in connections)):
        stream.close_nowait()
    await listener.aclose()
    nursery.cancel_scope.cancel()


async def test_who_may_be_given_no_more_is_found_among_others() -> None:
    connections = [Connection(FakeStream(), Outbox()) for _ in range(4)]
    assert overfull(connections) == []
    connections[1].write(b"not sent")
    assert overfull(connections) == []
    connections[2].owed_count = OWED_ANSWERS_MAX
    connections[3].write(bytes(OUT_BYTES_MAX + 1))
    assert overfull(connections) == [2, 3]
