"""The interface between the play of a drill and what it breaks.

    Target    knows before anything is started: which nodes, which faults, what is wrong
    Ground    where everything is for this drill: files, stores, what its answers promise
    Running   the same while it runs: nodes to hurt, who looks at it, how clients reach it

A scenario that needs a fault which the target cannot do is not played: it is *not possible here*.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tandem.client import Admin
from tandem.client.cluster_access import ClusterAccess
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.drill.breakable import Cluster, Network
from tandem.drill.consumers.promises import PREFIX, REPEATED_DELAYS
from tandem.drill.plan import Plan, TargetFacts
from tandem.drill.preflight import Group
from tandem.drill.proxied_pair import ProxiedPair
from tandem.drill.recording import Recording
from tandem.drill.scenario_file import Scenario
from tandem.drill.sentences.sentence import Fault
from tandem.tls_files import TLSFiles

Task = Callable[[], Awaitable[None]]
"""Runs until it is cancelled."""


REPEATS_DELAYS: Final[Mapping[str, str]] = {
    f"{PREFIX}{REPEATED_DELAYS}": "how far a classic master is with messages that wait is a file,"
    " as RocketMQ's: after a kill it delivers again what it has delivered since"
}
"""What our classic groups do not promise to consumers."""


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """Where a drill takes place. `stores` has the directory of each node's store."""

    config: Path
    cluster: str
    coordinator: CoordinatorSettings
    slave_timeout_ms: int
    stores: Mapping[str, Path]
    coordinator_directory: Path | None = None
    pairs: Sequence[ProxiedPair] = ()
    tls: TLSFiles | None = None
    access: ClusterAccess | None = None
    """How clients reach it, where addresses and `tls` do not say all."""
    facts: TargetFacts = TargetFacts()


class Running:
    """A target that runs. `watchers` look at it for as long as it does."""

    def __init__(
        self,
        *,
        nodes: Cluster,
        network: Network | None,
        access: ClusterAccess,
        admin: Admin,
        watchers: Sequence[Task],
        others: Sequence["Running"] = (),
    ) -> None:
        self.others = others
        """The same for the other groups of the cluster, in the order of the plan."""
        self.nodes = nodes
        self.network = network
        self.access = access
        self.admin = admin
        self.watchers = watchers
        self.has_timers = True
        """Whether messages may have a time of their own, where only its nodes know."""

    async def wait_for_topic(self, topic: str) -> None:
        """Return when every node knows a topic that was created. Ours know it at once."""


class Target(Protocol):
    """Something that can be drilled."""

    group: Group

    @property
    def others(self) -> Sequence[Group]:
        """The other groups of the cluster: they have load, too, and are audited."""
        ...

    @property
    def name(self) -> str:
        """As `--target` has it."""
        ...

    @property
    def faults(self) -> frozenset[Fault]:
        """What it can do to its nodes."""
        ...

    @property
    def max_message_size_bytes(self) -> int:
        """How long a body may be."""
        ...

    def choose(self, names: Sequence[str], *, short: bool) -> list[Scenario]:
        """Return what is to be played; raises BadScenarioError."""
        ...

    def check(self, scenarios: Sequence[Scenario]) -> None:
        """Look for all that can be known to be wrong now; raises DrillError."""
        ...

    def lay_out(self, out: Path, scenarios: Sequence[Scenario]) -> Ground:
        """Write what the nodes need below `out`; raises DrillError."""
        ...

    def running(self, plan: Plan, recording: Recording) -> AbstractAsyncContextManager[Running]:
        """Have it up while the block runs; raises DrillError or ClusterError."""
        ...


def cannot(target_name: str, faults: frozenset[Fault], scenario: Scenario) -> str:
    """Return why a target cannot play a scenario, or ""."""
    missing = sorted(scenario.faults - faults)
    return f"the target {target_name} cannot {', '.join(missing)}" if missing else ""
