"""A failing run becomes small, and goes on failing in the same way."""

import msgspec

from tests.sim.engine.faults import Instruction
from tests.sim.engine.history import Finding
from tests.sim.engine.shrink import Shrinker
from tests.sim.fenced.checker import Kind
from tests.sim.fenced.settings import FencedSettings, draw_settings

KINDS = frozenset({Kind.LOST})


def _at(second: int) -> Instruction:
    return Instruction(float(second), "kill", (f"broker-a-{second}",))


def _settings(count: int) -> FencedSettings:
    drawn = draw_settings(1, 3)
    return msgspec.structs.replace(drawn, plan=tuple(map(_at, range(count))), load_seconds=90.0)


def _run_that_needs(*seconds: int) -> "Runner":
    return Runner({_at(second) for second in seconds})


class Runner:
    """Fails if all of some instructions are in the plan; counts how often it was asked."""

    def __init__(self, needed: set[Instruction]) -> None:
        self.needed = needed
        self.count = 0

    def __call__(self, settings: FencedSettings) -> list[Finding]:
        self.count += 1
        fails = self.needed <= set(settings.plan)
        return [Finding(Kind.LOST if fails else Kind.GAP, "")]


def test_what_is_not_needed_is_left_out() -> None:
    run = _run_that_needs(3, 11)
    smaller = Shrinker(_settings(16), KINDS, run=run).shrink()
    assert set(smaller.plan) == run.needed
    assert smaller.load_seconds < 20
    assert len(smaller.producers) == 1


def test_another_kind_of_failure_is_not_the_same() -> None:
    run = _run_that_needs(1)
    smaller = Shrinker(_settings(3), frozenset({Kind.GAP}), run=run).shrink()
    assert smaller.plan == ()


def test_it_ends_after_so_many_runs() -> None:
    run = _run_that_needs(0, 5, 9, 15)
    Shrinker(_settings(16), KINDS, run=run, runs_max=7).shrink()
    assert run.count == 7
