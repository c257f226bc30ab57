"""MessageEncoder: how messages and batches become records, and which of them cannot.

A single message is packed straight into the log, in one call per *shape*: records whose parts have
the same lengths share one layout. A client's batch comes as entries, one after the other, and
leaves as one run of records:

    entry    TOTALSIZE MAGIC CRC FLAG | BODYLENGTH BODY | PROPERTIESLENGTH PROPERTIES
                        .- ignored -'
    record   head | middle, the same in all | BODYLENGTH BODY | TOPIC | entry's + batch's PROPERTIES

Or it stays whole, for topics with batch queues: one record that says how many messages it holds
(INNER_NUM) and which queue offset the first one has (INNER_BASE).

Faults are found before anything is written: `topic_fault`, `inner_batch_fault`,
`MessageEncoder.message_fault` and `MessageEncoder.batch_fault`, in this order.

Source: MessageExtEncoder, HookUtils and SendMessageProcessor.sendBatchMessage of 5.3.3.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec

from store.log.log_end import TORN_BYTES_MIN, looks_torn
from store.results import PutBatch, PutMessage, PutMessageStatus
from tandem.wire import native
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.delay_level import delay_level_of
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    BORNHOST_V6_FLAG,
    INNER_BATCH_FLAG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    NEED_UNWRAP_FLAG,
    RECORD_OVERHEAD_BYTES_MAX,
    STOREHOSTADDRESS_V6_FLAG,
    TOPIC_V1_CHARACTERS_MAX,
    TRANSACTION_MASK,
    Host,
)
from tandem.wire.message_properties import (
    PROPERTIES_BYTES_MAX,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    property_value,
    tags_code_of,
    with_properties,
)
from tandem.wire.native import BatchParts
from tandem.wire.property_crc import reserve_batch_crc, with_reserved_crc, write_crc
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

TOPIC_BYTES_MAX: Final = 127
RETRY_TOPIC_BYTES_MAX: Final = 255

INNER_NUM_MAX: Final = 32_767
"""A unit of a batch queue counts in 16 bits."""

HOST_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
NO_HOST_FLAGS: Final = ~HOST_FLAGS
HOST_V6_BYTES: Final = 20
BATCH_ENTRY_HEAD_BYTES: Final = 20
_SHAPES_MAX: Final = 8192
_BATCH_RECORD_HEAD: Final = struct.Struct(">IIIiiqq")
_SEPARATOR: Final = b"\x02"
_SEPARATOR_BYTE: Final = _SEPARATOR[0]
_INNER_NUM: Final = PROPERTY_INNER_NUM.encode()
_unpack_entry = struct.Struct(">12xii").unpack_from
_unpack_length = struct.Struct(">h").unpack_from
_pack_length = struct.Struct(">h").pack

Fault: TypeAlias = tuple[PutMessageStatus, str]
"""Why something cannot be stored: for the machine, and for people."""


class IllegalMessageError(ValueError):
    """A message cannot be written as a record. Nothing was written."""


class IllegalBatchError(ValueError):
    """A client's batch body cannot be split. Nothing was written."""


class RecordShape(msgspec.Struct, frozen=True, gc=False):
    """How to write records whose parts have these lengths, in one call."""

    pack_into: struct.Struct
    size: int
    size_bytes: bytes
    magic: int
    host_flags: int


class MessageEncoder:
    """Writes records for one store host. `CommitLog` owns it.

    Attributes:
        shapes: Every shape in use, by lengths of body, topic, properties and born host.
        max_message_size_bytes: The largest body, of a batch the largest body of all of it.
    """

    def __init__(
        self,
        store_host: Host,
        *,
        record_bytes_max: int,
        max_message_size_bytes: int,
        append_prop_crc: bool,
    ) -> None:
        self.shapes: dict[tuple[int, int, int, int], RecordShape] = {}
        self.store_host = store_host.packed
        self.max_message_size_bytes = max_message_size_bytes
        self._record_bytes_max = record_bytes_max
        self._append_prop_crc = append_prop_crc
        self._store_flag = STOREHOSTADDRESS_V6_FLAG * store_host.is_v6

    def shape(self, body: int, topic: bytes, properties: int, born_host: int) -> RecordShape:
        """Return how a record with parts of these lengths is written."""
        topic_bytes = len(topic)
        key = (body, topic_bytes, properties, born_host)
        found = self.shapes.get(key)
        if found is None:
            if len(self.shapes) >= _SHAPES_MAX:
                self.shapes.clear()
            v2 = len(topic.decode()) > TOPIC_V1_CHARACTERS_MAX
            layout = struct.Struct(
                f">IIiiqqiq{born_host}sq{len(self.store_host)}siqi"
                f"{body}s{'H' if v2 else 'B'}{topic_bytes}sh{properties}s"
            )
            size = layout.size + 4
            found = self.shapes[key] = RecordShape(
                layout,
                size,
                size.to_bytes(4, "big"),
                MESSAGE_MAGIC_CODE_V2 if v2 else MESSAGE_MAGIC_CODE,
                self._host_flags(born_host),
            )
        return found

    def _host_flags(self, born_host_bytes: int) -> int:
        """Return the SYSFLAG bits that say how long the hosts are; never taken from a client.

        A wrong one would make every reader, recovery first, stop at the record.
        """
        return BORNHOST_V6_FLAG * (born_host_bytes == HOST_V6_BYTES) | self._store_flag

    def encode_batch(
        self, batch: PutBatch, topic: bytes, queue_offset: int, offset: int, now_ms: int
    ) -> tuple[bytes | bytearray, list[int]]:
        """Split a batch body into the records to write at `offset`.

        Return them, and physical offset, size and tags code of the first, of the second, and so
        on. Entry size, magic and CRC are ignored, as RocketMQ does.

        Raises:
            IllegalBatchError: a length is negative or runs past the end.

        Source: MessageExtEncoder.encode(MessageExtBatch).
        """
        magic, middle, topic_part = self._common_parts(batch, topic, now_ms)
        parts = BatchParts(
            batch.properties, middle, topic_part, magic, batch.queue_id, queue_offset, offset
        )
        if native.loops is not None and not self._append_prop_crc:
            found = native.loops.split_batch(batch.body, parts)
            if found is not None:
                return found
        return self._split(batch.body, parts)

    def _split(self, body: bytes, common: BatchParts) -> tuple[bytes | bytearray, list[int]]:
        """Do what `encode_batch` says, for entries of any kind."""
        shared, middle, topic_part, magic, queue_id, queue_offset, offset = common
        with_crc = self._append_prop_crc
        pack = _BATCH_RECORD_HEAD.pack
        fixed_bytes = _BATCH_RECORD_HEAD.size + len(middle) + 4 + len(topic_part)
        # What every client sends: properties that end in a separator, to which others are added.
        # Shorter than this, the whole cannot look torn.
        shared_bytes = len(shared)
        joins_simply = shared and not with_crc and shared[-1]
        own_bytes_max = TORN_BYTES_MIN - shared_bytes
        view = memoryview(body)
        parts: list[bytes] = []
        units: list[int] = []
        position, end = 0, len(body)
        # Inline, not a function per entry: this loop is what a batch costs.
        while position < end:
            flag, body_bytes = _unpack_entry(body, position)
            start = position + BATCH_ENTRY_HEAD_BYTES
            at = start + body_bytes
            if body_bytes < 0:
                raise IllegalBatchError(
                    f"batch entry at byte {position}: {body_bytes} bytes of body"
                )
            position = at + 2 + _unpack_length(body, at)[0]
            if not at + 2 <= position <= end:
                raise IllegalBatchError(
                    f"batch entry at byte {start}: {position - at - 2} bytes of properties"
                )
            tail = body[at:position]
            tail_bytes = position - at
            if (tail_bytes > TORN_BYTES_MIN or (not tail[-1] and tail_bytes > 2)) and looks_torn(
                tail[2:]
            ):
                raise IllegalBatchError(f"batch entry at byte {start}: NUL bytes in its properties")
            if joins_simply and 2 < tail_bytes < own_bytes_max and tail[-1] == _SEPARATOR_BYTE:
                tail_bytes += shared_bytes
                tail = _pack_length(tail_bytes - 2) + tail[2:] + shared
            elif shared or with_crc:
                tail = _joined(tail, shared, with_crc=with_crc)
                tail_bytes = len(tail)
            size = fixed_bytes + body_bytes + tail_bytes
            crc = raw_crc32(view[start:at]) & CRC_MASK
            parts += (
                pack(size, magic, crc, queue_id, flag, queue_offset, offset),
                middle,
                body[start - 4 : at],
                topic_part,
                tail,
            )
            units += (offset, size, tags_code_of(tail[2:]) if b"TAGS\x01" in tail else 0)
            queue_offset += 1
            offset += size
        records = b"".join(parts)
        return (_with_crcs(records, units) if with_crc else records), units

    def _common_parts(self, batch: PutBatch, topic: bytes, now_ms: int) -> tuple[int, bytes, bytes]:
        """Return what all records of a batch share: magic, SYSFLAG to PREPARED offset, topic."""
        v2 = len(topic.decode()) > TOPIC_V1_CHARACTERS_MAX
        born_host = batch.born_host
        middle = struct.pack(
            f">iq{len(born_host)}sq{len(self.store_host)}siq",
            batch.sys_flag & NO_HOST_FLAGS | self._host_flags(len(born_host)),
            batch.born_timestamp_ms,
            born_host,
            now_ms,
            self.store_host,
            batch.reconsume_times,
            0,
        )
        topic_part = len(topic).to_bytes(2 if v2 else 1, "big") + topic
        return MESSAGE_MAGIC_CODE_V2 if v2 else MESSAGE_MAGIC_CODE, middle, topic_part

    def message_fault(self, message: PutMessage, topic: bytes) -> Fault | None:
        """Return why a message is too large to be stored, None if it is not.

        RocketMQ looks at the properties first, then at the body, then at the whole record. Beyond
        RocketMQ, a record has to fit a file, and properties must not look like a lost page.

        Source: MessageExtEncoder.encode.
        """
        properties = message.properties
        if self._append_prop_crc:
            properties = with_reserved_crc(properties)
        if len(properties) > PROPERTIES_BYTES_MAX:
            return _properties_fault(len(properties))
        body_bytes, limit = len(message.body), self.max_message_size_bytes
        if body_bytes > limit:
            return _illegal(
                f"the body has {body_bytes} bytes, the limit is {limit} (max_message_size_bytes)"
            )
        size = self.shape(body_bytes, topic, len(properties), len(message.born_host)).size
        # RocketMQ would lose a record that is too large for a file, and say that all is well.
        size_max = min(limit + RECORD_OVERHEAD_BYTES_MAX, self._record_bytes_max)
        if size > size_max:
            return _illegal(f"the record has {size} bytes, the limit is {size_max}")
        if looks_torn(message.properties):
            return _illegal("the properties end in, or hold many, NUL characters")
        return None

    def batch_fault(self, batch: PutBatch) -> Fault | None:
        """Return why a batch cannot be stored, None if it can, as far as its entries allow.

        Where RocketMQ raises (too large a body, too long properties) this is a status like others.

        Source: CommitLog.asyncPutMessages, MessageExtEncoder.encode(MessageExtBatch).
        """
        if batch.sys_flag & TRANSACTION_MASK:
            return _illegal("a batch cannot be transactional")
        if delay_level_of(batch.properties) > 0:
            return _illegal("a batch cannot be delayed")
        if not batch.body:
            return _illegal("the batch is empty")
        limit = self.max_message_size_bytes
        if len(batch.body) > limit:
            return _illegal(
                f"the batch takes {len(batch.body)} bytes, the limit is {limit}"
                " (max_message_size_bytes)"
            )
        if len(batch.properties) > PROPERTIES_BYTES_MAX:
            return _properties_fault(len(batch.properties))
        return None


def _illegal(reason: str) -> Fault:
    return PutMessageStatus.MESSAGE_ILLEGAL, reason


def _properties_fault(size: int) -> Fault:
    return (
        PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
        f"properties take {size} bytes, the limit is {PROPERTIES_BYTES_MAX}",
    )


def _joined(tail: bytes, shared: bytes, *, with_crc: bool) -> bytes:
    """Return the end of a record: length of the properties, an entry's own, then the batch's.

    A separator is put between them where it is missing; see `reserve_batch_crc` for the CRC.
    """
    properties = tail[2:]
    if shared and properties and not properties.endswith(_SEPARATOR):
        properties += _SEPARATOR
    properties += shared
    if looks_torn(properties):
        raise IllegalBatchError("NUL bytes in the properties of the batch")
    if with_crc:
        properties = reserve_batch_crc(properties)
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise IllegalBatchError(_properties_fault(len(properties))[1])
    return len(properties).to_bytes(2, "big") + properties


def _with_crcs(records: bytes, units: list[int]) -> bytearray:
    """Fill in the CRC property of every record of a run."""
    signed = bytearray(records)
    start = 0
    for size in units[1::3]:
        write_crc(signed, start, records[start : start + 4], start + size)
        start += size
    return signed


def topic_fault(topic: str) -> Fault | None:
    """Return why no queue of this topic can be, None if it can.

    Beyond RocketMQ, the name has to be one that a directory can have.

    Source: HookUtils.checkBeforePutMessage.
    """
    size = len(topic.encode())
    is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    limit = RETRY_TOPIC_BYTES_MAX if is_retry else TOPIC_BYTES_MAX
    if not 0 < size <= limit:
        return _illegal(f"the topic has {size} bytes, allowed are 1 to {limit}")
    if "/" in topic or "\0" in topic or topic in {".", ".."}:
        return _illegal(f"{topic!r} cannot be the name of a directory")
    return None


def inner_batch_fault(sys_flag: int, properties: bytes, *, is_batch_topic: bool) -> Fault | None:
    """Return why flag and properties do not make an inner batch, None if they agree.

    Either both say so, and the topic has batch queues, or neither does.

    Source: HookUtils.checkInnerBatch.
    """
    number = property_value(properties, _INNER_NUM)
    if not sys_flag & INNER_BATCH_FLAG:
        if number is None:
            return None
        return _illegal("the message has a property INNER_NUM, but is no inner batch")
    if not is_batch_topic:
        return _illegal("inner batches are for topics with batch queues only")
    if number is not None and not (number.isdigit() and int(number) <= INNER_NUM_MAX):
        return _illegal(f"INNER_NUM is not a number up to {INNER_NUM_MAX}")
    return None


def inner_batch(batch: PutBatch) -> PutMessage:
    """Return the one message that holds a whole client's batch, without its place in the queue.

    Raises:
        IllegalBatchError: the body is no batch, or holds more than 32,767 messages.

    Source: SendMessageProcessor.sendBatchMessage for topics with batch queues.
    """
    try:
        count = sum(1 for _ in decode_batch_body(batch.body))
    except MalformedMessageError as error:
        raise IllegalBatchError(str(error)) from error
    if not 0 < count <= INNER_NUM_MAX:
        raise IllegalBatchError(f"a batch of {count} messages, allowed are 1 to {INNER_NUM_MAX}")
    return PutMessage(
        topic=batch.topic,
        queue_id=batch.queue_id,
        body=batch.body,
        properties=with_properties(batch.properties, {PROPERTY_INNER_NUM: str(count)}),
        born_timestamp_ms=batch.born_timestamp_ms,
        born_host=batch.born_host,
        sys_flag=batch.sys_flag | NEED_UNWRAP_FLAG | INNER_BATCH_FLAG,
        reconsume_times=batch.reconsume_times,
    )


def with_inner_base(message: PutMessage, queue_offset: int) -> PutMessage:
    """Return an inner batch that says which queue offset its first message has.

    Source: BatchConsumeQueue.assignQueueOffset.
    """
    added = {PROPERTY_INNER_BASE: str(queue_offset)}
    return msgspec.structs.replace(message, properties=with_properties(message.properties, added))


def message_num(properties: bytes) -> int:
    """Return by how much an inner batch, or any message of a batch queue, moves the queue on.

    `properties` have passed `inner_batch_fault`.

    Source: CommitLog.getMessageNum.
    """
    number = property_value(properties, _INNER_NUM)
    return max(1, int(number)) if number else 1
