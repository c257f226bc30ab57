"""What is asked of one drill, decided before the first node starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tandem.client.cluster_access import ClusterAccess
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.drill.consumers.names import Topics
from tandem.drill.java_witness import WitnessJava
from tandem.drill.machines import Machines
from tandem.drill.options import DrillOptions
from tandem.drill.preflight import Group
from tandem.drill.proxied_pair import ProxiedPair
from tandem.drill.scenario_file import Scenario
from tandem.drill.workload import ProducerState, producer_states_like
from tandem.tls_files import TLSFiles

TOPIC: Final = "tandem-drill"


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a target says of itself: what its answers promise, and how patient a drill has to be.

    The defaults are those of our own cluster.
    """

    name: str = "tandem"
    version: str = ""
    settings: Mapping[str, str] = {}
    """What was given to its nodes beyond the defaults of their version."""
    name_servers: Sequence[str] = ()
    """Empty: every node is one."""
    contract: str = ""
    """What SEND_OK to a sync send means there, and by which rule; empty: as the report says."""
    rules: Mapping[str, str] = {}
    """Count of the audit: the rule by which it must be 0."""
    not_promised: Mapping[str, str] = {}
    """Counts of the audit that may be above 0, and why: nobody has promised otherwise."""
    attempt_ms: int | None = None
    """How long one attempt of a send waits for its answer."""
    send_seconds_max: float | None = None
    """All attempts of a send together, where sends are tried again."""
    refusal_is_clear: bool = True
    """Whether a message that was refused is certain not to be stored."""
    patience: float = 1.0
    """By how much the deadlines of scenarios are longer."""
    topic: str = TOPIC
    """What the drill sends to: on a cluster that stays, one of this drill alone."""
    has_consumers: bool = False
    """Whether groups are audited: the consumers' load needs topics and groups of its own."""
    consumers_suffix: str = ""
    """Of the names of their topics and groups: on a cluster that stays, those of this drill."""
    topic_copy_seconds: float = 0.0
    """How long a slave may take until it has a new topic, whatever the patience."""
    has_past: bool = False
    """Whether its logs have begun long before the drill, each node's perhaps at another place."""
    has_timers: bool = False
    """Whether messages may have a time of their own."""
    settle_seconds: float = 0.0
    """How long its nodes may go on writing by themselves when groups have got everything."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One drill that passed its checks.

    `options` are those of the command line. `config` is the cluster file that the drill wrote for
    itself, `cluster` the name in it, `stores` each node's directory.
    """

    options: DrillOptions
    config: Path
    cluster: str
    group: Group
    coordinator: CoordinatorSettings
    slave_timeout_ms: int
    max_message_size_bytes: int
    scenarios: Sequence[Scenario]
    duration_seconds: float
    """Time under load of all scenarios of a round together."""
    rate_per_second: float
    producers: Sequence[ProducerState]
    pairs: Sequence[ProxiedPair] = ()
    """Links that go by way of the fault proxy."""
    out: Path
    stores: dict[str, Path]
    tls: TLSFiles | None = None
    given_access: ClusterAccess | None = None
    """How clients reach a cluster that has users."""
    target: TargetFacts = TargetFacts()
    machines: Machines | None = None
    """What nodes are started on, if a scenario hurts that."""
    witness: WitnessJava | None = None
    """Another client that consumes as well."""
    others: Sequence["Plan"] = ()
    """The same for the other groups of the cluster, which have load and are not hurt on purpose."""

    @property
    def is_fenced(self) -> bool:
        """Whether the group elects its master."""
        return self.group.kind is GroupKind.FENCED

    @property
    def patience(self) -> float:
        """By how much the deadlines of scenarios are longer."""
        return self.target.patience * self.options.patience

    @property
    def name_servers(self) -> list[str]:
        """Where each node answers questions about routes."""
        if self.target.name_servers:
            return list(self.target.name_servers)
        return [f"{node.address}:{node.name_server_port}" for node in self.group.nodes]

    @property
    def topic(self) -> str:
        """What is sent to."""
        return self.target.topic

    @property
    def readers_group(self) -> str:
        """Of those that read along, without offsets of a group."""
        return f"{self.topic}-readers"

    @property
    def rereaders_group(self) -> str:
        """Of the one that reads again what was read."""
        return f"{self.topic}-rereaders"

    @property
    def consumer_topics(self) -> Topics | None:
        """What the consumers' load sends to; None where consumers are not audited."""
        return Topics(self.target.consumers_suffix) if self.target.has_consumers else None

    @property
    def access(self) -> ClusterAccess:
        """The same for a client."""
        return self.given_access or ClusterAccess(self.name_servers, tls=self.tls)

    def for_group(self, group: Group, stores: Mapping[str, Path]) -> "Plan":
        """Return the plan for one more group of the cluster: the same load, and an audit."""
        topic = f"{self.topic}-{group.name}"
        facts = msgspec.structs.replace(self.target, topic=topic, has_consumers=False)
        return msgspec.structs.replace(
            self,
            group=group,
            stores=dict(stores),
            target=facts,
            witness=None,
            others=(),
            out=self.out / "groups" / group.name,
            producers=producer_states_like(self.producers),
        )

    def rounds(self) -> list[tuple[str, Scenario]]:
        """Every scenario as often as it is played, each with the name of that time."""
        if self.options.repeat == 1:
            return [(scenario.name, scenario) for scenario in self.scenarios]
        return [
            (f"{scenario.name} {number}", scenario)
            for number in range(1, self.options.repeat + 1)
            for scenario in self.scenarios
        ]

    @property
    def _what(self) -> str:
        target = self.target
        return f"{target.name} {target.version}" if target.version else str(self.group.kind)

    def headline(self) -> str:
        """The plan in one line."""
        scenarios = ", ".join(scenario.name for scenario in self.scenarios)
        times = f", {self.options.repeat} times" if self.options.repeat > 1 else ""
        beside = ", ".join(other.group.name for other in self.others)
        others = f", beside {beside}" if beside else ""
        return (
            f"drill of {self.group.name} ({self._what}, {len(self.group.nodes)} nodes{others}):"
            f" {scenarios}{times}, {self.duration_seconds:g} s under load of"
            f" {self.rate_per_second:,.0f} sends a second"
        )
