"""ConsumeQueueExt: what a queue keeps of a message beyond the 20 bytes of its unit.

    0   2  size of the unit
    2   8  tags code
    10  8  store timestamp, ms
    18  2  bytes of filter bit map
    20  n  filter bit map

The queue's unit then holds the address of this one in place of the tags code. A unit leaves at
least 4 bytes of its file free; where the next one does not, a size of -1 closes the file.

Invariant: an address is given out once. Units can be lost with the power although the queue still
holds their addresses; were such a place used again, the queue would show the tags of another
message. An address that leads nowhere does no harm: such a message passes every filter.

Source: org.apache.rocketmq.store.ConsumeQueueExt of 5.3.3.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Final

import msgspec

from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.machine.disk import Disk
from store.machine.errors import DiskFailedError, StoreFullError
from tandem.wire.store_layout import (
    EXT_ADDRESS_MAX,
    EXT_END_BLANK_BYTES,
    EXT_END_MARK,
    EXT_UNIT_BYTES_MAX,
    EXT_UNIT_BYTES_MIN,
    EXT_UNIT_HEAD,
    ext_address,
    ext_offset,
    is_ext_address,
)

_log = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">h")


class CqExtUnit(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one message."""

    tags_code: int
    store_timestamp_ms: int
    filter_bit_map: bytes = b""


def no_bit_map(physical_offset: int, size: int) -> bytes:
    """Return no bit map for the record at this place: nobody calculates bit maps."""
    return b""


class ConsumeQueueExt:
    """The extension of one queue, whose `ConsumeQueue` owns and closes it.

    `bit_map_of` calculates the filter bit map of the record at a physical offset, of a size.
    """

    def __init__(
        self,
        directory: str,
        mapped_file_size: int,
        disk: Disk,
        bit_map_of: Callable[[int, int], bytes] = no_bit_map,
    ) -> None:
        self._bit_map_of = bit_map_of
        self._files = MappedFileQueue(directory, mapped_file_size, disk)
        self._start_offset = 0
        self._has_warned = False

    @property
    def files(self) -> MappedFileQueue:
        """The files, for the flush service and for tools."""
        return self._files

    def load(self) -> None:
        """Open the files. See `MappedFileQueue.load`."""
        self._files.load()

    def recover(self) -> None:
        """Find the end: walk the units of every file; the last one's end is the end.

        A file whose walk stops early has lost the units after that place, or was closed there.

        Source: ConsumeQueueExt.recover.
        """
        end = position = 0
        for file in self._files.files:
            position = _end_of_units(file)
            closed = _SIZE.unpack_from(file.buffer, position)[0] == EXT_END_MARK
            end = file.file_from_offset + (file.size if closed else position)
        last = self._files.last
        if last is not None and end == last.file_from_offset:
            # It stays until it is known whether addresses lead there.
            last.set_positions(0)
            last.zero_from(0)
        else:
            self._truncate(end)

    def code_of(
        self, tags_code: int, store_timestamp_ms: int, physical_offset: int, size: int
    ) -> int:
        """Return what a queue's unit holds: an address, or the code where that cannot be."""
        bit_map = self._bit_map_of(physical_offset, size)
        address = self.put(CqExtUnit(tags_code, store_timestamp_ms, bit_map))
        return tags_code if address is None else address

    def put(self, unit: CqExtUnit) -> int | None:
        """Add a unit and return its address; None if it does not fit or the disk is full.

        Source: ConsumeQueueExt.put, which returns 1 then.
        """
        size = EXT_UNIT_BYTES_MIN + len(unit.filter_bit_map)
        largest = min(EXT_UNIT_BYTES_MAX, self._files.mapped_file_size - EXT_END_BLANK_BYTES)
        if size > largest:
            return None
        try:
            file = self._file_with_room(size)
        except (StoreFullError, DiskFailedError) as error:
            self._warn(error)
            return None
        address = ext_address(file.end_offset)
        if not is_ext_address(address + size):
            return None
        position = file.wrote_position
        bits = unit.filter_bit_map
        EXT_UNIT_HEAD.pack_into(
            file.buffer, position, size, unit.tags_code, unit.store_timestamp_ms, len(bits)
        )
        if bits:
            file.buffer[position + EXT_UNIT_BYTES_MIN : position + size] = bits
        file.wrote_position += size
        return address

    def _file_with_room(self, size: int) -> MappedFile:
        last = self._files.last
        if last is not None and last.size - last.wrote_position - EXT_END_BLANK_BYTES < size:
            _close(last)
        return self._files.last_or_create(self._start_offset)

    def _warn(self, error: StoreFullError | DiskFailedError) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "messages are queued with their plain tags code, without filter bit map: %s", error
            )

    def get(self, address: int) -> CqExtUnit | None:
        """Return the unit at `address`, None if there is none.

        Source: ConsumeQueueExt.get, CqExtUnit.read.
        """
        file = self._files.find_by_offset(ext_offset(address)) if is_ext_address(address) else None
        if file is None:
            return None
        position = ext_offset(address) - file.file_from_offset
        size = _unit_bytes(file, position, file.wrote_position)
        if not size:
            return None
        _, tags_code, stored_ms, bits = EXT_UNIT_HEAD.unpack_from(file.buffer, position)
        if bits > size - EXT_UNIT_BYTES_MIN:
            return None
        start = position + EXT_UNIT_BYTES_MIN
        bit_map = bytes(file.buffer[start : start + bits]) if bits > 0 else b""
        return CqExtUnit(tags_code, stored_ms, bit_map)

    def tags_code(self, code: int) -> int:
        """Return the tags code that a queue unit's code stands for.

        An address stays one if nothing is found there: then the message passes every filter.
        """
        if code > EXT_ADDRESS_MAX:
            return code
        unit = self.get(code)
        return code if unit is None else unit.tags_code

    def truncate_by_max_address(self, address: int) -> None:
        """Make the unit at `address`, the last one its queue refers to, the last one here.

        If it is lost, the next unit goes where no address can have led, into another file. Where
        the whole last file is lost, an empty one takes its place: the files before it are kept.

        Source: ConsumeQueueExt.truncateByMaxAddress.
        """
        if not is_ext_address(address):
            return
        offset = ext_offset(address)
        file = self._files.find_by_offset(offset)
        if file is not None:
            position = offset - file.file_from_offset
            size = _unit_bytes(file, position, file.wrote_position)
            # The next recovery has to get there as well: units after a hole are lost with it.
            if size and position < _end_of_units(file):
                self._truncate(offset + size)
            elif file is self._files.last and not file.is_full:
                _close(file)
        elif 0 <= offset - self._files.max_offset < self._files.mapped_file_size:
            if self._files.files:
                _close(self._files.create_next())
            else:
                self._start_after(offset)
        elif offset > self._files.max_offset:
            self.destroy()
            self._start_after(offset)

    def _start_after(self, offset: int) -> None:
        file_bytes = self._files.mapped_file_size
        self._start_offset = (offset // file_bytes + 1) * file_bytes

    def truncate_by_min_address(self, address: int) -> None:
        """Delete the files before the one that holds `address`.

        Source: ConsumeQueueExt.truncateByMinAddress.
        """
        if is_ext_address(address):
            self._files.delete_expired_file_by_offset(
                ext_offset(address), lambda file: file.file_from_offset + file.size
            )

    def _truncate(self, end: int) -> None:
        self._files.truncate_dirty_files(end)
        last = self._files.last
        if last is not None and last.wrote_position == 0:
            # Its name says where the next unit goes.
            self._start_offset = last.file_from_offset
            self._files.drop_last()

    def destroy(self) -> None:
        """Delete all files and start at nothing."""
        self._files.destroy()
        self._start_offset = 0

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()


def _unit_bytes(file: MappedFile, position: int, end: int) -> int:
    """Return the size of the unit at `position`, 0 if there is none between there and `end`."""
    if not 0 <= position <= end - EXT_UNIT_BYTES_MIN:
        return 0
    size = int(_SIZE.unpack_from(file.buffer, position)[0])
    fits = position + size <= min(end, file.size - EXT_END_BLANK_BYTES)
    return size if size >= EXT_UNIT_BYTES_MIN and fits else 0


def _end_of_units(file: MappedFile) -> int:
    buffer, limit = file.buffer, file.size - EXT_END_BLANK_BYTES
    position = 0
    while position + EXT_UNIT_BYTES_MIN <= limit:
        (size,) = _SIZE.unpack_from(buffer, position)
        if size < EXT_UNIT_BYTES_MIN or position + size > limit:
            break
        position += size
    return position


def _close(file: MappedFile) -> None:
    """Let nothing more into `file`. Every unit has left room for the mark."""
    if not file.is_full:
        _SIZE.pack_into(file.buffer, file.wrote_position, EXT_END_MARK)
        file.wrote_position = file.size
