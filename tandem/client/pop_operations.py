"""What consumers that receive by POP can ask, as flows with the arguments that users give."""

from collections.abc import Sequence
from typing import Final

from tandem.client.core import SWITCH_SECONDS
from tandem.client.faces import operation
from tandem.client.flow import Flow
from tandem.client.pop_flow import Popper, Wish
from tandem.client.popped_message import PoppedMessage
from tandem.client.pull_answer import ALL_TAGS, wanted
from tandem.wire.errors import ArgumentError
from tandem.wire.pop_headers import POP_MAX_MSG_NUMS

INVISIBLE_MS: Final = 30_000
WAIT_MS: Final = 15_000
"""RocketMQ's popTimeout of 15 s."""

INVISIBLE_MS_MAX: Final = 3 * 86_400_000
"""RocketMQ's timers go as far as 3 days."""

SWITCH_MS: Final = round(SWITCH_SECONDS * 1000)
"""How long is waited for a master by default."""


class Pops:
    """Asks for one consumer. Flows only."""

    def __init__(self, popper: Popper) -> None:
        self._popper = popper

    def receive(
        self,
        topic: str,
        max_messages: int = POP_MAX_MSG_NUMS,
        *,
        invisible_ms: int = INVISIBLE_MS,
        wait_ms: int = WAIT_MS,
        tags: str = ALL_TAGS,
        sql: str | None = None,
    ) -> Flow[list[PoppedMessage]]:
        """Return messages that no other consumer of the group has, as soon as there are any.

        Those that are not acknowledged within `invisible_ms` come again, to whichever consumer
        asks. While the master changes, this waits for the next one. What a call that is cancelled
        would have returned comes again, too.

        Args:
            topic: which.
            max_messages: 1 to 32; there may be fewer.
            invisible_ms: how long they are kept from others, 1 ms to 3 days. `extend` makes it
                longer.
            wait_ms: how long to wait if there is nothing; 0: not at all.
            tags: `TagA || TagB`, or `*` for all. The others are passed over for the whole group.
            sql: instead of tags, an expression over the properties: "a > 5 AND b = 'x'" (SQL92).
                The broker needs `enable_property_filter`, else it refuses.

        Raises:
            RouteNotFoundError: there is no such topic, or no master for some seconds after that.
            ArgumentError: an argument is out of range.
        """
        if not 1 <= max_messages <= POP_MAX_MSG_NUMS:
            text = f"max_messages is {max_messages}; it is 1 to {POP_MAX_MSG_NUMS}"
            raise ArgumentError(text, "max_messages")
        _check_invisible(invisible_ms, 1)
        if wait_ms < 0:
            raise ArgumentError(f"wait_ms is {wait_ms}; it is 0 or more", "wait_ms")
        wish = Wish(topic, wanted(tags, sql), max_messages, invisible_ms, wait_ms)
        return self._popper.receive(wish)

    def ack(
        self,
        messages: PoppedMessage | Sequence[PoppedMessage],
        *,
        timeout_ms: int = SWITCH_MS,
    ) -> Flow[bool]:
        """Say that messages were handled: they never come again.

        In a fenced group that holds whichever node is master next; a classic master that is killed
        may have forgotten its last seconds.

        Args:
            messages: one, or many; those of one broker are one request.
            timeout_ms: how long it is tried again while there is no master.

        Returns:
            False if the time of one of them was over before, or it was acknowledged before: it may
            be with another consumer. Also if an answer was lost and the second one says so.
            RocketMQ's brokers never say so.

        Raises:
            ClientError: what the last try ended with. The messages may come again.
        """
        if isinstance(messages, PoppedMessage):
            messages = [messages]
        return self._popper.ack(messages, timeout_ms / 1000)

    def extend(
        self, message: PoppedMessage, invisible_ms: int, *, timeout_ms: int = SWITCH_MS
    ) -> Flow[bool]:
        """Have a message come again this much later than now, and not when it was to.

        Its handle is another one then, and the message has that. 0 gives it back at once.

        Args:
            message: one that was received, and not acknowledged.
            invisible_ms: 0 ms to 3 days.
            timeout_ms: how long it is tried again while there is no master.

        Returns:
            False if its time was over: it may be with another consumer.

        Raises:
            ClientError: what the last try ended with.
            ArgumentError: `invisible_ms` is out of range.
        """
        _check_invisible(invisible_ms, 0)
        return self._popper.extend(message, invisible_ms, timeout_ms / 1000)


def _check_invisible(invisible_ms: int, least: int) -> None:
    if not least <= invisible_ms <= INVISIBLE_MS_MAX:
        text = f"invisible_ms is {invisible_ms}; it is {least} to {INVISIBLE_MS_MAX}"
        raise ArgumentError(text, "invisible_ms")


class PopOperations:
    """What can be asked about messages of a topic."""

    receive = operation(Pops.receive)
    ack = operation(Pops.ack)
    extend = operation(Pops.extend)
