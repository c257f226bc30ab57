"""Messages that a reader was to read and that are not there any more."""

import logging
from typing import Final

import msgspec

from tandem.client.results import MessageQueue
from tandem.spark.errors import DataLossError, LossCause

_log = logging.getLogger(__name__)

REMEDY: Final = (
    "With failOnDataLoss=false the query goes on without them, and logs what it has not read"
)


class DataLoss(msgspec.Struct, frozen=True):
    """Offsets `start` up to `end` of a queue, and why nobody can read them."""

    queue: MessageQueue
    start: int
    end: int
    reason: str
    cause: LossCause

    def __str__(self) -> str:
        queue = self.queue
        return (
            f"source tandem: offsets {self.start} to {self.end} of queue {queue.queue_id} of topic"
            f" {queue.topic!r} at {queue.broker_name} are not there any more: {self.reason}"
        )


def report_loss(loss: DataLoss, *, fail: bool) -> None:
    """Raise, or log.

    Raises:
        DataLossError: `fail` is true.
    """
    if fail:
        raise DataLossError(f"{loss}. {REMEDY}", loss.cause, loss.start)
    _log.warning("%s", loss)
