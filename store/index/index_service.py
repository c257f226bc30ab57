"""IndexService: finds messages by key. The index files of one store, oldest first.

    index/20261121001006577   full, on disk            trusted after a hard stop
         /20261121001006611   full, not yet on disk    built anew after a hard stop
         /20261121001006665   being written            built anew after a hard stop

The name is the local time of creation. The commit log is the truth: what is missing is built again
from there, from `next_offset` on, by the service that follows the log.

A file that was not full when the machine stopped may lack any part of itself, in slots as well as
in units, and nothing in it shows that. So after a hard stop files count only as far as they are
full and end no later than `index_msg_timestamp_ms` of the checkpoint, and the first one that does
not takes all later ones with it: the index has no holes. That timestamp therefore moves as in
RocketMQ, when a full file was synced, and not when others are, at a clean stop either: keys that
came later in the same millisecond, or after the clock was set back, would be trusted with it. For
the same reason it steps back, here, when such keys come.

Hashes are compared in the files. Keys are compared in the records, by `query_message`: entries of
records that are gone, or of other keys with the same hash, show nowhere.

Source: org.apache.rocketmq.store.index.IndexService and DefaultMessageStore.queryMessage of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
import numpy as np

from store.files.store_checkpoint import StoreCheckpoint
from store.index.index_file import IndexFile
from store.machine.disk import Disk
from store.machine.errors import CorruptLogError, LogFault
from tandem.wire.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from tandem.wire.record_keys import hash_keys, key_hash, key_values, record_texts
from tandem.wire.record_rule import Buffer, store_timestamp_ms
from tandem.wire.record_scan import RecordColumns
from tandem.wire.store_layout import index_file_bytes

_log = logging.getLogger(__name__)

FILE_NAME_DIGITS: Final = 17
"""yyyyMMddHHmmssSSS"""

PLAIN_LOOP_RECORDS_MAX: Final = 10
"""Up to about this many records a plain loop beats numpy's cost per call (benchmarks/index.py)."""

STRANGERS_READ_MAX: Final = 300
"""How many entries without a record, or with one of another key, one query looks at. Other keys
of the same hash are somebody's work, and records that were deleted are followed by older ones."""

QUERY_BYTES_MAX: Final = 12 << 20
"""Records in one answer: clients of RocketMQ refuse frames of 16 MiB."""


class QueryMessageResult(msgspec.Struct, frozen=True):
    """The records that a key was found in, in the order of the log, as stored.

    The other two fields say how far the index has come; 0 if there is none.
    """

    records: tuple[bytes, ...]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int


class IndexService:
    """The index of one store. `MessageStore` owns and closes it.

    Order of calls: `load` before the log is recovered, `recover` after it, then the rest.
    `next_offset` is where the record starts from which on the log has to be dispatched.
    """

    def __init__(
        self,
        directory: str,
        hash_slot_num: int,
        index_num: int,
        *,
        disk: Disk,
        wall_clock_ms: Callable[[], int],
        checkpoint: StoreCheckpoint,
        max_msgs_num_batch: int,
    ) -> None:
        self.files: list[IndexFile] = []
        self.next_offset = 0
        self._directory = directory
        self._hash_slot_num = hash_slot_num
        self._index_num = index_num
        self._disk = disk
        self._now_ms = wall_clock_ms
        self._checkpoint = checkpoint
        self._max_msgs_num_batch = max_msgs_num_batch
        self._indexed_below = 0
        self._untrusted: list[str] = []

    # -- opening ---------------------------------------------------------------------------------

    def load(self, *, clean: bool) -> None:
        """Open what is there and can be trusted. Changes nothing on disk.

        Raises:
            CorruptLogError: after a clean stop, a file has another length than the settings say.

        Source: IndexService.load, which takes bytes of one kind for another then.
        """
        for name, size in self._disk.list_files(self._directory):
            path = f"{self._directory}/{name}"
            if len(name) != FILE_NAME_DIGITS or not (name.isascii() and name.isdecimal()):
                _log.warning("%s is not the name of an index file, and is left alone", path)
                continue
            fault = self._length_fault(size)
            if fault and clean and size:
                raise CorruptLogError(
                    f"{path}: {fault}; start with the settings it was written with, or delete the"
                    f" directory {self._directory}: the index is then built again from the log",
                    path=path,
                    fault=LogFault.LENGTH,
                )
            if not fault and not self._untrusted:
                file = IndexFile(self._disk.open(path), self._hash_slot_num, self._index_num)
                fault = _name_fault(name) or file.fault or ("" if clean else self._doubt(file))
                if fault:
                    file.file.close()
                else:
                    file.flushed_position = file.wrote_position
                    self.files.append(file)
            if fault or self._untrusted:
                self._distrust(path, fault or "the file before it is built again")
        self._continue_after_last()

    def _length_fault(self, size: int) -> str | None:
        expected = index_file_bytes(self._hash_slot_num, self._index_num)
        if size == expected:
            return None
        return (
            f"the file has {size} bytes, not the {expected} of an index file with"
            f" max_hash_slot_num {self._hash_slot_num} and max_index_num {self._index_num}"
        )

    def _doubt(self, file: IndexFile) -> str | None:
        """Return why a file may not be whole after a hard stop, None if it is."""
        if not file.is_full:
            return "it was being written when the store stopped"
        if file.end_timestamp_ms > self._checkpoint.index_msg_timestamp_ms:
            return "it may not have been on disk when the store stopped"
        return None

    def _distrust(self, path: str, reason: str) -> None:
        _log.info("%s: it will be built again from the commit log: %s", path, reason)
        self._untrusted.append(path)

    def _continue_after_last(self) -> None:
        """Go on where the last file ends; with its last record once more if the file is full.

        Some keys of that record may have been in the file that followed, or there was no room for
        one.
        """
        last = self.files[-1] if self.files else None
        if last:
            last.file.read_around(0, last.file.size, wanted=last.is_full)
        self.next_offset = last.end_physical_offset if last else 0
        entered = last is not None and last.has_keys and not last.is_full
        self._indexed_below = self.next_offset + entered

    def recover(
        self, min_offset: int, max_offset: int, record_at: Callable[[int], bytes | None]
    ) -> None:
        """Delete what cannot be trusted, and what is not of the log between these offsets.

        `record_at` returns the record that starts at a physical offset, None if none does. What
        recovery has cut off the log goes with the whole file that knows of it; RocketMQ keeps it,
        and leaves out of the index what is written there next. The newest files go first:
        interrupted, this leaves an index without holes.
        """
        while self.files:
            last = self.files[-1]
            end = last.end_physical_offset
            if end < min_offset or (end < max_offset and record_at(end) is not None):
                break
            self._distrust(last.file.path, f"it ends with a record at {end}, where none is")
            self.files.pop().file.close()
            self._continue_after_last()
        for path in sorted(self._untrusted, reverse=True):
            self._disk.remove(path)
        self._untrusted.clear()
        before_ms = self._checkpoint.index_msg_timestamp_ms
        self.synced()
        if self._checkpoint.index_msg_timestamp_ms != before_ms:
            # It must be on disk before the first key is: files built anew end at old times.
            self._checkpoint.flush_blocking()

    # -- entering --------------------------------------------------------------------------------

    def dispatch(
        self,
        topic: str,
        properties: bytes,
        physical_offset: int,
        store_timestamp_ms: int,
        sys_flag: int,
    ) -> None:
        """Enter the keys of one record. One before the end of the index has been entered.

        Raises:
            StoreFullError: no room for the next file. Call again with the same record.

        Source: IndexService.buildIndex.
        """
        file = self._file_with_room()
        if physical_offset < max(self._indexed_below, file.end_physical_offset):
            return
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK_TYPE:
            return
        keys = key_values(properties)
        if keys:
            self._keep_timestamp_below(store_timestamp_ms)
        for key in keys:
            value = key_hash(topic, key)
            while not file.put(value, physical_offset, store_timestamp_ms):
                file = self._file_with_room()

    def dispatch_columns(self, buffer: Buffer, columns: RecordColumns) -> None:
        """Enter the keys of these records of the log, with the same effect as one by one.

        Raises:
            StoreFullError: no room for the next file. Call again with the same records.
        """
        if len(columns) <= PLAIN_LOOP_RECORDS_MAX:
            self._dispatch_rows(buffer, columns)
            return
        file = self._file_with_room()
        first = max(self._indexed_below, file.end_physical_offset)
        kind = columns.sys_flag & TRANSACTION_MASK
        wanted = columns.sound & (columns.physical_offset >= first)
        wanted &= kind != TRANSACTION_ROLLBACK_TYPE
        rows = columns if wanted.all() else columns.take(wanted)
        found = hash_keys(buffer, rows)
        offsets, times_ms = rows.physical_offset[found.row], rows.store_timestamp_ms[found.row]
        done = 0
        if len(found):
            self._keep_timestamp_below(int(times_ms.min()))
        while done < len(found):
            file = self._file_with_room()
            done += file.put_many(found.key_hash[done:], offsets[done:], times_ms[done:])
        if columns.physical_offset[-1] > file.end_physical_offset:
            # RocketMQ has made the next file by the time it sees that a record has no keys.
            self._file_with_room()

    def _dispatch_rows(self, buffer: Buffer, columns: RecordColumns) -> None:
        topic_end = columns.topic_start + columns.topic_size
        properties_end = columns.properties_start + columns.properties_size
        places = (columns.topic_start, topic_end, columns.properties_start, properties_end)
        facts = (columns.physical_offset, columns.store_timestamp_ms, columns.sys_flag)
        with memoryview(buffer) as view:
            for a, b, c, d, *rest in np.stack(places + facts, 1)[columns.sound].tolist():
                self.dispatch(str(view[a:b], "utf-8", "replace"), bytes(view[c:d]), *rest)

    def _file_with_room(self) -> IndexFile:
        """Return the file to write to, a new one if there is none or the last one is full.

        Source: IndexService.getAndCreateLastIndexFile.
        """
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        path = f"{self._directory}/{self._new_name(last)}"
        size = index_file_bytes(self._hash_slot_num, self._index_num)
        file = IndexFile(self._disk.create(path, size), self._hash_slot_num, self._index_num)
        if last is not None:
            file.continue_from(last)
            last.file.read_around(0, size, wanted=True)
        self.files.append(file)
        return file

    def _new_name(self, last: IndexFile | None) -> str:
        """Return the local time, or the number after the last name if that is later.

        Names are the order of the files, and local time jumps back every autumn.
        """
        seconds, ms = divmod(self._now_ms(), 1000)
        local = datetime.fromtimestamp(seconds, UTC).astimezone()
        number = int(f"{local:%Y%m%d%H%M%S}{ms:03d}")
        if last is not None:
            number = max(number, int(last.file.path.rpartition("/")[2]) + 1)
        while self._disk.exists(f"{self._directory}/{number:0{FILE_NAME_DIGITS}d}"):
            number += 1
        return f"{number:0{FILE_NAME_DIGITS}d}"

    def _keep_timestamp_below(self, time_ms: int) -> None:
        """Make sure that the checkpoint does not vouch for a file that gets keys of this time.

        So it would where a file ended in the same millisecond, or where the clock was put back. The
        checkpoint has to be on disk before the keys can be: the file may be full, and a part of it
        on disk, before the next flush.
        """
        if time_ms <= self._checkpoint.index_msg_timestamp_ms:
            self._checkpoint.index_msg_timestamp_ms = max(0, time_ms - 1)
            self._checkpoint.flush_blocking()

    # -- syncing, closing, cleaning --------------------------------------------------------------

    def files_to_sync(self) -> list[IndexFile]:
        """Return the full files that are not on disk yet, oldest first.

        Others are not worth it: after a hard stop they would not be trusted all the same. Set
        `flushed_position` to `wrote_position` of each file when it was synced, then call `synced`.
        """
        return [file for file in self.files if file.is_full and not file.is_flushed]

    def synced(self) -> None:
        """Move the checkpoint to the end of the last full file that is on disk.

        Source: IndexService.flush.
        """
        self._checkpoint.index_msg_timestamp_ms = self._safe_timestamp_ms()

    def _safe_timestamp_ms(self) -> int:
        """Return up to when files that end are full and on disk; 0 if there is none."""
        safe_ms = count = 0
        for file in self.files:
            if not (file.is_full and file.is_flushed):
                break
            safe_ms = file.end_timestamp_ms
            count += 1
        ends_ms = [file.end_timestamp_ms - 1 for file in self.files[count:] if file.has_keys]
        return max(0, min([safe_ms, *ends_ms]))

    def sync_all(self) -> None:
        """Sync every file, holding everything up: for close. The checkpoint is still to be flushed.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        for file in self.files:
            if not file.is_flushed:
                file.write_header()
                file.file.sync()
                file.flushed_position = file.wrote_position
        self.synced()

    def close(self) -> None:
        """Unmap the files without syncing."""
        for file in self.files:
            file.file.close()
        self.files.clear()

    def destroy(self) -> None:
        """Delete all files and start at nothing."""
        for file in reversed(self.files):
            file.file.close()
            self._disk.remove(file.file.path)
        self.files.clear()
        self._continue_after_last()
        self._checkpoint.index_msg_timestamp_ms = 0

    def drop_from(self, file: IndexFile) -> bool:
        """Delete this file and all later ones, so that they are built anew from `next_offset` on.

        Return False, and do nothing, while one may be on its way to the disk. The checkpoint goes
        first: it must not vouch for what is built anew.
        """
        if file not in self.files or self.files_to_sync():
            return False
        kept = self.files[: self.files.index(file)]
        dropped = self.files[len(kept) :]
        self.files = kept
        self.synced()
        self._checkpoint.flush_blocking()
        for each in reversed(dropped):
            each.file.close()
            self._disk.remove(each.file.path)
        self._continue_after_last()
        return True

    def delete_expired_files(self, min_physical_offset: int) -> int:
        """Delete the oldest files all of whose records are gone; never the last one.

        Return how many. A file that is not on disk yet may just be on its way there; it stays until
        the next call. Source: IndexService.deleteExpiredFile.
        """
        count = 0
        for file in self.files[:-1]:
            if file.end_physical_offset >= min_physical_offset or not file.is_flushed:
                break
            file.file.close()
            self._disk.remove(file.file.path)
            count += 1
        del self.files[:count]
        return count

    # -- finding ---------------------------------------------------------------------------------

    def query_offset(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[int]:
        """Return at most `max_num` physical offsets of records that may have this key.

        The newest come first. At most `max_msgs_num_batch`, and none twice. Times as in
        `IndexFile.offsets`.

        Source: IndexService.queryOffset.
        """
        count_max = min(max_num, self._max_msgs_num_batch)
        found: list[int] = []
        for offset in self._offsets(topic, key, begin_ms, end_ms):
            if len(found) >= count_max:
                break
            found.append(offset)
        return found

    def _offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        wanted = key_hash(topic, key.encode("utf-8", "replace"))
        seen: set[int] = set()
        for file in reversed(self.files):
            if file.has_keys and file.overlaps(begin_ms, end_ms):
                for offset in file.offsets(wanted, begin_ms, end_ms):
                    if offset not in seen:
                        seen.add(offset)
                        yield offset
            if file.has_keys and file.begin_timestamp_ms < begin_ms:
                return

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        *,
        record_at: Callable[[int], bytes | None],
        below: int | None = None,
    ) -> QueryMessageResult:
        """Return the newest records of `topic` that have `key`, as UNIQ_KEY or one of KEYS.

        Stored from `begin_ms` to `end_ms`, both included; an index knows whole seconds, so some may
        be up to a second younger than that. At most `max_num`, at most `max_msgs_num_batch`, and no
        more than 12 MiB, but at least one. `record_at` returns the record that starts at a physical
        offset, None if none does. Records from `below` on are passed over, however many.

        RocketMQ goes by the hash alone, and misses what was stored in the first second. Where a
        whole answer came to nothing it tries twice more, further back; here the walk goes on until
        there is enough.

        Source: DefaultMessageStore.queryMessage.
        """
        count_max = min(max_num, self._max_msgs_num_batch)
        found: dict[int, bytes] = {}
        has_key = _key_test(topic, key, begin_ms)
        size = strangers = 0
        for offset in self._offsets(topic, key, begin_ms - 999, end_ms):
            if below is not None and offset >= below:
                continue
            if len(found) >= count_max or strangers >= STRANGERS_READ_MAX:
                break
            record = record_at(offset)
            if record is None or not has_key(record):
                strangers += 1
                continue
            size += len(record)
            if found and size > QUERY_BYTES_MAX:
                break
            found[offset] = record
        last = self.files[-1] if self.files else None
        return QueryMessageResult(
            tuple(found[offset] for offset in sorted(found)),
            last.end_timestamp_ms if last else 0,
            last.end_physical_offset if last else 0,
        )


def _name_fault(name: str) -> str | None:
    """Return why no file can follow one of this name, None if one can."""
    return "no later name has as many digits" if name.startswith("9999") else None


def _key_test(topic: str, key: str, begin_ms: int) -> Callable[[bytes], bool]:
    """Return what says whether a sound record has this topic and key, and was not stored before."""
    topic_bytes, key_bytes = topic.encode("utf-8", "replace"), key.encode("utf-8", "replace")
    # What is no UTF-8 is read as U+FFFD: only a text with one can be that of several bytes.
    said = (topic_bytes + key_bytes).decode("utf-8", "replace")
    as_text = "\ufffd" in said or said != topic + key

    def has_key(record: bytes) -> bool:
        its_topic, properties = record_texts(record)
        keys = key_values(properties)
        if as_text:
            has = its_topic.decode("utf-8", "replace") == topic
            has = has and key in [stored.decode("utf-8", "replace") for stored in keys]
        else:
            has = its_topic == topic_bytes and key_bytes in keys
        return has and store_timestamp_ms(record, 0) >= begin_ms

    return has_key
