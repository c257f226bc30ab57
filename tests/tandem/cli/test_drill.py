from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.drill.options import DrillOptions


def drill(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, status: int = 0
) -> tuple[int, list[DrillOptions]]:
    """Run `tandem drill` with a drill that only notes what it was asked for."""
    asked: list[DrillOptions] = []

    def run_drill(options: DrillOptions) -> int:
        asked.append(options)
        return status

    monkeypatch.setattr("tandem.drill.command.run_drill", run_drill)
    return CliRunner().invoke(app, ["drill", *arguments]).exit_code, asked


def test_without_options_the_default_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = drill(monkeypatch)
    (options,) = asked
    assert options == DrillOptions(config=options.config)
    assert options.config.name == "cluster.yaml"


def test_every_option_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        "--config c.yaml --input lines.txt slave-loss mine.yaml --repeat 3 --short --rate 100"
        " --duration 9 --out there --spark --spark-stream --seed 7 --format json"
    )
    assert drill(monkeypatch, *line.split())[1] == [
        DrillOptions(
            config=Path("c.yaml"),
            input_file=Path("lines.txt"),
            scenarios=("slave-loss", "mine.yaml"),
            repeat=3,
            short=True,
            rate_per_second=100.0,
            duration_seconds=9.0,
            out=Path("there"),
            spark=True,
            spark_stream=True,
            seed=7,
            json=True,
        )
    ]


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_exit_status_is_the_drills(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    assert drill(monkeypatch, status=status)[0] == status


def test_the_catalogue_is_listed_and_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drill(monkeypatch, "list", status=1) == (0, [])


def test_the_catalogue_has_every_format() -> None:
    def listed(output_format: str) -> str:
        return CliRunner().invoke(app, ["drill", "list", "--format", output_format]).output

    (document,) = listed("json").splitlines()
    by_name = {each["name"]: each for each in msgspec.json.decode(document)}
    assert by_name["master-kill"]["group"] == "fenced"
    assert len(listed("jsonl").splitlines()) == len(by_name)
    assert "master-kill\tfenced\t" in listed("text")
    assert "fault proxy" in listed("table")


def test_a_drill_has_one_verdict_and_no_lines_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drill(monkeypatch, "--format", "jsonl") == (2, [])
