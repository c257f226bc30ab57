"""Which faults a seed plays, and when. Pure: a seed and what there is go in, a plan comes out."""

import random
from collections.abc import Sequence
from typing import Final, Literal, get_args

import msgspec

FaultKind = Literal[
    "kill_master",
    "kill_node",
    "freeze_master",
    "partition_master",
    "reset_connections",
    "slow_disk",
    "kill_process",
    "freeze_process",
]
"""What may happen. The last two hit processes of the test (`start_process`)."""

FAULT_KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

FAULTS_COUNT_MAX: Final = 3
_EARLIEST_SECONDS: Final = 0.002
_LASTING: Final = (0.3, 1.0, 3.0, 8.0)
"""In seconds: within a lease, about as long, longer."""


class PlannedFault(msgspec.Struct, frozen=True):
    """One fault of a plan."""

    at_seconds: float
    """After the beginning of the test."""
    kind: FaultKind
    seconds: float
    """From its beginning to its end, or from a kill to the next start."""
    choice: int
    """Which node or process, counted round and round."""

    def __str__(self) -> str:
        return f"at {self.at_seconds:.3f} {self.kind} for {self.seconds:.3f} s"


def planned_faults(
    seed: int, kinds: Sequence[FaultKind], within_seconds: float
) -> list[PlannedFault]:
    """Return the plan of a seed, in order of time; empty without kinds.

    Half of the faults come at any time, and of the others as many in the first hundredth of a
    second as in the rest of its first tenth, and so on: a test may be short or long.

    Raises:
        ValueError: there is no such kind, or no time for it.
    """
    unknown = [kind for kind in kinds if kind not in FAULT_KINDS]
    if unknown:
        raise ValueError(f"no such fault: {unknown[0]!r}; give some of {', '.join(FAULT_KINDS)}")
    if within_seconds <= _EARLIEST_SECONDS:
        raise ValueError(f"faults within {within_seconds:g} s: give a second or more")
    if not kinds:
        return []
    chance = random.Random(f"faults {seed}")
    plan = []
    for _ in range(chance.randint(1, FAULTS_COUNT_MAX)):
        spread = within_seconds / _EARLIEST_SECONDS
        early = _EARLIEST_SECONDS * spread ** chance.random()
        at = chance.choice((early, chance.uniform(_EARLIEST_SECONDS, within_seconds)))
        plan.append(
            PlannedFault(
                round(at, 4),
                chance.choice(list(kinds)),
                round(chance.choice(_LASTING) * chance.uniform(0.5, 1.5), 3),
                chance.randrange(1 << 16),
            )
        )
    return sorted(plan, key=lambda fault: fault.at_seconds)
