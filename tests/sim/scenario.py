"""Scripted runs: prose, settings, a plan of faults, and what happened when it was played.

    # Prose: what is tried here, and why.
    seed 1                      delays and the load; the faults come from the plan
    flush ASYNC_FLUSH           or SYNC_FLUSH
    in-sync-replicas 2          left out: the contract of RocketMQ 4, one slave
    load 6.0                    seconds of load

    at 1.000 kill broker-a-1    the plan; see `tests.sim.faults`

    outcome
    0.000-1.000 sync: SEND_OK; async: SEND_OK
    ...

Of every phase between two times of the plan the outcome says how sends ended that began and were
answered in it, once things had settled. It is what a person would see, not a trace: it stays the
same when delays or the order of tasks change. `scripts/simulate NAME --record` writes it.
"""

from pathlib import Path
from typing import Final

import msgspec

from tandem.cluster_file.choices import FlushDiskType
from tests.sim.checker import Send
from tests.sim.faults import Instruction, parse_instruction
from tests.sim.simulation import START_SECONDS, Result, Settings, draw_settings, run_settings
from tests.sim.trace import PrintLine
from tests.sim.workload import ProducerProfile

SCENARIOS: Final = Path(__file__).parent / "scenarios"

SETTLE_SECONDS: Final = 0.6
"""Sends that begin this soon after a fault are left out: they may see either side of it."""

OUTCOME: Final = "outcome"


class Scenario(msgspec.Struct, frozen=True):
    """One file of `scenarios/`, read."""

    name: str
    seed: int
    flush: FlushDiskType
    in_sync_replicas: int | None
    load_seconds: float
    plan: tuple[Instruction, ...]
    outcome: tuple[str, ...]


def read_scenario(name: str) -> Scenario:
    """Read `scenarios/<name>.txt`.

    Raises:
        ValueError: a line is not in the language.
    """
    lines = (SCENARIOS / f"{name}.txt").read_text().splitlines()
    cut = lines.index(OUTCOME) if OUTCOME in lines else len(lines)
    script = [line for line in lines[:cut] if line and not line.startswith("#")]
    values = dict(line.split(maxsplit=1) for line in script if not line.startswith("at "))
    in_sync = values.pop("in-sync-replicas", None)
    scenario = Scenario(
        name=name,
        seed=int(values.pop("seed")),
        flush=FlushDiskType(values.pop("flush")),
        in_sync_replicas=None if in_sync is None else int(in_sync),
        load_seconds=float(values.pop("load")),
        plan=tuple(parse_instruction(line) for line in script if line.startswith("at ")),
        outcome=tuple(lines[cut + 1 :]),
    )
    if values:
        raise ValueError(f"{name}: unknown settings {', '.join(values)}")
    return scenario


def settings_of(scenario: Scenario) -> Settings:
    """Return the run of a scenario: two sync and two async producers of small messages."""
    drawn = draw_settings(scenario.seed)
    producers = tuple(
        ProducerProfile(
            name=f"{'sync' if index < 2 else 'async'}-{index}",
            ip=f"127.0.1.{index + 1}",
            sync=index < 2,
            retries=0,
            pause_seconds=0.04,
            body_bytes_max=200,
            batch_chance=0.0,
            many_chance=0.0,
        )
        for index in range(4)
    )
    return msgspec.structs.replace(
        drawn,
        name=scenario.name,
        plan=scenario.plan,
        store=msgspec.structs.replace(
            drawn.store,
            flush_disk_type=scenario.flush,
            mapped_file_size_commit_log_bytes=8192,
            flush_interval_commit_log_ms=500,
            flush_commit_log_thorough_interval_ms=500,
        ),
        replication=msgspec.structs.replace(
            drawn.replication,
            in_sync_replicas=scenario.in_sync_replicas,
            ha_max_gap_not_in_sync_bytes=268_435_456,
            ha_reconnect_interval_ms=100,
        ),
        producers=producers,
        load_seconds=scenario.load_seconds,
        send_timeout_ms=1_000,
        delay_seconds_max=0.001,
    )


def play(scenario: Scenario, print_line: PrintLine | None = None) -> Result:
    """Play a scenario."""
    return run_settings(settings_of(scenario), print_line=print_line)


def outcome_lines(scenario: Scenario, result: Result) -> tuple[str, ...]:
    """Return what happened, as it is recorded in the file."""
    times = sorted({0.0, *(instruction.at_seconds for instruction in scenario.plan)})
    ends = [*times[1:], scenario.load_seconds]
    lines = [
        f"{start:.3f}-{end:.3f} {_phase(result.history.sends, start, end)}"
        for start, end in zip(times, ends, strict=True)
        if end - start > SETTLE_SECONDS
    ]
    lines.append(f"alarms: {', '.join(result.alarmed) or 'none'}")
    lines.append(f"wiped: {', '.join(result.wiped) or 'none'}")
    lines.append(f"findings: {', '.join(f.text for f in result.findings) or 'none'}")
    return tuple(lines)


def _phase(sends: list[Send], start: float, end: float) -> str:
    seen = [
        send
        for send in sends
        if start + SETTLE_SECONDS <= send.invoked_at - START_SECONDS <= end
        and send.ended_at - START_SECONDS <= end
    ]
    parts = []
    for mode, is_sync in (("sync", True), ("async", False)):
        statuses = sorted({send.text.split()[0] for send in seen if send.sync is is_sync})
        parts.append(f"{mode}: {', '.join(statuses) or 'nothing ended'}")
    return "; ".join(parts)


def record(scenario: Scenario, result: Result) -> None:
    """Write the outcome of a run into the scenario's file."""
    path = SCENARIOS / f"{scenario.name}.txt"
    script = path.read_text().split(f"\n{OUTCOME}\n")[0].rstrip("\n")
    path.write_text("\n".join((script, "", OUTCOME, *outcome_lines(scenario, result), "")))
