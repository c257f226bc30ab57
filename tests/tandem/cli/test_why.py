"""`tandem why`: directories here, and a fenced group with everything in test_why_cluster.py."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tests.support.paths import GOLDEN

BASIC = str(GOLDEN / "basic")


def why(*arguments: str) -> Result:
    line = ["why", *arguments]
    return CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem")


def test_a_message_of_rocketmq_is_told_of() -> None:
    result = why("U1", "--store", BASIC)
    assert result.exit_code == 0
    assert result.stdout.startswith("Message U1\ntopic TopicA, keys k1 k2, tag TagA\n")


def test_json_has_the_documented_fields() -> None:
    found = json.loads(why("U1", "--store", BASIC, "--format", "json").stdout)
    assert set(found) == {
        "message",
        "topic",
        "is_found",
        "lives",
        "absence",
        "looked",
        "unknown",
        "left_out",
        "asked_at_ms",
    }
    (life,) = found["lives"]
    assert (life["id"], life["topic"], found["is_found"]) == ("U1", "TopicA", True)
    assert {"kind", "text", "evidence", "at_ms"} <= set(life["findings"][0])


@pytest.mark.parametrize(("output_format", "columns"), [("jsonl", 0), ("text", 3)])
def test_findings_are_lines_for_programs(output_format: str, columns: int) -> None:
    lines = why("U1", "--store", BASIC, "--format", output_format).stdout.splitlines()
    assert len(lines) >= 4
    if columns:
        assert {len(line.split("\t")) for line in lines} == {columns}
    else:
        assert json.loads(lines[0])["kind"] == "born"


def test_nothing_found_is_status_1_and_an_answer() -> None:
    result = why("nope", "--store", BASIC, "--scan")
    assert result.exit_code == 1
    assert "No message was found" in result.stdout


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl", "text"])
def test_a_directory_whose_name_is_not_utf_8_is_spelled_out(
    output_format: str, tmp_path: Path
) -> None:
    root = shutil.copytree(BASIC, tmp_path / "d\udcff")
    result = why("U1", "--store", str(root), "--format", output_format)
    assert result.exit_code == 0
    shown = result.stdout.replace("\\\\", "\\")  # JSON has a backslash twice
    assert "d\\udcff" in shown.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl", "text"])
@pytest.mark.parametrize("line", [["U1\udcff"], ["U1", "--topic", "\udcff"]], ids=["key", "topic"])
def test_what_no_message_can_have_is_refused_whatever_the_format(
    line: list[str], output_format: str
) -> None:
    result = why(*line, "--store", BASIC, "--format", output_format)
    assert (result.exit_code, result.stdout) == (2, "")


def test_several_directories_are_read() -> None:
    result = why("7F00000100002A9F0000000000000000", "--store", BASIC, "--store", f"{GOLDEN}/sch")
    found = result.stdout
    assert result.exit_code == 0
    assert "Message U0" in found
    assert "Message 7F00000100002A9F0000000000000000" in found


@pytest.mark.parametrize(
    "arguments",
    [
        ["", "--store", BASIC],
        ["  ", "--store", BASIC],
        ["x" * 40_000, "--store", BASIC],
        ["U1", "--scan"],
        ["U1", "--store", BASIC, "--name-server", "127.0.0.1:1"],
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str]) -> None:
    assert why(*arguments).exit_code == 2


def test_what_is_no_store_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["why", "U1", "--store", str(tmp_path / "nowhere")])
    assert result.exit_code != 0
