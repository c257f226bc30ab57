"""Messages that a reader was to read and that are not there any more."""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tandem.client.results import MessageQueue
from tandem.spark.errors import DataLossError, LossCause

_log = logging.getLogger(__name__)

SHOWN_MAX: Final = 5
"""How many queues a line names."""

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


def log_losses(losses: Iterable[DataLoss]) -> None:
    """Log what a task has not read: a line for each range, however many pulls it took."""
    for loss in _joined(losses):
        _log.warning("%s", loss)


def report_lost_queues(losses: Sequence[DataLoss], *, fail: bool) -> None:
    """Raise or log that queues end earlier than they were read, or are gone: one line for all.

    Raises:
        DataLossError: `fail` is true. It names the first.
    """
    if fail and losses:
        report_loss(losses[0], fail=True)
    if losses:
        shown = "; ".join(
            f"{loss.queue.topic} {loss.queue.broker_name} {loss.queue.queue_id} (read up to"
            f" {loss.end}: {loss.reason})"
            for loss in losses[:SHOWN_MAX]
        )
        more = f" and {len(losses) - SHOWN_MAX} more" if len(losses) > SHOWN_MAX else ""
        _log.warning(
            "%d queues are gone or made anew; what is there now is read from its first message on:"
            " %s%s",
            *(len(losses), shown, more),
        )


def _joined(losses: Iterable[DataLoss]) -> list[DataLoss]:
    """Return the losses in order, those that follow one another for one cause as one."""
    found: list[DataLoss] = []
    for loss in sorted(losses, key=lambda each: (each.queue, each.start)):
        last = found[-1] if found else None
        follows = last and (last.queue, last.end, last.cause) == (
            loss.queue,
            loss.start,
            loss.cause,
        )
        if last and follows:
            found[-1] = msgspec.structs.replace(last, end=loss.end)
        else:
            found.append(loss)
    return found
