"""QueueCare: what a scrub does for the queues of a store, beside its look at the log.

files of queues        gone or short: written anew; what is lost of them is built anew
records of the log     their units: wrong ones are written anew, queues in doubt are built anew
no place for a unit    all queues are built anew at the next start, and that is said until then
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from store.log.commit_log import CommitLog
from store.machine.disk import Disk
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.rebuild_order import RebuildOrder
from store.services.queue_check import QueueCheck
from store.services.queue_files_check import QueueFilesCheck
from store.services.queue_rebuild import QueueRebuild
from tandem.wire.delay_level import DelayLevels
from tandem.wire.record_scan import RecordColumns

_log = logging.getLogger(__name__)


class QueueCare:
    """The care of one store's queues. `dispatched` is up to where they have their records."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        disk: Disk,
        directory: str,
        levels: DelayLevels,
        dispatched: Callable[[], int] | None,
    ) -> None:
        self.rewritten_units = 0
        self.rewritten_files = 0
        """Since the store was opened."""
        self._disk = disk
        self._order = RebuildOrder(disk, directory)
        self._queues = queues
        self._check = QueueCheck(log, queues, levels, dispatched)
        self._files = QueueFilesCheck(disk)
        self._rebuild = QueueRebuild(log, queues, levels)

    @property
    def left(self) -> str | None:
        """Why all queues are built anew at the next start, in words; None if they are not."""
        return self._order.reason

    def look_at_records(self, buffer: bytes | memoryview, columns: RecordColumns) -> None:
        """Compare the units of records that are sound, of closed files, with them."""
        self.rewritten_units += self._check.check(buffer, columns)

    async def look_at_files(self, rest: Callable[[float], Awaitable[bool]]) -> None:
        """Look whether the files of all queues are there; build anew what is lost of them."""
        for key in self._queues.queues():
            began = trio.current_time()
            queue = self._queues.find(*key)
            if queue is not None:
                self.rewritten_files += self._files.look_at(queue)
            if not await rest(trio.current_time() - began):
                break
        await self.mend(rest)

    async def mend(self, rest: Callable[[float], Awaitable[bool]]) -> None:
        """Build anew what is in doubt; what has no place is left to the next start."""
        for queue in self._check.doubted:
            queue.doubt("a unit of it is not that of its record")
        self._check.doubted.clear()
        found = (self._queues.find(*key) for key in self._queues.queues())
        doubted = [queue for queue in found if queue is not None and queue.trouble]
        if doubted:
            rebuilt = await self._rebuild.run(doubted, rest)
            self.rewritten_units += rebuilt.rewritten
            if rebuilt.left:
                self._order.give(rebuilt.left)
        if self._check.lost is not None:
            self._order.give(self._check.lost)
            self._check.lost = None
        await self._sync_what_was_full()

    async def _sync_what_was_full(self) -> None:
        """Sync full files in which units were written anew: a flush looks at the last ones only."""
        for key in self._queues.queues():
            queue = self._queues.find(*key)
            for file in list(queue.files.files[:-1]) if queue is not None else []:
                if file.flushed_position < file.size and file.hold():
                    try:
                        await self._disk.sync(file.file)
                        file.flushed_position = file.size
                    except OSError as error:
                        _log.error("%s: what was written anew is not synced: %s", file, error)
                    finally:
                        file.release()
