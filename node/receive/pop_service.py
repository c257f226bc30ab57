"""PopService: messages for consumers that receive by POP, whatever protocol they speak.

    receive --found--> journal record --confirmed--> answered
       |                                               ^
       +--nothing--> waits --a message, or its time----+
    ack, change, extend --> journal record --confirmed--> answered
    run: what was not done in time is put again, into the retry topic or to the dead letters

Every method is synchronous. An answer comes through a callback, once: before the call returns if
it is a refusal, else at the end of a round of requests at the earliest. In a fenced group that is
when the change is confirmed, so no change of master takes it back; in a classic one when it is in
the memory of the master (docs/pop.md). Callers own no part of that waiting. They call `end_round`
of the broker after a round, as for puts.

A callback gets a `RequestError` where this node is not the master, where the store takes nothing,
or where it is not known in time whether the change will last.

Interface only; the bodies follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from node.receive.requests import (
        Handle,
        Receive,
        Waiting,
        WhenAcked,
        WhenChanged,
        WhenNoticed,
        WhenReceived,
    )
    from store.results import Arrival


class PopService:
    """POP at one broker, for as long as its store is open. `BrokerParts.pop` is it."""

    def receive(self, request: Receive, done: WhenReceived) -> Waiting | None:
        """Hand out messages; wait for one until `request.deadline` if there is none.

        Returns what waits for a message: the caller cancels it when its client is gone. None if it
        does not wait, or waits for no more than the confirmation of what was found.
        """
        raise NotImplementedError

    def ack(self, handles: Sequence[Handle], done: WhenAcked) -> None:
        """Messages are done. `done` gets for each whether its handle was good.

        One that is not good changes nothing: the message was done before, was moved (`change`), or
        its time was over and it was put again. RocketMQ answers SUCCESS to all of them.
        """
        raise NotImplementedError

    def change(self, handle: Handle, invisible_ms: int, done: WhenChanged) -> None:
        """The message comes again this much later than now, and has another handle until then.

        `done` gets None if the handle was not good. In an orderly group the pop time stays.
        """
        raise NotImplementedError

    def extend(self, handle: Handle, invisible_ms: int, done: WhenChanged) -> None:
        """The same, and the handle stays good: for a server that renews for its client."""
        raise NotImplementedError

    def is_held(self, handle: Handle) -> bool:
        """Whether the handle is good as far as this node knows. Asks nothing of the group."""
        raise NotImplementedError

    def notify(self, request: Receive, done: WhenNoticed) -> Waiting | None:
        """Say when there is a message to receive, and hand out nothing (NOTIFICATION)."""
        raise NotImplementedError

    def waiting_count(self, group: str, topic: str, queue_id: int) -> int:
        """How many requests wait under exactly this queue (POLLING_INFO)."""
        raise NotImplementedError

    def pop_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The first offset that was never handed out; None if the group never had any."""
        raise NotImplementedError

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An operator has set the group's offset. What is with consumers is not put again.

        Raises:
            RequestError: the change could not be written; nothing is changed.
        """
        raise NotImplementedError

    # -- for the broker --------------------------------------------------------------------------

    def messages_arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Messages can be read."""
        raise NotImplementedError

    async def run(self, end_round: Callable[[], None]) -> None:
        """Put again what was not done in time, and answer those whose time is up."""
        raise NotImplementedError
