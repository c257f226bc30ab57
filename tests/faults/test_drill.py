"""Whole drills of a classic group: they pass, they fail when they should, they leave nothing."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tandem.drill import session
from tandem.drill.auditing import AuditRequest, audit_with_progress
from tandem.drill.command import run_drill
from tandem.spark.audit.rules import AuditSummary
from tests.faults.drills import (
    a_drill,
    change_a_byte,
    claim_one_more_sync_send,
    command_of,
    draw_nothing,
    signals_as_before,
    status_of,
    summary_of,
    unmet,
)
from tests.support.patience import wait_until
from tests.support.processes import ENVIRONMENT, end_of, processes_with, started, wait_output

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    with signals_as_before():
        yield


def test_a_drill_of_everything_holds_every_promise(tmp_path: Path) -> None:
    options = a_drill(tmp_path)

    status = status_of(options)

    summary = summary_of(options)
    assert status == 0, unmet(summary)
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


def test_planted_faults_are_found_and_fail_the_drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no drill should ever see: done to the disks and to the ledger after the load."""
    draw_nothing(monkeypatch)

    async def damage_and_audit(request: AuditRequest, console: Console) -> AuditSummary:
        change_a_byte(request.stores["broker-a-2"])
        claim_one_more_sync_send(request.ledger)
        return await audit_with_progress(request, console)

    monkeypatch.setattr(session, "audit_with_progress", damage_and_audit)
    options = a_drill(tmp_path, "master-loss")

    assert run_drill(options) == 1

    summary = summary_of(options)
    assert summary["verdict"] == "FAILED"
    assert summary["sync_lost"] == 1
    assert summary["identical_by_slave"] == {"broker-a-1": True, "broker-a-2": False}
    assert summary["promises_broken"] == 2
    page = (options.out / "index.html").read_text(encoding="utf-8")
    assert "FAILED: 2 broken promises" in page
    assert (options.out / "data" / "broker-a-2").exists(), "evidence is kept"


@pytest.mark.spark
@pytest.mark.long
def test_a_drill_with_spark_holds_every_promise(tmp_path: Path) -> None:
    """As a command, with a Spark of its own: tests/tandem/spark has one that joins theirs."""
    options = a_drill(tmp_path, "slave-loss", spark=True)

    line = [*command_of(options), "--format", "json"]
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, check=False)

    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert msgspec.json.decode(done.stdout) == summary_of(options), "and nothing else"
    assert "audited in " in said
    assert "starting Java and Spark" in said
    assert "WARN" not in said, "what Spark and Java say is in its log"
    assert summary_of(options)["settings"]["audit"] == "spark"
    assert pq.read_table(options.out / "audit").num_rows >= summary_of(options)["sends"]


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("slave-loss: start", signal.SIGHUP),
        pytest.param("kill -9", signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_an_interrupted_drill_leaves_a_report_and_no_process(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    options = a_drill(tmp_path, "slave-loss")
    with started(command_of(options)) as process:
        wait_output(process, moment)
        output = end_of(process, number)

    assert process.returncode == 130, output
    assert processes_with(str(options.out)) == []
    assert summary_of(options)["verdict"] == "INTERRUPTED"
    assert summary_of(options)["promises_broken"] is None
    assert pq.read_table(options.out / "ledger.parquet").num_rows >= summary_of(options)["sends"]


@pytest.mark.long
def test_a_killed_drill_leaves_no_node_and_the_next_one_sends_every_line_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    killed = a_drill(tmp_path, "slave-loss")
    with started(command_of(killed)) as process:
        wait_output(process, "kill -9")

    wait_until(lambda: not processes_with(str(killed.out)))
    assert (killed.out / "ledger.ndjson").stat().st_size > 0

    lines = tmp_path / "app.log"
    lines.write_bytes(b"".join(b"%d \xe9t\xe9 line\n" % number for number in range(2_000)))
    options = msgspec.structs.replace(killed, input_file=lines, rate_per_second=None)
    assert run_drill(options) == 0
    summary = summary_of(options)
    assert summary["input_lines"] == summary["input_lines_acknowledged"] == 2_000


def test_a_cluster_that_is_up_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = a_drill(tmp_path, seconds=600.0)  # it goes on until it is interrupted
    with started(command_of(first)) as process:
        wait_output(process, "in sync")
        second = msgspec.structs.replace(first, out=tmp_path / "other")
        status = run_drill(second)
        end_of(process, signal.SIGINT)

    assert status == 2
    assert "in use by another process" in capsys.readouterr().err
    assert not second.out.exists()
    assert process.returncode == 130
