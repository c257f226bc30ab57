"""ConsumeQueueStore: all consume queues of a store, by topic and queue id.

On disk: `consumequeue/<topic>/<queueId>/<20 digits>`, and beside it `batchconsumequeue` for the
topics of batches and `consumequeue_ext` for extensions, with the same names inside.

Source: org.apache.rocketmq.store.queue.ConsumeQueueStore.
"""

from __future__ import annotations

import logging
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias

from store.files.open_files import FILES_MAX, OpenFiles
from store.files.sync_at_once import Progress, no_progress, sync_at_once
from store.machine.errors import BrokenRowError, CorruptLogError, LogFault
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_ext import ConsumeQueueExt
from store.queue.shared_by_queues import SharedByQueues
from tandem.wire.message import (
    INNER_BATCH_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tandem.wire.store_layout import BATCH_CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE
from tandem.wire.system_topics import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from store.files.mapped_file import MappedFile
    from store.files.mapped_file_queue import MappedFileQueue
    from store.log.log_end import DispatchRequest
    from store.machine.disk import Disk, FoundFile
    from store.queue.unit_queue import UnitQueue

_log = logging.getLogger(__name__)

AnyConsumeQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue


_QUEUE_ID_MAX: Final = (1 << 31) - 1

QUEUES_AT_ONCE: Final = 256
"""That a flush looks at before other tasks have their turn: well under 1 ms."""


def is_queued(sys_flag: int) -> bool:
    """True if a record with this SYSFLAG belongs in its queue; prepared and rollback ones do not.

    Source: CommitLogDispatcherBuildConsumeQueue.
    """
    return sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE)


def nothing_hidden(_: str) -> int:
    """For stores in which no topic was deleted and created again."""
    return 0


def no_batch_topic(_: str) -> bool:
    """Say that no topic has queues of batches."""
    return False


class ConsumeQueueStore:
    """The queues. `MessageStore` owns and closes them.

    Args:
        directory: of the ordinary queues.
        mapped_file_size: of their files, rounded up to whole units.
        disk: where all of this is.
        batch_directory: of the queues of batches; needed only if there are topics of batches.
        batch_mapped_file_size: of their files, rounded up to whole units.
        ext_directory: of the extensions; empty: new units have none.
        ext_mapped_file_size: of their files.
        is_batch_topic: says which topics have queues of batches (attribute queue.type=BatchCQ).
        hidden_before: says up to where in the log the records of a topic are of a deleted one.
        open_files_max: how many files of units are open at once.
    """

    def __init__(
        self,
        directory: str,
        mapped_file_size: int,
        disk: Disk,
        *,
        batch_directory: str = "",
        batch_mapped_file_size: int = 13_800_000,
        ext_directory: str = "",
        ext_mapped_file_size: int = 50_331_648,
        is_batch_topic: Callable[[str], bool] = no_batch_topic,
        hidden_before: Callable[[str], int] = nothing_hidden,
        open_files_max: int = FILES_MAX,
    ) -> None:
        self.open_files = OpenFiles(disk, open_files_max)
        """Those of the units."""
        self._root = directory.rpartition("/")[0]
        self._directory = directory
        self._mapped_file_size = _whole_units(mapped_file_size, CQ_STORE_UNIT_SIZE)
        self._disk = disk
        self._batch_directory = batch_directory
        self._batch_mapped_file_size = _whole_units(
            batch_mapped_file_size, BATCH_CQ_STORE_UNIT_SIZE
        )
        self._ext_directory = ext_directory
        self._ext_mapped_file_size = ext_mapped_file_size
        self._is_batch_topic = is_batch_topic
        self._batch_topics: set[str] = set()
        """Topics whose files or records show that they have queues of batches. A slave may get the
        first records of a topic before it hears of its attributes."""
        self._queues: dict[tuple[str, int], AnyConsumeQueue] = {}
        self._shared: SharedByQueues[UnitQueue] = SharedByQueues(self.open_files)
        self.awake = self._shared.awake
        """Those that have changed lately."""
        self.modified_ms: dict[tuple[str, int], int] = {}
        """When the last files of queues were changed last, -1 where that is not known; from `load`
        until the note of their ends was read."""
        self.noted_to = 0
        """Up to where in the log all records are in their queues, as a note says: see
        `queue_ends.py`."""
        self.broken: str | None = None
        """Why the queues have to be built anew from the log, in words; set by `load`."""
        self.hidden_before = hidden_before
        self._filter_bit_map: Callable[[str, int, int], bytes] | None = None

    # -- opening ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Open every queue found on disk; a directory whose name is no number is skipped.

        Raises:
            CorruptLogError: a file has a wrong length or name, or a topic the wrong kind of queues.

        Source: ConsumeQueueStore.load, loadConsumeQueues.
        """
        if self._batch_directory:
            self._batch_topics.update(
                topic for topic, _, found in self._queues_in(self._batch_directory) if found
            )
        for directory in filter(None, (self._directory, self._batch_directory)):
            broken: list[tuple[AnyConsumeQueue, BrokenRowError]] = []
            for topic, queue_id, found in self._queues_in(directory):
                if found:
                    self._check_kind(topic, directory)
                queue = self.find_or_create(topic, queue_id)
                try:
                    self.modified_ms[topic, queue_id] = queue.load(found)
                except BrokenRowError as error:
                    broken.append((queue, error))
            self._load_broken(directory, broken)
        if self._ext_directory:
            self._delete_stray_extensions()

    def _load_broken(
        self, directory: str, broken: list[tuple[AnyConsumeQueue, BrokenRowError]]
    ) -> None:
        """Load what is left of queues that lack files, or have files of another length.

        Where no file of any queue has the right length, it is the setting that is wrong.

        Raises:
            BrokenRowError: as of the first of them.
        """
        for queue, _ in broken:
            queue.load_end()
        loaded = (queue for queue in self._queues.values() if queue.files.files)
        if broken and not any(queue.files.directory.startswith(directory) for queue in loaded):
            raise broken[0][1]
        for queue, error in broken:
            self.broken = self.broken or f"{queue.name} lacks units"
            _log.error("%s. It is built anew from the commit log", str(error).partition(";")[0])

    def _queues_in(self, directory: str) -> Iterator[tuple[str, int, list[FoundFile]]]:
        """Return topic, queue id and files of each queue in one of the trees."""
        found = self._disk.list_trees(directory, _is_queue)
        return ((topic, int(name), files) for topic, name, files in found)

    def _check_kind(self, topic: str, directory: str) -> None:
        right = self._directory_of(topic)
        if directory == right:
            return
        path = f"{directory}/{topic}"
        raise CorruptLogError(
            f"{path}: the queues of topic {topic!r} are here, but by the topic's attribute"
            f" queue.type they belong in {right}/{topic}; give the topic its former queue.type"
            f" back in config/topics.json, or move both {directory} and {right} away: all queues"
            " are then built anew from the commit log",
            path=path,
            fault=LogFault.QUEUE_KIND,
        )

    def _delete_stray_extensions(self) -> None:
        """Delete what a queue that is gone has left: the next one would take it for its own."""
        for topic, queue_id, _ in self._queues_in(self._ext_directory):
            if (topic, queue_id) not in self._queues:
                ext = self._ext_of(topic, queue_id)
                ext.load()
                ext.destroy()

    def recover(self) -> int:
        """Find the end of every queue; return the end of the last record any queue knows, or -1.

        Those that go on from a note know it already.

        RocketMQ compares with the start of the last record of a queue of batches; as every queue
        takes a record only once, it makes no difference which records it is shown again.
        """
        unknown = [queue for queue in self._queues.values() if not queue.is_noted]
        for start in range(0, len(unknown), QUEUES_AT_ONCE):
            some = unknown[start : start + QUEUES_AT_ONCE]
            if len(some) > 1:
                self._disk.read_ahead([f.path for queue in some for f in queue.files.files[-1:]])
            for queue in some:
                queue.recover()
        return max((q.max_physic_offset for q in self._queues.values()), default=-1)

    def recover_noted(self, start: int) -> None:
        """Look into queues whatever a note says, as many as may be open at once.

        All, or else those with records from `start` on: these confirm their units then, and reading
        them costs less. If they are too many as well, none.
        """
        most = self.open_files.files_max
        found = [queue for queue in self._queues.values() if queue.is_noted]
        if len(found) > most:
            found = [queue for queue in found if queue.max_physic_offset > start]
        if len(found) <= most:
            self.noted_to = 0
            for queue in found:
                queue.recover()

    def confirm(self, start: int, end: int) -> None:
        """See `ConsumeQueue.confirm`. Light queues (LMQ) name records of other topics.

        Raises:
            QueueGapError: a queue and the log do not fit together.
        """
        for queue in self._queues.values():
            if not queue.topic.startswith(LMQ_PREFIX):
                queue.confirm(start, end)

    # -- finding ---------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many queues there are."""
        return len(self._queues)

    @property
    def with_files_count(self) -> int:
        """How many of them have files."""
        return sum(bool(queue.files.files) for queue in self._queues.values())

    def find(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        """Return the queue, None if it does not exist yet."""
        return self._queues.get((topic, queue_id))

    def find_or_create(
        self, topic: str, queue_id: int, *, holds_batches: bool = False
    ) -> AnyConsumeQueue:
        """Return the queue; a new one gets its first file with its first message.

        `holds_batches` says that a record of the topic is an inner batch.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if holds_batches:
                self._batch_topics.add(topic)
            queue = self._new_queue(topic, queue_id)
            self._queues[queue.topic, queue_id] = queue
        return queue

    def _new_queue(self, topic: str, queue_id: int) -> AnyConsumeQueue:
        tree = self._directory_of(topic)
        directory = f"{tree}/{topic}/{queue_id}"
        if tree != self._directory:
            return BatchConsumeQueue(
                *(directory, topic, queue_id, self._batch_mapped_file_size, self._disk),
                self._shared,
            )
        ext = self._ext_of(topic, queue_id) if self._ext_directory else None
        return ConsumeQueue(
            *(directory, topic, queue_id, self._mapped_file_size, self._disk),
            *(ext, self._shared),
        )

    def _directory_of(self, topic: str) -> str:
        is_batch = self._batch_directory and (
            topic in self._batch_topics or self._is_batch_topic(topic)
        )
        return self._batch_directory if is_batch else self._directory

    def _ext_of(self, topic: str, queue_id: int) -> ConsumeQueueExt:
        directory = f"{self._ext_directory}/{topic}/{queue_id}"

        def bit_map_of(physical_offset: int, size: int) -> bytes:
            calculate = self._filter_bit_map
            return b"" if calculate is None else calculate(topic, physical_offset, size)

        return ConsumeQueueExt(directory, self._ext_mapped_file_size, self._disk, bit_map_of)

    def calculate_bit_maps(self, bit_map_of: Callable[[str, int, int], bytes]) -> None:
        """Keep filter bit maps of records from now on: by topic, physical offset and size."""
        self._filter_bit_map = bit_map_of

    def queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of all queues, sorted."""
        return sorted(self._queues)

    def queues_of(self, topics: Container[str]) -> list[tuple[str, int]]:
        """Return (topic, queue id) of all queues of some topics, sorted."""
        return sorted(key for key in self._queues if key[0] in topics)

    # -- entering and cutting --------------------------------------------------------------------

    def dispatch(
        self, request: DispatchRequest, *, may_start_late: bool = True
    ) -> AnyConsumeQueue | None:
        """Enter a record; return its queue if it is new there, else None.

        Raises:
            QueueGapError, StoreFullError: see `ConsumeQueue.dispatch`.
        """
        if not is_queued(request.sys_flag):
            return None
        holds_batches = bool(request.sys_flag & INNER_BATCH_FLAG)
        queue = self.find_or_create(request.topic, request.queue_id, holds_batches=holds_batches)
        return queue if queue.dispatch(request, may_start_late=may_start_late) else None

    def truncate_dirty(self, physical_offset: int) -> None:
        """Drop the units of records at or after `physical_offset` everywhere."""
        for queue in self._queues.values():
            queue.truncate_dirty_logic_files(physical_offset)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """See `ConsumeQueue.correct_min_offset`."""
        for topic, queue_id in self._queues:
            self.correct_min_offset_of(topic, queue_id, min_physical_offset)

    def correct_min_offset_of(self, topic: str, queue_id: int, min_physical_offset: int) -> None:
        """The same for one queue; what is hidden is passed over as if it had left the log."""
        queue, start = self._queues[topic, queue_id], self.hidden_before(topic)
        start = max(min_physical_offset, start)
        if not queue.is_noted or start != queue.corrected_to:
            queue.correct_min_offset(start)

    def hide(self, topic: str) -> int:
        """Pass over all messages of a topic; return where in the log they end, 0 if there are none.

        The numbers in its queues go on. 5.3.3 deletes the queues and counts from 0 again, while
        the records in the log and the queues of its slaves say otherwise.
        """
        queues = [queue for (name, _), queue in self._queues.items() if name == topic]
        end = max((queue.max_physic_offset for queue in queues), default=0)
        for queue in queues:
            queue.correct_min_offset(end)
        return max(end, 0)

    def check_self(self) -> list[str]:
        """Return what is wrong with the rows of files, in words."""
        rows = (files for files in self._file_queues() if len(files.files) > 1)
        return [problem for files in rows for problem in files.check_self()]

    # -- flushing --------------------------------------------------------------------------------

    def _file_queues(self) -> Iterator[MappedFileQueue]:
        for queue in self._queues.values():
            yield from queue.file_queues

    def mapped_files(self) -> list[MappedFile]:
        """Return every file of every queue, extensions included."""
        return [file for files in self._file_queues() for file in files.files]

    def dirty_files(self, least_pages: int) -> Iterator[list[MappedFile]]:
        """Yield the files that a flush with this threshold has to sync, in this order.

        Some at a time, perhaps none, and only those of queues that were awake at the beginning:
        the caller may let others have their turn in between. With 0 pages, what is on the disk
        falls asleep.
        """
        queues = self.awake.queues()
        for start in range(0, len(queues), QUEUES_AT_ONCE):
            found: list[MappedFile] = []
            for queue in queues[start : start + QUEUES_AT_ONCE]:
                dirty = [f for files in queue.file_queues for f in files.dirty_files(least_pages)]
                if least_pages <= 0 and not dirty:
                    queue.sleep()
                found += dirty
            yield found

    def directories(self) -> list[str]:
        """Return all directories with names of queues and of their files, outermost first."""
        paths = [files.directory for files in self._file_queues()]
        topics = [path.rpartition("/")[0] for path in paths]
        trees = [path.rpartition("/")[0] for path in topics]
        return list(dict.fromkeys([*trees, *topics, *paths]))

    def sync_all(self, progress: Progress = no_progress) -> None:
        """Block until every unit is durable. `progress` hears of queues that are, and of how many.

        Raises:
            OSError: the disk failed; what is durable is unknown.
        """
        queues = self.awake.queues()
        changed = [file for queue in queues for file in _dirty(queue)]
        if len(changed) >= self._disk.many_files and self._disk.sync_tree_now(self._root):
            for file in changed:
                file.flushed_position = file.wrote_position
        for start in range(0, len(queues), QUEUES_AT_ONCE):
            some = queues[start : start + QUEUES_AT_ONCE]
            # First the first ones of all, then the second ones: extensions before units.
            for rows in zip_longest(*(queue.file_queues for queue in some)):
                dirty = (files.dirty_files(0) for files in rows if files is not None)
                sync_at_once(self._disk, list(chain.from_iterable(dirty)))
            for queue in some:
                queue.sleep()
            self.open_files.let_go()
            progress(start + len(some), len(queues))

    # -- deleting --------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> int:
        """Delete all queues of a topic and their directories; return how many there were.

        The messages stay in the commit log until its files are deleted.

        Source: DefaultMessageStore.deleteTopics.
        """
        queue_ids = [queue_id for name, queue_id in self._queues if name == topic]
        for queue_id in queue_ids:
            self._delete(topic, queue_id)
        return len(queue_ids)

    def _delete(self, topic: str, queue_id: int) -> None:
        queue = self._queues.pop((topic, queue_id))
        queue.destroy()
        self.awake.gone(queue)
        for files in queue.file_queues:
            self._disk.remove_directory(files.directory)
            self._disk.remove_directory(files.directory.rsplit("/", 1)[0])
        _log.info("queue %d of topic %s is deleted", queue_id, topic)

    def numbers_left(self, min_physical_offset: int) -> dict[tuple[str, int], int]:
        """Return the number after the last message of each queue that has left the commit log.

        Not of queues of batches. Numbers of units that name records past the log's end were
        never given away for good: they do not count.
        """
        numbers = {}
        for key, queue in self._queues.items():
            if isinstance(queue, ConsumeQueue):
                queue.correct_min_offset(min_physical_offset)
                numbers[key] = queue.min_offset
        return numbers

    def go_on_at(self, numbers: dict[tuple[str, int], int]) -> None:
        """Let queues that were built anew and have no message in the log keep their numbers.

        Otherwise they would begin at 0, and consumers would take new messages for old ones.
        """
        for key, number in numbers.items():
            queue = self._queues.get(key) or self._new_queue(*key)
            if number > 0 and isinstance(queue, ConsumeQueue) and not queue.files.files:
                queue.start_at(number)
                self._queues[key] = queue

    def destroy(self) -> None:
        """Delete every queue, to build them anew from the log."""
        self.noted_to = 0
        for queue in self._queues.values():
            queue.destroy()
            self.awake.gone(queue)
        self._queues.clear()

    def close(self) -> None:
        """Unmap everything."""
        for queue in self._queues.values():
            queue.close()


def _dirty(queue: UnitQueue) -> list[MappedFile]:
    """Return all files of a queue that have something to sync, in this order."""
    return [file for files in queue.file_queues for file in files.dirty_files(0)]


def _is_queue(topic: str, name: str) -> bool:
    """Whether a directory of this name in one of that name may be a queue's."""
    is_id = name.isdecimal() and str(int(name)) == name and int(name) <= _QUEUE_ID_MAX
    # The name of a topic is UTF-8.
    return is_id and not any("\udc80" <= character <= "\udcff" for character in topic)


def _whole_units(size: int, unit_size: int) -> int:
    return -(-size // unit_size) * unit_size
