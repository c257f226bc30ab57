"""CommitLog: every message of every topic, one record after the other.

    | record | record | ... | record | blank | 0 0 0 |   file 0, 64 MiB or 1 GiB
    | record | ...                                        file 1

A record never crosses files. One that would leave less than 8 bytes behind it goes to the next
file, and a blank record (size of the rest, blank magic) closes this one.

The bytes become a record at once: everything behind TOTALSIZE is written first, TOTALSIZE last, and
what lies behind the log is zero. A process that dies in between leaves a log that simply ends in
front of the record; for a batch, in front of its first record.

Source: org.apache.rocketmq.store.CommitLog and MessageExtEncoder of 5.3.3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from store.errors import AppendGapError
from store.mapped_file_queue import MappedFileQueue
from store.recovery import BLANK_HEADER, TORN_BYTES_MIN, looks_torn
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOSTADDRESS_V6_FLAG,
    TOPIC_V1_CHARACTERS_MAX,
)
from tandem.wire.message_properties import PROPERTIES_BYTES_MAX, tags_code_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.disk import Disk
    from store.mapped_file import MappedFile
    from store.results import PutBatch, PutMessage
    from tandem.wire.message import Host

END_FILE_MIN_BLANK_LENGTH: Final = 8
HOST_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
NO_HOST_FLAGS: Final = ~HOST_FLAGS
HOST_V6_BYTES: Final = 20
_SHAPES_MAX: Final = 8192
_unpack_entry = struct.Struct(">12xii").unpack_from
_unpack_length = struct.Struct(">h").unpack_from
_BATCH_RECORD_HEAD: Final = struct.Struct(">IIIiiqq")
BATCH_ENTRY_HEAD_BYTES: Final = 20
_SEPARATOR: Final = b"\x02"


class RecordShape(msgspec.Struct, frozen=True, gc=False):
    """How to write records whose parts have these lengths, in one call."""

    pack_into: struct.Struct
    size: int
    size_bytes: bytes
    magic: int
    host_flags: int


class IllegalMessageError(ValueError):
    """A message cannot be written as a record. Nothing was written."""


class IllegalBatchError(ValueError):
    """A client's batch body cannot be split. Nothing was written."""


class CommitLog:
    """The log of one node. `MessageStore` owns and closes it."""

    def __init__(self, directory: str, mapped_file_size: int, disk: Disk, store_host: Host) -> None:
        self.files = MappedFileQueue(directory, mapped_file_size, disk)
        self.record_bytes_max = mapped_file_size - END_FILE_MIN_BLANK_LENGTH
        self.last_store_timestamp_ms = 0
        self.last_record_offset = -1
        self._store_host = store_host.packed
        self._store_flag = STOREHOSTADDRESS_V6_FLAG * store_host.is_v6
        self._shapes: dict[tuple[int, int, int, int], RecordShape] = {}

    @property
    def min_offset(self) -> int:
        """The first physical offset held, 0 for an empty log."""
        return max(0, self.files.min_offset)

    @property
    def max_offset(self) -> int:
        """The first physical offset not written yet."""
        return self.files.max_offset

    def shape(self, body: int, topic: bytes, properties: int, born_host: int) -> RecordShape:
        """Return how a record with parts of these lengths is written."""
        topic_bytes = len(topic)
        key = (body, topic_bytes, properties, born_host)
        found = self._shapes.get(key)
        if found is None:
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            v2 = len(topic.decode()) > TOPIC_V1_CHARACTERS_MAX
            layout = struct.Struct(
                f">IIiiqqiq{born_host}sq{len(self._store_host)}siqi"
                f"{body}s{'H' if v2 else 'B'}{topic_bytes}sh{properties}s"
            )
            size = layout.size + 4
            found = self._shapes[key] = RecordShape(
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

    def file_with_room(self, size: int) -> MappedFile:
        """Return the file that takes `size` bytes next, after closing the last one if need be.

        The next file is created before the blank is written: without room on the disk nothing
        changes.

        Raises:
            StoreFullError: no room for the next file.
        """
        last = self.files.last
        if last is None or last.is_full:
            return self.files.last_or_create(0)
        blank_bytes = last.size - last.wrote_position
        if size + END_FILE_MIN_BLANK_LENGTH <= blank_bytes:
            return last
        following = self.files.create_next()
        start = last.wrote_position
        last.buffer[start + 4 : start + 8] = BLANK_HEADER.pack(blank_bytes, BLANK_MAGIC_CODE)[4:]
        last.buffer[start : start + 4] = blank_bytes.to_bytes(4, "big")
        last.wrote_position = last.size
        return following

    def append_message(
        self, message: PutMessage, topic: bytes, queue_offset: int, now_ms: int
    ) -> tuple[int, int]:
        """Append one record; return its physical offset and its size.

        The caller has checked all limits. Source: CommitLog.DefaultAppendMessageCallback.doAppend.

        Raises:
            IllegalMessageError: a number is too large for its field; nothing was written.
            StoreFullError: no room for the next file; nothing was written.
        """
        body = message.body
        properties = message.properties
        born_host = message.born_host
        key = (len(body), len(topic), len(properties), len(born_host))
        shape = self._shapes.get(key) or self.shape(key[0], topic, key[2], key[3])
        size = shape.size
        file = self.files.files[-1] if self.files.files else None
        if file is None or file.wrote_position + size + END_FILE_MIN_BLANK_LENGTH > file.size:
            file = self.file_with_room(size)
        start = file.wrote_position
        offset = file.file_from_offset + start
        buffer = file.buffer
        try:
            shape.pack_into.pack_into(
                buffer,
                start + 4,
                shape.magic,
                raw_crc32(body) & CRC_MASK,
                message.queue_id,
                message.flag,
                queue_offset,
                offset,
                message.sys_flag & NO_HOST_FLAGS | shape.host_flags,
                message.born_timestamp_ms,
                born_host,
                now_ms,
                self._store_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                key[0],
                body,
                key[1],
                topic,
                key[2],
                properties,
            )
        except struct.error as error:
            # Half a record lies behind the end of the log now, where only zeros may be.
            buffer[start : start + size] = bytes(size)
            raise IllegalMessageError(f"a number does not fit its field: {error}") from error
        buffer[start : start + 4] = shape.size_bytes
        file.wrote_position = start + size
        self.last_store_timestamp_ms = now_ms
        self.last_record_offset = offset
        return offset, size

    def append_batch(
        self,
        batch: PutBatch,
        topic: bytes,
        queue_offset: int,
        now_ms: int,
        reserve: Callable[[int], None],
    ) -> list[int]:
        """Append a client's batch as one run of records.

        Return physical offset, size and tags code of the first message, of the second, and so on
        in one flat list, as `ConsumeQueue.append_many` takes it. `reserve` is called with the
        number of messages before anything is written; what it raises, this raises.

        Raises:
            IllegalBatchError: the body cannot be split, or is too large; nothing was written.
            StoreFullError: no room for the next file; nothing was written.

        Source: CommitLog.DefaultAppendMessageCallback.doAppend for MessageExtBatch.
        """
        expected = self.max_offset
        try:
            records, units = self._encode_batch(batch, topic, queue_offset, expected, now_ms)
        except struct.error as error:
            raise IllegalBatchError(f"the last entry of the batch is cut: {error}") from error
        size = len(records)
        if size > self.record_bytes_max:
            raise IllegalBatchError(
                f"the batch takes {size} bytes in the log, more than a file holds"
                f" ({self.record_bytes_max}); send smaller batches"
            )
        reserve(len(units) // 3)
        file = self.file_with_room(size)
        if file.end_offset != expected:  # it goes to the next file: other physical offsets
            start = file.end_offset
            records, units = self._encode_batch(batch, topic, queue_offset, start, now_ms)
        self._write_run(file, records)
        self.last_store_timestamp_ms = now_ms
        self.last_record_offset = units[-3]
        return units

    def _encode_batch(
        self, batch: PutBatch, topic: bytes, queue_offset: int, offset: int, now_ms: int
    ) -> tuple[bytes, list[int]]:
        """Split a batch body into records. Entry size, magic and CRC are ignored, as RocketMQ does.

        A separator is put between an entry's properties and the batch's where it is missing.

        Source: MessageExtEncoder.encode(MessageExtBatch).
        """
        body, shared, born_host = batch.body, batch.properties, batch.born_host
        queue_id, store_host = batch.queue_id, self._store_host
        pack = _BATCH_RECORD_HEAD.pack
        v2 = len(topic.decode()) > TOPIC_V1_CHARACTERS_MAX
        magic = MESSAGE_MAGIC_CODE_V2 if v2 else MESSAGE_MAGIC_CODE
        topic_part = len(topic).to_bytes(2 if v2 else 1, "big") + topic
        # SYSFLAG to PREPARED_TRANSACTION_OFFSET are the same in all records of a batch.
        middle = struct.pack(
            f">iq{len(born_host)}sq{len(store_host)}siq",
            batch.sys_flag & NO_HOST_FLAGS | self._host_flags(len(born_host)),
            batch.born_timestamp_ms,
            born_host,
            now_ms,
            store_host,
            batch.reconsume_times,
            0,
        )
        fixed_bytes = _BATCH_RECORD_HEAD.size + len(middle) + 4 + len(topic_part)
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
            if shared:
                tail = _joined(tail, shared)
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
        return b"".join(parts), units

    @staticmethod
    def _write_run(file: MappedFile, data: bytes | memoryview) -> None:
        """Append `data`, its first 4 bytes last: a crash leaves all of it or nothing."""
        start = file.wrote_position
        end = start + len(data)
        file.buffer[start + 4 : end] = memoryview(data)[4:]
        file.buffer[start : min(start + 4, end)] = data[:4]
        file.wrote_position = end

    def append_data(self, offset: int, data: bytes | memoryview) -> None:
        """Append raw bytes that continue the log; they may run over the end of a file.

        The first 4 bytes go last, so that a crash leaves all of a run or none of it.

        Raises:
            AppendGapError: `offset` is not the end of the log. An empty log takes the start of any
                file: recovery could not find a log that starts in the middle of one.
            StoreFullError: no room for the next file. Whole files before that were taken.

        Source: CommitLog.appendData.
        """
        size = self.files.mapped_file_size
        expected = self.max_offset if self.files.files else offset - offset % size
        if offset != expected:
            raise AppendGapError(offset=offset, expected=expected)
        view = memoryview(data)
        while view:
            file = self.files.last_or_create(offset)
            size = min(len(view), file.size - file.wrote_position)
            self._write_run(file, view[:size])
            offset += size
            view = view[size:]

    def read(self, offset: int, bytes_max: int) -> memoryview:
        """Return bytes from `offset` on, of one file and no further than its written part.

        Empty at the end of the log and for offsets that are not held.

        Source: CommitLog.getData.
        """
        file = self.files.find_by_offset(offset)
        if file is None:
            return memoryview(b"")
        position = offset - file.file_from_offset
        end = min(file.wrote_position, position + bytes_max)
        return memoryview(file.buffer)[position : max(position, end)]

    def message(self, offset: int, size: int) -> memoryview | None:
        """Return the record of `size` bytes at `offset`, None if it is not held.

        Source: CommitLog.getMessage.
        """
        file = self.files.find_by_offset(offset)
        return None if file is None else file.select(offset - file.file_from_offset, size)

    def roll_next_file(self, offset: int) -> int:
        """Return where the file after the one with `offset` starts."""
        size = self.files.mapped_file_size
        return offset + size - offset % size

    def store_timestamp_ms(self, offset: int) -> int:
        """Return when the record at `offset` was stored, -1 if it is not held.

        Source: CommitLog.pickupStoreTimestamp.
        """
        head = self.message(offset, 76)
        if head is None:
            return -1
        (sys_flag,) = struct.unpack_from(">i", head, 36)
        (stored_ms,) = struct.unpack_from(">q", head, 56 + 12 * bool(sys_flag & BORNHOST_V6_FLAG))
        return int(stored_ms)


def _joined(tail: bytes, shared: bytes) -> bytes:
    """Return the end of a record: length of the properties, an entry's own, then the batch's."""
    properties = tail[2:]
    if properties and not properties.endswith(_SEPARATOR):
        properties += _SEPARATOR
    properties += shared
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise IllegalBatchError(
            f"properties take {len(properties)} bytes, the limit is {PROPERTIES_BYTES_MAX}"
        )
    if looks_torn(properties):
        raise IllegalBatchError("NUL bytes in the properties of the batch")
    return len(properties).to_bytes(2, "big") + properties
