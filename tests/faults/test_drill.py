"""Whole drills of a classic group: they pass, they fail when they should, they leave nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tandem.drill import session
from tandem.drill.auditing import AuditRequest, audit_with_progress
from tandem.drill.command import run_drill
from tandem.drill.options import DrillOptions
from tandem.spark.audit_rules import AuditSummary
from tandem.testing import write_cluster_file
from tests.support.paths import ROOT

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LAST_STEP_SECONDS_MAX = 15.0


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def options_of(
    directory: Path,
    *,
    scenarios: tuple[str, ...] = (),
    input_file: Path | None = None,
    spark: bool = False,
) -> DrillOptions:
    """A drill of a few seconds on addresses of its own."""
    return DrillOptions(
        config=write_cluster_file(directory, 2, {}),
        out=directory / "report",
        scenarios=scenarios,
        input_file=input_file,
        duration_seconds=4.0,
        rate_per_second=300.0,
        spark=spark,
    )


def summary_of(options: DrillOptions) -> dict[str, Any]:
    """The facts of a report."""
    found: dict[str, Any] = msgspec.json.decode((options.out / "summary.json").read_bytes())
    return found


def processes_with(text: str) -> list[str]:
    """Running processes that have a text in their command line, ours not counted."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just ended
        if text in line and int(directory.name) != os.getpid():
            found.append(line)
    return found


def test_a_drill_of_everything_holds_every_promise(tmp_path: Path) -> None:
    options = options_of(tmp_path)

    status = run_drill(options)

    summary = summary_of(options)
    assert status == 0, [e for e in summary["expectations"] if not e["held"]]
    assert summary["verdict"] == "PASSED"
    assert summary["promises_broken"] == summary["sync_lost"] == 0
    assert summary["byte_identical"] is True
    assert summary["sync_acknowledged"] > 100
    assert [scenario["name"] for scenario in summary["scenarios"]] == ["slave-loss", "master-loss"]
    down = {phase["name"]: phase for phase in summary["scenarios"][0]["phases"]}["slaves-down"]
    assert set(down["counts_by_mode"]["sync"]) == {"SLAVE_NOT_AVAILABLE"}
    assert set(down["counts_by_mode"]["async"]) == {"SEND_OK"}
    assert {"no slave connected"} <= {reason["reason"] for reason in summary["reasons"]}
    ledger = pq.read_table(options.out / "ledger.parquet")
    assert ledger.num_rows == summary["sends"]
    assert pq.read_table(options.out / "audit").num_rows >= ledger.num_rows
    assert not (options.out / "data").exists()
    assert (options.out / "logs" / "broker-a-0.log").exists()
    assert processes_with(str(tmp_path)) == []


def test_every_line_of_a_file_is_acknowledged(tmp_path: Path) -> None:
    lines = tmp_path / "app.log"
    lines.write_bytes(b"".join(b"%d \xe9t\xe9 line\n" % number for number in range(4_000)))
    options = options_of(tmp_path, scenarios=("slave-loss",), input_file=lines)
    options = msgspec.structs.replace(options, rate_per_second=None)

    assert run_drill(options) == 0

    summary = summary_of(options)
    assert summary["input_lines"] == summary["input_lines_acknowledged"] == 4_000


def test_planted_faults_are_found_and_fail_the_drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no drill should ever see: done to the disks and to the ledger after the load."""

    async def damage_and_audit(request: AuditRequest, console: Console) -> AuditSummary:
        _change_a_byte(request.stores["broker-a-2"])
        _claim_one_more_sync_send(request.ledger)
        return await audit_with_progress(request, console)

    monkeypatch.setattr(session, "audit_with_progress", damage_and_audit)
    options = options_of(tmp_path, scenarios=("master-loss",))

    assert run_drill(options) == 1

    summary = summary_of(options)
    assert summary["verdict"] == "FAILED"
    assert summary["sync_lost"] == 1
    assert summary["identical_by_slave"] == {"broker-a-1": True, "broker-a-2": False}
    assert summary["promises_broken"] == 2
    page = (options.out / "index.html").read_text(encoding="utf-8")
    assert "FAILED: 2 broken promises" in page
    assert (options.out / "data" / "broker-a-2").exists(), "evidence is kept"


def _change_a_byte(store: Path) -> None:
    log = next((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(200)
        byte = file.read(1)
        file.seek(200)
        file.write(bytes([byte[0] ^ 0xFF]))


def _claim_one_more_sync_send(ledger: Path) -> None:
    table = pq.read_table(ledger)
    row = next(row for row in table.to_pylist() if row["status"] == "SEND_OK")
    row |= {"send_id": "sync-1-9999999", "mode": "sync", "sequence": 9_999_999}
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist([row], table.schema)]), ledger)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_drill_with_spark_holds_every_promise(tmp_path: Path) -> None:
    """In a process of its own: a Spark that other tests use must not be stopped."""
    options = options_of(tmp_path, scenarios=("slave-loss",), spark=True)

    done = subprocess.run(command_of(options), env=environment(), capture_output=True, check=False)

    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert done.stderr == b""
    assert summary_of(options)["settings"]["audit"] == "spark"
    assert pq.read_table(options.out / "audit").num_rows >= summary_of(options)["sends"]


def command_of(options: DrillOptions) -> list[str]:
    """The command line of a drill."""
    line = [sys.executable, "-P", "-c", "from tandem.cli import main; main()", "drill"]
    line += ["--config", str(options.config), "--out", str(options.out), "--rate", "300"]
    line += ["--duration", str(options.duration_seconds), *options.scenarios]
    return line if options.spark else [*line, "--no-spark"]


def environment() -> dict[str, str]:
    """As for a user who has the package installed."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def start_and_wait_for(options: DrillOptions, text: str) -> subprocess.Popen[bytes]:
    """Start a drill as a process; return when it has printed `text`."""
    process = subprocess.Popen(
        command_of(options), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    seen = b""
    while text.encode() not in seen:
        line = process.stdout.readline()
        assert line, f"ended without {text!r}:\n{seen.decode()}"
        seen += line
    return process


def wait_until_gone(text: str) -> None:
    """Wait until no process has `text` in its command line."""
    deadline = time.monotonic() + LAST_STEP_SECONDS_MAX
    while left := processes_with(text):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("slave-loss: start", signal.SIGHUP),
        ("kill -9", signal.SIGINT),
        ("restart-slaves", signal.SIGTERM),
    ],
)
def test_an_interrupted_drill_leaves_a_report_and_no_process(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    options = options_of(tmp_path, scenarios=("slave-loss",))
    process = start_and_wait_for(options, moment)

    process.send_signal(number)
    output, _ = process.communicate(timeout=LAST_STEP_SECONDS_MAX)

    assert process.returncode == 130, output.decode()
    assert processes_with(str(options.out)) == []
    assert summary_of(options)["verdict"] == "INTERRUPTED"
    assert summary_of(options)["promises_broken"] is None
    assert pq.read_table(options.out / "ledger.parquet").num_rows >= summary_of(options)["sends"]


def test_a_killed_drill_leaves_no_node_and_the_next_one_takes_its_place(tmp_path: Path) -> None:
    options = options_of(tmp_path, scenarios=("slave-loss",))
    process = start_and_wait_for(options, "kill -9")

    process.kill()
    process.communicate(timeout=LAST_STEP_SECONDS_MAX)

    wait_until_gone(str(options.out))
    assert (options.out / "ledger.ndjson").stat().st_size > 0
    assert run_drill(options) == 0


def test_a_cluster_that_is_up_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = options_of(tmp_path)
    process = start_and_wait_for(first, "in sync")
    second = msgspec.structs.replace(first, out=tmp_path / "other")

    status = run_drill(second)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LAST_STEP_SECONDS_MAX)

    assert status == 2
    assert "in use by another process" in capsys.readouterr().err
    assert not second.out.exists()
    assert process.returncode == 130
