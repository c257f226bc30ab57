"""Saves the tables of a broker: at once when it closes, else in steps between which it serves.

What is about to replace a file goes to the disk between two steps, by a thread (`write_ahead`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol

import trio

from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.machine.tell_once import TellOnce

_log = logging.getLogger(__name__)


class SavedTable(Protocol):
    """A table with a file."""

    def save_in_steps(self) -> Iterator[None]:
        """Write the file if anything changed since the last time.

        Raises:
            StoreError: it cannot be written.
        """


class Saving:
    """Saves some tables; a full disk costs a few repeated messages, not the node."""

    def __init__(self, disk: Disk, *tables: SavedTable) -> None:
        self._disk = disk
        self._tables = tables
        self._told: TellOnce[str] = TellOnce()

    def save(self) -> None:
        """Write what has changed. A failed write is logged, and tried again."""
        for _ in self._steps():
            pass

    async def save_in_turns(self) -> None:
        """Do the same, and let all other tasks run after each step.

        A table of tens of thousands of topics takes a second to write down: a master that is
        silent for so long is deposed.
        """
        for _ in self._steps():
            await self._disk.write_ahead()
            await trio.lowlevel.checkpoint()

    def _steps(self) -> Iterator[None]:
        try:
            for table in self._tables:
                yield from table.save_in_steps()
        except StoreError as error:
            if self._told.is_news(str(error)):
                _log.warning("topics, groups and offsets could not be saved: %s", error)
        else:
            self._told.over()
