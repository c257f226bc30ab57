"""RebuildOrder: that all queues have to be built anew at the next start, written down.

A running store mends units in their places. What has no place yet, such as the first files of a
queue that are gone, cannot be put there: numbers before the first one are not in the row, and a
reader who was sent past them meanwhile would have passed over messages. So it is left to recovery,
where nobody reads: see `StoreRecovery`. Until then the order says why, also to people.

    ordered by the scrub --> queue-rebuild.json --> next start: queues built anew --> removed
"""

from __future__ import annotations

import logging

from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from store.machine.errors import StoreError
from tandem.wire.store_layout import REBUILD_ORDER_FILE
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)


class RebuildOrder:
    """The order of one store; `reason` is None while there is none."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Read it. One that cannot be read is an order: nobody else has made the file."""
        self._disk = disk
        self._path = f"{directory}/{REBUILD_ORDER_FILE}"
        try:
            self.reason = read_checked_json(disk, self._path, str)
        except UnreadableError as error:
            self.reason = f"{self._path}: {error}"

    def give(self, reason: str) -> None:
        """Have all queues built anew at the next start. The first reason is kept."""
        if self.reason is not None:
            return
        self.reason = reason
        _log.error("%s: all queues are built anew at the next start of this node", reason)
        try:
            replace_with_checked_json(self._disk, self._path, reason)
        except StoreError as error:
            _log.error("%s cannot be written: %s", self._path, error)

    def carried_out(self) -> None:
        """Forget it: the queues were built anew, and are on the disk."""
        if self.reason is not None:
            self._disk.remove(self._path)
            self.reason = None
