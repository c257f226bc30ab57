"""OpenFiles: how many files of queues are open at once, and which are let go.

    open --one more than may be, and it is the oldest with nothing to sync--> closed
    closed --its bytes are wanted--> open

A file costs two descriptors and a mapping while it is open, whether it is used or not. Opening
one and writing to it counts as use; reading one that is open leaves no mark. A file with bytes that
are not synced stays open, so that the error of a failed sync finds us: while there are too many of
these the flush is to sync all of them, and not only full pages. Only where there are twice as many
as should be, because thousands of queues are new in a second, is such a file closed as well; the
flush opens it again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from store.machine.disk import Disk

FILES_MAX: Final = 4_096
_LOOKED_AT_MAX: Final = 16
"""Files that are not synced are passed over, but not all of them each time; and where there were
only such, none for the next ones that are opened."""


class Closable(Protocol):
    """What is open."""

    def let_go(self, *, unsynced: bool = False) -> bool:
        """Close it, if nothing speaks against it; return whether it is closed."""


class OpenFiles:
    """The open files of the queues of one store, at most `files_max` that are synced."""

    def __init__(self, disk: Disk, files_max: int = FILES_MAX) -> None:
        self.disk = disk
        self.files_max = files_max
        # The oldest of a plain `dict` is found after all places that others have left before it.
        self._open: OrderedDict[Closable, None] = OrderedDict()
        self._not_looked = 0

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def are_too_many(self) -> bool:
        """Whether more are open than should be: some of them have to be synced."""
        return len(self._open) > self.files_max

    def used(self, file: Closable) -> None:
        """Take note that a file is open and in use; another one may be closed for it."""
        self._open.pop(file, None)
        if len(self._open) >= self.files_max:
            self._make_room()
        self._open[file] = None  # last, so that it is none of those that are closed for it

    def _make_room(self) -> None:
        if self._not_looked:
            self._not_looked -= 1
        elif not self._let_go(self.files_max - 1):
            self._not_looked = _LOOKED_AT_MAX
        if len(self._open) >= 2 * self.files_max:
            oldest, _ = self._open.popitem(last=False)
            if not oldest.let_go(unsynced=True):
                self._open[oldest] = None

    def closed(self, file: Closable) -> None:
        """Take note that a file is not open any more."""
        self._open.pop(file, None)

    def let_go(self) -> None:
        """Close the oldest, as far as there are too many. Harmless to call at any time."""
        self._not_looked = 0
        self._let_go(self.files_max)

    def _let_go(self, most: int) -> bool:
        """Close the oldest until there are no more than this; return whether that was possible."""
        left = _LOOKED_AT_MAX
        while left and len(self._open) > most:
            file, _ = self._open.popitem(last=False)
            if not file.let_go():
                self._open[file] = None
                left -= 1
        return left > 0
