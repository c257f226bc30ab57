"""The command that replays a run."""

import pytest

from tests.sim.simulate import main


@pytest.mark.sim
@pytest.mark.slow
def test_a_seed_is_replayed_with_its_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3"]) == 0
    output = capsys.readouterr().out
    assert "3: OK" in output
    assert "replay: scripts/simulate 3 --trace" in output
    assert "all promises kept" in output


@pytest.mark.sim
@pytest.mark.slow
def test_the_trace_is_printed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3", "--trace"]) == 0
    output = capsys.readouterr().out
    assert "0.000000 fault        start broker-a-0" in output
    assert len(output.splitlines()) > 500


@pytest.mark.sim
@pytest.mark.slow
def test_a_range_takes_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3-4"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["3", "4"]


@pytest.mark.sim
@pytest.mark.slow
def test_a_scenario_tells_its_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["both-slaves-lost"]) == 0
    assert "1.500-3.000 sync: SLAVE_NOT_AVAILABLE; async: SEND_OK" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["nonsense", "1-x", "-"])
def test_anything_else_is_refused_with_what_there_is(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--", what])
    assert ended.value.code == 2
    assert "both-slaves-lost" in capsys.readouterr().err
