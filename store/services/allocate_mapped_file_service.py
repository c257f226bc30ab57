"""AllocateMappedFileService: has the next file of the commit log, and its pages, ready.

Source: org.apache.rocketmq.store.AllocateMappedFileService of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from store.files.mapped_file_queue import MappedFileQueue
from store.files.touched_pages import RATE_SECONDS
from store.machine.errors import DiskFailedError, StoreFullError
from store.machine.signal import Signal

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0


class AllocateMappedFileService:
    """The preparation of one log's files. Call `wake` when the log has grown.

    `may_begin` is asked while there is no file yet: where the log of an empty slave begins is up to
    its master. `on_room` is called after each file that there was room for.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        *,
        may_begin: Callable[[], bool],
        on_room: Callable[[], None],
    ) -> None:
        self._files = files
        self._pages = files.touched_pages
        self._woken = Signal()
        self._may_begin = may_begin
        self._on_room = on_room

    def wake(self) -> None:
        """Look whether a file or pages are wanted. Costs next to nothing while none are."""
        if self._pages.are_wanted or self._files.next_file.is_wanted:
            self._woken.notify()

    async def run(self) -> None:
        """Prepare files, and touch the pages of the last one, until cancelled."""
        files, pages = self._files, self._pages
        while True:
            # Look again after each one: the log may have grown past it meanwhile.
            is_calm = pages.look(trio.current_time())
            if pages.are_wanted:
                await pages.touch_some()
                continue
            if not files.next_file.is_wanted or not (files.files or self._may_begin()):
                step = pages.absent_step(files.next_file.prepared)
                if step is None:
                    await self._woken.wait()
                elif is_calm:
                    await pages.bring_in(*step)
                else:
                    with trio.move_on_after(RATE_SECONDS):
                        await self._woken.wait()
                continue
            try:
                await files.next_file.prepare()
                self._on_room()
            except (StoreFullError, DiskFailedError) as error:
                _log.warning("puts will be refused when this file is full: %s", error)
                await trio.sleep(RETRY_SECONDS)
