"""Consumers that pull: `PullConsumer` for trio, `BlockingPullConsumer` for plain code.

    async with PullConsumer(name_servers, group="readers") as consumer:
        async for message in consumer.messages("orders"):
            ...

There is no group rebalance: a consumer reads the queues that it is given. Offsets are
committed by the user (`update_consume_offset`), who alone knows when a message has been dealt with.
A message that its producer had to send twice is read twice: see `DuplicateFilter`.

Reads go to the master, and to another node while it cannot be reached. Offsets of a queue and of a
group are the master's word, which is waited for up to `SWITCH_MS` (see `tandem.client.pull_flow`).
"""

import time
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.blocking_shell import BlockingShell
from tandem.client.cluster_access import Cluster, ClusterAccess
from tandem.client.cursor import Cursor
from tandem.client.errors import ClientError
from tandem.client.event_loop import LoopClock
from tandem.client.faces import AsyncFace, BlockingFace
from tandem.client.plain_socket import SocketOpener, open_socket
from tandem.client.pull_answer import ALL_TAGS, wanted
from tandem.client.pull_flow import Puller, Start, StartFrom
from tandem.client.pull_operations import MAX_MSG_NUMS, SWITCH_MS, PullOperations, Pulls
from tandem.wire.message import MessageExt

SUSPEND_TIMEOUT_MS: Final = 15_000
"""How long a broker may hold a pull that finds nothing (RocketMQ's brokerSuspendMaxTimeMillis)."""

BLOCKING_SUSPEND_MS: Final = 500
"""The same where one thread follows all queues: another queue waits this long at most."""


class PullConsumer(AsyncFace, PullOperations):
    """Reads queues; any number of tasks may share one.

    Args:
        cluster: the name servers, "host:port", all of them; or a `ClusterAccess`.
        group: the consumer group, under which offsets are kept.
        open_stream: opens connections; tests put another network here.

    Every method raises `ClientError`: `RouteNotFoundError` if the topic has no broker,
    `ConnectionLostError` or `RequestTimeoutError` if none of them answers, `BrokerError` if one
    refuses. None of them changes anything but `update_consume_offset`.
    """

    def __init__(
        self, cluster: Cluster, group: str, *, open_stream: StreamOpener | None = None
    ) -> None:
        core = ClusterAccess.of(cluster).core(LoopClock(), consumer_group=group)
        self._puller = Puller(core, group)
        super().__init__(AsyncShell(core, open_stream), self._puller, Pulls(self._puller))

    async def messages(
        self,
        topic: str,
        *,
        start: StartFrom = "earliest",
        tags: str = ALL_TAGS,
        sql: str | None = None,
        until_end: bool = False,
        max_msg_nums: int = MAX_MSG_NUMS,
        open_timeout_ms: int = SWITCH_MS,
    ) -> AsyncGenerator[MessageExt, None]:
        """Iterate over the messages of all queues of a topic, in order within each queue.

        A broker that cannot be reached, or refuses for now, is asked again every second: reading
        follows a change of master, and never goes back. Use `contextlib.aclosing` if you leave the
        loop early and care when the pulling stops.

        Args:
            topic: what to read. Queues that are added later are not seen.
            start: "earliest", "latest", or "committed" (else the earliest).
            tags: as for `pull`.
            sql: likewise.
            until_end: stop at the messages that are there now, which are at least all that were
                acknowledged as replicated; else follow for ever.
            max_msg_nums: messages per pull.
            open_timeout_ms: how long to go on looking for masters that say where to begin and end.

        Raises:
            RouteNotFoundError: there is no such topic, or no master in time.
            OffsetBeyondEndError: the queue has become shorter than what was read from it, which no
                change of master does.
        """
        cursors = await self._shell.run(
            self._puller.open_cursors(
                topic,
                Start(start),
                wanted(tags, sql),
                until_end=until_end,
                timeout_seconds=open_timeout_ms / 1000,
            )
        )
        batches, received = anyio.create_memory_object_stream[list[MessageExt] | ClientError](0)
        scope = anyio.CancelScope()
        self._shell.tasks.start_soon(self._follow_all, cursors, max_msg_nums, batches, scope)
        with received:
            try:
                async for batch in received:
                    if isinstance(batch, ClientError):
                        raise batch
                    for message in batch:
                        yield message
            finally:
                # Before `received` is closed: a task that still hands something over would fail.
                scope.cancel()

    async def _follow_all(
        self,
        cursors: list[Cursor],
        max_msg_nums: int,
        batches: MemoryObjectSendStream[list[MessageExt] | ClientError],
        scope: anyio.CancelScope,
    ) -> None:
        with scope, batches:
            async with anyio.create_task_group() as group:
                for cursor in cursors:
                    group.start_soon(self._follow, cursor, max_msg_nums, batches)

    async def _follow(
        self,
        cursor: Cursor,
        max_msg_nums: int,
        batches: MemoryObjectSendStream[list[MessageExt] | ClientError],
    ) -> None:
        try:
            while not cursor.at_end:
                read = self._puller.read(cursor, max_msg_nums, SUSPEND_TIMEOUT_MS)
                if batch := await self._shell.run(read):
                    await batches.send(batch)
        except ClientError as error:
            await batches.send(error)


class BlockingPullConsumer(BlockingFace, PullOperations):
    """The same for plain code: no trio, one socket per broker, one request at a time.

    Use it as a context manager, from one thread. Arguments as for `PullConsumer`.
    """

    def __init__(self, cluster: Cluster, group: str, *, opener: SocketOpener = open_socket) -> None:
        core = ClusterAccess.of(cluster).core(time.monotonic, consumer_group=group)
        self._puller = Puller(core, group)
        super().__init__(BlockingShell(core, opener), self._puller, Pulls(self._puller))

    def messages(
        self,
        topic: str,
        *,
        start: StartFrom = "earliest",
        tags: str = ALL_TAGS,
        sql: str | None = None,
        until_end: bool = False,
        max_msg_nums: int = MAX_MSG_NUMS,
        open_timeout_ms: int = SWITCH_MS,
    ) -> Iterator[MessageExt]:
        """See `PullConsumer.messages`. The queues take turns; an idle one costs half a second."""
        cursors = self._shell.run(
            self._puller.open_cursors(
                topic,
                Start(start),
                wanted(tags, sql),
                until_end=until_end,
                timeout_seconds=open_timeout_ms / 1000,
            )
        )
        suspend_ms = 0
        while open_cursors := [cursor for cursor in cursors if not cursor.at_end]:
            found = False
            for cursor in open_cursors:
                batch = self._shell.run(self._puller.read(cursor, max_msg_nums, suspend_ms))
                found = found or bool(batch)
                yield from batch
            suspend_ms = 0 if found else BLOCKING_SUSPEND_MS
