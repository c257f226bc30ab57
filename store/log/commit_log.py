"""CommitLog: every message of every topic, one record after the other.

    | record | record | ... | record | blank | 0 0 0 |   file 0, 64 MiB or 1 GiB
    | record | ...                                        file 1

A record never crosses files. One that would leave less than 8 bytes after it goes to the next
file, and a blank record (size of the rest, blank magic) closes this one.

The bytes become a record at once: everything after TOTALSIZE is written first, TOTALSIZE last, and
all bytes past the end of the log are zero. A process that dies in between leaves a log that simply
ends before the record; for a batch, before its first record.

Source: org.apache.rocketmq.store.CommitLog and MessageExtEncoder of 5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.files.transient_store_pool import TransientStorePool
from store.log.damage import LogDamage
from store.log.log_end import BLANK_HEADER
from store.log.message_encoder import (
    NO_HOST_FLAGS,
    IllegalBatchError,
    IllegalMessageError,
    MessageEncoder,
)
from store.machine.disk import Disk
from store.machine.errors import AppendGapError
from store.machine.tell_once import TellOnce
from store.results import PutBatch, PutMessage
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    BORNHOST_V6_FLAG,
    END_FILE_MIN_BLANK_LENGTH,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_BYTES_MIN,
    STOREHOSTADDRESS_V6_FLAG,
    Host,
)
from tandem.wire.property_crc import with_reserved_crc, write_crc
from tandem.wire.record_rule import record_fault
from tandem.wire.send_run import WrittenRun

FAULTS_TOLD_MAX: Final = 1000
"""Damaged records that are logged one by one. Readers come by again and again."""

MAX_MESSAGE_SIZE_BYTES: Final = 4 << 20
_INT: Final = struct.Struct(">i")
_QUEUE: Final = struct.Struct(">i4xq")
"""Queue id and queue offset of a record, from its twelfth byte on."""
_PLACE_END: Final = 36
"""How much of a record holds its own place in the log."""
_MAGIC_CODES: Final = (
    MESSAGE_MAGIC_CODE.to_bytes(4, "big"),
    MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big"),
)
_STORE_TIMESTAMP_END: Final = 76
"""How much of a record holds its store time, wherever that is."""


class CommitLog:
    """The log of one node. `MessageStore` owns and closes it.

    Args:
        directories: one directory, or several; see `MappedFileQueue` for this, and for
            read_only_directories, is_directory_full, pool, warm, before_delete and
            on_first_file.
        max_message_size_bytes: the largest body.
        append_prop_crc: give every record the property of `tandem.wire.property_crc`.
        damage: what of it is known to be bad; None: nothing, and what is noted is not kept.
    """

    def __init__(
        self,
        directories: str | Sequence[str],
        mapped_file_size: int,
        disk: Disk,
        store_host: Host,
        *,
        read_only_directories: Sequence[str] = (),
        is_directory_full: Callable[[str], bool] = lambda _: False,
        pool: TransientStorePool | None = None,
        warm: bool = False,
        max_message_size_bytes: int = MAX_MESSAGE_SIZE_BYTES,
        append_prop_crc: bool = False,
        damage: LogDamage | None = None,
        before_delete: Callable[[int], None] = lambda _: None,
        on_first_file: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.damage = LogDamage() if damage is None else damage
        """What of it is known to be bad."""
        self.files = MappedFileQueue(
            directories,
            mapped_file_size,
            disk,
            read_only_directories=read_only_directories,
            is_directory_full=is_directory_full,
            pool=pool,
            warm=warm,
            before_delete=before_delete,
            on_first_file=on_first_file,
        )
        self.record_bytes_max = mapped_file_size - END_FILE_MIN_BLANK_LENGTH
        self.last_store_timestamp_ms = 0
        self.faults_told: TellOnce[str] = TellOnce(FAULTS_TOLD_MAX)
        """By physical offset: the damaged records that readers have met."""
        self.clock_steps = 0
        """How often a record was stored earlier than the one before it."""
        self.last_record_offset = -1
        self.checked_from = 0
        """Records from here on were checked when they were written, or by the last recovery."""
        self.encoder = MessageEncoder(
            store_host,
            record_bytes_max=self.record_bytes_max,
            max_message_size_bytes=max_message_size_bytes,
            append_prop_crc=append_prop_crc,
        )
        self._append_prop_crc = append_prop_crc
        self._store_host = store_host.packed
        self._shapes = self.encoder.shapes

    @property
    def min_offset(self) -> int:
        """The first physical offset held, 0 for an empty log.

        Source: CommitLog.getMinOffset.
        """
        return max(0, self.files.min_offset)

    @property
    def max_offset(self) -> int:
        """The end of what can be read. Buffers of a pool may hold more, not yet committed.

        Source: CommitLog.getMaxOffset.
        """
        return self.files.committed_where

    @property
    def append_offset(self) -> int:
        """Where the next record would go if it fits: `max_offset` without a pool."""
        return self.files.max_offset

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
        buffer = last.write_buffer
        buffer[start + 4 : start + 8] = BLANK_HEADER.pack(blank_bytes, BLANK_MAGIC_CODE)[4:]
        buffer[start : start + 4] = blank_bytes.to_bytes(4, "big")
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
        body, properties, born_host = message.body, message.properties, message.born_host
        if self._append_prop_crc:
            properties = with_reserved_crc(properties)
        key = (len(body), len(topic), len(properties), len(born_host))
        shape = self._shapes.get(key) or self.encoder.shape(key[0], topic, key[2], key[3])
        size = shape.size
        file = self.files.files[-1] if self.files.files else None
        if file is None or file.wrote_position + size + END_FILE_MIN_BLANK_LENGTH > file.size:
            file = self.file_with_room(size)
        start = file.wrote_position
        offset = file.file_from_offset + start
        buffer = file.write_buffer
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
                self._store_host_of(message) if message.store_host else self._store_host,
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
            # Half a record is past the end of the log now, where only zeros may be.
            buffer[start : start + size] = bytes(size)
            raise IllegalMessageError(f"a number does not fit its field: {error}") from error
        if self._append_prop_crc:
            with memoryview(buffer) as view:
                write_crc(view, start, shape.size_bytes, start + size)
        buffer[start : start + 4] = shape.size_bytes
        file.wrote_position = start + size
        self.last_store_timestamp_ms = now_ms
        self.last_record_offset = offset
        return offset, size

    def _store_host_of(self, message: PutMessage) -> bytes:
        """Return the host a message brings along; our own if that is of the other kind."""
        own = self._store_host
        return message.store_host if len(message.store_host) == len(own) else own

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
        expected = self.append_offset
        try:
            records, units = self.encoder.encode_batch(batch, topic, queue_offset, expected, now_ms)
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
            records, units = self.encoder.encode_batch(batch, topic, queue_offset, start, now_ms)
        self._write_run(file, records)
        self.last_store_timestamp_ms = now_ms
        self.last_record_offset = units[-3]
        return units

    def file_of_run(self, size: int) -> MappedFile | None:
        """Return the file that takes `size` bytes of records as it is, None if there is none."""
        file = self.files.files[-1] if self.files.files else None
        if file is None or file.wrote_position + size + END_FILE_MIN_BLANK_LENGTH > file.size:
            return None
        return file

    def append_run(self, file: MappedFile, run: WrittenRun, now_ms: int) -> None:
        """Append records that were written for the end of `file`, which has room for them."""
        ends = run.record_ends
        self.last_record_offset = int(ends[-2]) if len(ends) > 1 else file.end_offset
        self._write_run(file, run.records)
        self.last_store_timestamp_ms = now_ms

    @staticmethod
    def _write_run(file: MappedFile, data: bytes | bytearray | memoryview) -> None:
        """Append `data`, its first 4 bytes last: a crash leaves all of it or nothing."""
        start = file.wrote_position
        end = start + len(data)
        buffer = file.write_buffer
        buffer[start + 4 : end] = memoryview(data)[4:]
        buffer[start : min(start + 4, end)] = data[:4]
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
        expected = self.append_offset if self.files.files else offset - offset % size
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
        """Return bytes from `offset` on, of one file and no further than it can be read.

        Empty at the end of the log and for offsets that are not held, such as one whose file is
        about to be deleted. RocketMQ answers offset 0 from another file then.

        Source: CommitLog.getData.
        """
        file = self.files.find_by_offset(offset)
        if file is None or not file.is_available:
            return memoryview(b"")
        position = offset - file.file_from_offset
        end = min(file.read_position, position + bytes_max)
        return memoryview(file.buffer)[position : max(position, end)]

    def message(self, offset: int, size: int) -> memoryview | None:
        """Return the record of `size` bytes at `offset`, None if it is not held.

        Source: CommitLog.getMessage.
        """
        file = self.files.find_by_offset(offset)
        return None if file is None else file.select(offset - file.file_from_offset, size)

    def record_at(self, offset: int) -> bytes | None:
        """Return the record that starts at `offset`, None if no sound one does.

        The offset may be anybody's guess, such as the middle of a body.
        """
        head = self.message(offset, _INT.size)
        size = _INT.unpack(head)[0] if head is not None else 0
        record = self.message(offset, size) if size >= RECORD_BYTES_MIN else None
        if record is None:
            return None
        with record:
            sound = record[4:8] in _MAGIC_CODES and record_fault(record, offset, 0) is None
            return bytes(record) if sound else None

    def seems_record(self, offset: int) -> bool:
        """Say whether a record begins at `offset`, sound or not: one that names this place."""
        head = self.message(offset, _PLACE_END)
        return (
            head is not None
            and head[4:8] in _MAGIC_CODES
            and int.from_bytes(head[28:_PLACE_END], "big") == offset
        )

    def record_fault(
        self, offset: int, size: int, owner: tuple[str, int, int] | None
    ) -> str | None:
        """Return why the record of `size` bytes at `offset` must not be handed out, None if it may.

        `owner` is the topic, the queue id and the queue offset it has to have; None: any.
        """
        record = self.message(offset, size)
        if record is None or size < RECORD_BYTES_MIN:
            return f"{size} bytes at {offset} are not all there"
        with record:
            if _INT.unpack_from(record)[0] != size or record[4:8] not in _MAGIC_CODES:
                return f"no record of {size} bytes is at {offset}"
            fault = record_fault(record, offset, 0)
            if fault is None and owner is not None:
                return _owner_fault(record, *owner)
            return fault

    def roll_next_file(self, offset: int) -> int:
        """Return where the file after the one with `offset` starts."""
        size = self.files.mapped_file_size
        return offset + size - offset % size

    def store_timestamp_ms(self, offset: int) -> int:
        """Return when the record at `offset` was stored, -1 if it is not held.

        Source: CommitLog.pickupStoreTimestamp.
        """
        head = self.message(offset, _STORE_TIMESTAMP_END)
        if head is None:
            return -1
        (sys_flag,) = struct.unpack_from(">i", head, 36)
        (stored_ms,) = struct.unpack_from(">q", head, 56 + 12 * bool(sys_flag & BORNHOST_V6_FLAG))
        return int(stored_ms)


def _owner_fault(record: memoryview, topic: str, queue_id: int, queue_offset: int) -> str | None:
    """Return what a sound record is instead of the one of this place; None if it is that one."""
    (sys_flag,) = _INT.unpack_from(record, 36)
    hosts = bool(sys_flag & BORNHOST_V6_FLAG) + bool(sys_flag & STOREHOSTADDRESS_V6_FLAG)
    body_at = 88 + 12 * hosts
    topic_at = body_at + _INT.unpack_from(record, body_at - 4)[0]
    name_at = topic_at + (2 if record[4:8] == _MAGIC_CODES[1] else 1)
    length = int.from_bytes(record[topic_at:name_at], "big")
    found = (
        str(record[name_at : name_at + length], "utf-8", "replace"),
        *_QUEUE.unpack_from(record, 12),
    )
    return (
        None
        if found == (topic, queue_id, queue_offset)
        else f"there is number {found[2]} of {found[:2]}"
    )
