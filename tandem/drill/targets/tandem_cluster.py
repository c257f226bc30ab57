"""Our own cluster as a target: the nodes of a cluster file, as processes of this machine."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from tandem.client import Admin
from tandem.client.cluster_access import ClusterAccess
from tandem.cluster.local_cluster import LocalCluster
from tandem.cluster.node_process import open_process
from tandem.cluster.spec import node_command, read_spec
from tandem.cluster_file.choices import CoordinatorKind, GroupKind
from tandem.coordinator.client import connect
from tandem.drill.drilled import DrilledNetwork, DrilledNodes
from tandem.drill.errors import BadScenarioError
from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.group_choice import choose_groups, multiplied, read_groups
from tandem.drill.plan import Plan, TargetFacts
from tandem.drill.preflight import Group, check_ports, proxied_pairs, write_config
from tandem.drill.proxied_pair import ProxiedPair
from tandem.drill.recording import Recording
from tandem.drill.scenario import ANOTHER_GROUP
from tandem.drill.scenario_file import Scenario, choose
from tandem.drill.sentences.sentence import Fault
from tandem.drill.targets.target import REPEATS_DELAYS, Ground, Running, Task
from tandem.drill.versions import Versions, other_version
from tandem.drill.watch import (
    SILENT_SECONDS,
    watch_classic_master,
    watch_node,
    watch_records,
)
from tandem.wire.group_state import GroupKeys

NO_PAIRS: Final[Sequence[ProxiedPair]] = ()


class TandemTarget:
    """The groups of a cluster file. Whether a disk can be filled, the machine decides later.

    A coordinator can be hurt that is the cluster's own.
    """

    name: Final = "tandem"

    def __init__(
        self,
        config: Path,
        *,
        groups_count: int = 1,
        group: str = "",
        seed: int = 1,
        previous: Path | None = None,
    ) -> None:
        """Read a cluster file. `group` is the one to hurt; empty: the seed chooses.

        `previous` is the Python of an installation of another version, as which all nodes begin.

        Raises:
            ClusterError, NoPromiseError: it is wrong, or promises nothing that could be tested.
            BadOptionsError: there is no such group, or no such version.
        """
        self._previous = previous
        self._begins_as = other_version(previous) if previous is not None else ""
        self._config = config
        self._groups_count = groups_count
        self._spec = read_groups(config, groups_count)
        self.group, *self.others = choose_groups(self._spec, group, seed)
        self.max_message_size_bytes = self._spec.store.max_message_size_bytes
        self._pairs = NO_PAIRS
        kind = self._spec.coordinator.kind
        is_ours = self.group.kind is GroupKind.FENCED and kind is CoordinatorKind.EMBEDDED
        missing = set() if is_ours else {Fault.COORDINATOR}
        missing |= set() if self.others else {Fault.OTHER_GROUP}
        missing |= set() if previous is not None else {Fault.VERSION}
        self.faults = frozenset(Fault) - missing

    @property
    def _groups(self) -> list[Group]:
        return [self.group, *self.others]

    def choose(self, names: Sequence[str], *, short: bool) -> list[Scenario]:
        """Return what is to be played; raises BadScenarioError."""
        scenarios = choose(names, self.group.kind, short=short)
        for scenario in scenarios:
            self._check_groups(scenario)
        return scenarios

    def _check_groups(self, scenario: Scenario) -> None:
        names = [group.name for group in self._groups]
        for step in scenario.steps:
            if step.group not in ("", ANOTHER_GROUP, *names):
                raise BadScenarioError(
                    f"scenario {scenario.name}, line {step.line}: there is no group {step.group};"
                    f" the cluster has {', '.join(names)}"
                )

    def check(self, scenarios: Sequence[Scenario]) -> None:
        """Raise MissingRequirementError if ports are taken, or the network cannot be broken."""
        check_ports(self._groups, self._spec.coordinator)
        if any("network" in scenario.needs for scenario in scenarios):
            pairs: list[ProxiedPair] = []
            for group in self._groups:
                pairs += proxied_pairs(group, self._spec.coordinator, beside=pairs)
            self._pairs = pairs

    def lay_out(self, out: Path, scenarios: Sequence[Scenario]) -> Ground:
        """Write the cluster file of the drill; raises OutError."""
        is_fenced = all(group.kind is GroupKind.FENCED for group in self._groups)
        written = write_config(
            self._config,
            out,
            settings=_settings_of(scenarios, is_fenced=is_fenced),
            pairs=self._pairs,
            change=partial(multiplied, count=self._groups_count),
        )
        own = read_spec(written)
        nodes = [node for group in self._groups for node in group.nodes]
        servers = [f"{node.address}:{node.name_server_port}" for node in nodes]
        return Ground(
            config=own.file,
            cluster=own.name,
            coordinator=own.coordinator,
            slave_timeout_ms=own.replication.slave_timeout_ms,
            stores={node.name: own.node(node.name).directory for node in nodes},
            coordinator_directory=own.coordinator_directory,
            pairs=self._pairs,
            tls=own.tls,
            facts=TargetFacts(
                version=f"from {self._begins_as}" if self._begins_as else "",
                has_consumers=True,
                not_promised={} if is_fenced else REPEATS_DELAYS,
                has_timers=own.store.timer_wheel_enable,
                # Those of a group that is hurt are not asked alone for the routes of all.
                name_servers=servers if self.others else (),
            ),
        )

    @asynccontextmanager
    async def running(self, plan: Plan, recording: Recording) -> AsyncIterator[Running]:
        """Have the nodes up, and the fault proxy if a scenario needs it."""
        proxy = FaultProxy(plan.pairs)
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            versions = self._versions()
            async with _local_cluster(plan, versions) as cluster, AsyncExitStack() as stack:
                await cluster.start()
                secret = cluster.spec.read_secret()
                access = ClusterAccess(plan.name_servers, secret=secret, tls=plan.tls)
                admin = await stack.enter_async_context(Admin(access))

                async def running(plan: Plan, recording: Recording) -> Running:
                    return Running(
                        nodes=_nodes(cluster, admin, plan, recording, versions),
                        network=DrilledNetwork(proxy, plan.group) if plan.pairs else None,
                        access=plan.access,
                        admin=admin,
                        watchers=await _watchers(stack, admin, plan, recording, secret),
                        others=[
                            await running(other, recording.beside[other.group.name])
                            for other in plan.others
                        ],
                    )

                yield await running(plan, recording)
            nursery.cancel_scope.cancel()

    def _versions(self) -> Versions | None:
        if self._previous is None:
            return None
        return Versions(self._previous, [node.name for each in self._groups for node in each.nodes])


def _local_cluster(plan: Plan, versions: Versions | None) -> LocalCluster:
    return LocalCluster(
        plan.config,
        command=node_command if versions is None else versions.command,
        open_node=open_process if plan.machines is None else plan.machines.opening(),
    )


CONSUMER_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "broker": {
        "auto_create_subscription_group": True,
        "reject_transaction_message": False,
        "transaction_check_interval_ms": 2_000,
        "transaction_timeout_ms": 1_000,
        "transaction_check_max": 1_000,
    }
}
"""What the consumers' load needs: brokers that ask soon, and do not give up during a fault."""

FENCED_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {"store": {"timer_wheel_enable": True}}
"""There timers cost nothing; on a classic master they are files of 144 MB."""


def _settings_of(
    scenarios: Sequence[Scenario], *, is_fenced: bool
) -> Mapping[str, Mapping[str, Any]]:
    """The sections of a cluster file that load and scenarios ask for; later ones win."""
    found = {section: dict(keys) for section, keys in CONSUMER_SETTINGS.items()}
    for section, keys in FENCED_SETTINGS.items() if is_fenced else ():
        found.setdefault(section, {}).update(keys)
    for scenario in scenarios:
        for section, keys in scenario.settings.items():
            found.setdefault(section, {}).update(keys)
    return found


def _nodes(
    cluster: LocalCluster,
    admin: Admin,
    plan: Plan,
    recording: Recording,
    versions: Versions | None,
) -> DrilledNodes:
    return DrilledNodes(
        cluster,
        versions=versions,
        watched=recording.watched,
        orders=admin if plan.is_fenced else None,
        coordinator=cluster if plan.is_fenced else None,
        group=plan.group.name,
        now=recording.clock.now,
    )


async def _watchers(
    stack: AsyncExitStack, admin: Admin, plan: Plan, recording: Recording, secret: str
) -> list[Task]:
    """What looks at the cluster while it is drilled."""
    watched, clock = recording.watched, recording.clock
    if watched is None:
        master = plan.group.nodes[0].client_address
        return [partial(watch_classic_master, admin, master, recording.replication, clock)]
    coordinator = connect(plan.coordinator, secret=secret)
    stack.push_async_callback(coordinator.aclose)
    keys = GroupKeys(plan.cluster, plan.group.name)
    silent_seconds = SILENT_SECONDS * plan.patience
    found: list[Task] = [
        partial(watch_records, coordinator, keys, watched, clock, silent_seconds=silent_seconds),
    ]
    for node in plan.group.nodes:
        # One connection set each: a frozen node must not hold up the answers of the others.
        asker = await stack.enter_async_context(Admin(plan.access))
        address = node.client_address
        found.append(
            partial(
                watch_node,
                asker,
                node.name,
                address,
                watched,
                recording.replication,
                clock,
                silent_seconds=silent_seconds,
            )
        )
    return found
