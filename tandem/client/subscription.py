"""What a consumer reads of one topic: an iterator of messages for one task or for many.

    async for message in consumer.subscribe("Orders", tags="a || b"):
        ...

Taking the next message says that the one before it was handled. A loop that is left, by `break` or
by an exception, leaves its last message unhandled: the group gets it again. `message.done()` says
otherwise.
"""

from collections.abc import AsyncIterator, Callable

import anyio

from tandem.client.group_flow import Filter
from tandem.client.inbox import TAKEN_WITHOUT_SLEEPING_MAX, Inbox, Item
from tandem.client.received_message import ReceivedMessage


class Subscription:
    """The messages of one topic for this member of the group.

    Several tasks may iterate over it, each with an `async for` of its own; each message goes to one
    of them.
    """

    def __init__(
        self, wanted: Filter, inbox: Inbox, hand_out: Callable[[Item], ReceivedMessage]
    ) -> None:
        self.wanted = wanted
        self._inbox = inbox
        self._hand_out = hand_out

    @property
    def topic(self) -> str:
        """The topic."""
        return self.wanted.topic

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return _Messages(self._inbox, self._hand_out)

    def pause(self) -> None:
        """Take no messages until `resume`. The queues stay this member's."""
        self._inbox.pause()

    def resume(self) -> None:
        """Go on."""
        self._inbox.resume()


class _Messages:
    """One task's way through the messages of a subscription."""

    def __init__(self, inbox: Inbox, hand_out: Callable[[Item], ReceivedMessage]) -> None:
        self._inbox = inbox
        self._hand_out = hand_out
        self._in_hand: ReceivedMessage | None = None
        self._taken_in_a_row = 0

    def __aiter__(self) -> "_Messages":
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._in_hand is not None:
            self._in_hand.done()
            self._in_hand = None
        self._in_hand = self._hand_out(await self._next_item())
        return self._in_hand

    async def _next_item(self) -> Item:
        inbox = self._inbox
        self._taken_in_a_row += 1
        if self._taken_in_a_row >= TAKEN_WITHOUT_SLEEPING_MAX:
            self._taken_in_a_row = 0
            await anyio.lowlevel.checkpoint()
        while (item := inbox.take()) is None:
            if inbox.error is not None:
                raise inbox.error
            if inbox.is_over:
                raise StopAsyncIteration
            self._taken_in_a_row = 0
            await inbox.wait()
        return item
