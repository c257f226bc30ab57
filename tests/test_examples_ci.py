"""The recipe for CI: its script is run as the runner would, with a `tandem` that is none."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.drill.options import DrillOptions
from tests.support.paths import ROOT

RECIPE = ROOT / "examples/ci/drill.yaml"


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RECIPE.read_text())["jobs"]["drill"]["steps"]
    return found


def script() -> str:
    (found,) = (step for step in steps() if step.get("name") == "Drill")
    assert found["shell"] == "bash"
    return str(found["run"])


def run(directory: Path, *statuses: int) -> tuple[int, list[list[str]], str, str]:
    """Run the script with a `tandem` that ends with these statuses, one after the other.

    Returns its status, how `tandem` was called, what the summary of the job is, and its output.
    """
    (directory / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    tools = directory / "tools"
    tools.mkdir()
    tandem = tools / "tandem"
    tandem.write_text(
        "#!/usr/bin/env bash\n"
        'printf "%s\\n" "$*" >> calls\n'
        "status=$(head -1 statuses); sed -i 1d statuses\n"
        'if [ "$status" -ne 2 ]; then\n'
        '  mkdir -p report; echo "ended: $status" > report/summary.md\n'
        "fi\n"
        'exit "$status"\n'
    )
    tandem.chmod(0o755)
    # As the runner starts what has `shell: bash`.
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script()],
        cwd=directory,
        env={
            "PATH": f"{tools}:/usr/bin:/bin",
            "GITHUB_SHA": "abc 123",
            "GITHUB_STEP_SUMMARY": str(directory / "job.md"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    calls = [shlex.split(line) for line in (directory / "calls").read_text().splitlines()]
    job = directory / "job.md"
    return done.returncode, calls, job.read_text() if job.exists() else "", done.stdout


@pytest.mark.parametrize(
    ("statuses", "ended", "drills"),
    [
        ((0,), 0, 1),
        ((1,), 1, 1),
        ((2,), 2, 1),
        ((3, 0), 0, 2),
        ((3, 1), 1, 2),
        ((3, 3), 0, 2),
        ((4,), 0, 1),
        ((130,), 130, 1),
    ],
)
def test_only_what_shows_nothing_is_let_pass(
    statuses: tuple[int, ...], ended: int, drills: int, tmp_path: Path
) -> None:
    status, calls, job, output = run(tmp_path, *statuses)
    assert (status, len(calls)) == (ended, drills)
    assert job == ("" if statuses[-1] == 2 else f"ended: {statuses[-1]}\n")
    assert ("::warning::" in output) == (statuses[-1] in (3, 4))


def test_the_command_line_of_the_recipe_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[DrillOptions] = []

    def run_drill(options: DrillOptions) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr("tandem.drill.command.run_drill", run_drill)
    _, ((*call,),), _, _ = run(tmp_path, 0)
    assert CliRunner().invoke(app, call).exit_code == 0
    (options,) = asked
    assert options.short
    assert options.history == Path("drill")
    assert options.label.startswith("abc")


def test_the_history_is_restored_before_the_drill_and_saved_after_it() -> None:
    uses = [step.get("uses", step.get("name", "")) for step in steps()]
    (cache,) = (step for step in steps() if step.get("uses", "").startswith("actions/cache"))
    assert cache["with"]["path"] == "drill"
    assert cache["with"]["key"].startswith(cache["with"]["restore-keys"])
    assert uses.index(cache["uses"]) < uses.index("Drill")
