"""What the answer to a pop says: single messages, each with its handle. Pure.

Most records come as stored, and their handles are made of the fields of the answer. One of a retry
topic has its handle in the property POP_CK, or, from a RocketMQ that keeps the state of POP in
RocksDB, has neither that nor the topic that was asked for.

A message whose tag is not wanted came because two tags have one hash. Nobody wants it, so it is
acknowledged. One whose body its CRC does not fit is not handed out, and comes again.

Source: RocketMQ 5.3.3, MQClientAPIImpl.processPopResponse.
"""

import logging
from typing import Final, NamedTuple

import msgspec

from tandem.client.compression import decompressed
from tandem.client.errors import CompressedBodyError, ConnectionCause, ConnectionLostError
from tandem.client.popped_message import Lease, PoppedMessage
from tandem.client.pull_answer import is_wanted
from tandem.client.queue_flow import decode, refusal_in
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.demands import PROPERTY_POP_CK
from tandem.wire.message import MessageExt
from tandem.wire.pop_headers import PopMessageResponseHeader
from tandem.wire.pop_offsets import (
    PoppedOffset,
    PoppedQueue,
    decode_order_counts,
    decode_start_offsets,
)
from tandem.wire.pulled_records import decode_pulled
from tandem.wire.receipt_handle import ReceiptHandle, decode_receipt_handle, mark_of
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode
from tandem.wire.untrusted import UnreadableError

logger = logging.getLogger(__name__)

_NOTHING: Final = frozenset(
    {
        ResponseCode.POLLING_TIMEOUT.value,
        ResponseCode.POLLING_FULL.value,
        ResponseCode.PULL_NOT_FOUND.value,
    }
)


class Popped(NamedTuple):
    """What came: messages to hand out, and those that nobody wants."""

    messages: list[PoppedMessage]
    unwanted: list[PoppedMessage]


class _Answer(NamedTuple):
    """The fields of an answer, read."""

    header: PopMessageResponseHeader
    starts: dict[PoppedQueue, int]
    counts: dict[PoppedOffset, int]


def pop_result(
    answer: RemotingCommand, address: str, broker_name: str, topic: str, tags: str
) -> Popped:
    """Return what a pop of `tags` of a topic has found.

    Raises:
        BrokerError: it is a refusal.
        ConnectionLostError: its fields do not parse.
    """
    popped = Popped([], [])
    if answer.code in _NOTHING:
        return popped
    if answer.code != ResponseCode.SUCCESS:
        raise refusal_in(answer, address)
    header = decode(answer, PopMessageResponseHeader, address)
    stored, malformed = decode_pulled(answer.body)
    if malformed is not None:
        logger.warning("%s sent a record that does not parse: %s", address, malformed)
    try:
        fields = _Answer(
            header,
            decode_start_offsets(header.start_offset_info or ""),
            decode_order_counts(header.order_count_info or ""),
        )
        for message in stored:
            _take(popped, _popped(message, fields, broker_name, topic), tags)
    except UnreadableError as error:
        reason = f"the answer does not parse: {error}"
        raise ConnectionLostError(address, ConnectionCause.MALFORMED, reason) from error
    return popped


def _take(popped: Popped, message: PoppedMessage, tags: str) -> None:
    if message.body_crc != raw_crc32(message.body) & CRC_MASK:
        logger.warning(
            "message %d of queue %d of topic %s is damaged: its body's CRC is not %d; it was not"
            " acknowledged, and comes again",
            *(message.queue_offset, message.queue_id, message.topic, message.body_crc),
        )
        return
    if not is_wanted(message, tags):
        popped.unwanted.append(message)
        return
    try:
        popped.messages.append(_unpacked(message))
    except CompressedBodyError as error:
        logger.warning("%s; it was not acknowledged, and comes again", error)


def _unpacked(message: PoppedMessage) -> PoppedMessage:
    plain = decompressed(message)
    if isinstance(plain, PoppedMessage):
        return plain
    return PoppedMessage(**msgspec.structs.asdict(plain), lease=message.lease)


def _popped(message: MessageExt, fields: _Answer, broker_name: str, topic: str) -> PoppedMessage:
    """Return a message with its handle.

    Raises:
        UnreadableError: the answer does not say from where its queue was read.
    """
    header = fields.header
    mark = mark_of(message.topic)
    text = message.properties.get(PROPERTY_POP_CK)
    if text is not None:
        handle = decode_receipt_handle(text)
    else:
        start = fields.starts.get(PoppedQueue(mark, message.queue_id))
        if start is None:
            raise UnreadableError(f"nothing is said of queue {message.queue_id} of {message.topic}")
        handle = ReceiptHandle(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            mark,
            broker_name,
            message.queue_id,
            message.queue_offset,
        )
    place = PoppedOffset(mark, message.queue_id, message.queue_offset)
    count = fields.counts.get(place, fields.counts.get(place._replace(offset=None), 0))
    values = msgspec.structs.asdict(message)
    values["topic"] = topic
    values["properties"] = {
        name: value for name, value in message.properties.items() if name != PROPERTY_POP_CK
    }
    if count > 0:
        values["reconsume_times"] = count
    return PoppedMessage(**values, lease=Lease(topic, handle))
