"""What a person may choose about a drill."""

from pathlib import Path
from typing import Final, Literal

import msgspec

RATE_PER_SECOND_DEFAULT: Final = 800.0
"""Well below what two cores carry beside three nodes, so that latencies show the faults only."""

SCENARIO_SECONDS_DEFAULT: Final = 20.0
"""Load for one scenario: long enough to see each state of the cluster, short enough to wait for."""

RANDOM_MINUTES_DEFAULT: Final = 10.0
RANDOM_MINUTES_MAX: Final = 10_080.0

HISTORY_DEFAULT: Final = Path("drill")
"""Where `tandem drill history` and `diff` look."""

SHORT_SECONDS: Final = 8.0
SHORT_RATE_PER_SECOND: Final = 300.0
"""The short form: for a machine that has other things to do."""

RATE_PER_SECOND_MAX: Final = 100_000.0
DURATION_SECONDS_MAX: Final = 604_800.0
DURATION_SECONDS_MIN: Final = 4.0
REPEAT_MAX: Final = 10_000
LABEL_CHARACTERS_MAX: Final = 200
PATIENCE_MAX: Final = 100.0
GROUPS_MAX: Final = 9
NAME_SERVERS_MAX: Final = 5
"""Nodes are processes of one machine."""


TargetName = Literal["tandem", "rocketmq", "processes"]


WitnessName = Literal["java"]


class DrillOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One drill as asked for.

    `rate_per_second` counts all producers together; None lets the drill choose (and choose higher
    when `input_file` has more lines than fit). `scenarios` are names of the catalogue, paths of
    files, or "all"; none: what suits the kind of group. `duration_seconds` is the time under load
    in all scenarios of one round together; waiting for what has to be seen is added to it. `out`
    receives the report and, while the drill runs, the nodes' data. With `spark` a Spark job audits
    the logs instead of plain Python; both judge by the same rules. With `spark_stream` a Spark
    stream reads along, and what it wrote is audited. With `json` the verdict is the
    content of `summary.json` and not a table. With `history` a line for this drill is added to that
    directory, with `label` in it. `minutes`: of a random drill, how long new episodes begin.
    `patience`: by how much all deadlines of scenarios are longer. `groups`: how many there are to
    be of the one group of `config`; `group` is the one that is hurt, empty: the seed chooses.
    `previous`: the Python of an installation of the version that nodes begin as.

    With `target` "rocketmq" it is not the cluster of `config` that is broken, but three brokers of
    the RocketMQ that `rocketmq` names, in a `mode` of `targets.rocketmq_layout`, with
    `broker_settings` as KEY=VALUE and so many `name_servers`. With "processes" it is the deployed
    cluster that `file` describes. With a `witness`, RocketMQ's own client, of what `rocketmq`
    names, consumes as well.
    """

    config: Path = Path("cluster.yaml")
    input_file: Path | None = None
    scenarios: tuple[str, ...] = ()
    repeat: int = 1
    short: bool = False
    rate_per_second: float | None = None
    duration_seconds: float | None = None
    out: Path = Path("report")
    spark: bool = False
    spark_stream: bool = False
    json: bool = False
    seed: int = 1
    history: Path | None = None
    label: str = ""
    minutes: float | None = None
    patience: float = 1.0
    groups: int = 1
    group: str = ""
    previous: Path | None = None
    target: TargetName = "tandem"
    file: Path | None = None
    witness: WitnessName | None = None
    rocketmq: str = ""
    mode: str = ""
    broker_settings: tuple[str, ...] = ()
    name_servers: int = 1

    def seconds_of(self, scenarios_count: int) -> float:
        """The time under load of one round."""
        if self.duration_seconds is not None:
            return self.duration_seconds
        each = SHORT_SECONDS if self.short else SCENARIO_SECONDS_DEFAULT
        return each * scenarios_count

    def complaints(self) -> list[str]:
        """What is wrong with the choice, one sentence each; empty when it can be played."""
        found = []
        if self.rate_per_second is not None and not 0 < self.rate_per_second <= RATE_PER_SECOND_MAX:
            found.append(
                f"--rate {self.rate_per_second:g}: give sends a second above 0,"
                f" at most {RATE_PER_SECOND_MAX:,.0f}"
            )
        seconds = self.duration_seconds
        if seconds is not None and not DURATION_SECONDS_MIN <= seconds <= DURATION_SECONDS_MAX:
            found.append(
                f"--duration {seconds:g}: give seconds, at least {DURATION_SECONDS_MIN:g},"
                f" at most {DURATION_SECONDS_MAX:,.0f}"
            )
        if not 1 <= self.repeat <= REPEAT_MAX:
            found.append(f"--repeat {self.repeat}: give a number from 1 to {REPEAT_MAX:,}")
        if len(self.label) > LABEL_CHARACTERS_MAX:
            found.append(f"--label: give at most {LABEL_CHARACTERS_MAX} characters")
        if self.minutes is not None and not 0 < self.minutes <= RANDOM_MINUTES_MAX:
            found.append(
                f"--minutes {self.minutes:g}: give minutes above 0,"
                f" at most {RANDOM_MINUTES_MAX:,.0f}"
            )
        if not 1 <= self.groups <= GROUPS_MAX:
            found.append(f"--groups {self.groups}: give a number from 1 to {GROUPS_MAX}")
        if not 1 <= self.name_servers <= NAME_SERVERS_MAX:
            found.append(
                f"--name-servers {self.name_servers}: give a number from 1 to {NAME_SERVERS_MAX}"
            )
        if not 1 <= self.patience <= PATIENCE_MAX:
            found.append(f"--patience {self.patience:g}: give a number from 1 to {PATIENCE_MAX:g}")
        return found
