"""Reads one queue for a member of a group: pulls, and puts what it finds into an inbox.

    CONCURRENT    everything that was pulled is offered at once
    ORDERLY       one message at a time, and only while this client holds the queue's lock

The lock of a queue lasts for a minute at the broker and counts for half of that here, so that two
members never hold it by their own clocks.

Source: RocketMQ 5.3.3, PullMessageService, ProcessQueue, ConsumeMessageOrderlyService.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from tandem.client.async_shell import AsyncShell
from tandem.client.consumer_settings import SUSPEND_TIMEOUT_MS, ConsumerSettings
from tandem.client.cursor import Cursor
from tandem.client.process_queue import ProcessQueue
from tandem.client.pull_flow import Puller
from tandem.client.results import MessageQueue
from tandem.wire.message import MessageExt

LOCK_LIVES_SECONDS: Final = 30.0
"""RocketMQ's rebalanceLockMaxLiveTime."""

Deliver = Callable[["QueueReader", MessageExt], None]


class QueueReader:
    """One queue that this member has, from the moment it gets it until it loses it."""

    def __init__(
        self,
        cursor: Cursor,
        settings: ConsumerSettings,
        deliver: Deliver,
        clock: Callable[[], float],
    ) -> None:
        self.process_queue = ProcessQueue(cursor.queue, cursor.offset)
        self.scope = anyio.CancelScope()
        self.in_hand_count = 0
        """How many messages the user has and has said nothing about."""
        self._cursor = cursor
        self._settings = settings
        self._deliver = deliver
        self._clock = clock
        self.locked_until = -math.inf if settings.orderly else math.inf
        """Until when the lock of an ordered queue counts, by the loop's clock."""
        self.dropped_at = math.inf
        """When the queue was lost, by the loop's clock."""
        self._line: deque[MessageExt] = deque()
        self._is_one_out = False
        self._tries: dict[int, int] = {}
        self._room: anyio.Event | None = None
        """What the reader waits for while too much is unfinished."""

    @property
    def queue(self) -> MessageQueue:
        """Which queue."""
        return self.process_queue.queue

    async def run(self, shell: AsyncShell, puller: Puller) -> bool:
        """Pull until cancelled; return True if an operator has moved the group meanwhile.

        Raises:
            ClientError: a refusal that does not pass by itself; see `Puller.read`.
        """
        with self.scope:
            while True:
                while not self._has_room:
                    self._room = anyio.Event()
                    await self._room.wait()
                self._room = None
                batch_size = self._settings.pull_batch_size
                messages = await shell.run(
                    puller.read(self._cursor, batch_size, SUSPEND_TIMEOUT_MS)
                )
                if self._cursor.was_reset:
                    return True
                self.process_queue.took_in(messages, self._cursor.offset)
                if self._settings.orderly:
                    self._line.extend(messages)
                    self.let_next_out()
                else:
                    for message in messages:
                        self._deliver(self, message)
        return False

    @property
    def next_offset(self) -> int:
        """Where the next pull begins."""
        return self._cursor.offset

    @property
    def _has_room(self) -> bool:
        return (
            self.process_queue.unfinished_count < self._settings.pull_threshold_for_queue
            and self.process_queue.bytes_count < self._settings.pull_threshold_bytes_for_queue
        )

    def finished(self, queue_offset: int) -> None:
        """A message is done: there is room for another, and the next of an ordered queue is out."""
        self.process_queue.finished(queue_offset)
        if self._room is not None and self._has_room:
            self._room.set()
        if self._settings.orderly:
            self._tries.pop(queue_offset, None)
            self._is_one_out = False
            self.let_next_out()

    def again(self, message: MessageExt) -> None:
        """Hand the same message out once more, unless the queue was lost."""
        if self.process_queue.is_dropped:
            return
        self._tries[message.queue_offset] = self._tries.get(message.queue_offset, 0) + 1
        if self._settings.orderly:
            # First in line, and not past it: the lock may have ended meanwhile.
            self._line.appendleft(message)
            self._is_one_out = False
            self.let_next_out()
        else:
            self._deliver(self, message)

    def tries_here(self, queue_offset: int) -> int:
        """How often a message was handed out again by this client."""
        return self._tries.get(queue_offset, 0)

    def locked(self) -> None:
        """The broker has just granted this queue, or granted it again."""
        self.locked_until = self._clock() + LOCK_LIVES_SECONDS
        self.let_next_out()

    def let_next_out(self) -> None:
        """Hand out the next message of an ordered queue, if it is its turn."""
        if self._line and not self._is_one_out and self._clock() < self.locked_until:
            self._is_one_out = True
            self._deliver(self, self._line.popleft())

    def may_still_go_out(self, message: MessageExt) -> bool:
        """Whether a message that waited for a task may be handed out; else it waits for the lock.

        Not if its queue was lost, nor if the lock of an ordered queue has ended meanwhile.
        """
        if self.process_queue.is_dropped:
            return False
        if self.locked_until == math.inf or self._clock() < self.locked_until:
            return True
        self._line.appendleft(message)
        self._is_one_out = False
        return False

    def drop(self) -> None:
        """Stop. Requests under way do not count any more."""
        if not self.process_queue.is_dropped:
            self.process_queue.is_dropped = True
            self.dropped_at = self._clock()
        self.scope.cancel()
