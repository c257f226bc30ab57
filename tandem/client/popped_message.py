"""A message that a `SimpleConsumer` has received: its handle, which acknowledges it."""

from tandem.wire.message import MessageExt
from tandem.wire.receipt_handle import ReceiptHandle, TopicMark, encode_receipt_handle


class Lease:
    """Which delivery of a message this is.

    Attributes:
        topic: The topic that was asked for.
        handle: What is said to the broker; another one after the time was changed.
    """

    __slots__ = ("handle", "topic")

    def __init__(self, topic: str, handle: ReceiptHandle) -> None:
        self.topic = topic
        self.handle = handle

    @property
    def is_repeated(self) -> bool:
        """Whether the message is read from a retry topic."""
        return self.handle.mark is not TopicMark.NORMAL


class PoppedMessage(MessageExt, frozen=True):
    """A `MessageExt` of a `SimpleConsumer`. No other consumer of the group has it for now.

    One that came before and was not acknowledged has the topic that it was sent to, and
    `reconsume_times` says how often it came; `queue_id` and `queue_offset` are then those in a
    retry topic.
    """

    lease: Lease

    @property
    def handle(self) -> str:
        """The receipt handle as text, as RocketMQ writes it. `extend` makes another one."""
        return encode_receipt_handle(self.lease.handle)

    @property
    def visible_ms(self) -> int:
        """When it comes again if it is not acknowledged, in ms since 1970 by the broker's clock."""
        return self.lease.handle.visible_ms
