"""Whole drills of a fenced group on real nodes, and what must make one fail.

The whole catalogue is marked `long`: `scripts/test --long`, or one of them by `-k`.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tandem.drill import session
from tandem.drill.auditing import AuditRequest, audit_with_progress
from tandem.drill.command import run_drill
from tandem.drill.options import DrillOptions
from tandem.drill.scenario_file import catalogue
from tandem.spark.audit.rules import AuditSummary
from tests.faults.drills import (
    a_drill,
    change_a_byte,
    draw_nothing,
    signals_as_before,
    status_of,
    summary_of,
    unmet,
)
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.fault, pytest.mark.slow]

USUAL_SWITCH_SECONDS_MAX = 8.0
"""A busy machine takes longer, and sends wait no longer than they do."""

LONG = [scenario.name for scenario in catalogue() if scenario.group == "fenced"]


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    with signals_as_before():
        yield


def options_of(directory: Path, *scenarios: str) -> DrillOptions:
    """A drill of a fenced group: 5 s for each scenario."""
    return a_drill(directory, *scenarios, kind="fenced", seconds=5.0 * len(scenarios))


def is_kill(fault: str) -> bool:
    return fault.startswith("kill -9")


def is_resignation(fault: str) -> bool:
    return fault.startswith("ask ") and fault.endswith(" to resign")


def test_a_killed_master_is_replaced_and_a_planned_switch_is_quick(tmp_path: Path) -> None:
    options = options_of(tmp_path, "master-kill", "master-resign")

    status = status_of(options)

    summary = summary_of(options)
    assert status == 0, (unmet(summary), summary["stopped_because"])
    assert summary["promises_broken"] == summary["sync_lost"] == summary["duplicated"] == 0
    assert summary["byte_identical"] is True
    assert [run["name"] for run in summary["runs"]] == ["master-kill", "master-resign"]
    # Not all that there are: a busy machine has its masters replaced as well.
    kill, resign = (
        next(each for each in summary["switches"] if fits(each["fault"]))
        for fits in (is_kill, is_resignation)
    )
    for switch in (kill, resign):
        assert switch["previous_master"] != switch["master"]
        steps = [switch[f"{step}_seconds"] for step in ("detect", "elect", "open", "first_ack")]
        assert steps == sorted(steps), "each step follows the one before"
        assert 0 <= steps[0] <= steps[-1] < PATIENCE_SECONDS
    if max(switch["first_ack_seconds"] for switch in (kill, resign)) < USUAL_SWITCH_SECONDS_MAX:
        ledger = pq.read_table(options.out / "ledger.parquet")
        assert set(ledger.column("status").to_pylist()) == {"SEND_OK"}, "retries absorb a failover"


@pytest.mark.long
def test_a_master_that_is_cut_off_stops_by_itself_and_its_tail_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    options = options_of(tmp_path, "partition")

    status = status_of(options)

    summary = summary_of(options)
    assert status == 0, (unmet(summary), summary["stopped_because"])
    (switch,) = summary["switches"]
    assert switch["fence_seconds"] <= switch["elect_seconds"], "fenced before another is elected"
    assert summary["acknowledged_cut"] == 0


def test_planted_faults_fail_a_drill_of_a_fenced_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no drill should ever see: a diverged log, and an acknowledged message that was cut."""
    draw_nothing(monkeypatch)

    async def damage_and_audit(request: AuditRequest, console: Console) -> AuditSummary:
        others = [node for node in request.stores if node != request.master]
        change_a_byte(request.stores[others[0]])
        _claim_a_cut(request, others[1])
        return await audit_with_progress(request, console)

    monkeypatch.setattr(session, "audit_with_progress", damage_and_audit)
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "promise: An election that nobody holds is missed.\n"
        "steps:\n"
        "  - start the load\n"
        "  - begin waiting\n"
        "  - play 2 s\n"
        "  - check unavailable at most 1 s\n"
        "  - expect a new master within 1 s\n"
        "  - drain\n"
    )
    options = options_of(tmp_path, str(mine))

    assert run_drill(options) == 1

    summary = summary_of(options)
    assert [each["expected"] for each in unmet(summary)] == [
        "sync sends were acknowledged at least every 1 s",
        "there is a new master",
    ]
    assert summary["stopped_because"] == "mine could not go on after waiting"
    assert sorted(summary["identical_by_slave"].values()) == [False, True]
    assert summary["acknowledged_cut"] == 1
    assert summary["verdict"] == "FAILED"


@pytest.mark.spark
@pytest.mark.long
def test_a_spark_stream_writes_everything_once_through_failovers(tmp_path: Path) -> None:
    """Long: a Java of its own. What finds a stream that does not: test_stream_audit.py."""
    options = a_drill(
        tmp_path, "master-kill", "rolling-restart", kind="fenced", seconds=10.0, spark_stream=True
    )

    status = status_of(options)

    summary = summary_of(options)
    assert status == 0, (unmet(summary), summary["stopped_because"], summary["stream"])
    assert len(summary["switches"]) >= 2
    stream = summary["stream"]
    assert stream["rows"] >= summary["sync_acknowledged"] + summary["async_acknowledged"]
    assert stream["missing"] == stream["repeated"] == stream["phantom"] == 0
    ended = "the Spark stream has read everything"
    read = [each for each in summary["expectations"] if each["expected"] == ended]
    assert [each["held"] for each in read] == [True]
    assert (options.out / "logs" / "spark-stream.log").exists()


def _claim_a_cut(request: AuditRequest, node: str) -> None:
    """Lay an acknowledged record of the log into the tails that a node has cut off."""
    rows = pq.read_table(request.ledger).to_pylist()
    row = next(r for r in rows if (r["mode"], r["status"]) == ("sync", "SEND_OK"))
    log = min((request.stores[request.master] / "commitlog").iterdir()).read_bytes()
    start = row["physical_offset"]
    size = int.from_bytes(log[start : start + 4], "big")
    folder = request.stores[node] / "truncated"
    folder.mkdir(exist_ok=True)
    (folder / f"{start:020d}-planted").write_bytes(log[start : start + size])


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LONG)
def test_every_scenario_of_the_catalogue_holds_its_promise(name: str, tmp_path: Path) -> None:
    options = options_of(tmp_path, name)

    status = status_of(options)

    summary = summary_of(options)
    if summary["verdict"] == "NOT POSSIBLE":
        pytest.skip(summary["runs"][0]["outcome"])
    assert status == 0, (unmet(summary), summary["stopped_because"])
    assert summary["promises_broken"] == 0
