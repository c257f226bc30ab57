"""One run of a fenced group: nodes, coordinator, clients, a plan of faults, healing, the verdict.

    start  ->  load and faults  ->  heal  ->  probe  ->  catch up  ->  drain  ->  check

The seed decides everything: the size and the contract of the group, the load, the faults, every
delay, and the order in which trio runs its tasks. See `tests.sim.simulation` for classic groups.
"""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from node.run import run_node
from store.machine.machine import Machine as NodeMachine
from tandem.client.errors import ClientError
from tandem.cluster_file.choices import AckLevel, FlushDiskType, GroupKind
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    NodeSettings,
    ReplicationSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tests.sim.checker import Outcome
from tests.sim.cluster import NodeLogHandler, NodeSeams, SimulatedNode
from tests.sim.faults import Instruction
from tests.sim.fenced_checker import FencedExpectations, Finding, Kind, check
from tests.sim.fenced_cluster import FencedCluster
from tests.sim.fenced_faults import FencedFaultMix, plan_fenced_faults
from tests.sim.fenced_history import Contract, FencedHistory
from tests.sim.fenced_workload import (
    FencedProducer,
    FencedProducerProfile,
    FollowingReader,
    GroupReader,
    drain,
)
from tests.sim.simulation import captured_logs
from tests.sim.trace import PrintLine, Trace
from tests.sim.workload import ClientMachine
from tests.support import deterministic_trio
from tests.support.simulated_network import NetworkSettings, SimulatedNetwork
from tests.support.virtual_clock import Timeline

GROUP: Final = "broker-a"

START_SECONDS_MAX: Final = 3.0
"""From the start of the nodes to that of the load, if no master opens sooner."""

SEND_AGAIN_SECONDS: Final = 5.0
"""From healing to when a send has to succeed, beside the time to live of a lease."""

PROBE_TIMEOUT_MS: Final = 1_500
CATCH_UP_SECONDS: Final = 10.0
END_SECONDS: Final = 2.0
"""Tasks of a process that was killed have ended after so long."""

LONG_CHANCE: Final = 0.1
"""Share of the seeds whose faults last as long as they want, and that are watched long after."""

CONFIRMED_SECONDS: Final = 0.2
"""Slaves, from which may be read, too, know by then what is confirmed."""

LOOK_SECONDS: Final = 2.0
TOPICS_MAX: Final = 4


class FencedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is like. A seed draws it; a scenario writes it."""

    name: str
    """What replays it: the seed, or the name of a scenario."""
    seed: int
    node_count: int
    min_isr: int
    ack_level: AckLevel
    lease_ttl_ms: int
    is_supervised: bool
    """Whether somebody ends the lease of a process that died."""
    plan: tuple[Instruction, ...]
    store: StoreSettings
    replication: ReplicationSettings
    producers: tuple[FencedProducerProfile, ...]
    load_seconds: float
    delay_seconds_max: float
    """Of a healthy link."""
    settles_long: bool = False
    """Whether it is watched for as long as sends may take to succeed, though all is well."""
    ends_without_master: bool = False
    """What the plan does can be mended by an operator only."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(f"{GROUP}-{index}" for index in range(self.node_count))


class FencedResult(msgspec.Struct):
    """What became of a run."""

    settings: FencedSettings
    findings: list[Finding]
    digest: str
    event_count: int
    history: FencedHistory
    log_lines: list[str]
    virtual_seconds: float
    hit: dict[str, int]
    """Faults that did something, and how often."""
    switches: int
    """How often another epoch began."""
    is_excused: bool
    """No electable replica was left."""
    load_started_at: float
    roles: dict[str, str]
    """Names of nodes by the role that scenarios call them by."""

    def report(self) -> str:
        """What a person needs to look into it: the verdict, the plan, the words of the nodes."""
        settings = self.settings
        lines = [self.summary(), f"replay: scripts/simulate --fenced {settings.name} --trace"]
        lines += [
            f"{settings.node_count} nodes, min_isr {settings.min_isr}, {settings.ack_level},"
            f" lease {settings.lease_ttl_ms} ms, supervised: {settings.is_supervised}",
            "plan:",
        ]
        lines += [f"    {instruction}" for instruction in settings.plan]
        lines += ["warnings of the nodes:", *(f"    {line}" for line in self.log_lines)]
        lines += [f"    {finding.kind.name}: {finding.text}" for finding in self.findings[:20]]
        lines.append(f"{len(self.findings)} findings" if self.findings else "all promises kept")
        return "\n".join(lines)

    def summary(self) -> str:
        """One line about what happened."""
        counts = {
            outcome.name: sum(send.outcome is outcome for send in self.history.sends)
            for outcome in Outcome
        }
        sends = ", ".join(f"{name} {count}" for name, count in counts.items())
        return (
            f"{self.settings.name}: {sends}, {len(self.history.reads)} read, epoch"
            f" {self.switches}, {self.virtual_seconds:.1f} s, {self.event_count} events,"
            f" trace {self.digest}"
        )


def draw_fenced_settings(seed: int, node_count: int | None = None) -> FencedSettings:
    """Draw the settings and the plan of a seed."""
    chance = random.Random(f"fenced settings {seed}")
    drawn_count = chance.choice((3, 3, 3, 3, 5))
    nodes = node_count or drawn_count
    min_isr = chance.choice((1, 2, 2, 2, 2, 3) if nodes == 3 else (2, 3, 3))
    ack_level = chance.choice((AckLevel.WRITTEN, AckLevel.WRITTEN, AckLevel.FLUSHED))
    names = [f"{GROUP}-{index}" for index in range(nodes)]
    producers = _draw_producers(chance)
    lease_ttl_ms = chance.choice((2_000, 2_000, 2_000, 5_000))
    powered = _draw_powered(chance, names, ack_level, min_isr)
    mix = FencedFaultMix(
        duration_seconds=chance.choice((1.5, 3.0, 5.0)),
        powered=powered,
        lease_seconds=lease_ttl_ms / 1000,
        # One node, and where an acknowledgement means "written" that which may lose power.
        spoiled=powered[-1:] if min_isr > 1 else (),
    )
    clients = [producer.ip for producer in producers]
    plan = plan_fenced_faults(random.Random(f"fenced plan {seed}"), names, clients, mix)
    is_long = chance.random() < LONG_CHANCE
    if not is_long:
        # Healing ends what is under way then.
        end = mix.duration_seconds + max(1.5, 1.25 * mix.lease_seconds)
        plan = [instruction for instruction in plan if instruction.at_seconds <= end]
    return FencedSettings(
        name=str(seed),
        seed=seed,
        node_count=nodes,
        min_isr=min_isr,
        ack_level=ack_level,
        lease_ttl_ms=lease_ttl_ms,
        is_supervised=chance.random() < 0.5,
        plan=tuple(plan),
        store=_draw_store(chance, ack_level),
        replication=ReplicationSettings(
            slave_timeout_ms=600,
            ha_transfer_batch_size_bytes=chance.choice((200, 1_000, 262_144)),
            check_crc_on_append=chance.random() < 0.7,
        ),
        producers=producers,
        load_seconds=mix.duration_seconds + 1.5,
        delay_seconds_max=chance.choice((0.001, 0.005, 0.03)),
        settles_long=is_long,
    )


def _draw_powered(
    chance: random.Random, names: list[str], ack_level: AckLevel, min_isr: int
) -> tuple[str, ...]:
    """Return the nodes that may lose power.

    Where an acknowledgement means "written", one machine may lose what it had not synced, and only
    if a second one always has it.
    """
    if ack_level is AckLevel.FLUSHED:
        return tuple(names)
    return (chance.choice(names),) if min_isr > 1 else ()


def _draw_store(chance: random.Random, ack_level: AckLevel) -> StoreSettings:
    sync_flush = ack_level is AckLevel.FLUSHED or chance.random() < 0.2
    return StoreSettings(
        mapped_file_size_commit_log_bytes=chance.choice((4096, 8192, 32_768)),
        mapped_file_size_consume_queue_bytes=chance.choice((400, 2000)),
        max_message_size_bytes=2048,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
        flush_interval_commit_log_ms=chance.choice((100, 500)),
        flush_commit_log_least_pages=chance.choice((0, 4)),
        flush_commit_log_thorough_interval_ms=chance.choice((500, 5_000)),
        flush_interval_consume_queue_ms=chance.choice((200, 1_000)),
        sync_flush_timeout_ms=700,
        **_store_features(chance),
    )


def _store_features(chance: random.Random) -> dict[str, Any]:
    return {
        "message_index_enable": chance.random() < 0.2,
        "max_hash_slot_num": 20,
        "max_index_num": 30,
        "enabled_append_prop_crc": chance.random() < 0.3,
    }


def _draw_producers(chance: random.Random) -> tuple[FencedProducerProfile, ...]:
    contracts = [Contract.REPLICATED, chance.choice(list(Contract)), Contract.FLUSHED]
    producers = []
    for index, contract in enumerate(contracts[: chance.randint(2, 3)]):
        retries = chance.choice((0, None, None))
        producers.append(
            FencedProducerProfile(
                name=f"{contract}-{index}",
                ip=f"127.0.1.{index + 1}",
                contract=contract,
                retries=retries,
                resends=retries is None and chance.random() < 0.3,
                pause_seconds=chance.choice((0.1, 0.25)),
                body_bytes_max=chance.choice((0, 200, 1000)),
                batch_chance=chance.choice((0.0, 0.2)),
                timeout_ms=1_500 if retries == 0 else chance.choice((2_000, 6_000)),
                attempt_timeout_ms=900,
            )
        )
    return tuple(producers)


def fenced_cluster_config(settings: FencedSettings) -> ClusterConfig:
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
        secret="the nodes of the simulation know it",
    )


async def run_real_node(seams: NodeSeams) -> None:
    """The node under test is the one that users run."""
    await run_node(
        seams.config,
        NodeMachine(
            disk=seams.disk,
            network=seams.network,
            wall_clock_ms=seams.wall_clock_ms,
            boottime=seams.boottime,
            boot_id=seams.boot_id,
            random=seams.random,
            on_event=seams.on_event,
        ),
        stop=seams.stop,
        coordinator=seams.coordinator,
    )


class FencedSimulation:
    """One run under way."""

    def __init__(self, settings: FencedSettings, trace: Trace) -> None:
        self.settings = settings
        self.trace = trace
        self.history = FencedHistory()
        self.virtual_seconds = 0.0
        self.load_started_at = 0.0
        self.is_excused = False
        self._findings: list[Finding] = []

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{name} {self.settings.seed}")

    async def run(self) -> FencedResult:
        """Play the run and judge it."""
        async with trio.open_nursery() as nursery:
            timeline = Timeline()
            nursery.start_soon(timeline.run)
            self.network = SimulatedNetwork(
                timeline,
                self._chance("network"),
                settings=NetworkSettings(delay_seconds_max=self.settings.delay_seconds_max),
                on_event=lambda event: self.trace.note("net", event),
            )
            self.cluster = FencedCluster(
                fenced_cluster_config(self.settings),
                run_real_node,
                self.history,
                network=self.network,
                chance=self._chance("cluster"),
                trace=self.trace,
                nursery=nursery,
                is_supervised=self.settings.is_supervised,
            )
            with captured_logs(NodeLogHandler(self.cluster, self.trace)):
                await self._play(nursery)
                self.virtual_seconds = trio.current_time()
                self.is_excused = self._nobody_can_be_master()
                self.history.nodes = self.cluster.final_nodes(is_excused=self.is_excused)
                self.cluster.end()
                await trio.sleep(END_SECONDS)
            nursery.cancel_scope.cancel()
        return self._judge()

    async def _play(self, nursery: trio.Nursery) -> None:
        for name in self.settings.node_names:
            self.cluster.start(name)
        with trio.move_on_after(START_SECONDS_MAX):
            while not self.history.openings:
                await trio.sleep(0.05)
        self.cluster.bind_roles()
        readers = trio.CancelScope()
        group = GroupReader(
            "group",
            self._client_machine("127.0.2.1"),
            chance=self._chance("reader"),
            history=self.history,
        )
        nursery.start_soon(self._read, readers, group)
        self.load_started_at = trio.current_time()
        healed_at = await self._load_and_faults()
        await self._probe(healed_at)
        await self._wait_for_all()
        readers.cancel()
        await trio.sleep(CONFIRMED_SECONDS)
        await self._drain()
        with trio.move_on_after(LOOK_SECONDS):
            await group.ask()

    async def _load_and_faults(self) -> float:
        """Heal while the last sends are still under way; return when that was."""
        stop = trio.Event()
        start = trio.current_time()
        async with trio.open_nursery() as load:
            for profile in self.settings.producers:
                load.start_soon(self._producer(profile).run, stop, lambda: self.cluster.quiet_until)
            for instruction in self.settings.plan:
                await trio.sleep_until(start + instruction.at_seconds)
                self.cluster.carry_out(instruction)
            await trio.sleep_until(start + self.settings.load_seconds)
            stop.set()
            self.cluster.heal()
            return trio.current_time()

    def _client_machine(self, ip: str) -> ClientMachine:
        servers = [
            f"{node.ip}:{node.config.node.name_server_port}" for node in self.cluster.nodes.values()
        ]
        chance = self._chance(f"client {ip}")
        chance.shuffle(servers)
        return ClientMachine(self.network.machine(ip), servers, salt=chance.getrandbits(32))

    def _producer(self, profile: FencedProducerProfile) -> FencedProducer:
        return FencedProducer(
            profile,
            self._client_machine(profile.ip),
            chance=self._chance(profile.name),
            history=self.history,
            trace=self.trace,
        )

    async def _read(self, scope: trio.CancelScope, group: GroupReader) -> None:
        following = FollowingReader(
            "following", self._client_machine("127.0.2.2"), history=self.history
        )
        with scope:
            async with trio.open_nursery() as readers:
                readers.start_soon(group.run)
                readers.start_soon(following.run)
                readers.start_soon(self._look)
                readers.start_soon(self._create_topics)

    async def _create_topics(self) -> None:
        """Create a topic now and then; what was answered must be there at the end."""
        chance = self._chance("topics")
        async with self._client_machine("127.0.2.5").admin() as admin:
            for index in range(TOPICS_MAX):
                await trio.sleep(chance.uniform(0.2, 3.0))
                with suppress(ClientError), trio.move_on_after(LOOK_SECONDS):
                    await admin.create_topic(f"topic-{index}", queue_nums=1)
                    self.history.topics_created.append(f"topic-{index}")

    async def _look(self) -> None:
        """Ask every node now and then how replication is, as `tandem ha status` does."""
        async with self._client_machine("127.0.2.4").admin() as admin:
            while True:
                for node in self.cluster.nodes.values():
                    with suppress(ClientError), trio.move_on_after(LOOK_SECONDS):
                        await admin.ha_runtime_info(node.config.node.broker_address)
                        await admin.fenced_status(node.config.node.broker_address)
                await trio.sleep(LOOK_SECONDS)

    @property
    def _send_again_seconds(self) -> float:
        return SEND_AGAIN_SECONDS + self.settings.lease_ttl_ms / 1000

    async def _probe(self, healed_at: float) -> None:
        profile = FencedProducerProfile(
            name="probe",
            ip="127.0.1.99",
            contract=Contract.REPLICATED,
            retries=None,
            resends=False,
            pause_seconds=0.7,
            body_bytes_max=100,
            batch_chance=0.0,
            timeout_ms=PROBE_TIMEOUT_MS,
            attempt_timeout_ms=PROBE_TIMEOUT_MS // 2,
        )
        until = healed_at + self._send_again_seconds
        await self._producer(profile).probe(healed_at, until=until, is_settled=self._is_settled)

    async def _wait_for_all(self) -> None:
        with trio.move_on_after(CATCH_UP_SECONDS):
            while not self._are_equal():
                await trio.sleep(0.05)

    def _is_settled(self) -> bool:
        return not self.settings.settles_long and self._are_equal()

    def _are_equal(self) -> bool:
        return len({self._end(node) for node in self.cluster.nodes.values()}) == 1

    def _end(self, node: SimulatedNode) -> int:
        return self.cluster.extent(node).written

    async def _drain(self) -> None:
        fault = await drain(self._client_machine("127.0.2.3"), self.history)
        if fault and not self._nobody_can_be_master():
            self._findings.append(Finding(Kind.UNAVAILABLE, fault))
        async with self._client_machine("127.0.2.6").admin() as admin:
            with suppress(ClientError), trio.move_on_after(LOOK_SECONDS):
                self.history.topics_at_end = await admin.topics()

    def _nobody_can_be_master(self) -> bool:
        """Nobody is left who must have everything: only power losses can bring that about."""
        cluster = self.cluster
        if self.settings.ends_without_master:
            return True
        was_hurt = any(cluster.was_hurt(name) for name in cluster.nodes)
        return was_hurt and not cluster.electable()

    def _judge(self) -> FencedResult:
        cluster, history = self.cluster, self.history
        history.crashes += [
            f"{crash.node} at {crash.at_seconds:.3f}: {crash.text}"
            for crash in cluster.crashes
            if not crash.excused
        ]
        lines = [f"{line.at_seconds:.3f} {line.node} {line.text}" for line in cluster.log_lines]
        history.crashes += [
            text for text, line in zip(lines, cluster.log_lines, strict=True) if line.has_traceback
        ]
        is_excused = self.is_excused
        expected = FencedExpectations(
            min_isr=self.settings.min_isr,
            counts_flushed=self.settings.ack_level is AckLevel.FLUSHED,
            send_again_within_seconds=self._send_again_seconds,
            must_be_available=not is_excused,
        )
        return FencedResult(
            settings=self.settings,
            findings=self._findings + check(history, expected),
            digest=self.trace.digest,
            event_count=self.trace.event_count,
            history=history,
            log_lines=lines,
            virtual_seconds=self.virtual_seconds,
            hit=dict(cluster.hit),
            switches=cluster.state.epoch if cluster.state is not None else 0,
            is_excused=is_excused,
            load_started_at=self.load_started_at,
            roles=cluster.roles,
        )


def run_fenced(settings: FencedSettings, *, print_line: PrintLine | None = None) -> FencedResult:
    """Play one run from beginning to end. `print_line` sees the trace as it grows."""

    async def play() -> FencedResult:
        return await FencedSimulation(settings, Trace(print_line)).run()

    try:
        return deterministic_trio.run(settings.seed, play)
    except BaseException as error:
        error.add_note(f"replay: scripts/simulate --fenced {settings.name} --trace")
        raise


def run_fenced_seed(
    seed: int, *, node_count: int | None = None, print_line: PrintLine | None = None
) -> FencedResult:
    """Play the run of a seed."""
    return run_fenced(draw_fenced_settings(seed, node_count), print_line=print_line)
