"""A fenced group of three in one process, its coordinator, and who reaps its dead processes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import trio

from ha.fenced.events import HAEvent, MasterOpened
from node.simulated.coordinator import SimulatedCoordinator
from node.simulated.disk import SimulatedDisk
from node.simulated.machines import Incarnation, SimulatedMachines, SimulatedNode
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import WallClock
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    NodeSettings,
    ReplicationSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tandem.coordinator.interface import Coordinator
from tandem.coordinator.kv_records import Item
from tandem.wire.group_state import GroupKeys, GroupState, decode_state

GROUP: Final = "broker-a"
NODES_COUNT: Final = 3
COORDINATOR_IP: Final = "127.0.3.1"
LEASE_TTL_MS: Final = 2_000
SECRET: Final = "simulated-simulated-simulated-00"

REAP_SECONDS: Final = 0.2
"""From the death of a process to when its supervisor has ended its lease."""

LOOK_SECONDS: Final = 0.05


def group_config() -> ClusterConfig:
    """The cluster file of a run: small files, short leases."""
    return ClusterConfig(
        file=Path("/simulated/cluster.yaml"),
        cluster=ClusterSettings(),
        store=StoreSettings(
            mapped_file_size_commit_log_bytes=262_144,
            mapped_file_size_consume_queue_bytes=2_000,
            max_message_size_bytes=65_536,
            max_hash_slot_num=100,
            max_index_num=500,
        ),
        replication=ReplicationSettings(slave_timeout_ms=1_000),
        broker=BrokerSettings(
            default_topic_queue_nums=4,
            register_broker_interval_ms=2_000,
            broker_expired_timeout_ms=6_000,
            stop_grace_ms=200,
        ),
        groups={GROUP: GroupSettings(kind=GroupKind.FENCED)},
        nodes=tuple(
            NodeSettings(
                name=f"{GROUP}-{number}",
                group=GROUP,
                broker_id=number,
                address=f"127.0.0.{number}",
            )
            for number in range(1, NODES_COUNT + 1)
        ),
        coordinator=CoordinatorSettings(lease_ttl_ms=LEASE_TTL_MS),
        secret=SECRET,
    )


class SimulatedGroup(SimulatedMachines[SimulatedNode]):
    """The group of one run."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        network: SimulatedNetwork,
        chance: random.Random,
        note: Callable[[str, str], None],
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(config, network=network, chance=chance, note=note, nursery=nursery)
        self._keys = GroupKeys(config.cluster.name, GROUP)
        self._site = SimulatedCoordinator(COORDINATOR_IP, network, random.Random(chance.random()))
        self._opened: dict[str, int] = {}
        """By node: which of its lives has opened as master last."""

    # What there is

    def master(self) -> str | None:
        """Return the node that takes messages now, if there is one."""
        state = self._state()
        if state is None or state.master not in self.nodes:
            return None
        node = self.nodes[state.master]
        return node.name if node.is_up and self._opened.get(node.name) == node.life else None

    def is_in_sync(self) -> bool:
        """Whether there is a master, and all nodes have what it has."""
        state = self._state()
        return bool(self.master()) and state is not None and set(state.isr) == set(self.nodes)

    def _state(self) -> GroupState | None:
        item = self._site.item(self._keys.state)
        return None if item is None else decode_state(item.value)

    async def until(self, is_so: Callable[[], bool], seconds_max: float) -> bool:
        """Wait until something is so; return False if it is not after this time."""
        with trio.move_on_after(seconds_max):
            while not is_so():  # noqa: ASYNC110 - it may be so by what nobody says
                await trio.sleep(LOOK_SECONDS)
            return True
        return False

    # Faults that are none of one machine alone

    def partition(self, names: Iterable[str]) -> None:
        """Hold up what these nodes and all the others send each other, the coordinator included."""
        for one, other in self._edges(set(names)):
            self.network.stall(one, other)
            self.network.stall(other, one)

    def end_partition(self, names: Iterable[str]) -> None:
        """Let go what was held up."""
        for one, other in self._edges(set(names)):
            self.network.heal(one, other)
            self.network.heal(other, one)

    def _edges(self, names: set[str]) -> list[tuple[str, str]]:
        inside = [self.nodes[name].ip for name in sorted(names)]
        outside = [node.ip for node in self.nodes.values() if node.name not in names]
        return [(one, other) for one in inside for other in (*outside, COORDINATOR_IP)]

    def reset_connections(self, name: str) -> None:
        """Reset every connection of a node, as a firewall that forgets its table does."""
        node = self.nodes[name]
        for ip in self.network.addresses:
            if ip != node.ip:
                self.network.cut(node.ip, ip)

    def slow_disk(self, name: str, seconds: float) -> None:
        """Have every sync of a node take this long."""
        self.nodes[name].disk.sync_within(lambda: seconds)

    def heal(self) -> None:
        """End every fault and start every node that is down."""
        self.network.heal_all()
        for node in self.nodes.values():
            if node.current is not None:
                self.thaw(node.current)
            self.heal_disk(node)
            self.start(node.name)

    # What a fenced group adds

    def _new_node(self, config: NodeConfig, disk: SimulatedDisk, clock: WallClock) -> SimulatedNode:
        return SimulatedNode(config, disk, clock)

    def _coordinator(self, life: Incarnation) -> Coordinator:
        return self._site.client(life.network)

    def _listener(self, node: SimulatedNode) -> Callable[[HAEvent], None]:
        life = node.life

        def heard(event: HAEvent) -> None:
            if isinstance(event, MasterOpened):
                self._opened[node.name] = life

        return heard

    def _was_killed(self, node: SimulatedNode) -> None:
        key = self._keys.node(node.name)
        before = self._site.item(key)
        self.network.timeline.call_later(REAP_SECONDS, lambda: self._reap(key, before))

    def _reap(self, key: str, before: Item | None) -> None:
        now = self._site.item(key)
        if now is not None and before is not None and now.lease_id == before.lease_id:
            self._site.revoke_leases_of(key)
