"""What was pulled and waits for a task that takes it, in the order in which it came.

Several tasks may take from one inbox. A task that finds nothing sleeps, and one is woken for each
message that comes.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from tandem.client.event_loop import Parked
from tandem.client.queue_reader import QueueReader
from tandem.wire.message import MessageExt

TAKEN_WITHOUT_SLEEPING_MAX: Final = 16
"""How many messages one task takes in a row before others have their turn."""

Item = tuple[QueueReader, MessageExt]


class Inbox:
    """The messages of one subscription that nobody has taken."""

    def __init__(self, park: Callable[[], Parked]) -> None:
        self._park = park
        self._items: deque[Item] = deque()
        self._takers: deque[Parked] = deque()
        self.is_paused = False
        self.is_over = False
        self.error: Exception | None = None

    def offer(self, reader: QueueReader, message: MessageExt) -> None:
        """Put a message at the end."""
        self._items.append((reader, message))
        if not self.is_paused:
            self._wake_one()

    def put_back(self, reader: QueueReader, message: MessageExt) -> None:
        """Put a message at the front: it was taken, and not handed out."""
        self._items.appendleft((reader, message))
        if not self.is_paused:
            self._wake_one()

    def take(self) -> Item | None:
        """Return the first message that still counts, None if there is none now."""
        if self.is_paused or self.is_over:
            return None
        while self._items:
            item = self._items.popleft()
            if item[0].may_still_go_out(item[1]):
                return item
        return None

    def forget_lost(self) -> None:
        """Let go of messages whose queues were lost, which nobody may have taken for long."""
        if any(reader.process_queue.is_dropped for reader, _ in self._items):
            self._items = deque(
                each for each in self._items if not each[0].process_queue.is_dropped
            )

    async def wait(self) -> None:
        """Sleep until there may be something to take, or the inbox ends."""
        parked = self._park()
        self._takers.append(parked)

        def forget() -> None:
            if parked in self._takers:
                self._takers.remove(parked)
            elif self._items:
                # It was woken for a message that another has to take now.
                self._wake_one()

        await parked.wait(forget)

    def pause(self) -> None:
        """Hand out nothing until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Hand out again."""
        self.is_paused = False
        for _ in range(min(len(self._items), len(self._takers))):
            self._wake_one()

    def end(self, error: Exception | None = None) -> None:
        """Hand out nothing any more; every task that takes learns it."""
        self.is_over = True
        self.error = self.error or error
        while self._takers:
            self._wake_one()

    def _wake_one(self) -> None:
        if self._takers:
            self._takers.popleft().wake(None)
