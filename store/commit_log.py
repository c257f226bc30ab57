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
from store.recovery import BLANK_HEADER
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message import (
    BATCH_ENTRY_BYTES_MIN,
    BLANK_MAGIC_CODE,
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOSTADDRESS_V6_FLAG,
    TOPIC_V1_CHARACTERS_MAX,
)
from tandem.wire.message_properties import PROPERTIES_BYTES_MAX, tags_code_of

if TYPE_CHECKING:
    from store.disk import Disk
    from store.mapped_file import MappedFile
    from store.results import PutBatch, PutMessage
    from tandem.wire.message import Host

END_FILE_MIN_BLANK_LENGTH: Final = 8
_SHAPES_MAX: Final = 8192
_ENTRY: Final = struct.Struct(">12xii")
_SHORT: Final = struct.Struct(">h")
_SEPARATOR: Final = b"\x02"
_NUL: Final = b"\0"


class RecordShape(msgspec.Struct, frozen=True, gc=False):
    """How to write records whose parts have these lengths, in one call."""

    pack_into: struct.Struct
    size: int
    size_bytes: bytes
    magic: int


class IllegalBatchError(ValueError):
    """A client's batch body cannot be split. Nothing was written."""


class BatchLayout(msgspec.Struct, frozen=True, gc=False):
    """Where the parts of a batch go: one tuple a message, before anything is written."""

    entries: list[tuple[int, int, int, bytes, RecordShape]]
    """(flag, body start, body length, properties, shape)"""
    total_bytes: int


class CommitLog:
    """The log of one node. `MessageStore` owns and closes it."""

    def __init__(
        self, directory: str, mapped_file_size: int, disk: Disk, store_host: Host
    ) -> None:
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
            )
        return found

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
        shape.pack_into.pack_into(
            buffer,
            start + 4,
            shape.magic,
            raw_crc32(body) & CRC_MASK,
            message.queue_id,
            message.flag,
            queue_offset,
            offset,
            message.sys_flag | self._store_flag,
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
        buffer[start : start + 4] = shape.size_bytes
        file.wrote_position = start + size
        self.last_store_timestamp_ms = now_ms
        self.last_record_offset = offset
        return offset, size

    def layout_batch(self, batch: PutBatch, topic: bytes, body_bytes_max: int) -> BatchLayout:
        """Split a client's batch body, checking every length; nothing is written.

        Entry size, magic and CRC are ignored, as RocketMQ does; a separator is put between an
        entry's properties and the batch's where it is missing.

        Raises:
            IllegalBatchError: the body cannot be split, or a part is too large.

        Source: MessageExtEncoder.encode(MessageExtBatch).
        """
        body = batch.body
        end = len(body)
        shared = batch.properties
        born_host = len(batch.born_host)
        topic_bytes = len(topic)
        shapes = self._shapes
        entries: list[tuple[int, int, int, bytes, RecordShape]] = []
        total = 0
        position = 0
        while position < end:
            if end - position < BATCH_ENTRY_BYTES_MIN:
                raise IllegalBatchError(f"batch entry at byte {position} is cut")
            flag, size = _ENTRY.unpack_from(body, position)
            start = position + 20
            at = start + size
            if size < 0 or at + 2 > end or size > body_bytes_max:
                raise IllegalBatchError(f"batch entry at byte {position}: body of {size} bytes")
            (count,) = _SHORT.unpack_from(body, at)
            position = at + 2 + count
            if count < 0 or position > end:
                raise IllegalBatchError(f"batch entry at byte {at}: properties of {count} bytes")
            properties = body[at + 2 : position]
            if _NUL in properties:
                raise IllegalBatchError(f"batch entry at byte {at}: properties hold a NUL byte")
            if shared:
                properties = _joined(properties, shared)
            key = (size, topic_bytes, len(properties), born_host)
            shape = shapes.get(key) or self.shape(size, topic, key[2], born_host)
            entries.append((flag, start, size, properties, shape))
            total += shape.size
        return BatchLayout(entries, total)

    def append_batch(  # noqa: PLR0914 - one loop, all of it hot
        self, batch: PutBatch, layout: BatchLayout, topic: bytes, queue_offset: int, now_ms: int
    ) -> list[tuple[int, int, int]]:
        """Append a batch as one run of records; return (offset, size, tags code) of each.

        Raises:
            StoreFullError: no room for the next file; nothing was written.

        Source: CommitLog.DefaultAppendMessageCallback.doAppend for MessageExtBatch.
        """
        file = self.file_with_room(layout.total_bytes)
        buffer = file.buffer
        body = batch.body
        view = memoryview(body)
        start = file.wrote_position
        file_from = file.file_from_offset
        queue_id = batch.queue_id
        sys_flag = batch.sys_flag | self._store_flag
        born_ms, born_host, store_host = batch.born_timestamp_ms, batch.born_host, self._store_host
        reconsume_times = batch.reconsume_times
        topic_bytes = len(topic)
        at = start
        units = []
        for flag, body_at, size, properties, shape in layout.entries:
            content = view[body_at : body_at + size]
            shape.pack_into.pack_into(
                buffer,
                at + 4,
                shape.magic,
                raw_crc32(content) & CRC_MASK,
                queue_id,
                flag,
                queue_offset,
                file_from + at,
                sys_flag,
                born_ms,
                born_host,
                now_ms,
                store_host,
                reconsume_times,
                0,
                size,
                body[body_at : body_at + size],
                topic_bytes,
                topic,
                len(properties),
                properties,
            )
            if at != start:
                buffer[at : at + 4] = shape.size_bytes
            units.append((file_from + at, shape.size, tags_code_of(properties)))
            queue_offset += 1
            at += shape.size
        buffer[start : start + 4] = layout.entries[0][4].size_bytes
        file.wrote_position = at
        self.last_store_timestamp_ms = now_ms
        self.last_record_offset = units[-1][0]
        return units

    def append_data(self, offset: int, data: bytes | memoryview) -> None:
        """Append raw bytes that continue the log; they may run over the end of a file.

        The first 4 bytes go last, so that a crash leaves all of a run or none of it.

        Raises:
            AppendGapError: `offset` is not the end of the log. An empty log takes any.
            StoreFullError: no room for the next file. Whole files before that were taken.

        Source: CommitLog.appendData.
        """
        if self.files.files and offset != self.max_offset:
            raise AppendGapError(offset=offset, expected=self.max_offset)
        view = memoryview(data)
        while view:
            file = self.files.last_or_create(offset)
            if file.end_offset != offset:
                # An empty log that starts in the middle of a file: what is before is not ours.
                file.set_positions(offset - file.file_from_offset)
            start = file.wrote_position
            size = min(len(view), file.size - start)
            file.buffer[start + 4 : start + size] = view[4:size]
            file.buffer[start : start + min(4, size)] = view[: min(4, size)]
            file.wrote_position = start + size
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


def _joined(properties: bytes, shared: bytes) -> bytes:
    if properties and not properties.endswith(_SEPARATOR):
        properties += _SEPARATOR
    if len(properties) + len(shared) > PROPERTIES_BYTES_MAX:
        raise IllegalBatchError(
            f"properties take {len(properties) + len(shared)} bytes, the limit is {PROPERTIES_BYTES_MAX}"
        )
    return properties + shared
