from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.drill.history import NoRunError, add_run
from tandem.drill.options import DrillOptions
from tests.tandem.drill import samples


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
        " --history drills --label abc --groups 2 --group broker-b"
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
            history=Path("drills"),
            label="abc",
            groups=2,
            group="broker-b",
            json=True,
        )
    ]


def test_a_deployed_cluster_and_a_witness_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "--target processes --file x.yaml --witness java --rocketmq maven:5.3.3"
    (options,) = drill(monkeypatch, *line.split())[1]
    assert (options.target, options.file) == ("processes", Path("x.yaml"))
    assert (options.witness, options.rocketmq) == ("java", "maven:5.3.3")


def test_drills_of_chance_have_minutes_and_are_played_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, asked = drill(monkeypatch, "random", "--minutes", "60", "--seed", "7")
    (options,) = asked
    assert (options.scenarios, options.minutes, options.seed) == (("random",), 60.0, 7)
    assert drill(monkeypatch, "random", "master-kill") == (2, [])
    assert drill(monkeypatch, "master-kill", "--minutes", "1") == (2, [])


def keep_two(directory: Path) -> None:
    add_run(directory, samples.record(label="one"))
    add_run(
        directory, samples.record(samples.summary(found=samples.audit(sync_lost=2)), label="two")
    )


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["drill", *arguments])
    return done.exit_code, done.stdout


def test_the_history_is_listed_in_every_format(tmp_path: Path) -> None:
    keep_two(tmp_path)
    history = ("history", "--history", str(tmp_path))
    status, document = invoke(*history, "--format", "json")
    assert status == 0
    assert [(each["number"], each["run"]["label"]) for each in msgspec.json.decode(document)] == [
        (1, "one"),
        (2, "two"),
    ]
    assert len(invoke(*history, "--format", "jsonl")[1].splitlines()) == 2
    assert "\tone\tPASSED\t" in invoke(*history, "--format", "text")[1]
    assert "2 sync_lost" in invoke(*history)[1]


def test_without_a_history_nothing_is_listed(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["drill", "history", "--history", str(tmp_path / "none")])
    assert (done.exit_code, done.stdout, str(tmp_path) in done.stderr) == (0, "", True)
    assert invoke("history", "--history", str(tmp_path / "none"), "--format", "json") == (0, "[]\n")


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    keep_two(tmp_path)
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"torn": ')
    done = CliRunner().invoke(app, ["drill", "history", "--history", str(tmp_path)])
    assert (done.exit_code, done.stderr[:2]) == (0, "1 ")


def test_two_runs_are_compared_and_the_status_says_whether_it_became_worse(tmp_path: Path) -> None:
    keep_two(tmp_path)
    history = ("--history", str(tmp_path))
    status, said = invoke("diff", "1", "2", *history)
    assert status == 1
    assert "sync_lost" in said
    assert invoke("diff", *history) == (1, said), "the last two"
    assert invoke("diff", "2", "1", *history)[0] == 0
    assert invoke("diff", "1", "1", *history)[0] == 0
    document = msgspec.json.decode(invoke("diff", "1", "2", *history, "--format", "json")[1])
    assert document[0]["change"] == "worse"
    assert invoke("diff", "1", *history)[0] == 2


def test_a_run_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["drill", "diff", "1", "2", "--history", str(tmp_path)])
    assert isinstance(done.exception, NoRunError)


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
