"""Drills on machines that lose power, are slow, or have a wrong clock, with real nodes.

Each shows that a fault is felt, and a planted fault of the drill or of the disks: one that was not
done, and disks that forget.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq
import pytest
import trio
from rich.console import Console

from tandem.drill import session
from tandem.drill.auditing import AuditRequest, audit_with_progress
from tandem.drill.command import run_drill
from tandem.drill.machines import LIBRARY_NAME, MACHINE_VARIABLE, Machines
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import EXIT_BROKEN, EXIT_HELD, EXIT_INCONCLUSIVE
from tandem.drill.recording import Recording
from tandem.drill.scenario_file import FOLDER
from tandem.drill.small_disks import Disks
from tandem.drill.targets.choice import target_of
from tandem.drill.workload import Clock
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
from tests.tandem.drill import samples

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.timeout(1800),
]

FILE_BYTES: Final = 2 * 1024 * 1024
"""Of a commit-log file of `power-cut-all`."""

BODY_BYTES: Final = 28_000
SECONDS_MAX: Final = 300
PATIENCE: Final = 10.0
"""Here it is not looked at how soon something is there."""

FAULTS: Final = (
    "promise: x",
    "steps:",
    "  - start the load",
    "  - begin slow",
    "  - let syncs of slave 1 take 0.1 s longer",
    "  - set the clock of slave 1 30 s ahead",
    "  - play 3 s",
    "  - let syncs of slave 1 be fast again",
    "  - set the clock of slave 1 right",
    "  - begin lost",
    "  - kill slave 2",
    "  - lose the disk of slave 2",
    "  - start slave 2",
    "  - expect everybody in sync within 60 s",
    "  - drain",
)
FULL: Final = (
    *FAULTS[:3],
    "  - begin full",
    "  - fill the disk of the coordinator",
    "  - play 1 s",
    "  - free the disk of the coordinator",
    "  - drain",
)


@pytest.fixture(autouse=True)
def _quietly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    draw_nothing(monkeypatch)
    with signals_as_before():
        yield


def a_drill_of(directory: Path, lines: Sequence[str]) -> DrillOptions:
    mine = directory / "mine.yaml"
    mine.write_text("\n".join([*lines, ""]))
    options = a_drill(directory, str(mine), kind="fenced", seconds=5.0)
    return msgspec.structs.replace(options, patience=PATIENCE)


def effects_of(options: DrillOptions) -> dict[str, bool]:
    """What faults there were, and whether each was felt."""
    return {each["fault"]: each["is_felt"] for each in summary_of(options)["effects"]}


def test_faults_of_machines_are_felt_and_counted(tmp_path: Path) -> None:
    options = a_drill_of(tmp_path, FAULTS)

    assert status_of(options) == EXIT_HELD, unmet(summary_of(options))

    effects = summary_of(options)["effects"]
    assert [each["fault"].split()[0] for each in effects] == ["let", "set", "lose"]
    assert all(each["is_felt"] and each["count"] > 0 for each in effects)


def test_a_drill_whose_faults_are_not_done_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the machine takes its orders, and a disk is asked to be lost; nothing happens."""
    for name in ("set_clock", "slow_syncs"):
        monkeypatch.setattr(Machines, name, lambda *_: None)
    monkeypatch.setattr(Disks, "lose", lambda *_: None)
    options = a_drill_of(tmp_path, FAULTS)

    assert run_drill(options) == EXIT_INCONCLUSIVE, unmet(summary_of(options))

    summary = summary_of(options)
    assert summary["verdict"] == "INCONCLUSIVE"
    assert unmet(summary) == []
    assert list(effects_of(options).values()) == [False, False, False]
    assert summary["promises_broken"] == 0


def test_a_coordinator_whose_disk_has_room_is_no_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = a_drill_of(tmp_path, FULL)
    if status_of(options) != EXIT_HELD:
        pytest.skip(summary_of(options)["runs"][0]["outcome"])
    assert effects_of(options) == {"fill the disk of coordinator": True}

    monkeypatch.setattr(Disks, "fill", lambda *_: None)
    assert run_drill(options) == EXIT_INCONCLUSIVE
    assert effects_of(options) == {"fill the disk of coordinator": False}


def test_a_node_that_comes_back_with_other_bytes_than_its_master_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a node has another byte than its master in the end."""

    async def damage_and_audit(request: AuditRequest, console: Console) -> AuditSummary:
        change_a_byte(request.stores[next(n for n in request.stores if n != request.master)])
        return await audit_with_progress(request, console)

    monkeypatch.setattr(session, "audit_with_progress", damage_and_audit)
    options = a_drill_of(tmp_path, (*FAULTS[:3], *FAULTS[9:]))

    assert run_drill(options) == EXIT_BROKEN
    assert summary_of(options)["byte_identical"] is False


LIES: Final = "  - let the disk of every node forget what is synced\n  - play 2 s\n"


def power_cut(directory: Path, seconds: int, *, lies: bool = False) -> DrillOptions:
    """All power is cut when the log is in a later file than its first; bodies are long."""
    text = (FOLDER / "power-cut-all.yaml").read_text()
    steady = "  - play 20 %\n  - check all sends are ok\n"
    assert steady in text
    text = text.replace(steady, f"  - play {seconds} s\n", 1).replace(steady, "  - play 2 s\n")
    if lies:
        text = text.replace("  - begin dark\n", f"{LIES}  - begin dark\n")
    directory.mkdir()
    mine = directory / "power.yaml"
    mine.write_text(text)
    lines = directory / "lines.txt"
    lines.write_text("".join(f"{number:06d} {'x' * BODY_BYTES}\n" for number in range(100)))
    options = a_drill(directory, str(mine), kind="fenced", seconds=5.0)
    return msgspec.structs.replace(
        options, input_file=lines, rate_per_second=60.0, patience=PATIENCE
    )


def offsets_before_the_dark(options: DrillOptions) -> list[int]:
    """Where sends are that were acknowledged before the power was cut."""
    rows = pq.read_table(options.out / "ledger.parquet").to_pylist()
    return [
        row["physical_offset"]
        for row in rows
        if row["status"] == "SEND_OK" and row["phase"] in ("start", "steady")
    ]


def test_what_was_synced_survives_a_loss_of_all_power_after_its_file_was_rolled(
    tmp_path: Path,
) -> None:
    seconds, offsets, summary = 4, [0], {}
    while max(offsets) < FILE_BYTES and seconds < SECONDS_MAX:  # as a slow machine may need
        options = power_cut(tmp_path / f"{seconds}-s", seconds)
        assert status_of(options) == EXIT_HELD, unmet(summary_of(options))
        summary = summary_of(options)
        offsets = offsets_before_the_dark(options)
        seconds *= 5

    assert min(offsets) < FILE_BYTES < max(offsets), "the first file was rolled before the dark"
    (cut,) = summary["effects"]
    assert cut["is_felt"], "some of what was written had not been synced"
    assert summary["sync_lost"] == 0
    assert summary["byte_identical"] is True


def test_disks_that_forget_what_is_synced_are_found_when_all_power_is_cut(tmp_path: Path) -> None:
    """Planted: nodes acknowledge what no disk has kept."""
    options = power_cut(tmp_path / "lies", 2, lies=True)

    assert run_drill(options) == EXIT_BROKEN

    summary = summary_of(options)
    forgotten = [each for each in summary["effects"] if "forget" in each["fault"]]
    assert len(forgotten) == 3
    assert all(each["count"] > 0 for each in forgotten)
    assert summary["sync_lost"] > 0
    assert summary["evidence"]


@pytest.mark.parametrize("scenario", ["clock-jump", "master-kill"])
async def test_nodes_are_on_machines_where_a_scenario_needs_them_and_nowhere_else(
    scenario: str, tmp_path: Path
) -> None:
    options = a_drill(tmp_path, scenario, kind="fenced")
    target = target_of(options)
    scenarios = target.choose(options.scenarios, short=False)
    target.check(scenarios)
    out = tmp_path / "report"
    out.mkdir()
    ground = target.lay_out(out, scenarios)
    machines = session._machines(target, out, ground, scenarios)
    assert (machines is not None) == (scenario == "clock-jump")
    plan = msgspec.structs.replace(
        samples.plan(*scenarios),
        config=ground.config,
        cluster=ground.cluster,
        group=target.group,
        coordinator=ground.coordinator,
        stores=dict(ground.stores),
        out=out,
        machines=machines,
    )
    environments, maps = [], []

    async with target.running(plan, Recording(Clock(0.0, 0.0), target.group)):
        for store in ground.stores.values():
            (pid,) = processes_with(str(ground.config), store.name)
            environments.append(Path(f"/proc/{pid}/environ").read_bytes().decode())
            maps.append(Path(f"/proc/{pid}/maps").read_text())
            await trio.lowlevel.checkpoint()

    assert len(environments) == 3
    for environment, mapped in zip(environments, maps, strict=True):
        is_there = machines is not None
        assert (f"{MACHINE_VARIABLE}={out / 'data' / 'machines'}" in environment) == is_there
        assert (LIBRARY_NAME in mapped) == is_there


def processes_with(*words: str) -> list[str]:
    """The processes that have these words among their arguments."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (place / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if set(words) <= set(arguments):
            found.append(place.name)
    return found
