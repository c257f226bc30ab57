"""What users of the client catch.

    ClientError
      BrokerError             the broker answered no: nothing was stored or changed
        MessageDamagedError   no node that answers has the next message whole
      RouteNotFoundError      no broker to ask; nothing was sent
      ConnectionLostError     the connection could not be opened, or ended before the answer
      RequestTimeoutError     no answer in time
        SendTimeoutError      the same for a send
      SendInDoubtError        a fenced group has it, and may not keep it
      ReplyTimeoutError       nobody has replied to a request in time
      CompressedBodyError     a pulled body cannot be decompressed
      OffsetBeyondEndError    a reader is beyond the end of its queue, for good
      GroupNotFoundError      no broker knows a consumer group
      MessageNotFoundError    no broker holds a message
      OffsetsFileError        the file of a broadcasting consumer cannot be read or written

Every one has `outcome_unknown`. False is a promise: the request had no effect. True means that it
may have been carried out although no answer came, so sending it again may store it twice. For a
send: True, the message may be in the log; False, it is not.

What is wrong with an argument or a message is an `ArgumentError`, which is a ValueError and none of
these, as is `NotOpenError`, a RuntimeError: of a client that is not open.

No trio error and no OSError leaves the client, except `trio.Cancelled`.
"""

import enum
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.wire.compression import CompressionFault
from tandem.wire.message import MessageExt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tandem.client.results import SendResult


class ClientError(Exception):
    """A request of the client came to nothing, or may have."""

    outcome_unknown: bool = False
    """True if the request may have been carried out all the same."""


class BrokerError(ClientError):
    """The broker refused. A send that ends so was not stored.

    `code` is a number of `tandem.wire.response_code.ResponseCode`, `remark` the broker's words.
    """

    def __init__(self, code: int, remark: str, address: str = "") -> None:
        super().__init__(code, remark, address)
        self.code = code
        self.remark = remark
        self.address = address

    def __str__(self) -> str:
        return f"broker {self.address or '?'} answered {self.code}: {self.remark or 'no remark'}"


class MessageDamagedError(BrokerError):
    """The next message of a queue is damaged at the broker, and no other node had it whole.

    Nothing is passed over: the same request succeeds once the message is healed. A reader that is
    to go on without it begins at `queue_offset` + 1. `physical_offset` is its place in the log.
    """

    def __init__(
        self, code: int, remark: str, address: str, queue_offset: int, physical_offset: int
    ) -> None:
        super().__init__(code, remark, address)
        self.args = (code, remark, address, queue_offset, physical_offset)
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset


class RouteCause(enum.Enum):
    """Why nobody can be asked."""

    NO_NAME_SERVER = enum.auto()
    """No name server answers, or none with what can be read. See `errors`."""
    STARTING = enum.auto()
    """None knows, and one said that it has just started: it will know in seconds."""
    NO_TOPIC = enum.auto()
    """There is no such topic."""
    NO_QUEUE = enum.auto()
    """The topic has no such queue."""
    READ_ONLY = enum.auto()
    """No queue of the topic takes sends."""
    NO_BROKER = enum.auto()
    """No broker of that name, or none at all, is registered."""
    NO_MASTER = enum.auto()
    """The broker has no master now."""


class RouteNotFoundError(ClientError):
    """Nobody can be asked: no name server answers, or none knows a broker that fits.

    Attributes:
        topic: What was asked about; "*" if it was no topic.
        cause: Why nobody can be asked.
        may_pass: Asking again later may help: a group is between two masters, or the name
            servers are away. It is False for a topic or a queue that does not exist.
        errors: What each name server ended with that was asked in vain.
    """

    def __init__(
        self,
        topic: str,
        cause: RouteCause,
        reason: str,
        *,
        may_pass: bool = False,
        errors: "Sequence[ClientError]" = (),
    ) -> None:
        super().__init__(topic, cause, reason)
        self.topic = topic
        self.cause = cause
        self.reason = reason
        self.may_pass = may_pass
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return f"topic {self.topic!r}: {self.reason}"


class ConnectionCause(enum.Enum):
    """Why a connection was lost."""

    UNREACHABLE = enum.auto()
    """It could not be opened: nobody listens there, the network is away, or that is no address."""
    TLS = enum.auto()
    """One end does not trust the other, or speaks no TLS."""
    ENDED = enum.auto()
    """The other end closed it, or the network did."""
    MALFORMED = enum.auto()
    """What came is not what RocketMQ's protocol allows."""
    CLOSED = enum.auto()
    """This client closed it."""


class ConnectionLostError(ClientError):
    """The connection to `address` could not be opened, or ended before the answer came.

    `cause` says why. `outcome_unknown` is False when not one byte of the request was handed to
    the network.
    """

    def __init__(
        self, address: str, cause: ConnectionCause, reason: str, *, outcome_unknown: bool = True
    ) -> None:
        super().__init__(address, cause, reason)
        self.address = address
        self.cause = cause
        self.reason = reason
        self.outcome_unknown = outcome_unknown

    def __str__(self) -> str:
        return f"connection to {self.address}: {self.reason}; {_effect(self)}"


class RequestTimeoutError(ClientError):
    """No answer from `address` in time. A late answer is dropped.

    `outcome_unknown` is False when not one byte of the request was handed to the network.
    """

    def __init__(self, address: str, *, outcome_unknown: bool = True) -> None:
        super().__init__(address)
        self.address = address
        self.outcome_unknown = outcome_unknown

    def __str__(self) -> str:
        return f"no answer from {self.address} in time; {_effect(self)}"


class UserNotFoundError(ClientError):
    """No group of nodes knows a user of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"no user {self.name!r} is known; `tandem user list` prints those that are"


class UserExistsError(ClientError):
    """A user of this name is there already, in some groups of nodes."""

    def __init__(self, name: str, groups: "Sequence[str]") -> None:
        super().__init__(name, tuple(groups))
        self.name = name
        self.groups = tuple(groups)

    def __str__(self) -> str:
        groups = ", ".join(self.groups)
        return f"user {self.name!r} is there already, in {groups}; `tandem user alter` changes it"


class SendTimeoutError(RequestTimeoutError):
    """No answer to a send within `send_msg_timeout_ms`, all tries together."""


class SendInDoubtError(ClientError):
    """A master of a fenced group took the message, and nobody said in time that it is safe.

    It was sent again until the time was over, always with the same unique key, so it may be there
    several times, or not at all if that master was replaced. `result` is the last such answer.
    """

    outcome_unknown = True

    def __init__(self, result: "SendResult") -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        result = self.result
        return (
            f"{result.queue.broker_name} has message {result.msg_id} in its log and answered"
            f" {result.status.name}: {result.reason or 'no reason'}; it may be kept or not"
        )


class ReplyTimeoutError(ClientError):
    """No reply to a request in time. The request may have been consumed all the same.

    `is_stored` is False if not even the request was answered by a broker in this time.
    """

    outcome_unknown = True

    def __init__(self, topic: str, timeout_ms: int, *, is_stored: bool = True) -> None:
        super().__init__(topic, timeout_ms)
        self.topic = topic
        self.timeout_ms = timeout_ms
        self.is_stored = is_stored

    def __str__(self) -> str:
        text = f"no reply to a request in topic {self.topic!r} within {self.timeout_ms} ms"
        return text if self.is_stored else f"{text}: no broker has taken it by then"


class CompressedBodyError(ClientError):
    """A body cannot be decompressed. The message is intact in the log.

    `compressed_message` is the message as stored; its `queue_offset` is what to skip. `fault` says
    why: with `CompressionFault.NO_LIBRARY`, another installation can read it.
    """

    def __init__(
        self, compressed_message: MessageExt, fault: CompressionFault, reason: str
    ) -> None:
        super().__init__(compressed_message, fault, reason)
        self.compressed_message = compressed_message
        self.fault = fault
        self.reason = reason

    def __str__(self) -> str:
        message = self.compressed_message
        return (
            f"message {message.offset_msg_id} of topic {message.topic!r}, queue"
            f" {message.queue_id}, offset {message.queue_offset}: {self.reason}"
        )


class OffsetBeyondEndError(ClientError):
    """A reader's offset is beyond the end of its queue, and the master keeps saying so.

    In a fenced group this does not come from a switch, where queues never become shorter than what
    was read from them: the topic was created anew, or a group was recovered with losses. Going on
    at `queue_end` would read offsets a second time that may hold other messages now, so this is the
    reader's decision.
    """

    def __init__(self, queue: str, offset: int, queue_end: int) -> None:
        super().__init__(queue, offset, queue_end)
        self.queue = queue
        self.offset = offset
        self.queue_end = queue_end

    def __str__(self) -> str:
        return (
            f"{self.queue}: this reader has reached offset {self.offset}, but the queue ends at"
            f" {self.queue_end}; what it read is not there any more. Begin again at an offset of"
            " the queue; a group, with `tandem group reset`"
        )


class GroupNotFoundError(ClientError):
    """No broker knows a consumer group of this name."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return f"group {self.group!r}: no broker knows such a consumer group"


class MessageNotFoundError(ClientError):
    """No broker holds the message. `what` says by what it was looked for.

    `needs_topic` is True if that was an id without a topic: it may be the unique key of a
    producer, and those are found by their topic alone.
    """

    def __init__(self, what: str, *, needs_topic: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.needs_topic = needs_topic

    def __str__(self) -> str:
        remedy = "; if this is a producer's unique key, name its topic as well"
        return f"no broker holds {self.what}{remedy if self.needs_topic else ''}"


class OffsetsFileError(ClientError):
    """The file in which a broadcasting consumer keeps its offsets cannot be read or written.

    `path` is the file. `__cause__` is what the system said, or, if the file holds something else,
    an error of its content.
    """

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(path, text)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.args[1]}"


class NotOpenError(RuntimeError):
    """A client or a transaction is used outside of its `with` or `async with`, or in a fork.

    A client belongs to the process that made it.
    """


def _effect(error: ClientError) -> str:
    if error.outcome_unknown:
        return "the request may have been carried out"
    return "the request never left"
