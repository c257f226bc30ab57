"""Where a reader is in one queue, and what an answer that did not move it on means."""

import logging
from typing import Final

from tandem.client.errors import MessageDamagedError
from tandem.client.results import MessageQueue, PullResult, PullStatus

logger = logging.getLogger(__name__)

DAMAGED_SECONDS: Final = 15.0
"""How long a reader up to an end waits for a damaged message: longer than healing takes."""


class Cursor:
    """How far a reader is in one queue. `end` is the offset to stop before, None: never."""

    def __init__(self, queue: MessageQueue, offset: int, end: int | None, tags: str) -> None:
        self.queue = queue
        self.offset = offset
        self.end = end
        self.tags = tags
        self.follows_resets = False
        """Whether an operator may move this reader, as one of a group. `was_reset` says so then."""
        self.was_reset = False
        self.damaged_since: float | None = None
        """Since when the next message is damaged at every node."""
        self.beyond_end_since: float | None = None
        """Since when the master says that the queue ends before `offset`."""

    @property
    def at_end(self) -> bool:
        """True if nothing is left that this reader wants."""
        return self.end is not None and self.offset >= self.end


def check_damaged(cursor: Cursor, error: MessageDamagedError, now: float) -> None:
    """Say once that a reader waits for a message to be healed; one up to an end not for ever.

    Raises:
        MessageDamagedError: the reader has waited long enough.
    """
    if cursor.damaged_since is None:
        cursor.damaged_since = now
        logger.warning("the reader waits, and tries again every second: %s", error)
    if cursor.end is not None and now - cursor.damaged_since >= DAMAGED_SECONDS:
        raise error


def has_to_wait(cursor: Cursor, result: PullResult) -> bool:
    """Whether the broker lacks what the reader wants, and did not hold the pull until it comes."""
    if result.status is PullStatus.NO_NEW_MSG and cursor.end is not None:
        # Another node, which lags behind the master that we asked for the end.
        return True
    if result.status is PullStatus.OFFSET_ILLEGAL:
        return result.next_begin_offset <= cursor.offset
    return result.next_begin_offset < cursor.offset


def is_reset(cursor: Cursor, result: PullResult) -> bool:
    """Whether a broker sends a reader elsewhere although there is nothing wrong with its offset.

    Source: RocketMQ 5.3.3, PullMessageProcessor (useServerSideResetOffset).
    """
    return (
        result.status is PullStatus.OFFSET_ILLEGAL
        and result.min_offset <= cursor.offset <= result.max_offset
        and result.next_begin_offset != cursor.offset
    )
