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
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final, Self

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.blocking_shell import BlockingShell, SocketOpener, open_socket
from tandem.client.core import SWITCH_SECONDS, ClientCore, parse_addresses
from tandem.client.credentials import Credentials
from tandem.client.cursor import Cursor
from tandem.client.errors import ClientError
from tandem.client.event_loop import LoopClock
from tandem.client.identity import ClientIdentity, local_identity
from tandem.client.pull_answer import ALL_TAGS, wanted
from tandem.client.pull_flow import Puller, Start, StartFrom
from tandem.client.results import MessageQueue, PullResult
from tandem.wire.message import MessageExt

MAX_MSG_NUMS: Final = 32
"""RocketMQ's pullBatchSize."""

SUSPEND_TIMEOUT_MS: Final = 15_000
"""How long a broker may hold a pull that finds nothing (RocketMQ's brokerSuspendMaxTimeMillis)."""

SWITCH_MS: Final = round(SWITCH_SECONDS * 1000)
"""How long is waited for a master by default."""

BLOCKING_SUSPEND_MS: Final = 500
"""The same where one thread follows all queues: another queue waits this long at most."""


class PullConsumer:
    """Reads queues; any number of tasks may share one.

    Args:
        name_servers: the addresses of all of them, "host:port"; each knows who registered there.
        group: the consumer group, under which offsets are kept.
        open_stream: opens connections; tests put another network here.
        identity: who this client is; default: this process, with a random number.
        access_key: with `secret_key`, who signs the requests, for brokers that ask for that.
        secret_key: its secret.

    Every method raises `ClientError`: `RouteNotFoundError` if the topic has no broker,
    `ConnectionLostError` or `RequestTimeoutError` if none of them answers, `BrokerError` if one
    refuses. None of them changes anything but `update_consume_offset`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        *,
        open_stream: StreamOpener | None = None,
        identity: ClientIdentity | None = None,
        access_key: str = "",
        secret_key: str = "",
    ) -> None:
        core = ClientCore(
            name_servers,
            identity=identity or local_identity(parse_addresses(name_servers)[0]),
            clock=LoopClock(),
            consumer_group=group,
            credentials=Credentials.of(access_key, secret_key),
        )
        self._puller = Puller(core, group)
        self._shell = AsyncShell(core, open_stream)

    async def __aenter__(self) -> Self:
        await self._shell.open()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self._shell.close(politely=error_type is None)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted; a master's are waited for."""
        return await self._shell.run(self._puller.fetch_message_queues(topic))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that the master still has."""
        return await self._shell.run(self._puller.min_offset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be written.

        In a fenced group everything that was acknowledged as replicated is before it.
        """
        return await self._shell.run(self._puller.max_offset(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a time; the max offset if there is none."""
        return await self._shell.run(self._puller.search_offset(queue, timestamp_ms))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int = MAX_MSG_NUMS,
        tags: str = ALL_TAGS,
        suspend_timeout_ms: int = 0,
        *,
        sql: str | None = None,
    ) -> PullResult:
        """Ask once for messages from `offset` on; the bounds in the answer are the asked node's.

        The answer passes over messages only if the master has deleted them as well.

        Args:
            queue: where.
            offset: the first wanted, counted in messages.
            max_msg_nums: the broker may give fewer, also because of their size.
            tags: `TagA || TagB`, or `*` for all.
            suspend_timeout_ms: how long the broker holds the request if there is nothing new; 0:
                not at all.
            sql: instead of tags, an expression over the properties: "a > 5 AND b = 'x'" (SQL92).
                The broker needs `enable_property_filter`, else it refuses.

        Raises:
            CompressedBodyError: a body is compressed with a codec that is not built in.
        """
        return await self._shell.run(
            self._puller.pull(queue, offset, max_msg_nums, wanted(tags, sql), suspend_timeout_ms)
        )

    async def fetch_consume_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's offset in a queue, None if the master knows none."""
        return await self._shell.run(self._puller.fetch_consume_offset(queue))

    async def update_consume_offset(
        self, queue: MessageQueue, offset: int, *, timeout_ms: int = SWITCH_MS
    ) -> None:
        """Set the group's offset: that of the next message to consume.

        Returns when the master has taken it. While there is none it is tried again, for this many
        milliseconds: a change of master takes up to 8 s. A new master gets the offset again, unless
        it knows a higher offset, so this consumer's commits do not go back.
        """
        await self._shell.run(self._puller.update_consume_offset(queue, offset, timeout_ms / 1000))

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


class BlockingPullConsumer:
    """The same for plain code: no trio, one socket per broker, one request at a time.

    Use it as a context manager, from one thread. Arguments as for `PullConsumer`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        *,
        opener: SocketOpener = open_socket,
        identity: ClientIdentity | None = None,
        access_key: str = "",
        secret_key: str = "",
    ) -> None:
        core = ClientCore(
            name_servers,
            identity=identity or local_identity(parse_addresses(name_servers)[0]),
            clock=time.monotonic,
            consumer_group=group,
            credentials=Credentials.of(access_key, secret_key),
        )
        self._puller = Puller(core, group)
        self._shell = BlockingShell(core, opener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.close()

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """See `PullConsumer.fetch_message_queues`."""
        return self._shell.run(self._puller.fetch_message_queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """See `PullConsumer.min_offset`."""
        return self._shell.run(self._puller.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """See `PullConsumer.max_offset`."""
        return self._shell.run(self._puller.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """See `PullConsumer.search_offset`."""
        return self._shell.run(self._puller.search_offset(queue, timestamp_ms))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int = MAX_MSG_NUMS,
        tags: str = ALL_TAGS,
        suspend_timeout_ms: int = 0,
        *,
        sql: str | None = None,
    ) -> PullResult:
        """See `PullConsumer.pull`."""
        return self._shell.run(
            self._puller.pull(queue, offset, max_msg_nums, wanted(tags, sql), suspend_timeout_ms)
        )

    def fetch_consume_offset(self, queue: MessageQueue) -> int | None:
        """See `PullConsumer.fetch_consume_offset`."""
        return self._shell.run(self._puller.fetch_consume_offset(queue))

    def update_consume_offset(
        self, queue: MessageQueue, offset: int, *, timeout_ms: int = SWITCH_MS
    ) -> None:
        """See `PullConsumer.update_consume_offset`."""
        self._shell.run(self._puller.update_consume_offset(queue, offset, timeout_ms / 1000))

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
