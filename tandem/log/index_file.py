"""Index files from outside: the settings they were written with, their entries, look-ups.

The length of a file does not say how many slots it has. This is how that is found out, in this
order, once for all files of a store:

    given       the settings that the user names, if the length of every file fits them
    default     RocketMQ's 5,000,000 slots and 20,000,000 units, if the length fits them and the
                first entry of a file is where they say
    measured    the header counts the slots in use, and unit 0 is never written: so the first word
                that is not zero after that many used slots is the hash of unit 1, and the table
                ends 20 bytes before it. It counts if that entry's chain confirms it.

Source: RocketMQ 5.3.3, IndexFile, IndexHeader.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.data_file import READ_BYTES, DataFile, read_at
from tandem.log.errors import BadRequestError, RequestFault
from tandem.log.files import open_file
from tandem.wire.store_layout import (
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
    INDEX_UNIT,
    INDEX_UNIT_BYTES,
    index_file_bytes,
)
from tandem.wire.unit_types import INDEX_UNIT_TYPE

HASH_SLOT_NUM_DEFAULT: Final = 5_000_000
INDEX_NUM_DEFAULT: Final = 20_000_000
INDEX_FILE_BYTES_MAX: Final = 2**31 - 1
"""IndexFile computes the length as an int."""

CHAIN_STEPS_MAX: Final = 1_000_000
"""A chain this long is no use to anybody, and following one must end."""

Units = NDArray[np.void]


class IndexSettings(msgspec.Struct, frozen=True):
    """`maxHashSlotNum` and `maxIndexNum` of the store that wrote the files."""

    hash_slot_num: int
    index_num: int

    @property
    def file_bytes(self) -> int:
        """How long each index file is."""
        return index_file_bytes(self.hash_slot_num, self.index_num)

    @property
    def units_at(self) -> int:
        """The position of unit 0."""
        return INDEX_HEADER_BYTES + self.hash_slot_num * INDEX_SLOT_BYTES


DEFAULT_SETTINGS: Final = IndexSettings(HASH_SLOT_NUM_DEFAULT, INDEX_NUM_DEFAULT)


class IndexHeader(msgspec.Struct, frozen=True):
    """The header of an index file. `index_count` is the number of the next unit, 0 before any."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


def read_header(descriptor: int) -> IndexHeader | None:
    """Return the header, None if the file is too short for one."""
    head = read_at(descriptor, 0, INDEX_HEADER_BYTES)
    return IndexHeader(*INDEX_HEADER.unpack(head)) if len(head) == INDEX_HEADER_BYTES else None


class IndexFile:
    """One open index file, read under settings that its length fits."""

    def __init__(self, descriptor: int, settings: IndexSettings, header: IndexHeader) -> None:
        self._descriptor = descriptor
        self.settings = settings
        self.header = header

    @property
    def unit_count(self) -> int:
        """The number of the next unit, as far as the file has room for units; at least 1."""
        return max(1, min(self.header.index_count, self.settings.index_num))

    def slot(self, key_hash: int) -> int:
        """Return the last unit of the slot that a hash falls into; 0 for none."""
        at = INDEX_HEADER_BYTES + key_hash % self.settings.hash_slot_num * INDEX_SLOT_BYTES
        data = read_at(self._descriptor, at, INDEX_SLOT_BYTES)
        number = INDEX_SLOT.unpack(data)[0] if len(data) == INDEX_SLOT_BYTES else 0
        return number if 0 < number < self.unit_count else 0

    def unit(self, number: int) -> tuple[int, int, int, int]:
        """Return hash, physical offset, seconds and previous unit of one unit."""
        at = self.settings.units_at + number * INDEX_UNIT_BYTES
        data = read_at(self._descriptor, at, INDEX_UNIT_BYTES)
        return INDEX_UNIT.unpack(data.ljust(INDEX_UNIT_BYTES, b"\0"))

    def units(self, first: int, count: int) -> Units:
        """Return units from `first` on; fewer if the file ends before."""
        at = self.settings.units_at + first * INDEX_UNIT_BYTES
        data = read_at(self._descriptor, at, count * INDEX_UNIT_BYTES)
        return np.frombuffer(data, INDEX_UNIT_TYPE, len(data) // INDEX_UNIT_BYTES)

    def slots(self, first: int, count: int) -> NDArray[np.int32]:
        """Return slots from `first` on."""
        at = INDEX_HEADER_BYTES + first * INDEX_SLOT_BYTES
        data = read_at(self._descriptor, at, count * INDEX_SLOT_BYTES)
        return np.frombuffer(data, ">i4", len(data) // INDEX_SLOT_BYTES).astype(np.int32)

    def offsets(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets entered under a hash, newest first.

        Source: IndexFile.selectPhyOffset. A unit that does not point further back ends the walk.
        """
        number = self.slot(key_hash)
        for _ in range(CHAIN_STEPS_MAX):
            if not number:
                return
            found, offset, _, previous = self.unit(number)
            if found == key_hash:
                yield offset
            number = previous if 0 < previous < number else 0


def find_settings(
    files: Sequence[DataFile], given: IndexSettings | None = None
) -> IndexSettings | None:
    """Return the settings of a store's index files by the rule of the module; None if unknown.

    Raises:
        BadRequestError: a file is not as long as the settings that the user gave demand.
    """
    if given is not None:
        for file in files:
            if file.size != given.file_bytes:
                raise BadRequestError(
                    f"{file.path}: has {file.size} bytes; {given.hash_slot_num} slots and"
                    f" {given.index_num} units make {given.file_bytes}; name other settings",
                    RequestFault.INDEX_SETTINGS,
                    file.path,
                )
        return given
    for file in files:
        found = _settings_of(file)
        if found is not None:
            return found
    if files and all(file.size == DEFAULT_SETTINGS.file_bytes for file in files):
        return DEFAULT_SETTINGS
    return None


def _settings_of(file: DataFile) -> IndexSettings | None:
    if file.size > INDEX_FILE_BYTES_MAX:
        return None
    with open_file(file.path) as descriptor:
        header = read_header(descriptor)
        if header is None or header.index_count <= 1:
            return None
        default = DEFAULT_SETTINGS
        if file.size == default.file_bytes and _confirmed(descriptor, default, header):
            return default
        measured = _measured(descriptor, file, header)
        if measured is not None and _confirmed(descriptor, measured, header):
            return measured
    return None


def _measured(descriptor: int, file: DataFile, header: IndexHeader) -> IndexSettings | None:
    """Find the first used word after as many used slots as the header counts."""
    left = header.hash_slot_count
    if left <= 0:
        return None
    for at in range(INDEX_HEADER_BYTES, file.size, READ_BYTES):
        data = read_at(descriptor, at, READ_BYTES)
        words = np.frombuffer(data, "V4", len(data) // 4)
        used = np.flatnonzero(words != np.void(b"\0\0\0\0"))
        if len(used) > left:
            unit_1 = at + 4 * int(used[left])
            slots, odd = divmod(unit_1 - INDEX_UNIT_BYTES - INDEX_HEADER_BYTES, INDEX_SLOT_BYTES)
            units, rest = divmod(
                file.size - INDEX_HEADER_BYTES - slots * INDEX_SLOT_BYTES, INDEX_UNIT_BYTES
            )
            return IndexSettings(slots, units) if slots > 0 and not odd and not rest else None
        left -= len(used)
    return None


def _confirmed(descriptor: int, settings: IndexSettings, header: IndexHeader) -> bool:
    """Check that unit 1 is a sensible entry, and that its slot leads to entries of that slot."""
    index = IndexFile(descriptor, settings, header)
    key_hash, offset, _, previous = index.unit(1)
    number = index.slot(key_hash) if key_hash >= 0 else 0
    if not number or offset < 0 or previous != 0:
        return False
    slots = settings.hash_slot_num
    return bool(index.unit(number)[0] % slots == key_hash % slots)
