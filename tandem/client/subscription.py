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

    async def take_some(self, count_max: int) -> list[ReceivedMessage]:
        """Return messages as soon as there is one; none when the consumer was stopped.

        Nothing is said about them: each has to be `done`, or given back.

        Raises:
            ClientError: what ended the subscription.
        """
        inbox = self._inbox
        first = await next_item(inbox)
        if first is None:
            return []
        taken = [self._hand_out(first)]
        while len(taken) < count_max and (item := inbox.take()) is not None:
            taken.append(self._hand_out(item))
        return taken

    def put_back(self, messages: list[ReceivedMessage]) -> None:
        """Have messages that `take_some` returned last handed out again, before all others."""
        for message in reversed(messages):
            message.delivery.put_back()

    @property
    def is_over(self) -> bool:
        """Whether nothing is handed out any more."""
        return self._inbox.is_over

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
        self._taken_in_a_row += 1
        if self._taken_in_a_row >= TAKEN_WITHOUT_SLEEPING_MAX:
            self._taken_in_a_row = 0
            await anyio.lowlevel.checkpoint()
        item = self._inbox.take() or await next_item(self._inbox)
        if item is None:
            raise StopAsyncIteration
        self._in_hand = self._hand_out(item)
        return self._in_hand


async def next_item(inbox: Inbox) -> Item | None:
    """Return the next message, None when the inbox has ended.

    Raises:
        ClientError: what it ended with.
    """
    while (item := inbox.take()) is None:
        if inbox.error is not None:
            raise inbox.error
        if inbox.is_over:
            return None
        await inbox.wait()
    return item
