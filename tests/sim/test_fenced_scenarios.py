"""Scripted runs of fenced groups end as recorded in their files, with every promise kept."""

import pytest

from tests.sim.fenced_scenario import SCENARIOS, outcome_lines, play, read_scenario

NAMES = sorted(path.stem for path in SCENARIOS.glob("*.txt"))


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_ends_as_recorded(name: str) -> None:
    scenario = read_scenario(name)
    result = play(scenario)
    assert not result.findings, result.report()
    assert outcome_lines(scenario, result) == scenario.outcome


def test_there_are_scenarios() -> None:
    assert NAMES
