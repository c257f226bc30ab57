"""Scripted runs end as recorded in their files, with every promise kept.

The ordinary suite plays about a third of them: each takes seconds of a processor.
"""

from pathlib import Path

import pytest

from tests.sim.engine.scenario import read_scenario
from tests.sim.playbooks import PLAYBOOKS
from tests.sim.thirds import is_ordinary

SCRIPTS = [(kind, name) for kind, book in PLAYBOOKS.items() for name in book.scenario_names()]


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [each for each in SCRIPTS if is_ordinary(*each)])
def test_a_scenario_ends_as_recorded(kind: str, name: str) -> None:
    play(kind, name)


@pytest.mark.sim
@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), [each for each in SCRIPTS if not is_ordinary(*each)])
def test_a_scenario_of_the_others_ends_as_recorded(kind: str, name: str) -> None:
    play(kind, name)


def play(kind: str, name: str) -> None:
    book = PLAYBOOKS[kind]
    scenario = book.read_scenario(name)
    result = book.play(scenario)
    assert not result.findings, result.report()
    assert book.outcome(scenario, result) == scenario.outcome


def test_there_are_scenarios_of_both_kinds_and_no_two_have_one_name() -> None:
    assert {kind for kind, _ in SCRIPTS} == set(PLAYBOOKS)
    names = [name for _, name in SCRIPTS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", PLAYBOOKS)
def test_the_settings_of_a_seed_can_be_written_as_a_script(kind: str, tmp_path: Path) -> None:
    book = PLAYBOOKS[kind]
    for seed in range(20):
        settings = book.draw(seed, None)
        path = tmp_path / f"written-{seed}.txt"
        path.write_text(book.script(settings, ["why", "and how"]))
        scenario = read_scenario(path, book.options)
        assert scenario.plan == settings.plan
        assert book.options_of(book.settings_of(scenario)) == book.options_of(settings)


def test_settings_that_the_kind_of_group_does_not_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("seed 1\nload 2\nnodes 3\ncolour red\n")
    with pytest.raises(ValueError, match="wrong: unknown settings colour"):
        read_scenario(path, PLAYBOOKS["fenced"].options)
