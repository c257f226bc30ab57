"""Offsets that an operator has set, until the consumers of the group know of them.

    reset --> pending --first pull of that queue: PULL_OFFSET_MOVED--> known

Meanwhile commits of consumers from where they are are refused: they would undo the reset. The
table is in the memory of the master only. The offsets themselves are committed like any other, and
a new consumer begins there.

Source: RocketMQ 5.3.3, ConsumerOffsetManager.assignResetOffset, hasOffsetReset,
queryThenEraseResetOffset.
"""

from __future__ import annotations

from typing import Final

from node.errors import RequestError
from tandem.wire.response_code import ResponseCode

PENDING_MAX: Final = 65_536
"""Queues whose consumers do not know yet; any client may reset some, so there is a bound."""


class ResetOffsets:
    """The resets that are pending, by group, topic and queue."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], dict[int, int]] = {}

    def check_room(self) -> None:
        """Refuse one more queue if there are too many.

        Raises:
            RequestError: SYSTEM_BUSY.
        """
        count = sum(map(len, self._pending.values()))
        if count >= PENDING_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{count} queues have new offsets that no consumer has fetched yet; start the"
                " consumers of some of them first",
            )

    def put(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """The consumers of `group` are to go on at these offsets, by queue id."""
        self._pending.setdefault((group, topic), {}).update(offsets)

    @property
    def are_pending(self) -> bool:
        """Whether there are consumers that do not know yet."""
        return bool(self._pending)

    def is_pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the consumer of a queue does not know yet."""
        return bool(self._pending) and queue_id in self._pending.get((group, topic), ())

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset to answer the consumer with, or None if nothing is pending."""
        if not self._pending:
            return None
        queues = self._pending.get((group, topic))
        offset = None if queues is None else queues.pop(queue_id, None)
        if not queues:
            self._pending.pop((group, topic), None)
        return offset

    def forget(self, group: str, topic: str) -> None:
        """Nothing is pending there any more: the topic or the group is deleted."""
        self._pending.pop((group, topic), None)
