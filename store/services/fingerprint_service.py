"""FingerprintService: takes the fingerprints of the log, a little at a time, beside all else.

Of a log that was empty when it was opened it also writes down where it begins.

It looks once a second. A put does nothing for it.
"""

from __future__ import annotations

from typing import Final

import trio
import trio.lowlevel

from store.files.mapped_file_queue import MappedFileQueue
from store.log.commit_log import CommitLog
from store.log.fingerprint_maker import FingerprintMaker
from store.log.fingerprints import Fingerprints
from store.log.log_start import LogStart

LOOK_SECONDS: Final = 1.0
SLICE_BYTES: Final = 4 << 20
"""A third of a millisecond's work."""


class FingerprintService:
    """The making of one store's fingerprints."""

    def __init__(
        self,
        files: MappedFileQueue,
        maker: FingerprintMaker,
        fingerprints: Fingerprints,
        log_start: LogStart,
    ) -> None:
        self._files = files
        self._log_start = log_start
        self._maker = maker
        self._fingerprints = fingerprints

    async def run(self) -> None:
        """Take fingerprints until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            self._log_start.follow(self._files)
            while self._maker.is_behind:
                made = self._maker.step(SLICE_BYTES)
                if made is not None:
                    await self._fingerprints.save(made)
                await trio.lowlevel.checkpoint()


def fingerprint_service(
    log: CommitLog, fingerprints: Fingerprints, log_start: LogStart
) -> FingerprintService:
    """Return that of a log that has just been recovered."""
    maker = FingerprintMaker(log.files, log.damage, fingerprints)
    return FingerprintService(log.files, maker, fingerprints, log_start)
