"""SmallFilesCheck: do the small files on the disk hold what this process has in memory?

    kept, before --> the disk, past the page cache --> kept, after
        same, and the disk has it      sound
        they differ                    its owner was faster: again
        same, and the disk has other   written anew from memory, and logged
        ... the disk refuses that      logged once, and said in the status until it does

What was written by somebody else meanwhile is left alone where that is allowed: a table.

Fingerprints of log files are many, and have a checksum of their own: see `Fingerprints.look_at`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.machine.kept_files import ONLY_OURS, KeptFile
from store.machine.tell_once import TellOnce

_log = logging.getLogger(__name__)

TRIES_MAX: Final = 5
"""A file that is written more often than it can be read is not at rest."""


class SmallFilesCheck:
    """The check of the files of one store and its node. `directory` is where they are."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._told: TellOnce[str] = TellOnce()
        self.bad: dict[str, str] = {}
        """Files that are wrong on the disk and could not be written anew, by path, and why."""

    async def run(self, rest: Callable[[float], Awaitable[bool]]) -> int:
        """Look at all files once; return how many were written anew.

        `rest` is called with how long each one took, and says whether to go on.
        """
        count = 0
        paths = self._disk.kept.below(self._directory)
        for path in [path for path in self.bad if path not in paths]:
            del self.bad[path]
        for path in paths:
            began = trio.current_time()
            count += await self._is_written_anew(path)
            if not await rest(trio.current_time() - began):
                break
        return count

    async def _is_written_anew(self, path: str) -> bool:
        """Look at one file; write it again if it is not what it has to be."""
        kept, fault = await self._fault(path)
        if kept is None:
            return False
        if fault is None:
            self.bad.pop(path, None)
            self._told.over(path)
            return False
        if self._is_of_somebody_else(path, kept):
            if self._told.is_news("somebody else", path):
                _log.warning(
                    "%s: somebody else has written it while this node runs; the node goes by its"
                    " own, and replaces the file when it saves it next",
                    path,
                )
            return False
        try:
            kept.write_anew()
        except (StoreError, OSError) as error:
            self.bad[path] = f"{fault}, and it cannot be written anew: {error}"
            if self._told.is_news(self.bad[path], path):
                _log.error(
                    "%s: %s; make room, or replace the disk, before this node is stopped",
                    *(path, self.bad[path]),
                )
            return False
        self.bad.pop(path, None)
        self._told.over(path)
        _log.error("%s: %s; it is written anew from memory: look after this disk", *(path, fault))
        return True

    async def _fault(self, path: str) -> tuple[KeptFile | None, str | None]:
        """Return what the file has to be, and what is wrong with it, None if nothing is.

        Both are None where no owner knows what the file has to be.
        """
        for _ in range(TRIES_MAX):
            kept = self._disk.kept.of(path)
            if kept is None:
                break
            fault = await self._fault_of(path, kept)
            # Where its owner has written it meanwhile, what was read may be of before or after.
            after = self._disk.kept.of(path)
            if after is not None and after[:2] == kept[:2]:
                return after, fault
        return None, None

    async def _fault_of(self, path: str, kept: KeptFile) -> str | None:
        size = len(kept.content)
        try:
            found = await self._disk.read_from_disk(path, 0, size + 1)
        except FileNotFoundError:
            return "the file is gone"
        except OSError as error:
            return f"the disk does not give it ({error.strerror or error})"
        if found == kept.content:
            return None
        if len(found) != size:
            return "the disk has another length of it than was written"
        return "the disk has other bytes than were written"

    def _is_of_somebody_else(self, path: str, kept: KeptFile) -> bool:
        if kept.modified_ms == ONLY_OURS or not self._disk.exists(path):
            return False
        return self._disk.modified_ms(path) != kept.modified_ms
