"""HealedParts: what of a log was bad and is whole again, in `healed.json`, for people.

RocketMQ leaves the file alone. Without it nothing is lost.
"""

from __future__ import annotations

import logging
from typing import Final

from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from store.machine.errors import StoreError
from tandem.wire.ha_status import HealedPart
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

FILE_NAME: Final = "healed.json"
KEPT_MAX: Final = 100


class HealedParts:
    """Those of one directory, the newest last."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Read what was healed before."""
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._is_saved = True
        self.parts = self._read()

    def add(self, part: HealedPart) -> None:
        """Note one more. A part that begins where the last one ended is one with it."""
        last = self.parts[-1] if self.parts else None
        if last is not None and (last.end, last.source, last.reason) == (
            part.start,
            part.source,
            part.reason,
        ):
            self.parts[-1] = HealedPart(last.start, part.end, part.source, part.reason, part.at_ms)
        else:
            self.parts.append(part)
            del self.parts[:-KEPT_MAX]
        self._is_saved = False

    def save(self) -> None:
        """Keep it on the disk, if there is news."""
        if self._is_saved:
            return
        try:
            replace_with_checked_json(self._disk, self._path, self.parts)
            self._is_saved = True
        except StoreError as error:
            _log.warning("%s cannot be written: %s", self._path, error)

    def _read(self) -> list[HealedPart]:
        try:
            return read_checked_json(self._disk, self._path, list[HealedPart]) or []
        except UnreadableError as error:
            _log.warning("%s: %s; what was healed before is forgotten", self._path, error)
            return []
