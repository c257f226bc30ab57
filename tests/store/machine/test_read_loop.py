"""Sockets that are read by functions: what comes, when it ends, and that trio goes on meanwhile."""

import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio
import trio.lowlevel
import trio.testing

from store.machine import tcp_network
from store.machine.network import ClosedHere, ConnectionLost, Stream
from store.machine.read_loop import EVENTS_MAX, read_loop
from store.machine.tcp_network import TCPNetwork
from tandem.wire import native
from tandem.wire.read_together import ReadTogether
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.parametrize("way", ["loop", "task"])


@pytest.fixture(autouse=True)
def _way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "task":
        monkeypatch.setattr(tcp_network, "read_loop", lambda: None)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Stream, Stream]]:
    network = TCPNetwork()
    listener = await network.listen("127.0.0.1", 0)
    client = await network.connect("127.0.0.1", listener.port, source=None)
    server = await listener.accept()
    try:
        with trio.fail_after(PATIENCE_SECONDS):
            yield client, server
    finally:
        client.close_nowait()
        server.close_nowait()
        await listener.aclose()


async def test_all_that_comes_is_taken_in_order_up_to_the_end(way: str) -> None:
    taken: list[bytes] = []

    def take(data: bytes) -> bool:
        taken.append(data)
        return True

    async with pair() as (client, server), trio.open_nursery() as nursery:

        async def send() -> None:
            for number in range(300):
                await client.send_all(b"%05d" % number)
                if number % 7 == 0:
                    await trio.lowlevel.checkpoint()
            await client.aclose()

        nursery.start_soon(send)
        assert await server.receive_while(13, take) is False
    assert b"".join(taken) == b"".join(b"%05d" % number for number in range(300))
    assert max(map(len, taken)) <= 13


async def test_a_function_that_wants_no_more_ends_it_and_the_rest_stays(way: str) -> None:
    async with pair() as (client, server):
        await client.send_all(b"abcdef")
        taken: list[bytes] = []

        def take(data: bytes) -> bool:
            taken.append(data)
            return len(taken) < 2

        assert await server.receive_while(2, take) is True
        assert taken == [b"ab", b"cd"]
        assert await server.receive_some(10) == b"ef"


async def test_what_a_function_raises_is_raised_where_it_is_waited_for(way: str) -> None:
    async with pair() as (client, server), pair() as (other_client, other):
        other_taken: list[bytes] = []

        def take_other(data: bytes) -> bool:
            other_taken.append(data)
            return False

        def take(data: bytes) -> bool:
            raise KeyError(data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.receive_while, 100, take_other)
            await client.send_all(b"x")
            with pytest.raises(KeyError):
                await server.receive_while(100, take)
            await other_client.send_all(b"y")
        assert other_taken == [b"y"]
        await client.send_all(b"z")
        assert await server.receive_some(10) == b"z"


@pytest.mark.parametrize("who", ["the function", "another task"])
async def test_a_stream_that_is_closed_here_is_lost(way: str, who: str) -> None:
    async with pair() as (client, server), trio.open_nursery() as nursery:

        def take(data: bytes) -> bool:
            server.close_nowait()
            return True

        async def close() -> None:
            await trio.testing.wait_all_tasks_blocked()
            server.close_nowait()

        if who == "the function":
            await client.send_all(b"x")
        else:
            nursery.start_soon(close)
        with pytest.raises(ClosedHere):
            await server.receive_while(100, take)
        with pytest.raises(ClosedHere):
            await server.receive_while(100, take)


@pytest.mark.parametrize("how", ["wants no more", "raises"])
async def test_a_function_that_closes_its_stream_has_the_last_word(way: str, how: str) -> None:
    async with pair() as (client, server):

        def take(data: bytes) -> bool:
            server.close_nowait()
            if how == "raises":
                raise ZeroDivisionError
            return False

        await client.send_all(b"x")
        with suppress(ConnectionLost, ZeroDivisionError):
            assert await server.receive_while(100, take)
        with pytest.raises(ClosedHere):
            await server.receive_while(100, take)


async def test_functions_that_close_each_others_streams(way: str) -> None:
    if way == "task":
        return
    async with pair() as (client, server), pair() as (other_client, other):
        taken: list[bytes] = []
        lost: list[bytes] = []

        async def read(own: Stream, others: Stream, name: bytes) -> None:
            def take(data: bytes) -> bool:
                taken.append(name)
                others.close_nowait()
                return False

            try:
                await own.receive_while(100, take)
            except ConnectionLost:
                lost.append(name)

        await client.send_all(b"x")
        await other_client.send_all(b"x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, server, other, b"one")
            nursery.start_soon(read, other, server, b"two")
        assert sorted(taken + lost) == [b"one", b"two"]
        assert len(taken) == 1


async def test_a_run_with_traffic_is_not_idle(way: str) -> None:
    async with pair() as (client, server), trio.open_nursery() as nursery:
        end = trio.current_time() + 0.3

        def answer(stream: Stream) -> Callable[[bytes], bool]:
            def take(data: bytes) -> bool:
                if trio.current_time() < end:
                    stream.send_nowait(data)
                return True

            return take

        nursery.start_soon(server.receive_while, 10, answer(server))
        nursery.start_soon(client.receive_while, 10, answer(client))
        await client.send_all(b"x")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert trio.current_time() >= end
        nursery.cancel_scope.cancel()


async def test_a_connection_that_breaks_is_lost(way: str) -> None:
    network = TCPNetwork()
    listener = await network.listen("127.0.0.1", 0)
    client = await network.connect("127.0.0.1", listener.port, source=None)
    server = await listener.accept()
    await server.send_all(b"never read")
    await trio.sleep(0.05)
    client.close_nowait()  # with unread bytes: a reset
    with trio.fail_after(PATIENCE_SECONDS), pytest.raises(ConnectionLost):
        await server.receive_while(100, lambda _: True)
    await server.aclose()
    await listener.aclose()


async def test_cancelling_loses_nothing(way: str) -> None:
    async with pair() as (client, server):
        taken: list[bytes] = []

        def take(data: bytes) -> bool:
            taken.append(data)
            return True

        for number in range(20):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(server.receive_while, 100, take)
                    await client.send_all(b"%02d" % number)
                    if number % 2:
                        await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
        with trio.fail_after(PATIENCE_SECONDS):
            while len(b"".join(taken)) < 40:
                await server.receive_while(100, lambda data: not take(data))
        assert b"".join(taken) == b"".join(b"%02d" % number for number in range(20))


async def test_whoever_always_has_something_lets_all_others_run(way: str) -> None:
    async with pair() as (client, server), pair() as (slow_client, slow):
        await client.send_all(b"x" * 50)
        taken = 0

        def take(data: bytes) -> bool:
            nonlocal taken
            taken += 1
            client.send_nowait(data)  # there is always more
            return True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.receive_while, 50, take)
            for _ in range(3):
                await trio.lowlevel.checkpoint()
                await trio.sleep(0.01)
                assert await trio.to_thread.run_sync(lambda: 7) == 7
                await slow_client.send_all(b"slow")
                assert await slow.receive_some(10) == b"slow"
            event = trio.Event()
            nursery.start_soon(trio.sleep, 0.01)
            trio.lowlevel.current_trio_token().run_sync_soon(event.set)
            await event.wait()
            nursery.cancel_scope.cancel()
        assert taken > 3


async def test_a_task_that_a_function_wakes_runs_next(way: str) -> None:
    async with pair() as (client, server), trio.open_nursery() as nursery:
        woken, lot = trio.Event(), trio.lowlevel.ParkingLot()

        def take(data: bytes) -> bool:
            lot.unpark_all()
            scope.deadline = trio.current_time()
            nursery.start_soon(started)
            return True

        async def wait() -> None:
            await lot.park()
            woken.set()

        begun = trio.Event()

        async def started() -> None:
            begun.set()

        async def wait_for_deadline() -> None:
            with scope:
                await trio.sleep_forever()

        scope = trio.CancelScope()
        nursery.start_soon(wait)
        nursery.start_soon(wait_for_deadline)
        nursery.start_soon(server.receive_while, 50, take)
        await trio.testing.wait_all_tasks_blocked()
        await client.send_all(b"x")
        await woken.wait()
        await begun.wait()
        while not scope.cancelled_caught:
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()


async def test_many_sockets_at_a_time_are_all_read(way: str) -> None:
    count = 3 * EVENTS_MAX
    answers = [0] * count
    with trio.fail_after(PATIENCE_SECONDS):
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(pair()) for _ in range(count)]
            nursery = await stack.enter_async_context(trio.open_nursery())
            for number, (_, server) in enumerate(streams):

                def take(data: bytes, number: int = number) -> bool:
                    answers[number] += len(data)
                    return answers[number] < 3

                nursery.start_soon(server.receive_while, 1, take)
            for client, _ in streams:
                client.send_nowait(b"abc")
    assert answers == [3] * count


def test_this_release_of_trio_has_the_parts_the_loop_needs(way: str) -> None:
    async def has_one() -> bool:
        return read_loop() is not None

    assert trio.run(has_one)
    # On a clock of tests real sockets are not waited for.
    assert not trio.run(has_one, clock=trio.testing.MockClock(autojump_threshold=0))


class Passes(trio.abc.Instrument):
    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_the_loop_answers_without_passes_of_trio(way: str) -> None:
    passes = Passes()
    answers = 0

    def ask() -> int:
        with socket.create_connection(address) as sock:
            for _ in range(500):
                sock.sendall(b"x")
                assert sock.recv(1) == b"x"
        return 500

    network = TCPNetwork()
    listener = await network.listen("127.0.0.1", 0)
    address = ("127.0.0.1", listener.port)

    async def serve() -> None:
        server = await listener.accept()

        def take(data: bytes) -> bool:
            nonlocal answers
            answers += server.send_nowait(data)
            return True

        trio.lowlevel.add_instrument(passes)
        assert await server.receive_while(10, take) is False
        trio.lowlevel.remove_instrument(passes)
        await server.aclose()

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            assert await trio.to_thread.run_sync(ask) == 500
    assert answers == 500
    assert passes.count < 50 if way == "loop" else passes.count >= 500
    await listener.aclose()


async def test_one_task_reads_a_socket(way: str) -> None:
    if way == "task":
        return
    async with pair() as (_, server), trio.open_nursery() as nursery:
        nursery.start_soon(server.receive_while, 10, lambda _: True)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await server.receive_while(10, lambda _: True)
        nursery.cancel_scope.cancel()


async def test_what_is_left_to_the_end_of_a_round_is_done_when_all_were_read(way: str) -> None:
    """Several have something at once; each ends its reading in its own way."""
    order: list[str] = []
    loop = read_loop()

    def leaves(name: str, outcome: Callable[[], bool]) -> Callable[[bytes], Callable[[], bool]]:
        def rest() -> bool:
            order.append(f"rest of {name}")
            return outcome()

        def take(data: bytes) -> Callable[[], bool]:
            order.append(name)
            assert way == "task" or (loop is not None and loop.reads_several)
            return rest

        return take

    def fails() -> bool:
        raise ZeroDivisionError

    async with AsyncExitStack() as stack:
        pairs = [await stack.enter_async_context(pair()) for _ in range(3)]
        for client, _ in pairs:
            client.send_nowait(b"x")
        ended: list[str] = []

        async def read(server: Stream, name: str, outcome: Callable[[], bool]) -> None:
            try:
                assert await server.receive_while(10, leaves(name, outcome))
                ended.append(name)
            except (ZeroDivisionError, ClosedHere):
                ended.append(f"{name} failed")

        def closes() -> bool:
            pairs[2][1].close_nowait()
            return True

        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read, pairs[0][1], "a", lambda: False)
                nursery.start_soon(read, pairs[1][1], "b", fails)
                nursery.start_soon(read, pairs[2][1], "c", closes)
    assert sorted(ended) == ["a", "b failed", "c failed"]
    assert sorted(order[:3] if way == "loop" else order[::2]) == ["a", "b", "c"]
    assert sorted(order[3:] if way == "loop" else order[1::2]) == [f"rest of {n}" for n in "abc"]


async def test_what_wants_more_at_the_end_of_its_round_is_read_on(way: str) -> None:
    taken: list[bytes] = []
    async with pair() as (client, server):

        def take(data: bytes) -> Callable[[], bool]:
            taken.append(data)
            return lambda: len(taken) < 3

        await client.send_all(b"abc")
        assert await server.receive_while(1, take)
    assert taken == [b"a", b"b", b"c"]


async def test_trio_goes_on_after_a_round_if_it_is_asked_to(way: str) -> None:
    if way == "task":
        return
    loop = read_loop()
    assert loop is not None
    passes: list[int] = []
    async with pair() as (client, server):

        def take(data: bytes) -> bool:
            passes.append(loop.passes)
            loop.let_trio_go_on()
            return len(passes) < 3

        await client.send_all(b"abc")
        assert await server.receive_while(1, take)
    assert len(set(passes)) == 3


@pytest.mark.parametrize("later", [False, True])
async def test_a_connection_that_breaks_leaves_nothing_to_the_collector(
    way: str, *, later: bool
) -> None:
    class Reader:
        def take(self, data: bytes) -> bool | Callable[[], bool]:
            if later and way == "loop":
                return self.fail
            return self.fail()

        def fail(self) -> bool:
            raise ConnectionLost("it broke")

    async with pair() as (client, server):
        gc.disable()
        try:
            reader = Reader()
            gone = weakref.ref(reader)
            await client.send_all(b"a")
            with suppress(ConnectionLost):
                await server.receive_while(9, reader.take)
            del reader
            await trio.lowlevel.checkpoint()  # trio knows what it has given a task last
            assert gone() is None
        finally:
            gc.enable()


class Joins:
    """A member of the one crowd of a test."""

    def __init__(self, crowd: "Crowd") -> None:
        self.joins = True
        self.crowd: Crowd | None = crowd


class Crowd:
    """Takes of what came together so much of each as it is told, and then does something.

    Attributes:
        rounds: What came of whom.
    """

    def __init__(self, takes: int, then: Callable[[], object] = lambda: None) -> None:
        self.takes, self.then = takes, then
        self.rounds: list[dict[Joins, bytes]] = []

    def take(self, members: list[Joins], came: ReadTogether) -> list[int]:
        each = {member: came.rest(number) for number, member in enumerate(members)}
        self.rounds.append(each)
        for number, member in enumerate(members):
            came.starts[number] += min(self.takes, len(each[member]))
        self.then()
        return []


@asynccontextmanager
async def pairs(count: int) -> AsyncIterator[list[tuple[Stream, Stream]]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(pair()) for _ in range(count)]


class Member:
    """One that receives as a member of a crowd.

    Attributes:
        alone: What came by itself.
        rest: What the crowd has left.
        outcome: How its stream has ended.
    """

    def __init__(self, crowd: Crowd, stream: Stream) -> None:
        self.joins = Joins(crowd)
        self.stream = stream
        self.alone: list[bytes] = []
        self.rest: list[bytes] = []
        self.wants_more = True
        self.outcome: bool | Exception | None = None

    async def receive(self) -> None:
        try:
            self.outcome = await self.stream.receive_together(
                100, self._take, self.joins, self._take_rest
            )
        except (ConnectionLost, KeyError) as error:
            self.outcome = error

    def _take(self, data: bytes) -> bool:
        self.alone.append(data)
        return True

    def _take_rest(self, data: bytes) -> bool:
        self.rest.append(data)
        return self.wants_more


def _only_the_loop(way: str) -> None:
    if way == "task" or native.loops is None:
        pytest.skip("nothing is received together")


async def _say(streams: list[tuple[Stream, Stream]], *words: bytes) -> None:
    """Have something come over all of them before the next look, in one round."""
    for (client, _), said in zip(streams, words, strict=True):
        if said:
            assert client.send_nowait(said) == len(said)
    await _some_passes()


async def _some_passes() -> None:
    """What came over a socket of this machine is there at once: a look, and who it wakes."""
    for _ in range(4):
        await trio.lowlevel.checkpoint()


async def test_what_came_over_several_of_a_crowd_is_taken_by_it_and_the_rest_is_theirs(
    way: str,
) -> None:
    _only_the_loop(way)
    crowd = Crowd(2)
    async with pairs(3) as streams, trio.open_nursery() as nursery:
        members = [Member(crowd, server) for _, server in streams]
        for member in members:
            nursery.start_soon(member.receive)
        await trio.testing.wait_all_tasks_blocked()
        await _say(streams, b"ab", b"cde", b"")
        assert crowd.rounds == [{members[0].joins: b"ab", members[1].joins: b"cde"}]
        assert [member.rest for member in members] == [[], [b"e"], []]
        members[1].joins.joins = False
        await _say(streams, b"1", b"2", b"3")
        assert crowd.rounds[1:] == [{members[0].joins: b"1", members[2].joins: b"3"}]
        assert [member.alone for member in members] == [[], [b"2"], []]
        await _say(streams, b"", b"", b"4")
        assert members[2].alone == [b"4"]
        # Who wants no more is not received from.
        members[0].joins.joins, members[0].wants_more = True, False
        crowd.takes = 0
        await _say(streams, b"5", b"", b"6")
        assert members[0].outcome is True
        await _say(streams, b"7", b"", b"8")
        assert members[0].rest == [b"5"]
        assert members[2].alone == [b"4", b"8"]
        assert await members[0].stream.receive_some(10) == b"7"
        nursery.cancel_scope.cancel()


async def test_who_has_ended_or_is_broken_is_told_so_beside_others(way: str) -> None:
    _only_the_loop(way)
    crowd = Crowd(9)
    async with pairs(3) as streams, trio.open_nursery() as nursery:
        members = [Member(crowd, server) for _, server in streams]
        for member in members:
            nursery.start_soon(member.receive)
        await trio.testing.wait_all_tasks_blocked()
        breaks = streams[1][0]
        linger = struct.pack("ii", 1, 0)
        breaks._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # type: ignore[attr-defined]
        streams[0][0].close_nowait()
        breaks.close_nowait()
        await _say(streams[2:], b"here")
        assert members[0].outcome is False
        assert isinstance(members[1].outcome, ConnectionLost)
        assert not isinstance(members[1].outcome, ClosedHere)
        assert [each for round_ in crowd.rounds for each in round_.values() if each] == [b"here"]
        assert members[2].outcome is None
        nursery.cancel_scope.cancel()


async def test_the_number_of_a_socket_that_the_crowd_has_closed_may_be_another_ones(
    way: str,
) -> None:
    """What was left of the old one must not come to the new one."""
    _only_the_loop(way)
    streams: list[tuple[Stream, Stream]] = []
    late: list[bytes] = []

    def close_and_reuse() -> None:
        victim = streams[1][1]
        number = victim.plain_fd
        victim.close_nowait()
        assert victim.plain_fd == -1
        ours, theirs = socket.socketpair()
        if ours.fileno() != number:
            ours, theirs = theirs, ours
        assert ours.fileno() == number
        kept.extend((ours, theirs))
        ours.setblocking(False)  # noqa: FBT003
        loop = read_loop()
        assert loop is not None

        async def read_new() -> None:
            await loop.run_reader(number, lambda: late.append(ours.recv(100)))

        nursery.start_soon(read_new)

    kept: list[socket.socket] = []
    crowd = Crowd(1, close_and_reuse)
    async with pairs(2) as made, trio.open_nursery() as nursery:
        streams += made
        members = [Member(crowd, server) for _, server in streams]
        for member in members:
            nursery.start_soon(member.receive)
        await trio.testing.wait_all_tasks_blocked()
        crowd.then = close_and_reuse
        await _say(streams, b"ab", b"cd")
        assert members[0].rest == [b"b"]
        assert members[1].rest == []
        assert isinstance(members[1].outcome, ClosedHere)
        assert late == []
        kept[1].sendall(b"new")
        await _some_passes()
        assert late == [b"new"]
        nursery.cancel_scope.cancel()
    for one in kept:
        one.close()


async def test_an_error_of_the_crowd_is_raised_at_one_and_the_others_keep_theirs(way: str) -> None:
    _only_the_loop(way)

    def fail() -> None:
        raise KeyError("of the crowd")

    crowd = Crowd(1, fail)
    async with pairs(3) as streams, trio.open_nursery() as nursery:
        members = [Member(crowd, server) for _, server in streams]
        for member in members:
            nursery.start_soon(member.receive)
        await trio.testing.wait_all_tasks_blocked()
        await _say(streams, b"ab", b"cd", b"ef")
        failed = [member for member in members if member.outcome is not None]
        assert [type(member.outcome) for member in failed] == [KeyError]
        others = [member for member in members if member not in failed]
        assert [len(member.rest) for member in others] == [1, 1]
        assert failed[0].rest == []
        nursery.cancel_scope.cancel()


async def test_members_of_two_crowds_are_received_from_one_by_one(way: str) -> None:
    _only_the_loop(way)
    crowds = [Crowd(9), Crowd(9)]
    async with pairs(2) as streams, trio.open_nursery() as nursery:
        members = [
            Member(crowd, server) for crowd, (_, server) in zip(crowds, streams, strict=True)
        ]
        for member in members:
            nursery.start_soon(member.receive)
        await trio.testing.wait_all_tasks_blocked()
        await _say(streams, b"ab", b"cd")
        assert [member.alone for member in members] == [[b"ab"], [b"cd"]]
        assert [crowd.rounds for crowd in crowds] == [[], []]
        nursery.cancel_scope.cancel()
