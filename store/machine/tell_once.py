"""Each trouble is logged once for as long as it lasts, however often it is met."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

TroubleT = TypeVar("TroubleT", bound=Hashable)


class TellOnce(Generic[TroubleT]):
    """Remembers, by subject, the trouble that was logged last.

        if told.is_news(str(error), about=name):
            _log.warning(...)

    Another trouble of the same subject is news, and so is the old one after that, or once it was
    `over`. Where there is one subject only, it needs no name.

    Memory: `subjects_max` subjects. Beyond that all are forgotten and may be logged again: nobody
    can silence the others by being many. Where silence is better, ask `is_full` first.
    """

    def __init__(self, subjects_max: int = 100) -> None:
        self._subjects_max = subjects_max
        self._last: dict[Hashable, TroubleT] = {}

    @property
    def is_full(self) -> bool:
        """True if one more subject makes it forget the others."""
        return len(self._last) >= self._subjects_max

    def is_news(self, trouble: TroubleT, about: Hashable = "") -> bool:
        """Return whether to log it; it is remembered as logged."""
        if self._last.get(about) == trouble:
            return False
        if self.is_full and about not in self._last:
            self._last.clear()
        self._last[about] = trouble
        return True

    def last(self, about: Hashable = "") -> TroubleT | None:
        """Return the trouble that was logged last and is not over; None if there is none."""
        return self._last.get(about)

    def over(self, about: Hashable = "") -> None:
        """All is well with it again: the next trouble is news, whatever it is."""
        self._last.pop(about, None)
