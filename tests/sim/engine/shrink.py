"""Makes a failing run small: fewer instructions, fewer producers, less load, and still failing.

A smaller run is kept if it breaks a promise of the same kind. First large parts of the plan are
left out, then smaller ones (Zeller's delta debugging), then what else the run does not need. What
remains is written as a scenario file, to be read by people and kept.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, Generic, TypeVar

import msgspec

from tests.sim.engine.history import Finding
from tests.sim.engine.simulation import S

T = TypeVar("T")

RUNS_MAX: Final = 120
"""Then what there is must do: a run takes about half a second."""


class Shrinker(Generic[S]):
    """Shrinks one failing run. `run` plays one and returns what it found."""

    def __init__(
        self,
        settings: S,
        kinds: frozenset[Enum],
        *,
        run: Callable[[S], list[Finding]],
        on_progress: Callable[[str], None] = lambda _: None,
        runs_max: int = RUNS_MAX,
    ) -> None:
        self._settings = settings
        self._kinds = kinds
        self._run = run
        self._on_progress = on_progress
        self._runs_left = runs_max

    def shrink(self) -> S:
        """Return the smallest run that was found to fail in the same way."""
        for simplify in (self._plans, self._lengths, self._producers, self._delays):
            for smaller in simplify():
                self._try(smaller)
        self._minimize_plan()
        for smaller in self._lengths():
            self._try(smaller)
        return self._settings

    def _plans(self) -> Iterator[S]:
        yield msgspec.structs.replace(self._settings, plan=())

    def _lengths(self) -> Iterator[S]:
        last = max((i.at_seconds for i in self._settings.plan), default=0.0)
        for seconds in (last + 0.5, last + 1.5):
            if seconds < self._settings.load_seconds:
                yield msgspec.structs.replace(self._settings, load_seconds=seconds)

    def _producers(self) -> Iterator[S]:
        for index in range(len(self._settings.producers)):
            kept = [p for i, p in enumerate(self._settings.producers) if i != index]
            if kept:
                yield msgspec.structs.replace(self._settings, producers=tuple(kept))

    def _delays(self) -> Iterator[S]:
        yield msgspec.structs.replace(self._settings, delay_seconds_max=0.001)

    def _minimize_plan(self) -> None:
        size = max(1, len(self._settings.plan) // 2)
        while size:
            removed = False
            start = 0
            while start < len(self._settings.plan):
                rest = _without(self._settings.plan, start, start + size)
                if self._try(msgspec.structs.replace(self._settings, plan=rest)):
                    removed = True
                else:
                    start += size
            if not removed or size > 1:
                size //= 2

    def _try(self, smaller: S) -> bool:
        if self._runs_left <= 0 or smaller == self._settings:
            return False
        self._runs_left -= 1
        found = {finding.kind for finding in self._run(smaller)}
        if not found & self._kinds:
            return False
        self._settings = smaller
        self._on_progress(f"{len(smaller.plan)} instructions, {smaller.load_seconds:.1f} s")
        return True


def _without(plan: tuple[T, ...], start: int, end: int) -> tuple[T, ...]:
    return plan[:start] + plan[end:]
