"""Compacting: of the closed pairs of a queue only the newest record of each key is kept.

    closed pairs, new since the last time     which key has which number last
    all closed pairs --what is newest--> compacting/, with names from 0 on; synced
    compacting/swap.json                      1   from here on a stop in between is finished
    old pairs deleted, new ones moved up      2   pair by pair
    position-checkpoint                       3   up to which number it was done
    compacting/swap.json deleted              4

A record is kept if no later one has its key, and it has a body: an empty body deletes its key. What
came after the records that were looked at stays as it is; so does the last pair, which is written
to. A key is the whole KEYS property.

RocketMQ leaves files with names that it cannot load if it is stopped between renames; the result
of a swap that ends is the same.

Source: RocketMQ 5.3.3, CompactionLog.getCompactionFile, getOffsetMap, compaction, replaceFiles.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from store.compaction.topic_partition_log import (
    COMPACTING,
    CompactedUnit,
    FilePair,
    TopicPartitionLog,
)
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from store.machine.errors import CorruptLogError, LogFault
from tandem.wire.message_properties import PROPERTY_KEYS, property_value
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

SWAP_FILE: Final = "swap.json"
STEP_BYTES: Final = 1 << 20
"""About a millisecond's work."""
RECORD_COST_BYTES: Final = 8 << 10
"""What a record costs besides its bytes."""
PLAIN_KEY_BYTES_MAX: Final = 64
"""A longer key is kept as its hash: memory is counted by keys."""
_KEYS: Final = PROPERTY_KEYS.encode()


class Swap(msgspec.Struct, frozen=True):
    """What is to be done once the new files are there: which names go, and which come."""

    old: list[str]
    new: list[str]
    position: int
    """The number of the last record that was looked at."""


class NewestOffsets:
    """Which record of a key is the newest, for as many keys as there is room for."""

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._newest: dict[bytes, int] = {}
        self.last = 0
        """The number of the last record that was taken note of."""

    def put(self, key: bytes, queue_offset: int) -> bool:
        """Take note of a record, later than all before; False if there is no room for its key."""
        key = _short(key)
        if len(self._newest) >= self._keys_max and key not in self._newest:
            return False
        self._newest[key] = self.last = queue_offset
        return True

    def keeps(self, key: bytes, queue_offset: int, *, has_body: bool) -> bool:
        """Whether a record stays.

        Source: CompactionLog.shouldRetainMsg.
        """
        if queue_offset > self.last:
            return True
        return has_body and bool(key) and queue_offset >= self._newest.get(_short(key), -1)


def _short(key: bytes) -> bytes:
    return key if len(key) <= PLAIN_KEY_BYTES_MAX else blake2b(key, digest_size=32).digest()


class KeyedRecord(NamedTuple):
    """What compacting wants of a record."""

    key: bytes
    has_body: bool


def keyed(pair: FilePair, unit: CompactedUnit) -> tuple[memoryview, KeyedRecord] | None:
    """Return a record and its key; None if it is damaged."""
    record = pair.record(unit) if pair.fault(unit) is None else None
    parts = None if record is None else pair.parts(unit, record)
    if record is None or parts is None:
        return None
    properties = bytes(record[parts.properties_start : parts.properties_end])
    return record, KeyedRecord(key_of(properties), parts.body_end > parts.body_start)


def key_of(properties: bytes) -> bytes:
    """Return the key of a message with this property string, empty if that is none.

    Blanks alone are none. Source: StringUtils.isBlank of what MessageExt.getKeys returns.
    """
    keys = property_value(properties, _KEYS) or b""
    return b"" if keys.decode("utf-8", "replace").isspace() else keys


class DamagedPairError(Exception):
    """A record that is to be compacted is damaged. Never leaves this package."""


class Compacting:
    """One compaction of one queue. Call `steps` to its end, sync `files`, then `swap`."""

    def __init__(self, current: TopicPartitionLog, disk: Disk) -> None:
        self._current = current
        self._disk = disk
        self.made = TopicPartitionLog(
            f"{current.log_directory}/{COMPACTING}",
            f"{current.cq_directory}/{COMPACTING}",
            current.sizes,
            disk,
        )
        self._pairs: Sequence[FilePair] = current.pairs[:-1]
        self._swap: Swap | None = None
        self._is_noted = False
        self.position = -1

    def new_pairs(self, position: int) -> list[FilePair]:
        """Return the closed pairs with records after `position`."""
        return [pair for pair in self._pairs if pair.last_queue_offset > position]

    def steps(self, position: int, keys_max: int) -> Iterator[None]:
        """Make the new files, in steps. Nobody else may change the closed pairs meanwhile.

        Raises:
            StoreFullError: no room.
            DamagedPairError: a record is damaged; says which.
        """
        newest = NewestOffsets(keys_max)
        yield from self._look_for_keys(newest, position)
        left = STEP_BYTES
        for pair in self._pairs:
            for unit in pair.units(0):
                record, (key, has_body) = self._read(pair, unit)
                if newest.keeps(key, unit.queue_offset, has_body=has_body):
                    self.made.append(
                        record, unit.queue_offset, unit.tags_code, unit.store_timestamp_ms
                    )
                left -= unit.size + RECORD_COST_BYTES
                if left <= 0:
                    left = STEP_BYTES
                    yield
            yield
        self._end_made()
        self.position = newest.last

    def _look_for_keys(self, newest: NewestOffsets, position: int) -> Iterator[None]:
        left = STEP_BYTES
        for pair in self.new_pairs(position):
            for unit in pair.units(pair.index_of(position + 1)):
                _, (key, _) = self._read(pair, unit)
                if not newest.put(key, unit.queue_offset):
                    return
                left -= unit.size + RECORD_COST_BYTES
                if left <= 0:
                    left = STEP_BYTES
                    yield
            yield

    def _read(self, pair: FilePair, unit: CompactedUnit) -> tuple[memoryview, KeyedRecord]:
        found = keyed(pair, unit)
        if found is None:
            raise DamagedPairError(f"{pair.log.file.path}: {pair.fault(unit)}")
        return found

    def _end_made(self) -> None:
        """Let the last new pair count as full. Source: CompactionLog.putEndMessage."""
        if self.made.pairs:
            last = self.made.pairs[-1].log
            last.wrote_position = last.size

    def swap(self) -> Swap:
        """Put the new pairs in the place of the old ones. Their files have to be on the disk.

        Raises:
            StoreFullError, OSError: the disk refuses. The old pairs are read on, whatever their
                names are now; call it again, or let the next start finish it.
        """
        current, made = self._current, self.made
        if self._swap is None:
            old = [pair.name for pair in self._pairs]
            self._swap = Swap(old, [pair.name for pair in made.pairs], self.position)
            made.close()
        if not self._is_noted:
            path = f"{made.log_directory}/{SWAP_FILE}"
            replace_with_checked_json(self._disk, path, self._swap)
            self._is_noted = True
        _move(self._disk, current, self._swap)
        new = [current.opened(name) for name in self._swap.new]
        current.pairs[: len(self._pairs)] = new
        for pair in self._pairs:
            pair.close()
        self._pairs = new
        return self._swap

    def give_up(self) -> None:
        """Delete what was made."""
        self.made.destroy()


def finish_swap(disk: Disk, current: TopicPartitionLog) -> Swap | None:
    """Finish the swap that a stop has interrupted, before `current` is loaded; return it.

    What was made for one that had not begun is deleted.

    Raises:
        CorruptLogError: the file that says what is to be done is damaged.
    """
    path = f"{current.log_directory}/{COMPACTING}/{SWAP_FILE}"
    try:
        swap = read_checked_json(disk, path, Swap)
    except UnreadableError as error:
        raise CorruptLogError(
            f"{path}: damaged ({error}). It says which files take the place of which; copy this"
            " store anew from another node, or move both directories of this queue away: it is then"
            " compacted anew from what the commit log still has",
            path=path,
            fault=LogFault.ORDER,
        ) from error
    if swap is not None:
        _move(disk, current, swap)
        return swap
    for directory in (current.log_directory, current.cq_directory):
        made = f"{directory}/{COMPACTING}"
        for name, _ in disk.list_files(made):
            disk.remove(f"{made}/{name}")
        disk.remove_directory(made)
    return None


def _move(disk: Disk, current: TopicPartitionLog, swap: Swap) -> None:
    """Do what a swap says; what is done already is left alone."""
    for directory in (current.log_directory, current.cq_directory):
        for name in swap.new:
            made = f"{directory}/{COMPACTING}/{name}"
            if disk.exists(made):
                disk.remove(f"{directory}/{name}")
                disk.rename(made, f"{directory}/{name}")
        for name in swap.old:
            if name not in swap.new:
                disk.remove(f"{directory}/{name}")


def is_swap_noted(disk: Disk, current: TopicPartitionLog) -> bool:
    """Whether there is a swap that has not ended."""
    return disk.exists(f"{current.log_directory}/{COMPACTING}/{SWAP_FILE}")


def end_swap(disk: Disk, current: TopicPartitionLog) -> None:
    """Forget a swap whose position is on the disk."""
    disk.remove(f"{current.log_directory}/{COMPACTING}/{SWAP_FILE}")
    for directory in (current.log_directory, current.cq_directory):
        disk.remove_directory(f"{directory}/{COMPACTING}")
