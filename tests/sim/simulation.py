"""One run: a cluster, its users, a plan of faults, healing, and the verdict of the checker.

    build  ->  load and faults  ->  heal  ->  settle  ->  probe  ->  drain  ->  check
              (plan of the seed)             (refused slaves are wiped)

The seed decides everything: the settings of the cluster, the load, the faults, every delay, and the
order in which trio runs its tasks. Streams of chance are kept apart, so that a scenario can replace
the plan and leave the rest as it was.
"""

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from node.run import run_node
from store.machine.machine import Machine as NodeMachine
from tandem.client.errors import ClientError
from tandem.cluster_file.choices import FlushDiskType
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    NodeSettings,
    ReplicationSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tests.sim.checker import (
    Expectations,
    Finding,
    History,
    Kind,
    Outcome,
    check,
    walk_log,
)
from tests.sim.cluster import NodeLogHandler, NodeSeams, SimulatedCluster, SimulatedNode, read_log
from tests.sim.faults import FaultMix, Instruction, plan_faults
from tests.sim.trace import PrintLine, Trace
from tests.sim.workload import (
    ClientMachine,
    FollowingReader,
    ProducerProfile,
    PullingReader,
    SendingProducer,
    drain,
)
from tests.support import deterministic_trio
from tests.support.simulated_network import NetworkSettings, SimulatedNetwork
from tests.support.virtual_clock import Timeline

if TYPE_CHECKING:
    from tests.sim.log_tail import LogTail

GROUP: Final = "broker-a"
LOGGERS: Final = ("node", "ha", "store", "tandem")

START_SECONDS: Final = 0.3
"""From the start of the nodes to that of the load."""

SETTLE_SECONDS: Final = 3.0
"""After healing: longer than a silent connection lives, and a slave waits to dial again."""

SEND_AGAIN_SECONDS: Final = 6.0
"""From healing to when a sync send has to succeed: `SETTLE_SECONDS`, a request of the client that
times out, and a slave that dials again."""

CATCH_UP_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 0.5

assert SEND_AGAIN_SECONDS > SETTLE_SECONDS


class Settings(msgspec.Struct, frozen=True):
    """What a run is like. A seed draws it; a scenario writes it."""

    name: str
    """What replays it: the seed, or the name of a scenario."""
    seed: int
    plan: tuple[Instruction, ...]
    store: StoreSettings
    replication: ReplicationSettings
    producers: tuple[ProducerProfile, ...]
    load_seconds: float
    send_timeout_ms: int
    delay_seconds_max: float
    """Of a healthy link."""


class Result(msgspec.Struct):
    """What became of a run."""

    settings: Settings
    findings: list[Finding]
    digest: str
    event_count: int
    history: History
    log_lines: list[str]
    """Lines of WARNING and above, with node and time."""
    virtual_seconds: float
    wiped: list[str]
    """Slaves whose store was moved away."""
    alarmed: list[str]
    """Slaves that were refused as another history at any time."""

    def report(self) -> str:
        """What a person needs to look into it: the verdict, the plan, the words of the nodes."""
        lines = [self.summary(), f"replay: scripts/simulate {self.settings.name} --trace", "plan:"]
        lines += [f"    {instruction}" for instruction in self.settings.plan]
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
            f"{self.settings.name}: {sends}, {len(self.history.reads)} read,"
            f" {self.virtual_seconds:.1f} s, {self.event_count} events, trace {self.digest}"
        )


NODE_NAMES: Final = tuple(f"{GROUP}-{index}" for index in range(3))


def _store_features(seed: int) -> dict[str, Any]:
    """Return settings of the store that change its files, but nothing that anyone is promised."""
    chance = random.Random(f"store {seed}")
    return {
        "message_index_enable": chance.random() < 0.5,
        "max_hash_slot_num": 20,
        "max_index_num": chance.choice((30, 300)),
        "mapped_file_size_consume_queue_ext_bytes": 4096,
        "enable_consume_queue_ext": chance.random() < 0.3,
        "enabled_append_prop_crc": chance.random() < 0.3,
    }


def draw_settings(seed: int) -> Settings:
    """Draw the settings and the plan of a seed."""
    chance = random.Random(f"settings {seed}")
    sync_flush = chance.random() < 0.35
    producers = _draw_producers(chance)
    # Where SEND_OK does not mean "on the disk", losing the page cache loses messages. Now and then
    # the master loses its own, to see that this is noticed; then the slaves keep theirs.
    unsafe = not sync_flush and chance.random() < 0.2
    mix = FaultMix(
        duration_seconds=chance.choice((1.0, 2.0, 4.0)),
        master_power_loss=sync_flush or unsafe,
        slave_power_loss=not unsafe,
    )
    clients = [producer.ip for producer in producers]
    return Settings(
        name=str(seed),
        seed=seed,
        plan=tuple(plan_faults(random.Random(f"plan {seed}"), NODE_NAMES, clients, mix)),
        store=StoreSettings(
            mapped_file_size_commit_log_bytes=chance.choice((4096, 8192, 32_768)),
            mapped_file_size_consume_queue_bytes=chance.choice((400, 2000)),
            max_message_size_bytes=2048,
            flush_disk_type=FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
            flush_interval_commit_log_ms=chance.choice((50, 500)),
            flush_commit_log_least_pages=chance.choice((0, 4)),
            flush_commit_log_thorough_interval_ms=chance.choice((500, 5_000)),
            flush_interval_consume_queue_ms=chance.choice((200, 1_000)),
            sync_flush_timeout_ms=700,
            **_store_features(seed),
        ),
        replication=ReplicationSettings(
            slave_timeout_ms=600,
            in_sync_replicas=chance.choice((None, None, None, 2, 3)),
            ha_max_gap_not_in_sync_bytes=chance.choice((20_000, 268_435_456)),
            ha_transfer_batch_size_bytes=chance.choice((200, 1_000, 262_144)),
            ha_send_heartbeat_interval_ms=500,
            ha_housekeeping_interval_ms=2_000,
            ha_reconnect_interval_ms=chance.choice((100, 500)),
            check_crc_on_append=chance.random() < 0.7,
        ),
        producers=producers,
        load_seconds=mix.duration_seconds + 0.5,
        send_timeout_ms=chance.choice((500, 1_500)),
        delay_seconds_max=chance.choice((0.001, 0.005, 0.03)),
    )


def _draw_producers(chance: random.Random) -> tuple[ProducerProfile, ...]:
    return tuple(
        ProducerProfile(
            name=f"{'sync' if index % 2 == 0 else 'async'}-{index}",
            ip=f"127.0.1.{index + 1}",
            sync=index % 2 == 0,
            retries=chance.choice((0, 0, 0, 2)),
            pause_seconds=chance.choice((0.04, 0.08, 0.15)),
            body_bytes_max=chance.choice((0, 200, 1500)),
            batch_chance=chance.choice((0.0, 0.2)),
            many_chance=chance.choice((0.0, 0.3)),
        )
        for index in range(chance.randint(2, 4))
    )


def cluster_config(settings: Settings) -> ClusterConfig:
    """The `cluster.yaml` of a run."""
    return ClusterConfig(
        file=Path("/sim/cluster.yaml"),
        cluster=ClusterSettings(),
        store=settings.store,
        replication=settings.replication,
        broker=BrokerSettings(
            default_topic_queue_nums=3,
            register_broker_interval_ms=500,
            broker_expired_timeout_ms=2_000,
            slave_synchronize_interval_ms=1_000,
            stop_grace_ms=200,
        ),
        groups={GROUP: GroupSettings()},
        nodes=tuple(
            NodeSettings(name=name, group=GROUP, broker_id=index, address=f"127.0.0.{index + 1}")
            for index, name in enumerate(NODE_NAMES)
        ),
    )


async def run_real_node(seams: NodeSeams) -> None:
    """The node under test is the one that users run."""
    await run_node(
        seams.config,
        NodeMachine(
            disk=seams.disk,
            network=seams.network,
            wall_clock_ms=seams.wall_clock_ms,
            boottime=trio.current_time,
            boot_id="",
            random=seams.random,
        ),
        stop=seams.stop,
    )


class Simulation:
    """One run under way."""

    def __init__(self, settings: Settings, trace: Trace) -> None:
        self.settings = settings
        self.trace = trace
        self.history = History()
        self.virtual_seconds = 0.0
        self._findings: list[Finding] = []
        self._checked: dict[LogTail, int] = {}

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{name} {self.settings.seed}")

    async def run(self) -> Result:
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
            self.cluster = SimulatedCluster(
                cluster_config(self.settings),
                run_real_node,
                network=self.network,
                chance=self._chance("cluster"),
                trace=self.trace,
                nursery=nursery,
            )
            with captured_logs(NodeLogHandler(self.cluster, self.trace)):
                await self._play(nursery)
                self.virtual_seconds = trio.current_time()
            nursery.cancel_scope.cancel()
        return self._judge()

    async def _play(self, nursery: trio.Nursery) -> None:
        for name in NODE_NAMES:
            self.cluster.start(name)
        await trio.sleep(START_SECONDS)
        nursery.start_soon(self._watch)
        readers = trio.CancelScope()
        nursery.start_soon(self._read, readers)
        await self._load_and_faults()
        self.cluster.heal()
        healed_at = trio.current_time()
        await trio.sleep(SETTLE_SECONDS)
        self._remedy_refused_slaves()
        await self._probe(healed_at)
        await self._wait_for_slaves()
        readers.cancel()
        await self._drain()

    async def _load_and_faults(self) -> None:
        stop = trio.Event()
        start = trio.current_time()
        async with trio.open_nursery() as load:
            for profile in self.settings.producers:
                load.start_soon(self._send, self._producer(profile), stop)
            for instruction in self.settings.plan:
                await trio.sleep_until(start + instruction.at_seconds)
                self.cluster.carry_out(instruction)
            await trio.sleep_until(start + self.settings.load_seconds)
            stop.set()

    async def _send(self, producer: SendingProducer, stop: trio.Event) -> None:
        try:
            await producer.run(stop)
        except ClientError as error:
            self.history.crashes.append(f"a producer gave up: {type(error).__name__}: {error}")

    def _client_machine(self, ip: str) -> ClientMachine:
        servers = [
            f"{node.ip}:{node.config.node.name_server_port}" for node in self.cluster.nodes.values()
        ]
        chance = self._chance(f"client {ip}")
        chance.shuffle(servers)
        return ClientMachine(self.network.machine(ip), servers, salt=chance.getrandbits(32))

    def _producer(self, profile: ProducerProfile) -> SendingProducer:
        return SendingProducer(
            profile,
            self._client_machine(profile.ip),
            chance=self._chance(profile.name),
            history=self.history,
            trace=self.trace,
            timeout_ms=self.settings.send_timeout_ms,
        )

    async def _read(self, scope: trio.CancelScope) -> None:
        pulling = PullingReader(
            "pulling",
            self._client_machine("127.0.2.1"),
            chance=self._chance("reader"),
            history=self.history,
        )
        following = FollowingReader(
            "following", self._client_machine("127.0.2.2"), history=self.history
        )
        with scope:
            async with trio.open_nursery() as readers:
                readers.start_soon(pulling.run)
                readers.start_soon(self._follow, following)
                readers.start_soon(self._look)

    async def _follow(self, following: FollowingReader) -> None:
        try:
            await following.run()
        except ClientError as error:
            self.history.crashes.append(f"a reader gave up: {type(error).__name__}: {error}")

    async def _look(self) -> None:
        """Ask every node now and then how replication is, as `tandem ha status` does."""
        async with self._client_machine("127.0.2.4").admin() as admin:
            while True:
                for node in self.cluster.nodes.values():
                    with suppress(ClientError):
                        await admin.ha_runtime_info(node.config.node.broker_address)
                await trio.sleep(LOOK_SECONDS)

    async def _watch(self) -> None:
        """See now and then that no slave has a byte the master has not."""
        while True:
            if not self.cluster.master_lost_cache:
                for slave in self.cluster.slaves:
                    self._compare(slave)
            await trio.sleep(WATCH_SECONDS)

    def _compare(self, slave: SimulatedNode) -> None:
        master = self.cluster.master.current
        if slave.current is None or master is None:
            return
        theirs, ours = slave.current.tail, master.tail
        start = min(self._checked.get(theirs, 0), ours.end())
        end = theirs.end()
        if end > ours.end() or theirs.read(start, end) != ours.read(start, end):
            text = f"{slave.name} has bytes up to {end} that the master has not ({ours.end()})"
            self._findings.append(Finding(Kind.DIVERGED, f"{text} at {trio.current_time():.3f}"))
        self._checked[theirs] = end

    def _remedy_refused_slaves(self) -> None:
        """Do what the alarm tells the operator to do."""
        for slave in self.cluster.slaves:
            if self.cluster.needs_remedy(slave):
                self.cluster.kill(slave.name)
                self.cluster.wipe(slave.name)
                self.cluster.start(slave.name)

    async def _probe(self, healed_at: float) -> None:
        profile = ProducerProfile(
            name="probe",
            ip="127.0.1.99",
            sync=True,
            retries=0,
            pause_seconds=0.5,
            body_bytes_max=100,
            batch_chance=0.0,
            many_chance=0.0,
        )
        await self._producer(profile).probe(healed_at, until=healed_at + SEND_AGAIN_SECONDS)

    async def _wait_for_slaves(self) -> None:
        with trio.move_on_after(CATCH_UP_SECONDS):
            while len({self._end(node) for node in self.cluster.nodes.values()}) > 1:
                await trio.sleep(0.05)

    @staticmethod
    def _end(node: SimulatedNode) -> int:
        return -1 if node.current is None else node.current.tail.end()

    async def _drain(self) -> None:
        fault = await drain(self._client_machine("127.0.2.3"), self.history)
        if fault:
            self._findings.append(Finding(Kind.STUCK, fault))

    def _judge(self) -> Result:
        cluster = self.cluster
        self.history.reports = cluster.reports
        self.history.crashes += [
            f"{crash.node} at {crash.at_seconds:.3f}: {crash.text}"
            for crash in cluster.crashes
            if not crash.excused
        ]
        lines = [f"{line.at_seconds:.3f} {line.node} {line.text}" for line in cluster.log_lines]
        self.history.crashes += [
            text for text, line in zip(lines, cluster.log_lines, strict=True) if line.has_traceback
        ]
        findings = self._findings + check(
            self.history,
            walk_log(read_log(cluster.master)),
            {slave.name: walk_log(read_log(slave)) for slave in cluster.slaves},
            Expectations(
                master_lost_cache=cluster.master_lost_cache,
                acks_survive_power_loss=(
                    self.settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
                ),
                slaves_needed=(self.settings.replication.in_sync_replicas or 2) - 1,
                send_again_within_seconds=SEND_AGAIN_SECONDS,
            ),
            cluster.refusals,
            [log for _, log in cluster.given_up],
        )
        return Result(
            settings=self.settings,
            findings=findings,
            digest=self.trace.digest,
            event_count=self.trace.event_count,
            history=self.history,
            log_lines=lines,
            virtual_seconds=self.virtual_seconds,
            wiped=sorted(name for name, _ in cluster.given_up),
            alarmed=sorted({refusal.name for refusal in cluster.refusals}),
        )


@contextmanager
def captured_logs(handler: logging.Handler) -> Iterator[None]:
    """Have the log lines of our packages go to `handler` and nowhere else."""
    kept = []
    for name in LOGGERS:
        logger = logging.getLogger(name)
        kept.append((logger, logger.level, logger.propagate))
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, level, propagate in kept:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def run_settings(
    settings: Settings,
    *,
    print_line: PrintLine | None = None,
) -> Result:
    """Play one run from beginning to end. `print_line` sees the trace as it grows."""

    async def play() -> Result:
        return await Simulation(settings, Trace(print_line)).run()

    try:
        return deterministic_trio.run(settings.seed, play)
    except BaseException as error:
        error.add_note(f"replay: scripts/simulate {settings.name} --trace")
        raise


def run_seed(seed: int, *, print_line: PrintLine | None = None) -> Result:
    """Play the run of a seed."""
    return run_settings(draw_settings(seed), print_line=print_line)
