"""One queue that this client reads for its group: what is out, and how far all before it is done.

    took_in()        hand out             finished()
    pulled --------> unfinished ---------------------> done
                         |
                         v
               `commit_offset`: the first of them, or what is pulled next

The invariant: **no message before `commit_offset` is unfinished.** So a client that takes the queue
over from there misses none, and gets again what was done out of turn.

Source: RocketMQ 5.3.3, ProcessQueue.
"""

from collections.abc import Iterable

from tandem.client.results import MessageQueue
from tandem.wire.message import MessageExt


class ProcessQueue:
    """The unfinished messages of a queue, from the moment this client gets it until it loses it."""

    def __init__(self, queue: MessageQueue, offset: int) -> None:
        self.queue = queue
        self.is_dropped = False
        """True when this client has lost the queue, or reads it from elsewhere: nothing that is
        still out counts any more."""
        self.committed: int | None = None
        """What the group's offset was set to last."""
        self.bytes_count = 0
        self._next = offset
        self._unfinished: dict[int, int] = {}

    def took_in(self, messages: Iterable[MessageExt], next_offset: int) -> None:
        """Note what was pulled, in the order of its offsets, and where the next pull begins."""
        for message in messages:
            size = len(message.body)
            self._unfinished[message.queue_offset] = size
            self.bytes_count += size
        self._next = next_offset

    def finished(self, queue_offset: int) -> None:
        """Note that one is done. That it is done twice is no error."""
        self.bytes_count -= self._unfinished.pop(queue_offset, 0)

    def is_unfinished(self, queue_offset: int) -> bool:
        """True if this message is out or waits."""
        return queue_offset in self._unfinished

    @property
    def unfinished_count(self) -> int:
        """How many messages are out or wait."""
        return len(self._unfinished)

    @property
    def commit_offset(self) -> int:
        """What the group's offset may be set to: everything before it is done."""
        # Offsets are taken in ascending, so the first that is left is the lowest.
        return next(iter(self._unfinished), self._next)
