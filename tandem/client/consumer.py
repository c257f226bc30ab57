"""`Consumer`: a member of a group that shares the queues of its topics, for trio and asyncio.

    async with Consumer(name_servers, group="billing") as consumer:
        async for message in consumer.subscribe("Orders", tags="a || b"):
            ...

The promise is **at least once**. The group's offset of a queue passes a message only when it was
handled, was given back to the group, or is a dead letter. Offsets are stored every
`commit_interval_ms`, when a queue goes to another member, and at the end. A member that dies costs
the messages that it handled since then, once more; one that leaves in an orderly way costs none
that it had finished.

    rebalance        every 20 s, and when the broker says that members came or went
      lost queue     what is left of it is dropped; its offset is stored
      new queue      read from the group's offset on; an ordered consumer locks it first
    pull             a task for each queue -> the inbox of its topic -> the user's tasks

Source: RocketMQ 5.3.3, DefaultMQPushConsumerImpl, RebalanceImpl,
ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Self

import anyio

from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.cluster_access import Cluster, ClusterAccess
from tandem.client.consumer_settings import (
    COMMIT_INTERVAL_MS,
    PULL_BATCH_SIZE,
    PULL_THRESHOLD_BYTES_FOR_QUEUE,
    PULL_THRESHOLD_FOR_QUEUE,
    ConsumerSettings,
    GroupStart,
    MessageModel,
)
from tandem.client.delivery import GroupDelivery
from tandem.client.errors import ClientError
from tandem.client.event_loop import LoopClock
from tandem.client.group_flow import Filter
from tandem.client.group_reader import GroupReader
from tandem.client.hooks import ConsumeHooks, ConsumeMessageHook
from tandem.client.identity import wall_clock_ms
from tandem.client.inbox import Item
from tandem.client.operator_requests import OperatorRequests
from tandem.client.pull_answer import ALL_TAGS
from tandem.client.received_message import ReceivedMessage
from tandem.client.results import MessageQueue
from tandem.client.subscription import Subscription
from tandem.client.trace_tasks import TraceTasks
from tandem.wire.errors import ArgumentError

logger = logging.getLogger(__name__)

CONCURRENCY: Final = 20
"""RocketMQ's consumeThreadMin and consumeThreadMax."""

Handler = Callable[[ReceivedMessage], Awaitable[object]]


class Consumer:
    """A member of a consumer group.

    Leaving the `async with` block stores the offsets and tells the brokers, so that the other
    members take over at once.

    Args:
        cluster: the name servers, "host:port", all of them; or a `ClusterAccess`.
        group: the consumer group. All its members subscribe to the same topics and filters.
        message_model: "clustering": the members share the queues. "broadcasting": each reads all
            of them, and keeps its offsets itself.
        orderly: one message of a queue at a time, and none before the one before it is done. The
            broker locks each queue for one member.
        start: where the group begins in a queue that it never read: "earliest", "latest" or a time
            in ms since 1970. (RocketMQ's default is the latest.)
        max_reconsume_times: how often a message may come back before it is a dead letter; None: as
            the group's settings say (16), and in an ordered consumer without end.
        pull_batch_size: messages of one pull, at most.
        pull_threshold_for_queue: unfinished messages of a queue, after which it is not pulled.
        pull_threshold_bytes_for_queue: the same in bytes of bodies.
        commit_interval_ms: how often offsets are stored.
        offsets_file: where a broadcasting consumer keeps its offsets; None: nowhere.
        trace: whether RocketMQ's message trace is written: of each message that is handled two
            records in `RMQ_SYS_TRACE_TOPIC`, or in the topic of this name.
        hooks: what else is called around consuming, see `tandem.client.hooks`.
        open_stream: opens connections; tests put another network here.
        wall_clock_ms: the time in heartbeats.

    Raises:
        ArgumentError: an argument is out of range.
        OffsetsFileError: `offsets_file` cannot be read.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        message_model: MessageModel = "clustering",
        orderly: bool = False,
        start: GroupStart = "earliest",
        max_reconsume_times: int | None = None,
        pull_batch_size: int = PULL_BATCH_SIZE,
        pull_threshold_for_queue: int = PULL_THRESHOLD_FOR_QUEUE,
        pull_threshold_bytes_for_queue: int = PULL_THRESHOLD_BYTES_FOR_QUEUE,
        commit_interval_ms: int = COMMIT_INTERVAL_MS,
        offsets_file: Path | str | None = None,
        trace: bool | str = False,
        hooks: Sequence[ConsumeMessageHook] = (),
        open_stream: StreamOpener | None = None,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        access = ClusterAccess.of(cluster)
        core = access.core(LoopClock(), consumer_group=group)
        self._client_id = core.identity.client_id
        self._settings = settings = ConsumerSettings(
            group,
            message_model,
            orderly,
            start,
            max_reconsume_times,
            pull_batch_size,
            pull_threshold_for_queue,
            pull_threshold_bytes_for_queue,
            commit_interval_ms,
        )
        self._shell = AsyncShell(core, open_stream)
        path = None if offsets_file is None else Path(offsets_file)
        self._reader = GroupReader(core, self._shell, settings, wall_clock_ms, path)
        self._traces = TraceTasks(self._shell, core, group, trace, wall_clock_ms)
        self._hooks = ConsumeHooks(group, (*hooks, *self._traces.hooks))
        OperatorRequests(
            self._reader,
            core.broker_requests,
            name_servers=";".join(access.addresses),
            started_ms=wall_clock_ms(),
        )

    async def __aenter__(self) -> Self:
        await self._shell.open()
        self._reader.start()
        self._traces.open()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            try:
                await self._reader.stop()
            finally:
                self._hooks.close()
            await self._traces.close(error_type)
        finally:
            await self._shell.close(politely=True)

    def subscribe(
        self, topic: str, *, tags: str = ALL_TAGS, sql: str | None = None
    ) -> Subscription:
        """Read a topic with the group; iterate over what is returned, in one task or in many.

        A topic that does not exist yet is looked for every second.

        Args:
            topic: which.
            tags: `TagA || TagB`, or `*` for all.
            sql: an SQL92 expression over the properties, instead of tags:
                `amount > 100 AND region = 'north'`.

        Raises:
            ArgumentError: the topic is subscribed already, with another filter; or both filters are
                given.
        """
        if sql is not None and tags != ALL_TAGS:
            text = "tags and an SQL92 expression cannot be given both; say TAGS = 'a' in it"
            raise ArgumentError(text, "tags", "sql")
        wanted = Filter(topic, tags, sql)
        return Subscription(wanted, self._reader.subscribe(wanted), self._hand_out)

    async def consume(
        self,
        topic: str,
        handler: Handler,
        *,
        tags: str = ALL_TAGS,
        sql: str | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """Call `handler` with each message, until cancelled or until `stop`.

        A message whose handler returns is done. One whose handler raises goes back to the group,
        which gets it again later (see `ReceivedMessage.retry`), and the error is logged.

        Args:
            topic: which.
            handler: an async function.
            tags: as for `subscribe`.
            sql: as for `subscribe`.
            concurrency: how many messages are being handled at once, at most. An ordered consumer
                handles one of each queue.

        Raises:
            ClientError: a broker refuses to be read, and that does not pass by itself.
            ArgumentError: as for `subscribe`; or `concurrency` is below 1.
        """
        if concurrency < 1:
            raise ArgumentError(f"concurrency is {concurrency}; it is 1 or more", "concurrency")
        subscription = self.subscribe(topic, tags=tags, sql=sql)
        failures: list[ClientError] = []

        async def work() -> None:
            try:
                await self._handle_all(subscription, handler)
            except ClientError as error:
                # The same for all of them: the caller gets it once, and not in a group.
                failures.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(concurrency):
                group.start_soon(work)
        if failures:
            raise failures[0]

    async def _handle_all(self, subscription: Subscription, handler: Handler) -> None:
        async for message in subscription:
            try:
                with message.delivery.handling():
                    await handler(message)
            except Exception:  # the user's code may raise anything; the message is given back
                logger.exception(
                    "message %s of topic %s could not be handled and %s",
                    message.msg_id,
                    message.topic,
                    self._settings.fate_of_failed(message.reconsume_times),
                )
                await message.retry()

    def stop(self) -> None:
        """Let every loop over messages end when it asks for the next one."""
        self._reader.end()

    @property
    def client_id(self) -> str:
        """The name of this member in lists of the group: `ip@process#number`."""
        return self._client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now, those of the group's retry topic among them."""
        readers = self._reader.readers
        return sorted(each for each in readers if not readers[each].process_queue.is_dropped)

    async def commit(self) -> None:
        """Store the group's offsets now, and not only every `commit_interval_ms`."""
        await self._reader.commit(list(self._reader.readers.values()))

    async def lag(self) -> dict[MessageQueue, int]:
        """Return how many messages of each queue of this member were not handled yet.

        Below 0 where the member is past the end of the queue.

        Raises:
            ClientError: no master says where a queue ends.
        """
        return await self._reader.lag()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue of this member from `offset` on. Messages being handled may come again.

        Raises:
            ArgumentError: this member does not have the queue, or the offset is negative.
        """
        reader = self._reader.readers.get(queue)
        if reader is None:
            raise ArgumentError(f"{queue} is not read by this member; see `assignment`", "queue")
        if offset < 0:
            raise ArgumentError(f"offset is {offset}; it is 0 or more", "offset")
        self._reader.move(reader, offset)

    def _hand_out(self, item: Item) -> ReceivedMessage:
        return GroupDelivery(self._reader, *item, hooks=self._hooks).message
