"""FingerprintService: takes the fingerprints of the log, a little at a time, beside all else.

It looks once a second. A put does nothing for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
import trio.lowlevel

from store.log.fingerprint_maker import FingerprintMaker

if TYPE_CHECKING:
    from store.log.commit_log import CommitLog
    from store.log.fingerprints import Fingerprints

LOOK_SECONDS: Final = 1.0
SLICE_BYTES: Final = 4 << 20
"""A third of a millisecond's work."""


class FingerprintService:
    """The making of one store's fingerprints."""

    def __init__(self, maker: FingerprintMaker, fingerprints: Fingerprints) -> None:
        self._maker = maker
        self._fingerprints = fingerprints

    async def run(self) -> None:
        """Take fingerprints until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            while self._maker.is_behind:
                made = self._maker.step(SLICE_BYTES)
                if made is not None:
                    await self._fingerprints.save(made)
                await trio.lowlevel.checkpoint()


def fingerprint_service(log: CommitLog, fingerprints: Fingerprints) -> FingerprintService:
    """Return that of a log that has just been recovered."""
    return FingerprintService(FingerprintMaker(log.files, log.damage, fingerprints), fingerprints)
