"""What a person may choose about a drill."""

from pathlib import Path
from typing import Final, Literal

import msgspec

ScenarioChoice = Literal["slave-loss", "master-loss", "all"]

RATE_PER_SECOND_DEFAULT: Final = 800.0
"""Well below what two cores carry beside three nodes, so that latencies show the faults only."""

DURATION_SECONDS_DEFAULT: Final = 45.0
"""Long enough to see each state of the cluster, short enough to wait for."""

RATE_PER_SECOND_MAX: Final = 100_000.0
DURATION_SECONDS_MIN: Final = 4.0


class DrillOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One drill as asked for.

    `rate_per_second` counts all producers together; None lets the drill choose (and choose higher
    when `input_file` has more lines than fit). `duration_seconds` is the time under load in all
    scenarios together; waiting for a node to come back is added to it. `out` receives the report
    and, while the drill runs, the nodes' data. Without `spark` a quick audit in plain Python reads
    the logs instead.
    """

    config: Path = Path("cluster.yaml")
    input_file: Path | None = None
    scenario: ScenarioChoice = "all"
    rate_per_second: float | None = None
    duration_seconds: float = DURATION_SECONDS_DEFAULT
    out: Path = Path("report")
    spark: bool = True
    seed: int = 1

    def complaints(self) -> list[str]:
        """What is wrong with the choice, one sentence each; empty when it can be played."""
        found = []
        if self.rate_per_second is not None and not 0 < self.rate_per_second <= RATE_PER_SECOND_MAX:
            found.append(
                f"--rate {self.rate_per_second:g}: give sends a second above 0,"
                f" at most {RATE_PER_SECOND_MAX:,.0f}"
            )
        if not self.duration_seconds >= DURATION_SECONDS_MIN:
            found.append(
                f"--duration {self.duration_seconds:g}: give seconds, at least"
                f" {DURATION_SECONDS_MIN:g}"
            )
        return found
