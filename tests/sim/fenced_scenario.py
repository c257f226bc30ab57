"""Scripted runs of fenced groups: prose, settings, a plan of faults, and what happened.

    # Prose: what is tried here, and why.
    seed 1                      delays and the load; the faults come from the plan
    nodes 3
    min-isr 2
    ack-level written           or flushed
    lease 2                     seconds
    supervised no               yes: the lease of a process that dies is ended at once
    load 6.0                    seconds of load
    available no                an operator has to help: no master at the end

    at 1.000 kill first         the plan; see `tests.sim.faults`

    outcome
    0.000-1.500 async: SEND_OK; replicated: SEND_OK; flushed: SEND_OK
    1.500-6.000 async: no SEND_OK; replicated: no SEND_OK; flushed: no SEND_OK
    changes of master: some
    cuts: first
    quarantined: none
    findings: none

Of every phase between two times of the plan the outcome says whether sends that began and ended in
it, once things had settled, were answered SEND_OK. It is what a person would see: it stays the same
when delays change. `first` is the master when the load begins, `second` and so on the others in the
order of their names; `master` is whoever is at that moment, `master#1` whoever was when it was
first named. `scripts/simulate NAME --record` writes the outcome.
"""

from pathlib import Path
from typing import Final

import msgspec

from ha.fenced.events import Quarantined
from tandem.cluster_file.choices import AckLevel, FlushDiskType
from tests.sim.checker import Outcome
from tests.sim.faults import Instruction, parse_instruction
from tests.sim.fenced_cluster import ROLES
from tests.sim.fenced_history import Contract, FencedSend
from tests.sim.fenced_simulation import (
    FencedResult,
    FencedSettings,
    draw_fenced_settings,
    run_fenced,
)
from tests.sim.fenced_workload import FencedProducerProfile
from tests.sim.trace import PrintLine

SCENARIOS: Final = Path(__file__).parent / "scenarios" / "fenced"

PHASE_SECONDS_MIN: Final = 1.5
"""Shorter phases are left out: too few sends to say something."""

SETTLE_SECONDS: Final = 0.6
"""Sends that begin this soon after a fault are left out: they may see either side of it."""

OUTCOME: Final = "outcome"


class FencedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `scenarios/fenced`, read."""

    name: str
    seed: int
    node_count: int
    min_isr: int
    ack_level: AckLevel
    lease_seconds: float
    is_supervised: bool
    load_seconds: float
    is_available: bool
    plan: tuple[Instruction, ...]
    outcome: tuple[str, ...]


def read_scenario(name: str) -> FencedScenario:
    """Read `scenarios/fenced/<name>.txt`.

    Raises:
        ValueError: a line is not in the language.
    """
    lines = (SCENARIOS / f"{name}.txt").read_text().splitlines()
    cut = lines.index(OUTCOME) if OUTCOME in lines else len(lines)
    script = [line for line in lines[:cut] if line and not line.startswith("#")]
    values = dict(line.split(maxsplit=1) for line in script if not line.startswith("at "))
    scenario = FencedScenario(
        name=name,
        seed=int(values.pop("seed")),
        node_count=int(values.pop("nodes", "3")),
        min_isr=int(values.pop("min-isr", "2")),
        ack_level=AckLevel(values.pop("ack-level", "written")),
        lease_seconds=float(values.pop("lease", "2")),
        is_supervised=values.pop("supervised", "no") == "yes",
        load_seconds=float(values.pop("load")),
        is_available=values.pop("available", "yes") == "yes",
        plan=tuple(parse_instruction(line) for line in script if line.startswith("at ")),
        outcome=tuple(lines[cut + 1 :]),
    )
    if values:
        raise ValueError(f"{name}: unknown settings {', '.join(values)}")
    return scenario


def settings_of(scenario: FencedScenario) -> FencedSettings:
    """Return the run of a scenario: one producer of each contract, small messages, one try each."""
    drawn = draw_fenced_settings(scenario.seed, scenario.node_count)
    producers = tuple(
        FencedProducerProfile(
            name=f"{contract}-{index}",
            ip=f"127.0.1.{index + 1}",
            contract=contract,
            retries=0,
            resends=False,
            pause_seconds=0.08,
            body_bytes_max=100,
            batch_chance=0.0,
            timeout_ms=1_000,
            attempt_timeout_ms=1_000,
        )
        for index, contract in enumerate(Contract)
    )
    return msgspec.structs.replace(
        drawn,
        name=scenario.name,
        node_count=scenario.node_count,
        min_isr=scenario.min_isr,
        ack_level=scenario.ack_level,
        lease_ttl_ms=int(scenario.lease_seconds * 1000),
        is_supervised=scenario.is_supervised,
        plan=scenario.plan,
        store=msgspec.structs.replace(
            drawn.store,
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            mapped_file_size_commit_log_bytes=8192,
            flush_interval_commit_log_ms=500,
            flush_commit_log_thorough_interval_ms=500,
        ),
        producers=producers,
        ends_without_master=not scenario.is_available,
        load_seconds=scenario.load_seconds,
        delay_seconds_max=0.001,
    )


def play(scenario: FencedScenario, print_line: PrintLine | None = None) -> FencedResult:
    """Play a scenario."""
    return run_fenced(settings_of(scenario), print_line=print_line)


def outcome_lines(scenario: FencedScenario, result: FencedResult) -> tuple[str, ...]:
    """Return what happened, as it is recorded in the file."""
    times = sorted({0.0, *(instruction.at_seconds for instruction in scenario.plan)})
    ends = [*times[1:], scenario.load_seconds]
    lines = [
        f"{start:.3f}-{end:.3f} {_phase(result, start, end)}"
        for start, end in zip(times, ends, strict=True)
        if end - start >= PHASE_SECONDS_MIN
    ]
    openings = result.history.openings
    roles = {result.roles[role]: role for role in ROLES if role in result.roles}
    cuts = sorted({roles.get(cut.node, cut.node) for cut in result.history.cuts})
    quarantined = {
        roles.get(seen.node, seen.node)
        for seen in result.history.events
        if isinstance(seen.event, Quarantined)
    }
    lines.append(f"changes of master: {'some' if len(openings) > 1 else 'none'}")
    lines.append(f"cuts: {', '.join(cuts) or 'none'}")
    lines.append(f"quarantined: {', '.join(sorted(quarantined)) or 'none'}")
    lines.append(f"findings: {', '.join(f.text for f in result.findings) or 'none'}")
    return tuple(lines)


def _phase(result: FencedResult, start: float, end: float) -> str:
    began = result.load_started_at
    seen = [
        send
        for send in result.history.sends
        if start + SETTLE_SECONDS <= send.invoked_at - began <= end
        and send.ended_at - began <= end
        and not send.key.startswith("probe")
    ]
    return "; ".join(f"{contract}: {_words(seen, contract)}" for contract in Contract)


def _words(sends: list[FencedSend], contract: Contract) -> str:
    ended = [send.outcome is Outcome.OK for send in sends if send.contract is contract]
    if not ended:
        return "nothing ended"
    return "SEND_OK" if any(ended) else "no SEND_OK"


def record(scenario: FencedScenario, result: FencedResult) -> None:
    """Write the outcome of a run into the scenario's file."""
    path = SCENARIOS / f"{scenario.name}.txt"
    script = path.read_text().split(f"\n{OUTCOME}\n")[0].rstrip("\n")
    path.write_text("\n".join((script, "", OUTCOME, *outcome_lines(scenario, result), "")))
