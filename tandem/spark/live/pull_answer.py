"""What the answer to a pull means for a reader of a range whose end is known. Pure.

Source: RocketMQ 5.3.3, PullMessageProcessor.composeResponseHeader; the statuses of its store are in
`node.handlers.pull_message`.
"""

import enum

import msgspec

from tandem.client.errors import ConnectionCause, ConnectionLostError
from tandem.client.pull_answer import PULL_STATUSES
from tandem.client.queue_flow import decode, refusal_in
from tandem.client.results import PullStatus
from tandem.spark.live.pull_window import Pull
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PullMessageResponseHeader


class Meaning(enum.Enum):
    """What became of a pull."""

    FOUND = "found"
    """Records, and the offset after them."""
    GONE = "gone"
    """Nothing is there up to the next offset. Only a master's word counts."""
    BEYOND = "beyond"
    """The queue of the broker that was asked ends before the pull."""
    LATER = "later"
    """Nothing can be said now."""


class Verdict(msgspec.Struct, frozen=True):
    """What an answer means. `min_offset` and `max_offset` are those of the node that was asked."""

    meaning: Meaning
    next_offset: int
    min_offset: int
    max_offset: int


def judge(answer: RemotingCommand, pull: Pull, address: str) -> Verdict:
    """Return what the answer to a pull means.

    Raises:
        BrokerError: it is a refusal.
        ConnectionLostError: it does not parse, or contradicts itself.
    """
    status = PULL_STATUSES.get(answer.code)
    if status is None:
        raise refusal_in(answer, address)
    header = decode(answer, PullMessageResponseHeader, address)
    meaning, next_offset = _meaning(status, header, pull)
    if status is PullStatus.FOUND and (next_offset <= pull.start or not answer.body):
        raise ConnectionLostError(
            address,
            ConnectionCause.MALFORMED,
            f"an answer to a pull from {pull.start} on has {len(answer.body)} bytes and goes on at"
            f" {next_offset}",
        )
    return Verdict(meaning, next_offset, header.min_offset, header.max_offset)


def _meaning(
    status: PullStatus, header: PullMessageResponseHeader, pull: Pull
) -> tuple[Meaning, int]:
    match status:
        case PullStatus.FOUND:
            return Meaning.FOUND, header.next_begin_offset
        case PullStatus.NO_MATCHED_MSG if header.next_begin_offset > pull.start:
            return Meaning.GONE, header.next_begin_offset
        case PullStatus.OFFSET_ILLEGAL if header.min_offset > pull.start:
            return Meaning.GONE, header.min_offset
    if header.max_offset <= pull.start and status is not PullStatus.NO_MATCHED_MSG:
        return Meaning.BEYOND, pull.start
    # A group that an operator has moved hears of it once. A batch has its offsets from Spark.
    return Meaning.LATER, pull.start
