"""CommitRealTimeService: carries what was put from the buffers of a pool to the files of the log.

It commits as soon as enough pages were put, and everything at each interval; a sync of all of the
log commits all of it before. It goes on after a failed sync, so that readers and slaves still get
everything. A failed commit is final, as a failed sync is.

Source: CommitLog.CommitRealTimeService.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from store.config import StoreConfig
from store.files.mapped_file_queue import MappedFileQueue
from store.machine.signal import Signal


class CommitRealTimeService:
    """The committing of one log. Without a pool there is never anything to commit.

    Attributes:
        committed: Notified when more of the log is in its files.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        config: StoreConfig,
        *,
        on_failure: Callable[[str], None],
        after_commit: Callable[[], None],
    ) -> None:
        """`after_commit` is called when more of the log can be read: `committed_where` has moved.

        `on_failure` is called once, with what went wrong.
        """
        self._files = files
        self._config = config
        self._on_failure = on_failure
        self._after_commit = after_commit
        self._appended = Signal()
        self._has_failed = False
        self.committed = Signal()

    def wake(self) -> None:
        """Commit what was put, if it is enough."""
        self._appended.notify()

    async def run(self) -> None:
        """Commit until cancelled, or until it has failed."""
        interval_seconds = self._config.commit_interval_commit_log_ms / 1000
        thorough_seconds = self._config.commit_commit_log_thorough_interval_ms / 1000
        least_pages = self._config.commit_commit_log_least_pages
        last_commit = trio.current_time()
        while not self._has_failed:
            with trio.move_on_after(interval_seconds):
                await self._appended.wait()
            now = trio.current_time()
            thorough = now >= last_commit + thorough_seconds
            if self.commit(0 if thorough else least_pages) or thorough:
                last_commit = now

    def commit(self, least_pages: int) -> bool:
        """Commit if that many pages were put, 0 for all there is; return whether anything was."""
        if self._has_failed:
            return False
        try:
            moved = self._files.commit(least_pages)
        except OSError as error:
            self._has_failed = True
            self._on_failure(f"{error.filename}: commit failed: {error}")
            return False
        if moved:
            self.committed.notify()
            self._after_commit()
        return moved
