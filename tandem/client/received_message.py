r"""A message that a consumer of a group was handed, and what becomes of it.

    handed out ---> done           the group's offset may pass it
               \--> retry          the group gets it again after a delay, as a new message
               \--> dead letter    it goes to %DLQ%group, for an operator

A message of which nothing is said is done when its reader asks for the next one.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from tandem.wire.message import MessageExt


class Delivery(Protocol):
    """One message in the hands of the user. Only the first word about it counts."""

    @property
    def is_lost(self) -> bool:
        """Whether another member has its queue now, and hands it out again."""

    def handling(self) -> AbstractContextManager[object]:
        """What is around the user's handler."""

    def put_back(self) -> None:
        """It was not handed out after all, and is the next."""

    def done(self) -> None:
        """It was handled."""

    async def retry(self, delay_seconds: float | None) -> None:
        """The group gets it again."""

    async def dead_letter(self) -> None:
        """Nobody gets it again."""


class ReceivedMessage(MessageExt, frozen=True):
    """A `MessageExt` of a `Consumer`.

    One that came from the group's retry topic has the topic that it was sent to first, and
    `reconsume_times` says how often it came back; `queue_id` and `queue_offset` are then those in
    the retry topic.
    """

    delivery: Delivery

    def done(self) -> None:
        """Say that it was handled. Taking the next message says so, too."""
        self.delivery.done()

    async def retry(self, delay_seconds: float | None = None) -> None:
        """Give it back: the group gets it again, as often as its settings say (16 times).

        Does not raise when no broker takes it back: then this consumer gets it again itself.

        Args:
            delay_seconds: rounded up to RocketMQ's delay levels (1 s, 5 s, 10 s, 30 s, 1 min, ...
                2 h); None: the broker's choice, 10 s at first and longer each time. In an ordered
                consumer its queue waits this long, 1 s by default, since nothing may overtake it.
        """
        await self.delivery.retry(delay_seconds)

    async def dead_letter(self) -> None:
        """Put it into the group's dead letters (`%DLQ%group`) without further tries.

        Raises:
            ClientError: no broker took it. It counts as not handled.
        """
        await self.delivery.dead_letter()
