"""Receipt handles, as gRPC clients get them and give them back; and what a broker is asked by them.

They are RocketMQ's, with the ninth part of proxies: where the record is.
"""

from __future__ import annotations

import msgspec

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from tandem.wire.demands import PROPERTY_POP_CK
from tandem.wire.message import MessageExt
from tandem.wire.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageResponseHeader,
)
from tandem.wire.pop_offsets import PoppedQueue, decode_start_offsets
from tandem.wire.receipt_handle import (
    ReceiptHandle,
    TopicMark,
    decode_receipt_handle,
    encode_receipt_handle,
)
from tandem.wire.untrusted import UnreadableError


class Delivery(msgspec.Struct, frozen=True):
    """One message with one consumer."""

    group: str
    topic: str
    """The one that was asked for."""
    handle: ReceiptHandle

    @property
    def text(self) -> str:
        """The handle, as the client has it."""
        return encode_receipt_handle(self.handle)

    def is_over(self, now_ms: int) -> bool:
        """Whether the time is over that its handle speaks of."""
        return self.handle.visible_ms <= now_ms

    def ack_header(self) -> AckMessageRequestHeader:
        """Return the header of the request that acknowledges it."""
        handle = self.handle
        topic = handle.mark.topic(self.topic, self.group)
        return AckMessageRequestHeader(
            self.group, topic, handle.queue_id, self.text, handle.queue_offset
        )

    def change_header(
        self, invisible_ms: int, *, keeps_handle: bool = False
    ) -> ChangeInvisibleTimeRequestHeader:
        """Return the header of the request that moves the time at which it comes again."""
        handle = self.handle
        topic = handle.mark.topic(self.topic, self.group)
        return ChangeInvisibleTimeRequestHeader(
            self.group,
            topic,
            handle.queue_id,
            self.text,
            handle.queue_offset,
            invisible_ms,
            keeps_handle or None,
        )

    def changed(self, answer: ChangeInvisibleTimeResponseHeader) -> Delivery:
        """Return it with the handle that it has after that."""
        handle = msgspec.structs.replace(
            self.handle,
            pop_time_ms=answer.pop_time,
            invisible_ms=answer.invisible_time,
            revive_queue_id=answer.revive_qid,
        )
        return msgspec.structs.replace(self, handle=handle)


def read_delivery(group: str, topic: str, text: str) -> Delivery:
    """Return the delivery that a client names by its handle.

    Raises:
        CallError: the handle is none (INTERNAL_SERVER_ERROR, as the proxy has it).
    """
    try:
        return Delivery(group, topic, decode_receipt_handle(text))
    except UnreadableError as error:
        raise CallError(pb.INTERNAL_SERVER_ERROR, f"Parse failed, {error}") from error


class Popped:
    """The answer to a pop, from which each message has its handle."""

    def __init__(
        self, group: str, topic: str, broker_name: str, header: PopMessageResponseHeader
    ) -> None:
        self._group = group
        self._topic = topic
        self._broker_name = broker_name
        self._header = header
        self._starts = decode_start_offsets(header.start_offset_info or "")

    def delivery(self, message: MessageExt) -> Delivery:
        """Return the delivery of one of its messages.

        Raises:
            UnreadableError: the broker has not said where it was read.
        """
        header, text = self._header, message.properties.get(PROPERTY_POP_CK)
        if text is not None:
            handle = decode_receipt_handle(text)
            handle = msgspec.structs.replace(handle, physical_offset=message.physical_offset)
            return Delivery(self._group, self._topic, handle)
        start = self._starts.get(PoppedQueue(TopicMark.NORMAL, message.queue_id))
        if start is None:
            raise UnreadableError(f"nothing is said of queue {message.queue_id}")
        handle = ReceiptHandle(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            TopicMark.NORMAL,
            self._broker_name,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
        )
        return Delivery(self._group, self._topic, handle)
