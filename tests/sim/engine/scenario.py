"""Scripted runs: prose, settings, a plan of faults, and what happened when it was played.

    # Prose: what is tried here, and why.
    seed 1                      delays and the load; the faults come from the plan
    load 6.0                    seconds of load
    ...                         settings of the kind of group, see its `playbook`

    at 1.000 kill first         the plan; see `engine.faults`

    outcome
    0.000-1.500 async: SEND_OK; replicated: SEND_OK; flushed: SEND_OK
    ...

Of every phase between two times of the plan the outcome says how sends ended that began and were
answered in it, once things had settled; phases too short for that are left out. It is what a person
would see, not a trace: it stays the same when delays or the order of tasks change.
`scripts/simulate NAME --record` writes it.

`first` is the master when the load begins, `second` and so on the others in the order of their
names; `master` is whoever is at that moment, `master#1` whoever was when it was first named.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from tests.sim.engine.faults import Instruction, parse_plan
from tests.sim.engine.history import Send

SETTLE_SECONDS: Final = 0.6
"""Sends that begin this soon after a fault are left out: they may see either side of it."""

OUTCOME: Final = "outcome"


class Scenario(msgspec.Struct, frozen=True):
    """One file, read."""

    name: str
    seed: int
    load_seconds: float
    options: dict[str, str]
    """Settings of the kind of group, as they are written."""
    plan: tuple[Instruction, ...]
    outcome: tuple[str, ...]


def read_scenario(path: Path, options: Collection[str]) -> Scenario:
    """Read a file; `options` are the settings that the kind of group has.

    Raises:
        ValueError: a line is not in the language.
    """
    lines = path.read_text().splitlines()
    cut = lines.index(OUTCOME) if OUTCOME in lines else len(lines)
    script = [line for line in lines[:cut] if line and not line.startswith("#")]
    values = dict(line.split(maxsplit=1) for line in script if not line.startswith("at "))
    scenario = Scenario(
        name=path.stem,
        seed=int(values.pop("seed")),
        load_seconds=float(values.pop("load")),
        options=values,
        plan=tuple(parse_plan(line for line in script if line.startswith("at "))),
        outcome=tuple(lines[cut + 1 :]),
    )
    unknown = [name for name in values if name not in options]
    if unknown:
        raise ValueError(f"{path.stem}: unknown settings {', '.join(unknown)}")
    return scenario


def write_outcome(path: Path, outcome: tuple[str, ...]) -> None:
    """Write what happened into a file, instead of what it says so far."""
    script = path.read_text().split(f"\n{OUTCOME}\n")[0].rstrip("\n")
    path.write_text("\n".join((script, "", OUTCOME, *outcome, "")))


class Phase(msgspec.Struct, frozen=True):
    """Between two times of a plan, in seconds of load."""

    start: float
    end: float
    sends: list[Send]
    """Those that began and ended in it, once things had settled."""

    def __str__(self) -> str:
        return f"{self.start:.3f}-{self.end:.3f}"


def phases(
    scenario: Scenario, sends: list[Send], *, began: float, seconds_min: float
) -> list[Phase]:
    """Return the phases of a run that are long enough; its load began at `began`."""
    times = sorted({0.0, *(instruction.at_seconds for instruction in scenario.plan)})
    ends = [*times[1:], scenario.load_seconds]
    return [
        Phase(start, end, [send for send in sends if _is_within(send, start, end, began)])
        for start, end in zip(times, ends, strict=True)
        if end - start >= seconds_min
    ]


def _is_within(send: Send, start: float, end: float, began: float) -> bool:
    invoked, ended = send.invoked_at - began, send.ended_at - began
    is_probe = send.key.startswith("probe")
    return start + SETTLE_SECONDS <= invoked <= end and ended <= end and not is_probe
