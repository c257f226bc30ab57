"""Makes a failing run small: fewer instructions, fewer producers, less load, and still failing.

A smaller run is kept if it breaks a promise of the same kind. First large parts of the plan are
left out, then smaller ones (Zeller's delta debugging), then what else the run does not need. What
remains is written as a scenario file, to be read by people and kept.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from tests.sim.faults import Instruction
from tests.sim.fenced_checker import Kind
from tests.sim.fenced_simulation import FencedResult, FencedSettings, run_fenced

T = TypeVar("T")

RUNS_MAX: Final = 120
"""Then what there is must do: a run takes about half a second."""


class Shrinker:
    """Shrinks one failing run. `run` plays one; tests put another function here."""

    def __init__(
        self,
        settings: FencedSettings,
        kinds: frozenset[Kind],
        *,
        run: Callable[[FencedSettings], FencedResult] = run_fenced,
        on_progress: Callable[[str], None] = lambda _: None,
        runs_max: int = RUNS_MAX,
    ) -> None:
        self._settings = settings
        self._kinds = kinds
        self._run = run
        self._on_progress = on_progress
        self._runs_left = runs_max

    def shrink(self) -> FencedSettings:
        """Return the smallest run that was found to fail in the same way."""
        for simplify in (self._plans, self._lengths, self._producers, self._delays):
            for smaller in simplify():
                self._try(smaller)
        self._minimize_plan()
        for smaller in self._lengths():
            self._try(smaller)
        return self._settings

    def _plans(self) -> Iterator[FencedSettings]:
        yield msgspec.structs.replace(self._settings, plan=())

    def _lengths(self) -> Iterator[FencedSettings]:
        last = max((i.at_seconds for i in self._settings.plan), default=0.0)
        for seconds in (last + 0.5, last + 1.5):
            if seconds < self._settings.load_seconds:
                yield msgspec.structs.replace(self._settings, load_seconds=seconds)

    def _producers(self) -> Iterator[FencedSettings]:
        for index in range(len(self._settings.producers)):
            kept = [p for i, p in enumerate(self._settings.producers) if i != index]
            if kept:
                yield msgspec.structs.replace(self._settings, producers=tuple(kept))

    def _delays(self) -> Iterator[FencedSettings]:
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

    def _try(self, smaller: FencedSettings) -> bool:
        if self._runs_left <= 0 or smaller == self._settings:
            return False
        self._runs_left -= 1
        found = {finding.kind for finding in self._run(smaller).findings}
        if not found & self._kinds:
            return False
        self._settings = smaller
        self._on_progress(f"{len(smaller.plan)} instructions, {smaller.load_seconds:.1f} s")
        return True


def _without(plan: tuple[T, ...], start: int, end: int) -> tuple[T, ...]:
    return plan[:start] + plan[end:]


def scenario_text(settings: FencedSettings, findings: list[str]) -> str:
    """Return a run as the text of a file in `tests/sim/scenarios`."""
    lines = [f"# Shrunk from seed {settings.name}. What was found:"]
    lines += [f"#     {finding}" for finding in findings[:5]]
    lines += [
        f"seed {settings.seed}",
        f"nodes {settings.node_count}",
        f"min-isr {settings.min_isr}",
        f"ack-level {settings.ack_level}",
        f"lease {settings.lease_ttl_ms / 1000:g}",
        f"supervised {'yes' if settings.is_supervised else 'no'}",
        f"load {settings.load_seconds:g}",
        "",
        *_plan_lines(settings.plan),
    ]
    return "\n".join(lines) + "\n"


def _plan_lines(plan: tuple[Instruction, ...]) -> list[str]:
    return [str(instruction) for instruction in plan]
