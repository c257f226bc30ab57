"""BATCH_ACK_MESSAGE: many popped messages of one broker, acknowledged at once.

    {"acks":[{"b":"IwI=","c":"CG","it":60000,"pt":1700000000000,"q":2,"r":"0","rq":3,"so":100,
    "t":"T1"}],"brokerName":"broker-a"}

An entry has what the handles of one pop of one queue share, and in `b` which of its offsets are
acknowledged: base64 of a Java BitSet, little-endian, bit i for offset `so` + i. The topic is the
normal one, with a mark beside it. RocketMQ takes long names, too (consumerGroup, startOffset).

Source: RocketMQ 5.3.3, BatchAck, BatchAckMessageRequestBody, BitSetSerializerDeserializer.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.wire.errors import MalformedFrameError
from tandem.wire.receipt_handle import POP_ORDER_REVIVE_QUEUE, TopicMark
from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.untrusted import UnreadableError, json_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable

BITS_BYTES_MAX: Final = 16_384
"""Ours: of an entry. One read of a queue looks at some ten thousand messages at most."""


class BatchAck(msgspec.Struct, frozen=True, gc=False):
    """What was acknowledged of one pop of one queue.

    Attributes:
        bits: As on the wire.
        mark: In which topic the messages are: "0", "1" or "2".
        topic: The normal topic.
    """

    bits: str = msgspec.field(name="b")
    consumer_group: str = msgspec.field(name="c")
    invisible_ms: Int64 = msgspec.field(name="it")
    pop_time_ms: Int64 = msgspec.field(name="pt")
    queue_id: Int32 = msgspec.field(name="q")
    mark: str = msgspec.field(name="r")
    revive_queue_id: Int32 = msgspec.field(name="rq")
    start_offset: Int64 = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")

    @property
    def is_ordered(self) -> bool:
        """Whether the messages were popped in order."""
        return self.revive_queue_id == POP_ORDER_REVIVE_QUEUE

    @property
    def real_topic(self) -> str:
        """The topic in which the messages are.

        Raises:
            UnreadableError: its mark is none.
        """
        if self.mark not in _MARKS:
            raise UnreadableError(f"{self.mark[:20]!r} is no mark of a topic")
        return _MARKS[self.mark].topic(self.topic, self.consumer_group)

    @property
    def count(self) -> int:
        """How many messages are acknowledged: cheap, however many they are.

        Raises:
            UnreadableError: the bits cannot be read, or are too many.
        """
        return int.from_bytes(_bytes_of(self.bits), "little").bit_count()

    def offsets(self) -> list[int]:
        """Return the acknowledged offsets, ascending.

        Raises:
            UnreadableError: the bits cannot be read, or are too many.
        """
        return [self.start_offset + bit for bit in decode_bits(self.bits)]


_MARKS: Final = {str(mark.value): mark for mark in TopicMark}


class BatchAckMessageRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    """Body of BATCH_ACK_MESSAGE."""

    acks: list[BatchAck]
    broker_name: str | None = None


class _AnyAck(msgspec.Struct, frozen=True, gc=False):
    """An entry by short or by long names."""

    b: str | None = None
    c: str | None = None
    it: Int64 | None = None
    pt: Int64 | None = None
    q: Int32 | None = None
    r: str | None = None
    rq: Int32 | None = None
    so: Int64 | None = None
    t: str | None = None
    bitSet: str | None = None  # noqa: N815
    consumerGroup: str | None = None  # noqa: N815
    invisibleTime: Int64 | None = None  # noqa: N815
    popTime: Int64 | None = None  # noqa: N815
    queueId: Int32 | None = None  # noqa: N815
    retry: str | None = None
    reviveQueueId: Int32 | None = None  # noqa: N815
    startOffset: Int64 | None = None  # noqa: N815
    topic: str | None = None


class _AnyBody(msgspec.Struct, frozen=True, rename="camel"):
    acks: list[_AnyAck] | None = None
    broker_name: str | None = None


_decode = json_decoder(_AnyBody)


def decode_batch_ack(body: bytes) -> BatchAckMessageRequestBody:
    """Read the body; numbers that are missing are 0, as Java has them.

    Raises:
        MalformedFrameError: it is none, or an entry names no group, topic or messages.
    """
    try:
        read: _AnyBody = _decode(body)
    except UnreadableError as error:
        raise MalformedFrameError(f"body of BATCH_ACK_MESSAGE: {error}") from error
    return BatchAckMessageRequestBody([_entry(each) for each in read.acks or ()], read.broker_name)


def _entry(read: _AnyAck) -> BatchAck:
    bits = read.bitSet if read.b is None else read.b
    group = read.c or read.consumerGroup
    topic = read.t or read.topic
    if bits is None or not group or not topic:
        raise MalformedFrameError("body of BATCH_ACK_MESSAGE: an entry has no b, c or t")
    return BatchAck(
        bits=bits,
        consumer_group=group,
        invisible_ms=read.it or read.invisibleTime or 0,
        pop_time_ms=read.pt or read.popTime or 0,
        queue_id=read.q or read.queueId or 0,
        mark=read.r or read.retry or "0",
        revive_queue_id=read.rq or read.reviveQueueId or 0,
        start_offset=read.so or read.startOffset or 0,
        topic=topic,
    )


def encode_bits(bits: Iterable[int]) -> str:
    """Return these bits as BitSet.toByteArray in base64."""
    number = 0
    for bit in bits:
        number |= 1 << bit
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


def decode_bits(text: str) -> list[int]:
    """Return the bits that are set, ascending.

    Raises:
        UnreadableError: it is no base64, or too long.
    """
    data = _bytes_of(text)
    return [
        found.start() * 8 + bit
        for found in _NOT_ZERO.finditer(data)
        for bit in _BITS_OF_BYTE[found[0][0]]
    ]


def _bytes_of(text: str) -> bytes:
    if len(text) > BITS_BYTES_MAX * 2 or not text.isascii():
        raise UnreadableError(f"the bits of an acknowledgement have {len(text)} characters")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UnreadableError("the bits of an acknowledgement are no base64") from error
    if len(data) > BITS_BYTES_MAX:
        raise UnreadableError(f"the bits of an acknowledgement have {len(data)} bytes")
    return data


_NOT_ZERO: Final = re.compile(rb"[^\0]")
_BITS_OF_BYTE: Final = tuple(
    tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)
)
