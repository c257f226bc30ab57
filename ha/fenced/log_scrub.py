"""LogScrub: looks at all closed files of the log when an operator orders it.

    ordered --> block after block against its fingerprint, with pauses --> done
                            `--> what differs is damage, and is healed

It stops nobody: after each slice everybody else has a turn, and the disk a rest.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from ha.fenced.log_check import look_at

if TYPE_CHECKING:
    from store import MessageStore

_log = logging.getLogger(__name__)

SLICE_BYTES: Final = 256 << 10
PAUSE_SECONDS: Final = 0.002
"""After each slice: 128 MiB a second at most."""


class LogScrub:
    """The looks at one log, for one round."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._ordered = trio.Event()
        self.text = ""
        """How far the last one is, or what it has found, in words; "" if there was none."""

    @property
    def is_running(self) -> bool:
        """Whether one is under way."""
        return self._ordered.is_set()

    def order(self) -> None:
        """Begin, unless one is under way."""
        self._ordered.set()

    async def run(self) -> None:
        """Carry out orders until cancelled."""
        while True:
            await self._ordered.wait()
            await self._look()
            self._ordered = trio.Event()

    async def _look(self) -> None:
        store = self._store
        size = store.config.mapped_file_size_commit_log_bytes
        starts = store.fingerprints.starts
        found = 0
        for number, start in enumerate(starts):
            self.text = f"looks at file {number + 1} of {len(starts)}"
            for at in range(start, start + size, SLICE_BYTES):
                if start >= store.min_physical_offset:
                    found += not look_at(store, at, min(at + SLICE_BYTES, start + size))
                await trio.sleep(PAUSE_SECONDS)
        self.text = f"has looked at {len(starts)} closed files, and found damage in {found} places"
        _log.log(logging.ERROR if found else logging.INFO, "a scrub %s", self.text)
