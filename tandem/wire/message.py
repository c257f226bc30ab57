"""Messages, and the record that a message is in the commit log and in the body of a pull.

One record, big-endian, packed without padding:

    offset  bytes  field
    0       4      TOTALSIZE, this field included
    4       4      MAGICCODE, V1 or V2
    8       4      BODYCRC of the stored body, top bit clear; 0 for an empty body
    12      4      QUEUEID
    16      4      FLAG of the user
    20      8      QUEUEOFFSET
    28      8      PHYSICALOFFSET
    36      4      SYSFLAG
    40      8      BORNTIMESTAMP, ms
    48      4|16+4 BORNHOST: address and port; 16 when SYSFLAG has 0x10
    56      8      STORETIMESTAMP, ms                         (+12 after a v6 born host)
    64      4|16+4 STOREHOST; 16 when SYSFLAG has 0x20
    72      4      RECONSUMETIMES
    76      8      PREPARED_TRANSACTION_OFFSET
    84      4+n    BODYLENGTH, BODY
            1|2+n  TOPICLENGTH, TOPIC: one byte in V1, two in V2
            2+n    PROPERTIESLENGTH, PROPERTIES

Source: RocketMQ 5.3.3, MessageDecoder.decode and encodeMessage, MessageExtEncoder.encode,
MessageSysFlag.
"""

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from tandem.wire.batch_body import decode_batch_body, encode_batch_entry
from tandem.wire.crc import crc32
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message_choices import (
    NO_PRIORITY,
    check_delays,
    check_priority,
    plain_body,
    priority_of,
)
from tandem.wire.message_properties import (
    DELAYING_PROPERTIES,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    decode_properties,
    encode_properties,
    joined_keys,
)

MESSAGE_MAGIC_CODE: Final = 0xDAA320A7
MESSAGE_MAGIC_CODE_V2: Final = 0xDAA320AB
BLANK_MAGIC_CODE: Final = 0xCBD43194
END_FILE_MIN_BLANK_LENGTH: Final = 8
"""The blank at the end of a file has at least this many bytes. Source: CommitLog."""

RECORD_OVERHEAD_BYTES_MAX: Final = 65_536
"""How much larger than the largest body a record may be. Source: MessageExtEncoder."""

COMPRESSED_FLAG: Final = 0x1
TRANSACTION_MASK: Final = 0xC
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC
BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20
NEED_UNWRAP_FLAG: Final = 0x40
INNER_BATCH_FLAG: Final = 0x80
COMPRESSION_TYPE_MASK: Final = 0x700
INNER_BATCH_FLAGS: Final = NEED_UNWRAP_FLAG | INNER_BATCH_FLAG

TOPIC_V1_CHARACTERS_MAX: Final = 127
"""A longer topic makes a V2 record (MessageVersion, autoMessageVersionOnTopicLen)."""

FIXED_HEADER: Final = struct.Struct(">IIIiiqqiq")
"""TOTALSIZE to BORNTIMESTAMP: the same place in every record."""

RECORD_BYTES_MIN: Final = 91
"""Empty body, topic and properties, v4 hosts, V1."""

assert FIXED_HEADER.size == 48

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LONG = struct.Struct(">q")


class Host(msgspec.Struct, frozen=True, order=True):
    """An address and a port, as stored in a record. `ip` is text: `10.1.2.3` or `::1`."""

    ip: str
    port: int

    @property
    def packed(self) -> bytes:
        """Address bytes (4 or 16), then the port in 4 bytes."""
        return _pack_host(self.ip, self.port)

    @property
    def is_v6(self) -> bool:
        """True if the address takes 16 bytes, which a flag of the record has to say."""
        return ":" in self.ip

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.is_v6 else f"{self.ip}:{self.port}"


@lru_cache(maxsize=4096)
def _pack_host(ip: str, port: int) -> bytes:
    return ipaddress.ip_address(ip).packed + _INT.pack(port)


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> Host:
    """Return the host of 8 (v4) or 20 (v6) bytes."""
    (port,) = _INT.unpack_from(packed, len(packed) - 4)
    return Host(str(ipaddress.ip_address(packed[:-4])), port)


class Message(msgspec.Struct, frozen=True):
    """What a producer sends.

    Args:
        topic: where to.
        body: the content, in bytes.
        keys: what the message can be looked up by: one key, several in one text with blanks
            between them as RocketMQ stores them, or a list of keys.
        tags: what consumers filter by; one tag, despite RocketMQ's name.
        flag: a number of the user's own.
        properties: names and values of the user's own.
        wait_store_msg_ok: whether the answer waits for disk and other nodes as the broker is set up
            to (the WAIT property); None leaves it to the producer.
        delay_time_level: how late consumers get it: 1 is a second, 18 two hours, if the broker has
            RocketMQ's levels; 0 is at once.
        delay_ms: how late consumers get it, in milliseconds, instead of a level.
        deliver_time_ms: when consumers get it, in milliseconds since 1970, instead of a delay.
        sharding_key: messages of one key go to one queue, in the order in which they are sent.
        priority: the queue of a topic of the type PRIORITY, from 0 on: who pops gets the highest
            first. None: it has none.

    Raises:
        TypeError: the body is no bytes, or a key no text.
        ValueError: a key cannot be stored, or delays, priority and sharding key contradict.
    """

    topic: str
    body: bytes
    keys: str | Sequence[str] = ""
    tags: str = ""
    flag: int = 0
    properties: dict[str, str] = {}
    wait_store_msg_ok: bool | None = None
    delay_time_level: int = 0
    delay_ms: int = 0
    deliver_time_ms: int = 0
    sharding_key: str = ""
    priority: int | None = None

    def __post_init__(self) -> None:
        """Check what a program gets wrong; this runs for every message."""
        if type(self.body) is not bytes or type(self.keys) is not str:
            self._make_plain()
        if self.delay_ms or self.deliver_time_ms:
            check_delays(self.delay_time_level, self.delay_ms, self.deliver_time_ms)
        if self.priority is not None:
            check_priority(self.priority, self.sharding_key, is_delayed=self.is_delayed)

    def _make_plain(self) -> None:
        msgspec.structs.force_setattr(self, "body", plain_body(self.body))
        if not isinstance(self.keys, str):
            msgspec.structs.force_setattr(self, "keys", joined_keys(self.keys))

    @property
    def is_delayed(self) -> bool:
        """True if consumers get it later; a batch takes none such."""
        return bool(
            self.delay_time_level
            or self.delay_ms
            or self.deliver_time_ms
            or (self.properties and not DELAYING_PROPERTIES.isdisjoint(self.properties))
        )

    @property
    def is_for_a_batch(self) -> bool:
        """Whether a broker may store it together with others: not if it asks for its own place."""
        has_priority = self.priority is not None or PROPERTY_PRIORITY in self.properties
        return not (self.is_delayed or has_priority)

    @property
    def is_plain(self) -> bool:
        """True if it says nothing about when, where or how safely it is to be stored."""
        return not (
            self.properties
            or self.sharding_key
            or self.delay_time_level
            or self.delay_ms
            or self.deliver_time_ms
            or self.wait_store_msg_ok is not None
            or self.priority is not None
        )

    def property_map(self) -> dict[str, str]:
        """The properties as they travel: the user's, then those that its fields stand for."""
        properties = dict(self.properties)
        if self.keys:
            # A text since the beginning of its life.
            properties[PROPERTY_KEYS] = str(self.keys)
        if self.tags:
            properties[PROPERTY_TAGS] = self.tags
        if self.wait_store_msg_ok is not None:
            properties[PROPERTY_WAIT_STORE_MSG_OK] = "true" if self.wait_store_msg_ok else "false"
        if self.delay_time_level:
            properties[PROPERTY_DELAY_LEVEL] = str(self.delay_time_level)
        if self.delay_ms:
            properties[PROPERTY_TIMER_DELAY_MS] = str(self.delay_ms)
        if self.deliver_time_ms:
            properties[PROPERTY_TIMER_DELIVER_MS] = str(self.deliver_time_ms)
        if self.sharding_key:
            properties[PROPERTY_SHARDING_KEY] = self.sharding_key
        if self.priority is not None:
            properties[PROPERTY_PRIORITY] = str(self.priority)
        return properties


class MessageExt(msgspec.Struct, frozen=True):
    """One stored message with everything its record holds. Times are in milliseconds.

    `body` is as stored: still compressed when `sys_flag` says so, and a whole batch when it says
    that (`unwrap_inner_batch`). `body_crc` is of the stored body.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int

    @property
    def keys(self) -> str:
        """The KEYS property, empty if absent."""
        return self.properties.get(PROPERTY_KEYS, "")

    @property
    def tags(self) -> str:
        """The TAGS property, empty if absent."""
        return self.properties.get(PROPERTY_TAGS, "")

    @property
    def priority(self) -> int | None:
        """The priority it was sent with, None if it has none."""
        given = priority_of(self.properties)
        return None if given == NO_PRIORITY else given

    @property
    def offset_msg_id(self) -> str:
        """Where the message is: store host and physical offset in upper-case hex."""
        return offset_msg_id(self.store_host, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """What RocketMQ's clients show: the producer's UNIQ_KEY, else `offset_msg_id`."""
        return self.properties.get(PROPERTY_UNIQUE_KEY) or self.offset_msg_id


def offset_msg_id(store_host: Host, physical_offset: int) -> str:
    """Return the message id a broker answers with: 32 hex digits for v4, 56 for v6.

    Source: MessageDecoder.createMessageId.
    """
    return (store_host.packed + _LONG.pack(physical_offset)).hex().upper()


def decode_offset_msg_id(text: str) -> tuple[Host, int]:
    """Return the store host and the physical offset of a broker's message id.

    Raises:
        MalformedMessageError: not hex, or not 32 or 56 digits.
    """
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        packed = b""
    if len(packed) not in (16, 28):
        raise MalformedMessageError(
            f"message id {text!r}: expected 32 hex digits (IPv4 broker) or 56 (IPv6)"
        )
    return unpack_host(packed[:-8]), _LONG.unpack_from(packed, len(packed) - 8)[0]


def record_size(
    body_bytes: int, topic_bytes: int, properties_bytes: int, *, v2: bool = False, sys_flag: int = 0
) -> int:
    """Return TOTALSIZE of a record with parts of these sizes (MessageExtEncoder.calMsgLength)."""
    hosts = 12 * bool(sys_flag & BORNHOST_V6_FLAG) + 12 * bool(sys_flag & STOREHOSTADDRESS_V6_FLAG)
    return RECORD_BYTES_MIN + v2 + hosts + body_bytes + topic_bytes + properties_bytes


def encode_record(message: MessageExt) -> bytes:
    """Return the record of `message`. `store_size` and `body_crc` are computed, not taken.

    The host flags of `sys_flag` are set from the hosts.
    """
    topic = message.topic.encode()
    properties = encode_properties(message.properties)
    v2 = len(message.topic) > TOPIC_V1_CHARACTERS_MAX
    sys_flag = message.sys_flag & ~(BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG)
    sys_flag |= BORNHOST_V6_FLAG * message.born_host.is_v6
    sys_flag |= STOREHOSTADDRESS_V6_FLAG * message.store_host.is_v6
    size = record_size(len(message.body), len(topic), len(properties), v2=v2, sys_flag=sys_flag)
    head = FIXED_HEADER.pack(
        size,
        MESSAGE_MAGIC_CODE_V2 if v2 else MESSAGE_MAGIC_CODE,
        crc32(message.body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        sys_flag,
        message.born_timestamp_ms,
    )
    return b"".join(
        (
            head,
            message.born_host.packed,
            _LONG.pack(message.store_timestamp_ms),
            message.store_host.packed,
            _INT.pack(message.reconsume_times),
            _LONG.pack(message.prepared_transaction_offset),
            _INT.pack(len(message.body)),
            message.body,
            len(topic).to_bytes(2 if v2 else 1, "big"),
            topic,
            _SHORT.pack(len(properties)),
            properties,
        )
    )


def decode_message(
    buffer: bytes | bytearray | memoryview, position: int = 0
) -> tuple[MessageExt, int]:
    """Decode the record at `position`; return it and the position after it.

    The body CRC is not checked (no RocketMQ client does; recovery and replication do).

    Raises:
        MalformedMessageError: unknown magic, a length that does not fit, or a cut record.
    """
    try:
        return _decode_message(memoryview(buffer), position)
    except (struct.error, ValueError, IndexError) as error:
        raise MalformedMessageError(f"record at byte {position}: {error}", position) from error


def _decode_message(buffer: memoryview, start: int) -> tuple[MessageExt, int]:
    (size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born) = (
        FIXED_HEADER.unpack_from(buffer, start)
    )
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        text = f"record at byte {start}: magic 0x{magic:08X} is not a message"
        raise MalformedMessageError(text, start)
    end = start + size
    if size < RECORD_BYTES_MIN or end > len(buffer):
        raise MalformedMessageError(
            f"record at byte {start}: total size {size}, but {len(buffer) - start} bytes are there",
            start,
        )
    position = start + FIXED_HEADER.size
    born_host, position = _take_host(buffer, position, v6=bool(sys_flag & BORNHOST_V6_FLAG))
    (stored,) = _LONG.unpack_from(buffer, position)
    store_host, position = _take_host(
        buffer, position + 8, v6=bool(sys_flag & STOREHOSTADDRESS_V6_FLAG)
    )
    reconsume_times, prepared_offset, body_bytes = struct.unpack_from(">iqi", buffer, position)
    body, position = _take(buffer, position + 16, body_bytes, end)
    if magic == MESSAGE_MAGIC_CODE:
        topic, position = _take(buffer, position + 1, buffer[position], end)
    else:
        topic, position = _take(buffer, position + 2, _SHORT.unpack_from(buffer, position)[0], end)
    properties, position = _take(buffer, position + 2, _SHORT.unpack_from(buffer, position)[0], end)
    if position != end:
        raise MalformedMessageError(
            f"record at byte {start}: parts end at {position}, total size says {end}", start
        )
    message = MessageExt(
        topic=str(topic, "utf-8", "replace"),
        body=bytes(body),
        properties=decode_properties(properties),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_size=size,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born,
        born_host=born_host,
        store_timestamp_ms=stored,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body_crc=body_crc,
    )
    return message, end


def _take_host(buffer: memoryview, position: int, *, v6: bool) -> tuple[Host, int]:
    end = position + (20 if v6 else 8)
    packed = bytes(buffer[position:end])
    if len(packed) != end - position:
        raise MalformedMessageError("cut inside a host", position)
    return unpack_host(packed), end


def _take(buffer: memoryview, start: int, size: int, end: int) -> tuple[memoryview, int]:
    if size < 0 or start + size > end:
        text = f"a part of {size} bytes at byte {start} runs past {end}"
        raise MalformedMessageError(text, start)
    return buffer[start : start + size], start + size


def decode_messages(body: bytes | bytearray | memoryview) -> list[MessageExt]:
    """Decode the records of a pull's body, which are back to back.

    Raises:
        MalformedMessageError: as `decode_message`. RocketMQ's clients drop the rest silently; a
            reader of ours would rather know.
    """
    messages = []
    position = 0
    while position < len(body):
        message, position = decode_message(body, position)
        messages.append(message)
    return messages


def is_inner_batch(sys_flag: int) -> bool:
    """True if the record holds a whole batch that its consumer has to take apart."""
    return sys_flag & INNER_BATCH_FLAGS == INNER_BATCH_FLAGS


def unwrap_inner_batch(message: MessageExt) -> list[MessageExt]:
    """Return the messages of a record that holds a whole batch; of any other, the message itself.

    They have flag, body and properties of their own and follow one another in the queue; all else
    is the record's, without the two flags of a batch. A compressed body has to be decompressed
    first.

    Raises:
        MalformedMessageError: the body is no batch.

    Source: MessageDecoder.decodeMessage, called by PullAPIWrapper.processPullResult.
    """
    if not is_inner_batch(message.sys_flag):
        return [message]
    return [
        msgspec.structs.replace(
            message,
            flag=entry.flag,
            body=entry.body,
            properties=decode_properties(entry.properties),
            queue_offset=message.queue_offset + index,
            sys_flag=message.sys_flag & ~INNER_BATCH_FLAGS,
            body_crc=crc32(entry.body),
        )
        for index, entry in enumerate(decode_batch_body(message.body))
    ]


def encode_batch_body(messages: Iterable[Message]) -> bytes:
    """Return the body of a SEND_BATCH_MESSAGE request.

    Raises:
        ValueError: the properties of one message take more than 32,767 bytes.
    """
    return b"".join(
        encode_batch_entry(m.flag, m.body, encode_properties(m.property_map())) for m in messages
    )
