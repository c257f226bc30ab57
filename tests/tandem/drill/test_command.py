import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.drill import command, session
from tandem.drill.command import listed, run_drill
from tandem.drill.errors import MissingRequirementError, NoScenarioError, Requirement
from tandem.drill.options import DrillOptions
from tandem.drill.scenario_file import catalogue, find_scenario
from tests.faults.drills import signals_as_before


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    with signals_as_before():
        yield


def test_the_exit_status_is_that_of_the_drill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "hold", lambda options: 1)

    assert run_drill(DrillOptions()) == 1


def test_what_cannot_be_played_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_drill(DrillOptions(rate_per_second=-1)) == 2

    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: --rate -1: give sends a second above 0")


def test_a_missing_requirement_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*, spark: bool) -> None:
        raise MissingRequirementError(f"no pyspark ({spark})", Requirement.LIBRARIES)

    monkeypatch.setattr(command, "check_libraries", missing)

    assert run_drill(DrillOptions(spark=True)) == 2
    assert capsys.readouterr().err == "error: no pyspark (True)\n"


@pytest.mark.slow  # asks a node
def test_a_bad_cluster_file_is_told_in_the_words_of_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text("nodes: 7\n")

    assert run_drill(DrillOptions(config=config, out=tmp_path / "report")) == 2
    assert "cluster.yaml:1: nodes" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_load_is_an_interruption(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: DrillOptions) -> int:
        signal.raise_signal(number)
        return 0

    monkeypatch.setattr(session, "hold", interrupted)

    assert run_drill(DrillOptions()) == 130
    assert "interrupted" in capsys.readouterr().err


def test_the_list_explains_every_scenario() -> None:
    found = {each.name: each for each in listed()}

    assert set(found) == {scenario.name for scenario in catalogue()}
    assert all(each.promise for each in found.values())
    assert found["partition"].needs == ["fault proxy"]
    assert found["master-kill"].group == "fenced"


def test_a_scenario_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(NoScenarioError, match=r"did you mean master-kill.*`tandem drill list`"):
        find_scenario("master-kil")
