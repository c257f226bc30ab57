"""A failing run becomes small, and goes on failing in the same way."""

import msgspec

from tests.sim.faults import Instruction
from tests.sim.fenced_checker import Finding, Kind
from tests.sim.fenced_history import FencedHistory
from tests.sim.fenced_scenario import SCENARIOS, read_scenario
from tests.sim.fenced_simulation import FencedResult, FencedSettings, draw_fenced_settings
from tests.sim.shrink import Shrinker, scenario_text

KINDS = frozenset({Kind.LOST})


def _at(second: int) -> Instruction:
    return Instruction(float(second), "kill", (f"broker-a-{second}",))


def _settings(count: int) -> FencedSettings:
    drawn = draw_fenced_settings(1, 3)
    return msgspec.structs.replace(drawn, plan=tuple(map(_at, range(count))), load_seconds=90.0)


def _run_that_needs(*seconds: int) -> "Runner":
    return Runner({_at(second) for second in seconds})


class Runner:
    """Fails if all of some instructions are in the plan; counts how often it was asked."""

    def __init__(self, needed: set[Instruction]) -> None:
        self.needed = needed
        self.count = 0

    def __call__(self, settings: FencedSettings) -> FencedResult:
        self.count += 1
        fails = self.needed <= set(settings.plan)
        return FencedResult(
            settings=settings,
            findings=[Finding(Kind.LOST, "")] if fails else [Finding(Kind.GAP, "")],
            digest="",
            event_count=0,
            history=FencedHistory(),
            log_lines=[],
            virtual_seconds=0.0,
            hit={},
            switches=0,
            is_excused=False,
            load_started_at=0.0,
            roles={},
        )


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


def test_a_run_can_be_written_as_a_scenario() -> None:
    settings = _settings(3)
    name = "written-by-a-test"
    path = SCENARIOS / f"{name}.txt"
    path.write_text(scenario_text(settings, ["LOST: x"]))
    try:
        scenario = read_scenario(name)
    finally:
        path.unlink()
    assert scenario.plan == settings.plan
    assert scenario.node_count == 3
    assert scenario.is_supervised == settings.is_supervised
