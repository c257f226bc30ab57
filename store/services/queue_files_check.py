"""QueueFilesCheck: are the files of queues on the disk those that this process knows?

    the name is gone       this process has its bytes yet: the file is written anew from memory
    it is too long         the same
    it is short, or was    what was cut off is lost for memory, too: a file of the right length
    closed and is gone     takes its place, and the queue is in doubt until it was built anew
    a name of no file      said once: nothing reads it

Nobody shortens a file that is mapped but a damaged file system, or somebody by mistake. A process
that touches what was cut off before this look ends with SIGBUS; the next start builds the queues.
"""

from __future__ import annotations

import logging

from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.machine.disk import TEMPORARY_SUFFIX, Disk
from store.machine.errors import StoreError
from store.machine.tell_once import TellOnce
from store.queue.consume_queue_store import AnyConsumeQueue

_log = logging.getLogger(__name__)


class QueueFilesCheck:
    """The check of one store."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._told: TellOnce[str] = TellOnce()

    def look_at(self, queue: AnyConsumeQueue) -> int:
        """Look at all files of a queue; return how many were written anew.

        One of which something is lost is in doubt from then on.
        """
        return sum(self._look_at_row(queue, files) for files in queue.file_queues)

    def _look_at_row(self, queue: AnyConsumeQueue, files: MappedFileQueue) -> int:
        # In one step: making or deleting a file changes both, the disk and the row.
        sizes = dict(self._disk.list_files(files.directory))
        count = 0
        for file in list(files.files):
            size = sizes.pop(file.path.rpartition("/")[2], -1)
            if size == file.size:
                continue
            is_units = files is queue.files
            end = file.allocated_position if file.is_open else file.wrote_position
            if is_units and size < end and (size >= 0 or not file.is_open):
                queue.doubt(f"{file.path} had {max(0, size)} of {file.size} bytes")
            count += self._is_written_anew(file, size)
        for name in sizes:
            path = f"{files.directory}/{name}"
            is_next = name.isdecimal() and int(name) == files.next_file.offset
            if not is_next and self._told.is_news("no file of the row", path):
                _log.error("%s: no file of this queue; nothing reads it, move it away", path)
        return count

    def _is_written_anew(self, file: MappedFile, size: int) -> bool:
        path, disk = file.path, self._disk
        what = "was deleted" if size < 0 else f"has {size} of {file.size} bytes"
        try:
            end = file.allocated_position if file.is_open else file.wrote_position
            if 0 <= size < file.size or not file.is_open:
                there = (disk.read(path) or b"")[:end]
            else:
                there = bytes(file.buffer[:end])
            disk.remove(f"{path}{TEMPORARY_SUFFIX}")
            made = disk.create(f"{path}{TEMPORARY_SUFFIX}", file.size, grows=True)
            made.allocate(end)
            kept_bytes = min(len(there), made.allocated)
            made.buffer[:kept_bytes] = there[:kept_bytes]
            made.sync()
            made.close()
            disk.remove(path)
            disk.rename(f"{path}{TEMPORARY_SUFFIX}", path)
            opened = disk.open(path, grows=True)
            opened.allocate(end)
            file.go_on_in(opened)
        except (StoreError, OSError) as error:
            _log.error("%s %s, and cannot be written anew: %s", path, what, error)
            return False
        _log.error(
            "%s %s under this process, and is written anew: look after this disk", path, what
        )
        return True
