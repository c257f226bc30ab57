"""A drill of real RocketMQ 5.3.3: three brokers that elect their master, killed under load."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from rich.console import Console

from tandem.drill import session
from tandem.drill.auditing import AuditRequest, audit_with_progress
from tandem.drill.command import run_drill
from tandem.drill.consumers.lines import Committed, Kind, Line, read_lines
from tandem.drill.consumers.names import GROUPS
from tandem.drill.consumers.promises import PREFIX, ConsumerSummary, Promises
from tandem.drill.errors import MissingRequirementError
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import EXIT_BROKEN, EXIT_HELD, EXIT_INCONCLUSIVE
from tandem.drill.play import CONSUMERS_LEDGER
from tandem.drill.targets.choice import target_of
from tandem.spark.audit.rules import AuditSummary
from tests.faults.drills import (
    change_a_byte,
    claim_one_more_sync_send,
    draw_nothing,
    signals_as_before,
)
from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(2_500), pytest.mark.xdist_group("rocketmq")]

TANDEM: Final = (sys.executable, "-P", "-c", "from tandem.cli import main; main()")
NOT_RUN: Final = 2
ATTEMPTS: Final = 3


def drill(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"needs `{program}`")
    return subprocess.run(
        [*TANDEM, "drill", *options, "--target", "rocketmq", "--out", str(out)],
        check=False,
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def summary_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((out / "summary.json").read_bytes())
    return found


@pytest.mark.parametrize("name_servers", ["1", "3"])
def test_a_master_of_a_controller_group_is_killed_and_every_send_is_accounted_for(
    name_servers: str, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    done = drill(
        out,
        *("master-kill", "partition", "--rocketmq", "maven:5.3.3"),
        *("--rate", "150", "--duration", "16", "--name-servers", name_servers),
    )
    if "Maven cannot fetch it" in done.stderr:
        pytest.skip(done.stderr)
    assert (out / "summary.json").exists(), done.stderr[-2000:]

    summary = summary_of(out)
    kill, partition = summary["runs"]
    assert "cannot cut the network" in partition["outcome"]
    assert kill["outcome"] == "ran to its end", done.stderr[-3000:]
    assert summary["sync_acknowledged"] > 100
    assert summary["target"]["version"] == "5.3.3 controller"
    assert len(summary["target"]["name_servers"]) == int(name_servers)
    assert "allAckInSyncStateSet" in summary["target"]["contract"]
    assert len(summary["switches"]) >= 1
    # What RocketMQ keeps is for the report to say; that all is accounted for is ours.
    assert summary["promises_broken"] is not None
    assert summary["promises_broken"] == 0 or summary["evidence"]
    assert sum(summary["sends_by_status"].values()) == summary["sends"]


def test_brokers_feel_slow_disks_and_wrong_clocks_and_lose_nothing(tmp_path: Path) -> None:
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("needs a C compiler")
    options = ("--rocketmq", "maven:5.3.3", "--rate", "150", "--duration", "24")
    out = tmp_path / "report"
    done = drill(out, "slow-disk", "clock-jump", *options)
    if "Maven cannot fetch it" in done.stderr:
        pytest.skip(done.stderr)
    for _ in range(ATTEMPTS - 1):
        if done.returncode == EXIT_INCONCLUSIVE:
            done = drill(out, "slow-disk", "clock-jump", *options)
    if done.returncode == EXIT_INCONCLUSIVE:
        pytest.skip(f"the machine was too slow for it, {ATTEMPTS} times")

    assert done.returncode == EXIT_HELD, done.stderr[-3000:]
    summary = summary_of(out)
    assert summary["sync_lost"] == 0
    assert [each["is_felt"] for each in summary["effects"]] == [True] * 4
    faults = " ".join(each["fault"] for each in summary["effects"])
    assert "let syncs of" in faults
    assert "set the clock of" in faults


def test_groups_get_from_real_brokers_what_they_were_promised_through_a_switch(
    tmp_path: Path,
) -> None:
    options = ("master-kill", "--rocketmq", "maven:5.3.3", "--rate", "60", "--duration", "12")
    out = tmp_path / "report"
    for _ in range(ATTEMPTS):
        done = drill(out, *options)
        if "Maven cannot fetch it" in done.stderr:
            pytest.skip(done.stderr)
        if done.returncode != EXIT_INCONCLUSIVE:
            break
    else:
        pytest.skip(f"the machine was too slow for it, {ATTEMPTS} times")

    assert done.returncode == EXIT_HELD, done.stdout + done.stderr[-3000:]
    summary = summary_of(out)
    consumers, target = summary["consumers"], summary["target"]
    assert set(consumers["acknowledged"]) == {kind.value for kind in Kind}
    assert all(consumers["acknowledged"].values())
    assert all(consumers["handled"][group.name] for group in GROUPS)
    assert consumers["dead_letters"]
    assert consumers["asked"]
    assert (consumers["broken_counts"], consumers["left"]) == ({}, {})
    assert {PREFIX + name for name in consumers["not_promised_counts"]} <= {*target["not_promised"]}

    # The same lines judged again say the same; and one of a broker that passes a message does not.
    def judged(*more: Line) -> ConsumerSummary:
        promises = Promises(GROUPS, not_promised=target["not_promised"], rules=target["rules"])
        for line in (*read_lines(out / CONSUMERS_LEDGER), *more):
            promises.take(line)
        return promises.summary()

    assert judged().broken_counts == {}
    (last, *_) = [
        line
        for line in reversed([*read_lines(out / CONSUMERS_LEDGER)])
        if isinstance(line, Committed)
    ]
    (found,) = judged(msgspec.structs.replace(last, offset=1_000_000)).findings
    assert found.rule == "passed_over"
    assert "ConsumerOffsetManager" in found.reason


STEADY: Final = """\
promise: x
group: classic
steps:
  - start the load
  - play 100 %
  - drain
"""


def test_planted_faults_of_real_brokers_are_found_with_their_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no drill should ever see: done to the disks and to the ledger after the load."""
    draw_nothing(monkeypatch)

    async def damage_and_audit(request: AuditRequest, console: Console) -> AuditSummary:
        change_a_byte(request.stores["broker-r-2"])
        claim_one_more_sync_send(request.ledger)
        return await audit_with_progress(request, console)

    monkeypatch.setattr(session, "audit_with_progress", damage_and_audit)
    (tmp_path / "steady.yaml").write_text(STEADY)
    options = DrillOptions(
        target="rocketmq",
        rocketmq="maven:5.3.3",
        mode="sync-master",
        broker_settings=("inSyncReplicas=2",),
        scenarios=(str(tmp_path / "steady.yaml"),),
        rate_per_second=60.0,
        duration_seconds=8.0,
        out=tmp_path / "report",
    )
    try:
        target_of(options)
    except MissingRequirementError as error:
        pytest.skip(str(error))

    with signals_as_before():
        assert run_drill(options) == EXIT_BROKEN

    summary = summary_of(options.out)
    assert summary["sync_lost"] == 1
    assert summary["identical_by_slave"] == {"broker-r-1": True, "broker-r-2": False}
    (lost,) = (each for each in summary["evidence"] if each["finding"] == "sync_lost")
    assert lost["is_broken"]
    assert "CommitLog" in lost["rule"]
    assert set(lost["disks"]) == {"broker-r-0", "broker-r-1", "broker-r-2"}


def test_a_broker_that_does_not_know_a_setting_ends_the_drill_in_one_line(tmp_path: Path) -> None:
    options = ("--rocketmq", "maven:5.3.3", "--mode", "async-master", "--set", "noSuchThing=1")
    done = drill(tmp_path / "report", *options)
    if "Maven cannot fetch it" in done.stderr:
        pytest.skip(done.stderr)

    assert done.returncode == NOT_RUN
    assert "noSuchThing" in done.stderr.splitlines()[-1]


def test_a_port_that_is_taken_ends_the_drill_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        try:
            taken.bind(("", 9876))
            taken.listen()
        except OSError:
            pytest.skip("another program has the port of a name server on all addresses")
        done = drill(tmp_path / "report", "--rocketmq", "maven:5.3.3")
    if "Maven cannot fetch it" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == NOT_RUN
    assert ":9876: in use by another process" in done.stderr.splitlines()[-1]
