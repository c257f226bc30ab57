"""`BlockingConsumer`: a member of a group for plain code and threads.

    with BlockingConsumer(name_servers, group="billing") as consumer:
        for message in consumer.subscribe("Orders"):
            ...

It is a `Consumer` whose event loop runs in a thread of its own: pulls, heartbeats and offsets go on
while the user's code is busy. Every method may be called from any thread.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import anyio.to_thread
import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tandem.client.asyncio_loop import call_soon_from_threads
from tandem.client.cluster_access import Cluster
from tandem.client.consumer import CONCURRENCY, Consumer
from tandem.client.consumer_settings import (
    COMMIT_INTERVAL_MS,
    PULL_BATCH_SIZE,
    PULL_THRESHOLD_BYTES_FOR_QUEUE,
    PULL_THRESHOLD_FOR_QUEUE,
    GroupStart,
    MessageModel,
)
from tandem.client.errors import NotOpenError
from tandem.client.home_process import HomeProcess
from tandem.client.hooks import ConsumeMessageHook
from tandem.client.pull_answer import ALL_TAGS
from tandem.client.received_message import ReceivedMessage
from tandem.client.results import MessageQueue
from tandem.client.subscription import Subscription
from tandem.wire.message import MessageExt

TAKEN_AT_ONCE_MAX: Final = 16
"""How many messages change threads together."""


class BlockingReceivedMessage(MessageExt, frozen=True):
    """A `ReceivedMessage` for plain code."""

    received: ReceivedMessage
    portal: BlockingPortal

    def done(self) -> None:
        """See `ReceivedMessage.done`."""
        self.portal.call(self.received.done)

    def retry(self, delay_seconds: float | None = None) -> None:
        """See `ReceivedMessage.retry`."""
        self.portal.call(self.received.retry, delay_seconds)

    def dead_letter(self) -> None:
        """See `ReceivedMessage.dead_letter`."""
        self.portal.call(self.received.dead_letter)


BlockingHandler = Callable[[BlockingReceivedMessage], object]


def _for_plain_code(message: ReceivedMessage, portal: BlockingPortal) -> BlockingReceivedMessage:
    fields = msgspec.structs.asdict(message)
    del fields["delivery"]
    return BlockingReceivedMessage(**fields, received=message, portal=portal)


class BlockingSubscription:
    """A `Subscription` for plain code: several threads may iterate over one."""

    def __init__(self, subscription: Subscription, portal: BlockingPortal) -> None:
        self._subscription = subscription
        self._portal = portal
        self._ahead: deque[ReceivedMessage] = deque()
        """Taken from the event loop and not handed out: a change of threads for each is slow."""
        self._call_soon = portal.call(call_soon_from_threads)

    @property
    def topic(self) -> str:
        """The topic."""
        return self._subscription.topic

    def __iter__(self) -> Iterator[BlockingReceivedMessage]:
        return _Messages(self)

    def next_message(self, done: ReceivedMessage | None) -> BlockingReceivedMessage | None:
        """Note that `done` was handled; return the next message, None after `stop`."""
        if done is not None:
            self._call_soon(done.done)
        while True:
            try:
                message = None if self._subscription.is_over else self._ahead.popleft()
            except IndexError:
                message = None
            if message is None:
                taken = self._portal.call(self._subscription.take_some, TAKEN_AT_ONCE_MAX)
                if not taken:
                    return None
                self._ahead.extend(taken)
            elif message.delivery.is_lost:
                self._call_soon(message.delivery.put_back)  # where it is left out
            else:
                return _for_plain_code(message, self._portal)

    def pause(self) -> None:
        """See `Subscription.pause`."""
        self._portal.call(self._pause)

    def _pause(self) -> None:
        self._subscription.pause()
        self.put_back()

    def put_back(self) -> None:
        """Have what is not handed out yet be the next of its topic. In the event loop only."""
        ahead: list[ReceivedMessage] = []
        while self._ahead:
            ahead.append(self._ahead.popleft())
        self._subscription.put_back(ahead)

    def resume(self) -> None:
        """See `Subscription.resume`."""
        self._portal.call(self._subscription.resume)


class _Messages:
    """One thread's way through the messages of a subscription."""

    def __init__(self, subscription: BlockingSubscription) -> None:
        self._subscription = subscription
        self._in_hand: BlockingReceivedMessage | None = None

    def __iter__(self) -> "_Messages":
        return self

    def __next__(self) -> BlockingReceivedMessage:
        done = None if self._in_hand is None else self._in_hand.received
        self._in_hand = None
        self._in_hand = self._subscription.next_message(done)
        if self._in_hand is None:
            raise StopIteration
        return self._in_hand


class BlockingConsumer:
    """A member of a consumer group for plain code. Arguments and errors as for `Consumer`."""

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
    ) -> None:
        self._consumer = Consumer(
            cluster,
            group,
            message_model=message_model,
            orderly=orderly,
            start=start,
            max_reconsume_times=max_reconsume_times,
            pull_batch_size=pull_batch_size,
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_bytes_for_queue=pull_threshold_bytes_for_queue,
            commit_interval_ms=commit_interval_ms,
            offsets_file=offsets_file,
            trace=trace,
            hooks=hooks,
        )
        self._open_portal: BlockingPortal | None = None
        self._subscriptions: list[BlockingSubscription] = []
        self._exit = ExitStack()
        self._home = HomeProcess()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._open_portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._open_portal.wrap_async_context_manager(self._consumer))
            stack.callback(self._open_portal.call, self._put_back)
            self._exit = stack.pop_all()
        return self

    def _put_back(self) -> None:
        self._consumer.stop()
        for subscription in self._subscriptions:
            subscription.put_back()

    def __exit__(self, *error: object) -> None:
        if self._home.is_here:  # the thread that could close it is in no fork
            self._exit.close()
        self._open_portal = None

    @property
    def _portal(self) -> BlockingPortal:
        self._home.check()
        if self._open_portal is None:
            raise NotOpenError('the client is not open; use it with "with"')
        return self._open_portal

    def subscribe(
        self, topic: str, *, tags: str = ALL_TAGS, sql: str | None = None
    ) -> BlockingSubscription:
        """See `Consumer.subscribe`."""

        def subscribe() -> Subscription:
            return self._consumer.subscribe(topic, tags=tags, sql=sql)

        subscription = BlockingSubscription(self._portal.call(subscribe), self._portal)
        self._subscriptions.append(subscription)
        return subscription

    def consume(
        self,
        topic: str,
        handler: BlockingHandler,
        *,
        tags: str = ALL_TAGS,
        sql: str | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """See `Consumer.consume`; here `handler` is a plain function, called in worker threads."""
        portal = self._portal

        async def consume() -> None:
            threads = anyio.CapacityLimiter(max(concurrency, 1))

            async def handle(message: ReceivedMessage) -> None:
                plain = _for_plain_code(message, portal)
                await anyio.to_thread.run_sync(handler, plain, limiter=threads)

            await self._consumer.consume(topic, handle, tags=tags, sql=sql, concurrency=concurrency)

        portal.call(consume)

    def stop(self) -> None:
        """See `Consumer.stop`."""
        self._portal.call(self._consumer.stop)

    @property
    def client_id(self) -> str:
        """See `Consumer.client_id`."""
        return self._consumer.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """See `Consumer.assignment`."""
        return self._portal.call(lambda: self._consumer.assignment)

    def commit(self) -> None:
        """See `Consumer.commit`."""
        self._portal.call(self._consumer.commit)

    def lag(self) -> dict[MessageQueue, int]:
        """See `Consumer.lag`."""
        return self._portal.call(self._consumer.lag)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """See `Consumer.seek`."""
        self._portal.call(self._consumer.seek, queue, offset)
