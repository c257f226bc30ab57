"""A put that comes beside others costs few steps of Python: counted with real sockets, not timed.

What is counted is all that the process of a master does from the moment its sockets have something
until the answers are with the system: trio, the read loop, the run, the wait for a slave. The slave
is a waiter that says at once that it has everything.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from typing import Final

import pytest
import trio

from node.handlers.send_runs import SendRunHandler, send_runs
from node.remoting.server import Server
from store import PutMessageStatus
from store.machine.tcp_network import TCPNetwork
from tandem.wire import native
from tandem.wire.message import Host
from tests.node.handlers.send_node import Node, frame
from tests.node.handlers.send_requests import Waiters
from tests.support.patience import PATIENCE_SECONDS
from tests.support.python_steps import StepCounter

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

WARM_ROUNDS: Final = 2

STEPS: Final = {1: 3_900, 4: 1_270, 16: 380, 64: 157, 128: 120}
"""By puts in a round: how many steps each takes at most, a tenth more than it is."""


class Master:
    """A server on real sockets, and clients with one put in flight each."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self.waiters = Waiters()
        self.node = node = Node(waiters=self.waiters)
        self._stack = stack
        self._count = count
        broker = node.broker
        runs = send_runs(broker.store, suffix=broker.stamp.suffix, host=broker.host)
        handler = SendRunHandler(broker.store, broker.tables, node.replication, node.send, runs)
        node.dispatcher.take_together = handler.take_together
        for queue_id in range(4):
            node.put("T", queue_id)
        self._end = broker.store.max_physical_offset
        assert runs is not None
        assert runs.find(frame(0, b"x" * 1_024), 0)
        self._record_bytes = runs.record_bytes(Host("127.0.0.1", 1).packed)
        self._server = Server(
            broker.outbox,
            connections_max=1_000,
            after_round=node.end_round,
            on_closed=lambda _: None,
        )
        self.clients: list[socket.socket] = []

    async def open(self, nursery: trio.Nursery) -> None:
        """Have all clients connected."""
        listener = await TCPNetwork().listen("127.0.0.1", 0)
        nursery.start_soon(self._server.listen, listener, self.node.dispatcher, nursery)
        for _ in range(self._count):
            client = socket.create_connection(("127.0.0.1", listener.port))
            self.clients.append(self._stack.enter_context(client))
            await trio.lowlevel.checkpoint()
        while self._server.connections_count < self._count:
            await trio.lowlevel.checkpoint()

    def send(self, number: int) -> None:
        """Have one put come on each connection."""
        for client, one in enumerate(self.clients):
            one.sendall(frame(number * 1_000 + client, b"x" * 1_024, queue_id=client % 4))

    async def handle(self) -> None:
        """Handle what came, up to the answers."""
        self._end += self._count * self._record_bytes
        while self.node.broker.store.max_physical_offset < self._end:
            await trio.lowlevel.checkpoint()
        assert self.node.broker.store.max_physical_offset == self._end
        self.waiters.answer(PutMessageStatus.PUT_OK)
        self.node.broker.outbox.flush()

    def take_answers(self) -> None:
        """Take one on each connection."""
        for client in self.clients:
            assert client.recv(4_096)


@pytest.mark.parametrize("count", STEPS)
def test_a_put_beside_others_takes_few_steps(count: int) -> None:
    counted: list[float] = []

    async def rounds() -> None:
        with ExitStack() as stack:
            master = Master(stack, count)
            with trio.fail_after(PATIENCE_SECONDS):
                async with trio.open_nursery() as nursery:
                    await master.open(nursery)
                    for number in range(WARM_ROUNDS):
                        master.send(number)
                        await master.handle()
                        master.take_answers()
                    master.send(WARM_ROUNDS)
                    counter = StepCounter()
                    counter.start()
                    await master.handle()
                    counted.append(counter.stop() / count)
                    master.take_answers()
                    nursery.cancel_scope.cancel()

    trio.run(rounds)
    sys.stdout.write(f"{count} puts in a round: {counted[0]:.0f} steps each\n")
    assert counted[0] <= STEPS[count]
