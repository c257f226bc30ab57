"""ByAge: who has been silent for longest, without a look at all the others.

A table of thousands of members is looked through every second for those that are gone. Nobody is,
most of the time; so the members are kept in the order in which they were last heard of, and a look
ends at the first one that is not too old.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

KeyT = TypeVar("KeyT", bound="Hashable")


class ByAge(Generic[KeyT]):
    """When each of some keys was heard of last, in seconds of a monotonic clock.

    Times that are passed in should not go back. One that does by a little, because a request took
    some seconds, is found later by as much.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: OrderedDict[KeyT, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def heard(self, key: KeyT, now: float) -> None:
        """Note that a key is there; it need not be known."""
        self._last[key] = now
        self._last.move_to_end(key)

    def forget(self, key: KeyT) -> None:
        """Know nothing of a key any more. Harmless if there is nothing."""
        self._last.pop(key, None)

    def silent_since(self, moment: float) -> list[KeyT]:
        """Return the keys that were heard of before a moment, and not since. They stay."""
        silent: list[KeyT] = []
        for key, last in self._last.items():
            if last >= moment:
                break
            silent.append(key)
        return silent
