import json
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.cluster_logs import _lines, _printer
from tandem.cli.command_line import app
from tandem.cli.formats import Format
from tandem.cli.output import CommandError
from tandem.cluster.log_records import LogRecord
from tandem.cluster.new_file import NewCluster, loopback_addresses, new_file_text
from tandem.cluster.spec import example_text
from tandem.cluster_file.errors import UnknownNodeError
from tests.support.processes import TANDEM, end_of, started, wait_output

LINES = {
    "broker-a-0": [
        "2026-11-22 14:00:01,100 INFO broker-a-0 one",
        "2026-11-22 14:00:03,100 ERROR broker-a-0 three",
        "  | OSError: no room",
    ],
    "broker-a-1": ["2026-11-22 14:00:02,007 WARNING broker-a-1 two"],
    "supervisor": ["2026-11-22 14:00:04,100 INFO supervisor four"],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(new_file_text(example_text(), NewCluster(addresses=loopback_addresses(2))))
    logs = tmp_path / "data" / "logs"
    logs.mkdir(parents=True)
    for process, lines in LINES.items():
        (logs / f"{process}.log").write_text("".join(f"{line}\n" for line in lines))
    return file


def logs(file: Path, *options: str) -> Result:
    line = ["cluster", "logs", "-c", str(file), *options]
    return CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem")


def test_the_logs_of_all_processes_are_one_in_the_order_of_time(file: Path) -> None:
    assert logs(file).stdout.splitlines() == [
        "2026-11-22 14:00:01,100 broker-a-0 INFO    one",
        "2026-11-22 14:00:02,007 broker-a-1 WARNING two",
        "2026-11-22 14:00:03,100 broker-a-0 ERROR   three",
        "2026-11-22 14:00:03,100 broker-a-0   | OSError: no room",
        "2026-11-22 14:00:04,100 supervisor INFO    four",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--node", "broker-a-1"], ["two"]),
        (["--node", "broker-a-1", "--node", "supervisor"], ["two", "four"]),
        (["--level", "warning"], ["two", "three"]),
        (["--level", "ERROR"], ["three"]),
        (["--grep", "no r.om"], ["three"]),
        (["--grep", "t"], ["two", "three"]),
        (["--tail", "2"], ["three", "four"]),
        (["--tail", "0"], []),
        (["--since", "2026-11-22T14:00:03"], ["three", "four"]),
        (["--since", "2026-11-22T14:00:02", "--level", "warning", "--tail", "1"], ["three"]),
    ],
)
def test_records_are_chosen(file: Path, options: list[str], words: list[str]) -> None:
    lines = logs(file, *options, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["message"] for line in lines] == words


def test_json_is_one_document_with_what_belongs_to_a_record(file: Path) -> None:
    records = json.loads(logs(file, "--format", "json").stdout)
    assert len(records) == 4
    assert records[2]["more"] == ["  | OSError: no room"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--since", "yesterday"], "is no time; give 10m"),
        (["--grep", "("], "is no regular expression"),
        (["--follow", "--format", "json"], "take jsonl"),
    ],
)
def test_options_that_make_no_sense_are_refused(file: Path, options: list[str], words: str) -> None:
    result = logs(file, *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_node_that_is_not_there_is_told_with_those_that_are(file: Path) -> None:
    with pytest.raises(UnknownNodeError) as caught:
        logs(file, "--node", "z")
    assert caught.value.known == ["broker-a-0", "broker-a-1", "supervisor"]


def test_a_cluster_that_never_ran_has_no_logs_and_that_is_said(tmp_path: Path, file: Path) -> None:
    for log in (tmp_path / "data" / "logs").iterdir():
        log.unlink()
    with pytest.raises(CommandError) as caught:
        logs(file)
    assert caught.value.exit_status == 1


def test_nodes_and_troubles_have_colours_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = LogRecord(0.0, "ERROR", "broker-a-0", "gone", ["  | why"])
    plain_lines = list(_lines(record, 10, None, has_colours=False))
    coloured = list(_lines(record, 10, "cyan", has_colours=True))
    assert "\x1b" not in "".join(plain_lines)
    assert "\x1b[36mbroker-a-0\x1b[0m" in coloured[0]
    assert "\x1b[31mgone\x1b[0m" in coloured[0]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _printer(Format.TEXT, ["broker-a-0"])(record)
    assert "\x1b[36m" in capsys.readouterr().out
    monkeypatch.setenv("TERM", "dumb")
    _printer(Format.TEXT, ["broker-a-0"])(record)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.fault
@pytest.mark.slow
def test_following_goes_on_with_what_is_logged_until_ctrl_c(file: Path) -> None:
    log = file.parent / "data" / "logs" / "broker-a-1.log"
    line = [*TANDEM, "cluster", "logs", "-f", "--tail", "1", "--level", "error", "-c", str(file)]
    with started(line) as process:
        wait_output(process, "three")
        with log.open("a") as output:
            output.write("2026-11-22 14:00:05,000 INFO broker-a-1 not wanted\n")
            output.write("2026-11-22 14:00:05,100 ERROR broker-a-1 five\n")
        wait_output(process, "broker-a-1 ERROR   five")
        output_after = end_of(process, signal.SIGINT)
    assert (process.returncode, output_after) == (130, "")
