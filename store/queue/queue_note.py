"""QueueNote: which queues there are, written down, so that one that is gone is missed.

A queue all of whose files are gone looks like one that never was: its next message would be number
0 again, and consumers, who are further, would miss it. So a start and a clean stop write down the
queues that have units. The next start has all queues built anew from the log if one of them has no
file any more. What was made in between, and is gone after a kill, is not missed.

RocketMQ has no such note, and deletes queues: after it has had the directory open it does not count
(see `log_start.py`).
"""

from __future__ import annotations

import logging

from store.files.mapped_file_queue import MappedFileQueue
from store.log.log_start import LogStart
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.queue_ends import QueueEnds
from tandem.wire.store_layout import QUEUE_NOTE_FILE
from tandem.wire.system_topics import LMQ_PREFIX
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)


class QueueNote:
    """The note of the store in `directory`. One that cannot be read says nothing."""

    def __init__(self, disk: Disk, directory: str, log_start: LogStart) -> None:
        """Read it."""
        self.ends = QueueEnds(disk, directory, log_start)
        """The other note, of where the queues end."""
        self._disk = disk
        self._path = f"{directory}/{QUEUE_NOTE_FILE}"
        self._known: dict[str, list[int]] = {}
        try:
            found = read_checked_json(disk, self._path, dict[str, list[int]])
        except UnreadableError as error:
            _log.warning("%s: %s; a queue that is gone is not missed", self._path, error)
        else:
            self._known = found or {}

    def missing(self, queues: ConsumeQueueStore) -> str | None:
        """Return which queue has no file any more, in words; None if all have. They are loaded."""
        there = _with_files(queues)
        for topic, ids in self._known.items():
            for queue_id in ids:
                if queue_id not in there.get(topic, ()):
                    return f"{topic}-{queue_id} had units, and has no file"
        return None

    def save_at_stop(self, queues: ConsumeQueueStore, log: MappedFileQueue) -> None:
        """Write down also where they end: all of them are on the disk, and so is the log."""
        self.save(queues)
        self.ends.save(queues, log)

    def save(self, queues: ConsumeQueueStore) -> None:
        """Write down which queues there are now, if there are others than before."""
        there = _with_files(queues)
        if there == self._known:
            return
        try:
            replace_with_checked_json(self._disk, self._path, there)
            self._known = there
        except StoreError as error:
            _log.warning("%s cannot be written: %s", self._path, error)


def _with_files(queues: ConsumeQueueStore) -> dict[str, list[int]]:
    """Return the queues that have files, by topic. Light queues are not built by us."""
    there: dict[str, list[int]] = {}
    for topic, queue_id in queues.queues():
        queue = queues.find(topic, queue_id)
        if queue is not None and queue.files.files and not topic.startswith(LMQ_PREFIX):
            there.setdefault(topic, []).append(queue_id)
    return there
