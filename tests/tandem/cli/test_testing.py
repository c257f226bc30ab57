"""What `tandem testing serve` refuses before it starts anything. What it does: test_serving.py."""

import json

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tandem.testing.serve_protocol import schema


def serve(*options: str) -> Result:
    return CliRunner().invoke(app, ["testing", "serve", *options], prog_name="tandem")


def test_the_schema_of_the_lines_is_printed_and_nothing_started() -> None:
    done = serve("--json-schema")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == json.loads(json.dumps(schema()))


@pytest.mark.parametrize(
    "options",
    [
        ["--nodes", "0"],
        ["--nodes", "10"],
        ["--disk-mib", "3"],
        ["--disk-mib", "-1"],
        ["--settings", "broker"],
        ["--settings", "[]"],
        ["--settings", '{"broker": 1}'],
        ["--topic", ""],
        ["--topic", "Orders:"],
        ["--topic", "Orders:0"],
        ["--topic", "Orders:many"],
        ["--topic", "Orders:99999"],
    ],
)
def test_a_line_that_makes_no_sense_is_refused(options: list[str]) -> None:
    done = serve(*options)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
