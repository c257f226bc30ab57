"""What is called around sends and around consuming: traces, spans, counters of the user's own.

    SendMessageHook.sending       before a send, with its messages; may give others in their place
       --> SendEnded              called once, with what became of each

    ConsumeMessageHook.consuming  before a message is given to the user
       --> Consumption.handling   around the handler of `Consumer.consume`
       --> Consumption.ended      called once, when something was said about it, or when its
                                  consumer is closed

Hooks run on the way of every message: they do not wait, and they do not raise. One that raises is
an error of the call that it is in: what it was called for is not done, and hooks after it are not
called.

Source: RocketMQ 5.3.3, SendMessageHook, ConsumeMessageHook, EndTransactionHook.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal, Protocol

import msgspec

from tandem.client.results import SendResult
from tandem.wire.message import Message, MessageExt

SendEnded = Callable[[Sequence[SendResult | BaseException]], None]
"""Takes what became of each message; of a whole call that raised, the one error."""


class TransactionEnd(msgspec.Struct, frozen=True):
    """How a transaction ended, as a broker has taken it, or as it was left.

    Attributes:
        keys: with blanks between them.
        offset_msg_id: where its half is.
        state: "unknown": the broker will ask.
        from_check: whether the broker had asked.
    """

    topic: str
    msg_id: str
    tags: str
    keys: str
    offset_msg_id: str
    state: Literal["commit", "rollback", "unknown"]
    from_check: bool = False


class SendMessageHook(Protocol):
    """Is called around sends."""

    def sending(
        self, group: str, messages: Sequence[Message], *, is_half: bool
    ) -> tuple[Sequence[Message], SendEnded]:
        """Return as many messages, which are sent, and what is called at the end.

        Args:
            group: the producer group.
            messages: those of one call.
            is_half: whether it is the half of a transaction.
        """

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        """Take how a transaction ended."""


class ConsumeOutcome(enum.Enum):
    """What was said about a message that a consumer had."""

    DONE = "done"
    RETRY = "retry"
    DEAD_LETTER = "dead letter"
    PUT_BACK = "put back"
    """It was not handed out after all."""

    LEFT = "left"
    """Nothing, and the consumer was closed: its group gets the message again."""


class Consumption(Protocol):
    """One message in the hands of a consumer."""

    def handling(self) -> AbstractContextManager[object]:
        """Return what is around the handler."""

    def ended(self, outcome: ConsumeOutcome) -> None:
        """Take what was said about it."""


class ConsumeMessageHook(Protocol):
    """Is called around consuming."""

    def consuming(self, group: str, message: MessageExt) -> Consumption:
        """Return what is called at the end."""


class SendHooks:
    """All hooks of one producer; false if it has none."""

    def __init__(self, group: str, hooks: Sequence[SendMessageHook]) -> None:
        """Take them in the order in which they are called."""
        self._group = group
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def sending(
        self, messages: Sequence[Message], *, is_half: bool = False
    ) -> tuple[Sequence[Message], SendEnded]:
        """Call all of them before a send."""
        endings: list[SendEnded] = []
        for hook in self._hooks:
            messages, ended = hook.sending(self._group, messages, is_half=is_half)
            endings.append(ended)

        def ended_all(outcomes: Sequence[SendResult | BaseException]) -> None:
            for each in endings:
                each(outcomes)

        return messages, ended_all

    def transaction_ended(self, end: TransactionEnd) -> None:
        """Say to all of them how a transaction ended."""
        for hook in self._hooks:
            hook.transaction_ended(self._group, end)


class ConsumeHooks:
    """All hooks of one consumer, and which of its messages are still in somebody's hands."""

    def __init__(self, group: str, hooks: Sequence[ConsumeMessageHook]) -> None:
        """Take them in the order in which they are called."""
        self._group = group
        self._hooks = tuple(hooks)
        self._open: dict[Consumptions, None] = {}

    def consuming(self, message: MessageExt) -> "Consumptions | None":
        """Call all of them before a message is given to the user; None: there are none."""
        if not self._hooks:
            return None
        each = [hook.consuming(self._group, message) for hook in self._hooks]
        consumptions = Consumptions(self._open, each)
        self._open[consumptions] = None
        return consumptions

    def close(self) -> None:
        """End what nothing was said about. The consumer is being closed."""
        for consumptions in list(self._open):
            consumptions.ended(ConsumeOutcome.LEFT)


class Consumptions:
    """What all hooks of one consumer know of one message."""

    __slots__ = ("_each", "_open")

    def __init__(self, open_ones: "dict[Consumptions, None]", each: Sequence[Consumption]) -> None:
        """Be among the open ones, from when the caller has put it there until it has ended."""
        self._open = open_ones
        self._each = each

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Be around the handler."""
        with ExitStack() as stack:
            for each in self._each:
                stack.enter_context(each.handling())
            yield

    def ended(self, outcome: ConsumeOutcome) -> None:
        """Say what was said about it. Only the first word counts."""
        if self in self._open:
            del self._open[self]
            for each in self._each:
                each.ended(outcome)
