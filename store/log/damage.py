"""LogDamage: which bytes of the commit log are known to be bad.

    reader, scrub, opening ---note---> [ bad ranges ] ---healed---> verified, or written anew
                                            |
             reads of them are answered with an error; nothing of them is sent to another node

A range is bad until somebody has shown that it is whole. So it is kept in `damage.json`, durable
before the first byte of it is written again: a process that dies while it heals a range finds half
of it, and the note that it is bad.

Where the file itself cannot be read, all of the log is in doubt: a look at the whole log takes the
doubt away, piece by piece.

RocketMQ has no such file, and leaves it alone.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Final

import msgspec

from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.machine.signal import Signal
from tandem.wire.store_layout import DAMAGE_FILE
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

EVERYTHING: Final = (1 << 63) - 1
RANGES_MAX: Final = 10_000
"""More than that are put together, the bytes between them as well."""


class BadRange(msgspec.Struct, frozen=True):
    """Bytes of the log, by physical offset, that must not be handed out."""

    start: int
    end: int
    reason: str
    """What was seen, in words."""
    found_at_ms: int


class LogDamage:
    """The bad ranges of one log: in order, apart from one another.

    `changed` is notified when one was added or has gone. Without a disk nothing is kept.
    """

    def __init__(
        self,
        disk: Disk | None = None,
        directory: str = "",
        wall_clock_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """Read what was known when the store was open last."""
        self._disk = disk
        self._now_ms = wall_clock_ms
        self.path = f"{directory}/{DAMAGE_FILE}"
        self.changed = Signal()
        self._is_saved = True
        self.ranges = self._read()

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def bad_bytes(self) -> int:
        """How many bytes are in doubt."""
        return sum(bad.end - bad.start for bad in self.ranges)

    def in_words(self) -> str:
        """Return what is bad, in words; "" if nothing is known to be."""
        if not self.ranges:
            return ""
        first = self.ranges[0]
        others = f", and in {len(self.ranges) - 1} other places" if len(self.ranges) > 1 else ""
        return f"its log is damaged from {first.start} to {first.end} ({first.reason}){others}"

    def within(self, start: int, end: int) -> BadRange | None:
        """Return the first bad range that has a byte from `start` up to `end`; None for none."""
        index = bisect_right(self.ranges, start, key=attrgetter("end"))
        if start < end and index < len(self.ranges) and self.ranges[index].start < end:
            return self.ranges[index]
        return None

    def covers(self, start: int, end: int) -> bool:
        """True if all bytes from `start` up to `end` are in one bad range."""
        bad = self.within(start, end)
        return bad is not None and bad.start <= start and end <= bad.end

    def is_young(self, offset: int, age_ms_max: int) -> bool:
        """True if the byte at `offset` has been known to be bad for no longer than this."""
        bad = self.within(offset, offset + 1)
        return bad is not None and self._now_ms() - bad.found_at_ms <= age_ms_max

    def note(self, start: int, end: int, reason: str) -> bool:
        """Take `start` up to `end` for bad. Return whether it was not known before.

        It counts at once, and is durable when this returns unless the disk refuses: then that is
        logged, and tried again with the next change.
        """
        if start >= end or self.covers(start, end):
            return False
        # Ranges that touch stay apart: each has been found by itself, for a reason of its own.
        met = [bad for bad in self.ranges if bad.start < end and start < bad.end]
        whole = BadRange(
            min(start, *(bad.start for bad in met)) if met else start,
            max(end, *(bad.end for bad in met)) if met else end,
            met[0].reason if met else reason,
            met[0].found_at_ms if met else self._now_ms(),
        )
        self._become([*(bad for bad in self.ranges if bad not in met), whole])
        _log.error("the log is damaged from %d to %d: %s", whole.start, whole.end, reason)
        return True

    def healed(self, start: int, end: int) -> None:
        """Take `start` up to `end` for whole: its bytes were verified where they are."""
        if self.within(start, end) is not None:
            kept: list[BadRange] = []
            for bad in self.ranges:
                if bad.start < min(bad.end, start):
                    kept.append(msgspec.structs.replace(bad, end=min(bad.end, start)))
                if max(bad.start, end) < bad.end:
                    kept.append(msgspec.structs.replace(bad, start=max(bad.start, end)))
            self._become(kept)

    def keep_within(self, start: int, end: int) -> None:
        """Forget what is outside of the log, which begins at `start` and ends at `end`."""
        self.healed(0, start)
        self.healed(end, EVERYTHING)

    def save(self) -> None:
        """Make durable what is known, if that has not been possible yet."""
        if self._is_saved or self._disk is None:
            return
        try:
            if self.ranges:
                replace_with_checked_json(self._disk, self.path, self.ranges)
            else:
                self._disk.remove(self.path)
        except (StoreError, OSError) as error:
            _log.warning("%s cannot be written: %s; trying again", self.path, error)
        else:
            self._is_saved = True

    def _become(self, ranges: list[BadRange]) -> None:
        ranges.sort(key=attrgetter("start"))
        if len(ranges) > RANGES_MAX:
            last = ranges[RANGES_MAX - 1]
            ranges[RANGES_MAX - 1 :] = [msgspec.structs.replace(last, end=ranges[-1].end)]
        self.ranges = tuple(ranges)
        self._is_saved = False
        self.save()
        self.changed.notify()

    def _read(self) -> tuple[BadRange, ...]:
        if self._disk is None:
            return ()
        try:
            ranges = read_checked_json(self._disk, self.path, tuple[BadRange, ...]) or ()
        except UnreadableError as error:
            reason = f"{self.path} cannot be read ({error}): which part is bad is not known"
            _log.error("%s; all of the log is in doubt until it has been looked at", reason)
            return (BadRange(0, EVERYTHING, reason, self._now_ms()),)
        return tuple(sorted(ranges, key=attrgetter("start")))
