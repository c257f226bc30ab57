"""One run of a fenced group: nodes, coordinator, supervisor, operator. See `engine.simulation`."""

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from ha.fenced.disputed_joint import DECIDED_SECONDS
from tandem.client.admin import Admin
from tandem.client.errors import ClientError
from tandem.cluster_file.choices import AckLevel, ClientAuth, GroupKind, TLSMode
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    NodeSettings,
    TLSSettings,
)
from tandem.tls_files import TLSFiles
from tandem.wire.feature_level import LEVEL_MAX
from tests.sim.engine.faults import BLACKOUT, Instruction
from tests.sim.engine.history import Contract, Finding
from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.settings import GROUP
from tests.sim.engine.simulation import LOOK_SECONDS_MAX, Result, Simulation
from tests.sim.engine.trace import Trace
from tests.sim.engine.workload import ProducerProfile, ReaderProfile, RereadingReader
from tests.sim.fenced.actions import FENCED_ACTIONS
from tests.sim.fenced.checker import FencedExpectations, Kind, check
from tests.sim.fenced.cluster import FencedCluster
from tests.sim.fenced.history import FencedHistory
from tests.sim.fenced.settings import FencedSettings
from tests.support.secret import SECRET

START_SECONDS_MAX: Final = 3.0
"""From the start of the nodes to that of the load, if no master opens sooner."""

SEND_AGAIN_SECONDS: Final = 5.0
"""From healing to when a send has to succeed, beside the time to live of a lease."""

PROBE_TIMEOUT_MS: Final = 1_500
END_SECONDS: Final = 2.0
"""Tasks of a process that was killed have ended after so long."""

CONFIRMED_SECONDS: Final = 0.2
"""Slaves, from which may be read, too, know by then what is confirmed."""

REGISTERED_SECONDS: Final = 4.0
"""All nodes have started and registered by then, beside the time that their last leases live."""

LOOK_AT_ROT_SECONDS: Final = 0.5

ROTTEN_SECONDS_MAX: Final = 40.0
"""Healing that was tried in vain is tried again after as long as it had taken by then, and more."""

RECOVERY_RETRY_SECONDS: Final = 0.3
TOPICS_MAX: Final = 4


class FencedSimulation(Simulation[FencedSettings, FencedCluster, FencedHistory]):
    """One run under way."""

    actions = FENCED_ACTIONS
    reader = ReaderProfile(
        "group",
        retry_seconds=0.2,
        round_seconds=0.3,
        commit_chance=0.3,
        ask_chance=0.3,
        commit_timeout_ms=1_000,
    )
    look_seconds = 2.0
    drain_retry_seconds = 0.2

    def __init__(self, settings: FencedSettings, trace: Trace) -> None:
        super().__init__(settings, trace, FencedHistory())
        self._is_excused = False
        if settings.rots:
            self.look_seconds = LOOK_AT_ROT_SECONDS

    def _new_cluster(self, nursery: trio.Nursery) -> FencedCluster:
        cluster = FencedCluster(
            cluster_config(self.settings),
            self.history,
            network=self.network,
            chance=self._chance("cluster"),
            trace=self.trace,
            nursery=nursery,
            is_supervised=self.settings.is_supervised,
            tls=self.settings.tls,
        )
        cluster.has_open_damage = self.settings.has_open_damage
        for name in self.settings.older:
            cluster.be_of_version(name, LEVEL_MAX - 1)
        return cluster

    async def _until_ready(self) -> None:
        with trio.move_on_after(START_SECONDS_MAX):
            while not self.history.openings:
                await trio.sleep(0.05)

    def _observers(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return (self.cluster.rot_watch.run,) if self.settings.rots else ()

    def _other_users(self) -> Sequence[Callable[[], Awaitable[None]]]:
        if not self.settings.rots:
            return (self._create_topics,)
        again = RereadingReader(
            self._client_machine("127.0.2.9"),
            retry_seconds=self.reader.retry_seconds,
            history=self.history,
        )
        return self._create_topics, again.run

    async def _create_topics(self) -> None:
        """Create a topic now and then; what was answered must be there at the end."""
        chance = self._chance("topics")
        async with self._client_machine("127.0.2.5").admin() as admin:
            for index in range(TOPICS_MAX):
                await trio.sleep(chance.uniform(0.2, 3.0))
                with suppress(ClientError), trio.move_on_after(LOOK_SECONDS_MAX):
                    await admin.create_topic(f"topic-{index}", queue_nums=1)
                    self.history.topics_created.append(f"topic-{index}")

    async def _ask_status(self, admin: Admin, address: str) -> None:
        await super()._ask_status(admin, address)
        node = next(n for n in self.cluster.nodes.values() if address == _address_of(n))
        life, noted = node.life, self.cluster.rot_watch.noted(node)
        status = await admin.fenced_status(address)
        if node.is_up and node.life == life:
            self.cluster.rot_watch.told_status(node, noted, status.damage)

    def _carry_out(self, instruction: Instruction) -> None:
        super()._carry_out(instruction)
        if instruction.verb == BLACKOUT:
            # What somebody read may be gone, too: readers begin anew.
            self._readers.cancel()

    async def _mend(self, healed_at: float) -> float:
        """Have the group go on that no member of can show that it has everything."""
        if self.history.blackout_at == math.inf:
            return healed_at
        deadline = trio.current_time() + self.settings.lease_ttl_ms / 1000 + REGISTERED_SECONDS
        while trio.current_time() < deadline and not await self.cluster.recover_group():
            await trio.sleep(RECOVERY_RETRY_SECONDS)
        return trio.current_time()

    def _catch_up_seconds(self) -> float:
        usual = super()._catch_up_seconds()
        return ROTTEN_SECONDS_MAX if self.settings.rots else usual

    def _probe_profile(self) -> ProducerProfile:
        return ProducerProfile(
            name="probe",
            ip="127.0.1.99",
            contract=Contract.REPLICATED,
            retries=None,
            pause_seconds=0.7,
            body_bytes_max=100,
            timeout_ms=PROBE_TIMEOUT_MS,
            attempt_timeout_ms=PROBE_TIMEOUT_MS // 2,
        )

    def _send_again_seconds(self) -> float:
        usual = SEND_AGAIN_SECONDS + self.settings.lease_ttl_ms / 1000
        return usual + (DECIDED_SECONDS if self.settings.rots else 0.0)

    def _is_settled(self) -> bool:
        return not self.settings.settles_long and self._are_equal()

    def _log_end(self, name: str) -> int:
        return self.cluster.witness.extent(self.cluster.nodes[name]).written

    def _are_equal(self) -> bool:
        return super()._are_equal() and not self.cluster.rotten()

    async def _drain(self) -> None:
        await trio.sleep(CONFIRMED_SECONDS)
        await super()._drain()
        async with self._client_machine("127.0.2.6").admin() as admin:
            with suppress(ClientError), trio.move_on_after(LOOK_SECONDS_MAX):
                self.history.topics_at_end = await admin.topics()
        with trio.move_on_after(LOOK_SECONDS_MAX):
            await self._group.ask()

    def _undrained(self, fault: str) -> list[Finding]:
        return [] if self._nobody_can_be_master() else [Finding(Kind.UNAVAILABLE, fault)]

    def _nobody_can_be_master(self) -> bool:
        """Nobody is left who must have everything.

        Only what a disk has lost can bring that about: in a loss of power; or in a failed sync of
        the only node in the in-sync set, where what is only written counts (`min_isr: 1`).
        """
        witness = self.cluster.witness
        if self.settings.ends_without_master:
            return True
        counts_written = self.settings.ack_level is AckLevel.WRITTEN
        has_failed = any(node.sync_has_failed for node in self.cluster.nodes.values())
        may_lack = witness.was_any_hurt or (counts_written and has_failed)
        return may_lack and not witness.electable()

    async def _end(self) -> None:
        self._is_excused = self._nobody_can_be_master()
        self.history.rotten = self.cluster.rotten()
        self.history.nodes = self.cluster.witness.final_nodes(is_excused=self._is_excused)
        self.cluster.kill_all()
        await trio.sleep(END_SECONDS)

    def _check(self) -> list[Finding]:
        expected = FencedExpectations(
            min_isr=self.settings.min_isr,
            counts_flushed=self.settings.ack_level is AckLevel.FLUSHED,
            send_again_within_seconds=self._send_again_seconds(),
            must_be_available=not self._is_excused,
        )
        return check(self.history, expected)

    def _judge(self) -> Result[FencedSettings, FencedHistory]:
        result = super()._judge()
        state = self.cluster.witness.state
        result.switches = state.epoch if state is not None else 0
        result.is_excused = self._is_excused
        return result


def _address_of(node: SimulatedNode) -> str:
    return node.config.node.broker_address


def cluster_config(settings: FencedSettings) -> ClusterConfig:
    """The `cluster.yaml` of a run."""
    return ClusterConfig(
        file=Path("/sim/cluster.yaml"),
        cluster=ClusterSettings(),
        store=settings.store,
        replication=settings.replication,
        broker=BrokerSettings(
            default_topic_queue_nums=2,
            register_broker_interval_ms=2_000,
            broker_expired_timeout_ms=6_000,
            stop_grace_ms=200,
        ),
        groups={
            GROUP: GroupSettings(
                kind=GroupKind.FENCED, min_isr=settings.min_isr, ack_level=settings.ack_level
            )
        },
        nodes=tuple(
            NodeSettings(
                name=name, group=GROUP, broker_id=index + 1, address=f"127.0.0.{index + 1}"
            )
            for index, name in enumerate(settings.node_names)
        ),
        coordinator=CoordinatorSettings(lease_ttl_ms=settings.lease_ttl_ms),
        secret=SECRET,
        tls=_tls(settings.tls),
    )


def _tls(files: TLSFiles | None) -> TLSSettings:
    if files is None:
        return TLSSettings()
    return TLSSettings(
        mode=TLSMode.ENFORCING,
        client_auth=ClientAuth.REQUIRE,
        ca_file=files.ca_file,
        certificate_file=files.certificate_file,
        key_file=files.key_file,
    )
