"""QueueEnds: where each queue ended at a clean stop, so that a start looks into no file of a queue.

    clean stop    all is synced --> the ends are written down --> `abort` is removed
    next start    the note is read, and removed before anything else is changed
                  a queue whose files are those of the note: it goes on from there
                  any other queue: its files are read, as without a note

The note counts for one start. It names the lock as the run that wrote it has left it, the end of
the log, and the times of the last writes to the log and to each queue: so it is not believed if an
older copy of it, of the log or of a queue was put back, if another version or RocketMQ had the
store in between, or if it is not whole. Then there is a line in the log, and nothing is lost but
time. After a hard stop it does not count either.

What is in a queue that goes on from here was not looked at. So each of its units is compared with
its record before it is handed out, unless recovery has met that record (see `record_check.py`).

Queues of batches and queues with extensions are not noted. RocketMQ has no such file, and leaves it
alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from store.log.log_start import UNKNOWN
from store.machine.checked_file import replace_with_checked_json
from store.machine.errors import StoreError
from store.queue.consume_queue import ConsumeQueue
from store.queue.queue_units import QueueEnd
from tandem.wire.checksum_line import without_checksum
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE, QUEUE_ENDS_FILE
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from store.files.mapped_file_queue import MappedFileQueue
    from store.log.log_start import LogStart
    from store.machine.disk import Disk
    from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore

_log = logging.getLogger(__name__)

VERSION: Final = 1


class _Note(msgspec.Struct, frozen=True):
    version: int
    lock_modified_ms: int
    """Of the run that has written it."""
    log_end: int
    log_modified_ms: int
    """Of the last file of the log."""
    topics: dict[str, list[QueueEnd]]


class QueueEnds:
    """The note of the store in `directory`, whose lock is `log_start`'s."""

    def __init__(self, disk: Disk, directory: str, log_start: LogStart) -> None:
        self._disk = disk
        self._path = f"{directory}/{QUEUE_ENDS_FILE}"
        self._log_start = log_start

    def take(self, queues: ConsumeQueueStore, log: MappedFileQueue, log_end: int) -> None:
        """Let queues, which are loaded, go on from where the note says that they ended.

        It is removed. `log_end` is up to where the log is to go; -1 if the last stop was not clean.

        Raises:
            OSError: the disk does not remove it.
        """
        modified_ms, queues.modified_ms = queues.modified_ms, {}
        note = self._read()
        if note is None:
            return
        self._disk.remove(self._path)
        reason = self._fault(note, log, log_end)
        if reason:
            self._ignored(reason)
            return
        rows = [(topic, end) for topic, ends in note.topics.items() for end in ends]
        believed = 0
        for topic, end in rows:
            queue = queues.find(topic, end.queue_id)
            if queue is None or not _is_end_of(queue, end, log_end):
                continue
            found_ms = modified_ms.get((topic, end.queue_id), -1)
            if found_ms < 0:
                found_ms = self._disk.modified_ms(queue.files.files[-1].path)
            if found_ms == end.modified_ms:
                queue.go_on_from(end)
                believed += 1
        if believed < len(rows):
            self._ignored(f"{len(rows) - believed} of {len(rows)} queues are not as it says")
        elif believed == queues.with_files_count:
            queues.noted_to = log_end

    def save(self, queues: ConsumeQueueStore, log: MappedFileQueue) -> None:
        """Write down where queues end, all of which are on the disk. For a clean stop.

        Where the disk refuses, there is no note.
        """
        last = log.last
        if last is None:
            return
        try:
            replace_with_checked_json(self._disk, self._path, self._note(queues, log, last.path))
        except (StoreError, OSError) as error:
            _log.warning("%s cannot be written: %s; the next start takes longer", self._path, error)

    def _note(self, queues: ConsumeQueueStore, log: MappedFileQueue, last_path: str) -> _Note:
        topics: dict[str, list[QueueEnd]] = {}
        for topic, queue_id in queues.queues():
            queue = queues.find(topic, queue_id)
            if queue is not None and _can_be_noted(queue):
                modified_ms = self._disk.modified_ms(queue.files.files[-1].path)
                topics.setdefault(topic, []).append(queue.end_to_note(modified_ms))
        return _Note(
            VERSION,
            self._log_start.lock_modified_ms,
            log.max_offset,
            self._disk.modified_ms(last_path),
            topics,
        )

    def _read(self) -> _Note | None:
        try:
            data = self._disk.read(self._path)
            if data is None:
                return None
            text, is_checked = without_checksum(QUEUE_ENDS_FILE, data)
            if is_checked:
                return decode_json(text, _Note)
            reason = "it has no checksum"
        except (OSError, UnreadableError) as error:
            reason = str(error)
        self._disk.remove(self._path)
        self._ignored(reason)
        return None

    def _fault(self, note: _Note, log: MappedFileQueue, log_end: int) -> str | None:
        """Return why the note does not count, in words."""
        last = log.last
        if log_end < 0:
            return "the last stop was not clean"
        if note.version != VERSION:
            return f"it has version {note.version}, and {VERSION} is known here"
        is_last_run = note.lock_modified_ms == self._log_start.lock_before_ms
        if not is_last_run or self._log_start.start == UNKNOWN:
            return "it is not of the run before this one"
        if note.log_end != log_end:
            return f"it is of a log of {note.log_end} bytes, and this one has {log_end}"
        if last is None or self._disk.modified_ms(last.path) != note.log_modified_ms:
            return "the log was written to after it"
        return None

    def _ignored(self, reason: str) -> None:
        _log.warning("%s does not count: %s; the files of queues are read", self._path, reason)


def _can_be_noted(queue: AnyConsumeQueue) -> bool:
    """Say whether what a `QueueEnd` has is all that there is to know; and it is on the disk."""
    last = queue.files.last
    if type(queue) is not ConsumeQueue or last is None or queue.trouble:
        return False
    return len(queue.file_queues) == 1 and last.flushed_position == last.wrote_position


def _is_end_of(queue: AnyConsumeQueue, end: QueueEnd, log_end: int) -> bool:
    """Say whether a note fits the files of a queue, but for their time."""
    files = queue.files.files
    if not files or not _can_be_noted(queue):
        return False
    last = files[-1]
    return (
        files[0].file_from_offset == end.first
        and last.file_from_offset < end.end <= last.file_from_offset + last.size
        and end.end % CQ_STORE_UNIT_SIZE == 0
        and end.first <= end.min_offset * CQ_STORE_UNIT_SIZE <= end.end
        and -1 <= end.first_record <= log_end
        and -1 <= end.max_physic_offset <= log_end
    )
