"""What the client hands to its users."""

import enum

import msgspec

from tandem.wire.message import MessageExt


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False):
    """One queue of a topic at one broker name."""

    topic: str
    broker_name: str
    queue_id: int


class SendStatus(enum.Enum):
    """How a stored message fared. In every case it was in the log of the master that answered.

    Only SEND_OK says that it is as safe as the send asked for. With the other three the outcome is
    unknown, not failed: the disk or other nodes may well have it a moment later, consumers may
    read it, and sending it again stores it twice. Nor is it safe: a master of a fenced group that
    is replaced at this moment answers FLUSH_SLAVE_TIMEOUT, and the message may or may not be in
    the log of the next.
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """In the master's log, but the flush was not done in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """In the master's log, but too few others acknowledged it in time, or it is replaced now."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """In the master's log, but no slave was near enough to wait for."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The broker's answer to a send: the message is in its log, `status` says how safely."""

    status: SendStatus
    msg_id: str
    """UNIQ_KEY, made by the producer. Of a batch: of all its messages, joined by commas."""
    offset_msg_id: str
    """Where the message is, in hex: store host and physical offset. Of a batch: joined by commas.

    `tandem.wire.message.decode_offset_msg_id` takes one apart.
    """
    queue: MessageQueue
    queue_offset: int
    """Position in the queue; of a batch: of its first message."""
    reason: str = ""
    """The broker's words if `status` is not SEND_OK."""


class PullStatus(enum.Enum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    """The end of the queue; the broker has waited as long as it was allowed to."""
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    """Messages were there, but none with these tags. Go on at `next_begin_offset`."""
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """Outside of the queue. `next_begin_offset` is the nearest offset inside."""


class PullResult(msgspec.Struct, frozen=True):
    """The answer to a pull. Offsets count messages; `max_offset` is the next one to be written."""

    status: PullStatus
    next_begin_offset: int
    """Where to pull next. More than the number of messages ahead if some did not match."""
    min_offset: int
    max_offset: int
    messages: list[MessageExt]
