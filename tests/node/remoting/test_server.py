from __future__ import annotations

import gc
import logging
import weakref
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

import node.remoting.client_memory
import node.remoting.server
from node.remoting.connection import OUT_BYTES_MAX, Connection, Outbox, OwedAnswers
from node.remoting.dispatcher import Dispatcher, in_pieces, response_to
from node.remoting.places import STILL_SECONDS, STRANGER_SECONDS
from node.remoting.server import IDLE_SCAN_SECONDS, IDLE_SECONDS_MAX, Server
from node.remoting.turns import ABREAST_MAX, TURN_SECONDS
from store.machine.network import ConnectionLost
from tandem.wire.frame_buffer import FRAME_BYTES_MAX
from tandem.wire.message import Host
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tests.node.doubles import CLIENT, FakeStream

if TYPE_CHECKING:
    from node.remoting.dispatcher import Pieces
    from store.machine.network import Stream

ECHO = 7
PARK = 8


class FakeListener:
    port = 1

    def __init__(self) -> None:
        self.closed = False
        self._offer, self._accept = trio.open_memory_channel[FakeStream](100)

    def connect(self, ip: str = CLIENT.ip) -> FakeStream:
        stream = FakeStream(Host(ip, 1234))
        self._offer.send_nowait(stream)
        return stream

    @property
    def waiting(self) -> int:
        return self._offer.statistics().current_buffer_used

    async def accept(self) -> Stream:
        return await self._accept.receive()

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


class Running:
    """A server with one listener, two handlers, and what it did."""

    def __init__(self, connections_max: int = 10) -> None:
        self.outbox = Outbox()
        self.listener = FakeListener()
        self.parked: list[tuple[OwedAnswers, RemotingCommand]] = []
        self.ended: list[Connection] = []
        self.server = Server(
            self.outbox,
            connections_max=connections_max,
            after_round=self.outbox.flush,
            on_closed=self.ended.append,
        )
        self.dispatcher = Dispatcher({ECHO: self._echo, PARK: self._park})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as connections:
            task_status.started()
            await self.server.listen(self.listener, self.dispatcher, connections)

    def answer_parked(self) -> None:
        for owed, command in self.parked:
            owed.respond(command, response_to(command))
        self.outbox.flush()

    def _echo(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return response_to(command, body=command.body)

    def _park(self, connection: Connection, command: RemotingCommand) -> None:
        self.parked.append((connection.owe(), command))


def request(code: int = ECHO, opaque: int = 1) -> bytes:
    return encode_frame(RemotingCommand(code, opaque))


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


class Steps(trio.abc.Instrument):
    """Counts the steps of each task, by its name."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.by_name[task.name.rpartition(".")[2]] += 1


async def test_a_connection_that_has_ended_leaves_nothing_to_the_collector(
    nursery: trio.Nursery,
) -> None:
    """A look at all there is takes hundreds of milliseconds where there are thousands of them."""
    running = Running()
    await nursery.start(running.run)
    gone: list[weakref.ref[Connection]] = []
    gc.collect()
    gc.disable()
    try:
        stream = running.listener.connect()
        stream.arrive(request())
        await settle()
        stream.end()
        await settle()
        gone = [weakref.ref(each) for each in running.ended]
        running.ended.clear()
        del stream
        running.listener.connect()  # the last one that was accepted is known to the listening task
        await settle()
        assert [ref() for ref in gone] == [None]
    finally:
        gc.enable()
    nursery.cancel_scope.cancel()


async def test_others_have_their_turn_while_many_connections_are_looked_at(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.remoting.server, "SCANNED_AT_ONCE", 2)
    running = Running()
    await nursery.start(running.run)
    for number in range(5):
        running.listener.connect(f"10.0.0.{number}")
    await settle()
    nursery.start_soon(running.server.close_idle)
    await settle()
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await trio.sleep(IDLE_SCAN_SECONDS + 1)
    trio.lowlevel.remove_instrument(steps)
    assert steps.by_name["close_idle"] == 3
    nursery.cancel_scope.cancel()


async def test_each_connection_is_served(nursery: trio.Nursery) -> None:
    running = Running()
    await nursery.start(running.run)
    streams = [running.listener.connect() for _ in range(3)]
    for stream in streams:
        stream.arrive(request())
    await settle()
    assert [len(stream.take_frames()) for stream in streams] == [1, 1, 1]
    nursery.cancel_scope.cancel()


async def test_one_connection_too_many_waits_for_a_place(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(connections_max=2)
    await nursery.start(running.run)
    first, _, third = (running.listener.connect(f"10.0.0.{number}") for number in range(3))
    third.arrive(request())
    await settle()
    assert running.listener.waiting == 1
    assert "all places are taken by connections that are in use" in caplog.text
    first.end()
    await settle()
    assert running.listener.waiting == 0
    assert len(third.take_frames()) == 1
    nursery.cancel_scope.cancel()


async def test_what_one_peer_breaks_ends_only_its_own_connection(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running()
    await nursery.start(running.run)
    good, bad = running.listener.connect(), running.listener.connect()
    with caplog.at_level(logging.WARNING):
        bad.arrive(request() + b"GET / HTTP/1.1\r\n\r\n")
        await settle()
    assert bad.closed
    assert len(bad.take_frames()) == 1
    assert "connection from 10.1.2.3:1234 closed: frame of" in caplog.text
    good.arrive(request())
    await settle()
    assert len(good.take_frames()) == 1
    assert len(running.ended) == 1
    nursery.cancel_scope.cancel()


async def test_a_frame_above_the_limit_ends_the_connection(nursery: trio.Nursery) -> None:
    running = Running()
    await nursery.start(running.run)
    stream = running.listener.connect()
    stream.arrive((FRAME_BYTES_MAX - 3).to_bytes(4, "big") + bytes(4))
    await settle()
    assert stream.closed
    nursery.cancel_scope.cancel()


async def test_stopping_answers_what_is_owed_and_reads_no_more(nursery: trio.Nursery) -> None:
    running = Running()
    await nursery.start(running.run)
    idle, busy = running.listener.connect(), running.listener.connect()
    busy.arrive(request(PARK))
    await settle()
    running.server.stop_reading()
    await settle()
    assert (idle.closed, busy.closed) == (True, False)
    busy.arrive(request())
    running.answer_parked()
    await settle()
    assert busy.closed
    assert len(busy.take_frames()) == 1
    nursery.cancel_scope.cancel()


async def test_a_half_closed_client_still_gets_its_parked_answer(nursery: trio.Nursery) -> None:
    running = Running()
    await nursery.start(running.run)
    stream = running.listener.connect()
    stream.arrive(request(PARK))
    stream.end()
    await settle()
    assert (stream.closed, running.ended) == (False, [])
    running.answer_parked()
    await settle()
    assert (stream.closed, len(running.ended)) == (True, 1)
    assert len(stream.take_frames()) == 1
    nursery.cancel_scope.cancel()


async def test_a_connection_on_which_nothing_moves_is_closed(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    running = Running()
    await nursery.start(running.run)
    nursery.start_soon(running.server.close_idle)
    silent, lively = running.listener.connect(), running.listener.connect()
    for _ in range(3):
        await trio.sleep(IDLE_SECONDS_MAX / 2)
        lively.arrive(request())
    await trio.sleep(IDLE_SCAN_SECONDS)
    assert (silent.closed, lively.closed) == (True, False)
    nursery.cancel_scope.cancel()


async def test_cancelling_closes_the_listener_and_every_connection() -> None:
    running = Running()
    async with trio.open_nursery() as nursery:
        await nursery.start(running.run)
        streams = [running.listener.connect() for _ in range(2)]
        streams[0].arrive(request(PARK))
        await settle()
        nursery.cancel_scope.cancel()
    assert running.listener.closed
    assert [stream.closed for stream in streams] == [True, True]
    assert len(running.ended) == 2


async def test_a_free_place_is_offered_to_every_listener(nursery: trio.Nursery) -> None:
    running = Running(connections_max=1)
    other = FakeListener()
    await nursery.start(running.run)
    first = running.listener.connect()
    await settle()
    nursery.start_soon(running.server.listen, other, running.dispatcher, nursery)
    await settle()
    first.end()
    await settle()
    for listener in (running.listener, other, running.listener):
        stream = listener.connect()
        stream.arrive(request())
        await settle()
        assert len(stream.take_frames()) == 1
        stream.end()
        await settle()
    nursery.cancel_scope.cancel()


async def test_a_lost_listener_ends_the_listening() -> None:
    class LostListener(FakeListener):
        async def accept(self) -> Stream:
            await trio.lowlevel.checkpoint()
            raise ConnectionLost("the listener was closed")

    running = Running()
    running.listener = LostListener()
    with pytest.RaisesGroup(ConnectionLost):
        await running.run()
    assert running.listener.closed


async def test_a_stranger_that_is_still_gives_way_when_places_run_out(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    running = Running(connections_max=4)
    await nursery.start(running.run)
    known = running.listener.connect("10.0.0.1")
    known.arrive(request())
    strangers = [running.listener.connect(f"10.0.0.{number}") for number in (2, 3, 4)]
    await settle()
    known.take_frames()
    late = running.listener.connect("10.0.0.5")
    late.arrive(request())
    await trio.sleep(3 * STRANGER_SECONDS)
    assert len(late.take_frames()) == 1
    assert [stream.closed for stream in (known, *strangers)] == [False, True, True, False]
    nursery.cancel_scope.cancel()


async def test_who_has_asked_before_keeps_its_place_between_two_heartbeats(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    running = Running(connections_max=2)
    await nursery.start(running.run)
    lively, silent = (running.listener.connect(f"10.0.0.{number}") for number in (1, 2))
    lively.arrive(request())
    silent.arrive(request())
    await settle()
    late = running.listener.connect("10.0.0.3")
    late.arrive(request())
    await trio.sleep(STILL_SECONDS / 2)
    lively.arrive(request())
    assert late.sent == b""
    await trio.sleep(STILL_SECONDS / 2 + 2)
    assert len(late.take_frames()) == 1
    assert (lively.closed, silent.closed) == (False, True)
    nursery.cancel_scope.cancel()


async def test_one_address_cannot_take_all_places(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(connections_max=10)
    await nursery.start(running.run)
    crowd = [running.listener.connect("10.0.0.1") for _ in range(8)]
    await settle()
    assert [stream.closed for stream in crowd] == [False] * 5 + [True] * 3
    assert "connections from 10.0.0.1 are refused: it has 5 that are in use" in caplog.text
    other = running.listener.connect("10.0.0.2")
    other.arrive(request())
    await settle()
    assert len(other.take_frames()) == 1
    # Of its own, one that is still gives way.
    await trio.sleep(2 * STRANGER_SECONDS)
    own = running.listener.connect("10.0.0.1")
    own.arrive(request())
    await settle()
    assert len(own.take_frames()) == 1
    assert crowd[0].closed
    nursery.cancel_scope.cancel()


async def test_unfinished_requests_have_a_bound_in_bytes(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.remoting.client_memory, "KEPT_BYTES_PER_ADDRESS_MAX", 300_000)
    running = Running()
    await nursery.start(running.run)
    streams = [running.listener.connect() for _ in range(4)]
    other = running.listener.connect("10.0.0.2")
    frame = encode_frame(RemotingCommand(ECHO, 1, body=bytes(150_000)))
    other.arrive(frame[:100_000])
    for stream in streams:
        stream.arrive(frame[:100_000])
        await trio.sleep(0.01)
    assert [stream.closed for stream in streams] == [True, False, False, False]
    assert not other.closed
    for stream in streams[1:]:
        stream.arrive(frame[100_000:])
    await settle()
    assert [len(stream.take_frames()) for stream in streams] == [0, 1, 1, 1]
    nursery.cancel_scope.cancel()


async def test_clients_that_never_read_have_a_bound_in_bytes(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.remoting.client_memory, "KEPT_BYTES_MAX", 1_000_000)
    running = Running()
    await nursery.start(running.run)
    streams = [running.listener.connect(f"10.0.0.{number}") for number in range(5)]
    frame = encode_frame(RemotingCommand(ECHO, 1, body=bytes(400_000)))
    for stream in streams:
        stream.room = 0
        stream.arrive(frame)
        await trio.sleep(0.01)
    assert [stream.closed for stream in streams] == [True, True, True, False, False]
    nursery.cancel_scope.cancel()


async def test_requests_of_a_closed_connection_are_not_served_any_more(
    nursery: trio.Nursery,
) -> None:
    """Every one of hundreds of pulls in a row used to be, after its client had gone."""
    running = Running()
    await nursery.start(running.run)
    stream = running.listener.connect()
    handled = 0

    def big(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        nonlocal handled
        handled += 1
        stream.close_nowait()  # what a reset by the peer looks like at the next send
        return response_to(command, body=bytes(OUT_BYTES_MAX + 1))

    running.dispatcher._handlers = {ECHO: big}
    stream.arrive(b"".join(request(opaque=number) for number in range(100)))
    await settle()
    assert (handled, len(running.ended)) == (1, 1)
    nursery.cancel_scope.cancel()


async def test_one_request_waits_for_a_turn_of_others_and_not_for_all_they_ask(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    running = Running(connections_max=100)
    await nursery.start(running.run)
    begun = trio.current_time()
    heavy = [running.listener.connect(f"10.0.0.{number}") for number in range(20)]
    light = running.listener.connect("10.0.1.1")
    order: list[str] = []
    tick_at: list[float] = []

    def slow(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        mock_clock.jump(TURN_SECONDS / 5)
        order.append(connection.peer.ip)
        return response_to(command)

    async def renew_a_lease() -> None:
        while True:
            tick_at.append(trio.current_time())
            await trio.lowlevel.checkpoint()

    running.dispatcher._handlers = {ECHO: slow}
    await settle()
    for stream in heavy:
        stream.arrive(b"".join(request(opaque=number) for number in range(250)))
    await trio.lowlevel.checkpoint()
    light.arrive(request())
    nursery.start_soon(renew_a_lease)
    while len(order) < 20 * 250 + 1:
        await trio.lowlevel.checkpoint()
    served = order.index("10.0.1.1")
    assert served * TURN_SECONDS / 5 <= 0.2  # all of the others take 5 s
    # Early in one pass over all tasks and late in the next: a turn may end one request late.
    longest = max(after - before for before, after in pairwise(tick_at))
    assert longest <= 2 * ABREAST_MAX * TURN_SECONDS * 1.21
    assert trio.current_time() - begun >= 5
    nursery.cancel_scope.cancel()


class Large:
    """Handles requests of a hundred pieces, each as long as a turn."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self.pieces = 0
        self.ended_after: list[int] = []
        self._clock = clock

    @in_pieces
    def handle(self, connection: Connection, command: RemotingCommand) -> Pieces:
        try:
            for _ in range(100):
                self.pieces += 1
                self._clock.jump(TURN_SECONDS)
                yield
        finally:
            self.ended_after.append(self.pieces)
        return response_to(command)


async def test_others_are_served_between_two_pieces_and_the_next_of_the_same_after_all(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    running = Running()
    await nursery.start(running.run)
    handler = Large(mock_clock)
    running.dispatcher._handlers = {PARK: handler.handle, ECHO: running._echo}
    large, small = running.listener.connect(), running.listener.connect("10.0.1.1")
    await settle()
    large.arrive(request(PARK, 1) + request(ECHO, 2))
    at_pass = []
    for number in range(60):
        if number == 5:
            small.arrive(request())
        await trio.lowlevel.checkpoint()
        at_pass.append(handler.pieces)
    assert [each.opaque for each in small.take_frames()] == [1]
    # At most the end of one turn and the whole of another between two passes over all tasks.
    assert max(after - before for before, after in pairwise(at_pass)) <= 2
    assert not large.sent
    while handler.pieces < 100:
        await trio.lowlevel.checkpoint()
    await settle()
    assert [each.opaque for each in large.take_frames()] == [1, 2]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["gone", "stopped"])
async def test_nobody_goes_on_with_a_request_whose_connection_has_ended(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock, how: str
) -> None:
    running = Running()
    await nursery.start(running.run)
    handler = Large(mock_clock)
    running.dispatcher._handlers = {PARK: handler.handle}
    stream = running.listener.connect()
    await settle()
    stream.arrive(request(PARK))
    while handler.pieces < 3:
        await trio.lowlevel.checkpoint()
    if how == "gone":
        connection = next(iter(running.server._places))
        connection.close()
    else:
        running.server.stop_reading()
    await settle()
    assert handler.ended_after == [handler.pieces]
    assert handler.pieces < 10
    assert len(running.ended) == 1
    nursery.cancel_scope.cancel()
