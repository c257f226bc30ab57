"""What a worker process of Spark keeps from one task of the sink to the next: an open client.

A micro-batch of a thousand rows is sent in some milliseconds. To start an event loop, to ask a name
server for the route over a connection of its own and to connect to the broker takes as long again.
So a task whose rows are all stored leaves its client here, and the next one that sends to the same
cluster in the same process takes it over. One that ended in any other way leaves none.

With `skipCommittedBatches` a task asks by the same client which micro-batches are written, and the
driver's process that ends a micro-batch keeps one likewise.

A client has its event loop in a thread of its own, where requests leave and answers come in while
the task waits for rows. Between tasks it does what every client does: it sees that a connection has
ended, sends a heartbeat and asks for its routes again after half a minute. It ends with its worker.
"""

import atexit
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar, TypeVarTuple

from anyio.from_thread import start_blocking_portal

from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.cluster_access import ClusterAccess
from tandem.client.event_loop import LoopClock
from tandem.spark.sink.options import SinkOptions
from tandem.spark.worker_words import is_worker

CLIENTS_MAX: Final = 4
"""Clusters, or users and groups of one, whose clients are kept at once: those used last."""

Given = TypeVarTuple("Given")
T = TypeVar("T")

Place = tuple[ClusterAccess, str]


class SinkClient:
    """Core and shell of a client, between `open` and `close`, in whatever event loop."""

    def __init__(self, options: SinkOptions, open_stream: StreamOpener | None = None) -> None:
        self.place: Place = (options.access, options.group)
        self.core = options.access.core(LoopClock(), producer_group=options.group)
        self.shell = AsyncShell(self.core, open_stream)

    async def open(self) -> None:
        """Let it begin."""
        await self.shell.open()

    async def close(self, *, politely: bool) -> None:
        """End it, with all that is under way. `politely`: tell the brokers first."""
        await self.shell.close(politely=politely)

    def forget_routes(self, *, but: Collection[str]) -> None:
        """Forget the routes of all topics but these: each costs a question every half a minute."""
        for topic in self.core.routes.keys() - but:
            del self.core.routes[topic]


class ClientThread:
    """A client whose event loop has a thread of its own. It belongs to the caller's thread."""

    def __init__(self, options: SinkOptions, open_stream: StreamOpener | None = None) -> None:
        with ExitStack() as opened:
            self._portal = opened.enter_context(start_blocking_portal(name="tandem sink"))
            self.client = SinkClient(options, open_stream)
            self._portal.call(self.client.open)
            self._opened = opened.pop_all()

    def run(self, work: Callable[[*Given], Awaitable[T]], *args: *Given) -> T:
        """Run something in the client's event loop, and wait for its end."""
        return self._portal.call(work, *args)

    def close(self, *, politely: bool) -> None:
        """End the client, and then its thread."""
        with self._opened:
            self._portal.call(lambda: self.client.close(politely=politely))


class KeptClients:
    """Clients of this process by what they are to: a fork of it has none of them."""

    def __init__(self) -> None:
        self._clients: dict[tuple[int, Place], ClientThread] = {}

    def take(self, options: SinkOptions) -> ClientThread | None:
        """Take what an earlier task has left, if it has."""
        return self._clients.pop((os.getpid(), (options.access, options.group)), None)

    def leave(self, thread: ClientThread) -> None:
        """Leave a client to the next task; it has nothing under way."""
        if not self._clients:
            # A worker that no daemon has forked ends as every Python does: not while this runs.
            atexit.unregister(self.close)
            atexit.register(self.close)
        self._clients[os.getpid(), thread.client.place] = thread
        if len(self._clients) > CLIENTS_MAX:
            self._clients.pop(next(iter(self._clients))).close(politely=True)

    def close(self) -> None:
        """End all of them."""
        while self._clients:
            (process, _), thread = self._clients.popitem()
            if process == os.getpid():
                thread.close(politely=True)


_KEPT: Final = KeptClients()


@contextmanager
def lent_client(
    options: SinkOptions,
    kept: KeptClients | None = None,
    open_stream: StreamOpener | None = None,
) -> Iterator[ClientThread]:
    """Lend a client: in a worker the one that is `kept` there. It is kept unless the user fails."""
    if kept is None and is_worker():
        kept = _KEPT
    taken = kept.take(options) if kept is not None else None
    thread = taken or ClientThread(options, open_stream)
    is_over = False
    try:
        yield thread
        is_over = True
    finally:
        if is_over and kept is not None:
            kept.leave(thread)
        else:
            thread.close(politely=is_over)
