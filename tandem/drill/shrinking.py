"""Makes a case that breaks a promise as short as it can be. The play is passed in. Pure.

A real cluster does not break twice in the same way at will, so a shorter case is played several
times before it counts as sound. That something else breaks in it does not count as the same.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from tandem.drill.nemesis import Case, Fault

TRIES: Final = 2
"""How often a shorter case is played before it counts as one that breaks nothing."""

PLAYS_MAX: Final = 40

Broken = frozenset[str]
"""What a play broke, by name; nothing where all held, or where it showed nothing."""

Item = TypeVar("Item")


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest case that was found."""

    case: Case
    plays: int
    is_repeated: bool
    """Whether it broke again at all: otherwise it is the case as it was given."""
    is_shortest: bool
    """Whether each single fault of it was left out in turn, and nothing broke without it."""


class StoppedError(Exception):
    """A play was stopped by a person: there will be no more."""


class _OutOfPlaysError(Exception):
    """The plays that are allowed are used up."""


def shrink(
    case: Case,
    broken: Broken,
    play: Callable[[Case], Broken],
    *,
    tries: int = TRIES,
    plays_max: int = PLAYS_MAX,
) -> Shrunk:
    """Leave out whatever is not needed to break one of `broken` again.

    First whole rounds, then single faults, then the pauses after them. `play` may raise
    StoppedError: what was found until then is the answer.
    """
    search = _Search(case, broken, play, tries, plays_max)
    is_shortest = True
    try:
        search.run()
    except (_OutOfPlaysError, StoppedError):
        is_shortest = False
    return Shrunk(
        case=search.shortest,
        plays=search.plays,
        is_repeated=search.is_repeated,
        is_shortest=is_shortest and search.is_repeated,
    )


class _Search:
    """One search; `shortest` broke last."""

    def __init__(
        self,
        case: Case,
        broken: Broken,
        play: Callable[[Case], Broken],
        tries: int,
        plays_max: int,
    ) -> None:
        self.shortest = case
        self.plays = 0
        self.is_repeated = False
        self._broken = broken
        self._play = play
        self._tries = tries
        self._plays_max = plays_max
        self._sound: set[Case] = set()

    def run(self) -> None:
        """Search to the end."""
        if not (self._breaks(self._with_rounds(())) or self._breaks(self.shortest)):
            return
        if not self.shortest.faults:
            return
        _fewer(self.shortest.rounds, lambda rounds: self._breaks(self._with_rounds(rounds)))
        _fewer(_placed(self.shortest), lambda faults: self._breaks(self._with_faults(faults)))
        self._shorten_pauses()

    def _with_rounds(self, rounds: Sequence[tuple[Fault, ...]]) -> Case:
        return msgspec.structs.replace(self.shortest, rounds=tuple(rounds))

    def _with_faults(self, faults: Sequence[tuple[int, Fault]]) -> Case:
        by_round: dict[int, list[Fault]] = {}
        for number, fault in faults:
            by_round.setdefault(number, []).append(fault)
        return self._with_rounds([tuple(each) for each in by_round.values()])

    def _shorten_pauses(self) -> None:
        for place in range(self.shortest.faults):
            faults = _placed(self.shortest)
            number, fault = faults[place]
            if fault.pause_seconds:
                faults[place] = (number, msgspec.structs.replace(fault, pause_seconds=0.0))
                self._breaks(self._with_faults(faults))

    def _breaks(self, case: Case) -> bool:
        """Whether a case breaks the same in one of some plays; if so, it is the shortest one."""
        if case in self._sound:
            return False
        for _ in range(self._tries):
            if self.plays >= self._plays_max:
                raise _OutOfPlaysError
            self.plays += 1
            if self._play(case) & self._broken:
                self.shortest = case
                self.is_repeated = True
                return True
        self._sound.add(case)
        return False


def _placed(case: Case) -> list[tuple[int, Fault]]:
    """Every fault with the number of its round."""
    return [(number, fault) for number, faults in enumerate(case.rounds) for fault in faults]


def _fewer(items: Sequence[Item], breaks: Callable[[Sequence[Item]], bool]) -> None:
    """Leave out more and more of a row that breaks, until no single one can be left out.

    Delta debugging (Zeller and Hildebrandt, 2002): halves first, then ever smaller pieces.
    """
    left = list(items)
    pieces = 2
    while len(left) > 1:
        size = -(-len(left) // pieces)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if breaks(rest):
                left, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                return
            pieces = min(len(left), 2 * pieces)
