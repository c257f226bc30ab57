"""One run of a classic group: a master and two slaves. See `engine.simulation`.

After healing everything settles for a while. Then a slave that was refused as another history is
wiped and started again, which is what its alarm tells the operator to do.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from store.services import scrub_service
from tandem.client.admin import Admin
from tandem.cluster_file.choices import FlushDiskType
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    NodeSettings,
)
from tests.sim.classic.checker import Expectations, Kind, check
from tests.sim.classic.cluster import ClassicCluster
from tests.sim.classic.history import ClassicHistory
from tests.sim.classic.settings import ClassicSettings, classic_producer
from tests.sim.engine.history import Contract, Finding
from tests.sim.engine.log_tail import LogTail
from tests.sim.engine.node import SimulatedNode, read_log
from tests.sim.engine.rot_watch import ranges_noted
from tests.sim.engine.settings import GROUP
from tests.sim.engine.simulation import Result, Simulation
from tests.sim.engine.trace import Trace
from tests.sim.engine.walked_log import walk_log
from tests.sim.engine.workload import ProducerProfile, ReaderProfile, RereadingReader
from tests.support.secret import SECRET

START_SECONDS: Final = 0.3
"""From the start of the nodes to that of the load."""

SETTLE_SECONDS: Final = 3.0
"""After healing: longer than a silent connection lives, and a slave waits to dial again."""

SEND_AGAIN_SECONDS: Final = 6.0
"""From healing to when a sync send has to succeed: `SETTLE_SECONDS`, a request of the client that
times out, and a slave that dials again."""

WATCH_SECONDS: Final = 0.25

SCRUBBED_SECONDS_MAX: Final = 60.0
"""A disk has been looked through by then, also if it was slow when that began."""

STOP_SECONDS_MAX: Final = 3.0
SCRUB_LOOK_SECONDS: Final = 2.0
"""How often a node looks whether its scrub is due; a minute else."""

assert SEND_AGAIN_SECONDS > SETTLE_SECONDS


class ClassicSimulation(Simulation[ClassicSettings, ClassicCluster, ClassicHistory]):
    """One run under way."""

    reader = ReaderProfile("pulling", retry_seconds=0.1, round_seconds=0.05, commit_chance=0.1)
    look_seconds = 0.5

    def __init__(self, settings: ClassicSettings, trace: Trace) -> None:
        super().__init__(settings, trace, ClassicHistory())
        self._checked: dict[LogTail, int] = {}

    async def run(self) -> Result[ClassicSettings, ClassicHistory]:
        """Play the run and judge it."""
        with _scrubbed_often():
            return await super().run()

    def _new_cluster(self, nursery: trio.Nursery) -> ClassicCluster:
        cluster = ClassicCluster(
            cluster_config(self.settings),
            self.history,
            network=self.network,
            chance=self._chance("cluster"),
            trace=self.trace,
            nursery=nursery,
        )
        cluster.master_is_never_killed = not any(
            instruction.verb.startswith("kill") and instruction.arguments[0] == cluster.master.name
            for instruction in self.settings.plan
        )
        return cluster

    async def _until_ready(self) -> None:
        await trio.sleep(START_SECONDS)

    def _observers(self) -> Sequence[Callable[[], Awaitable[None]]]:
        if self.settings.rots:
            return self._watch, self.cluster.rot_watch.run
        return (self._watch,)

    def _other_users(self) -> Sequence[Callable[[], Awaitable[None]]]:
        if not self.settings.rots:
            return ()
        again = RereadingReader(
            self._client_machine("127.0.2.9"),
            retry_seconds=self.reader.retry_seconds,
            history=self.history,
            may_begin_late=True,
        )
        return (again.run,)

    async def _ask_status(self, admin: Admin, address: str) -> None:
        nodes = self.cluster.nodes.values()
        node = next(n for n in nodes if n.config.node.broker_address == address)
        life, noted = node.life, self.cluster.rot_watch.noted(node)
        info = await admin.ha_runtime_info(address)
        if node.is_up and node.life == life:
            self.cluster.rot_watch.told_status(node, noted, info.damage)

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

    async def _mend(self, healed_at: float) -> float:
        """Let everything settle, and do what alarms tell the operator to do."""
        await trio.sleep(SETTLE_SECONDS)
        for slave in self.cluster.slaves:
            if self.cluster.needs_remedy(slave):
                self.cluster.kill(slave.name)
                self.cluster.wipe(slave.name)
                self.cluster.start(slave.name)
        if self.settings.rots:
            await self._until_scrubbed()
            await self._repair()
            return trio.current_time()
        return healed_at

    async def _until_scrubbed(self) -> None:
        """Wait until each node knows of what has rotted."""
        with trio.move_on_after(SCRUBBED_SECONDS_MAX):
            while self.cluster.unnoticed():
                await trio.sleep(WATCH_SECONDS)
        self.history.unnoticed = self.cluster.unnoticed()

    async def _repair(self) -> None:
        """Have what has rotted repaired from copies, with the node stopped: nothing heals it."""
        rotten = [node for node in self.cluster.nodes.values() if node.rots]
        for node in rotten:
            self.cluster.stop(node.name)
            with trio.move_on_after(STOP_SECONDS_MAX):
                while node.is_up:
                    await trio.sleep(WATCH_SECONDS)
            self.cluster.kill(node.name)
            self.cluster.repair(node)
        if rotten:
            await trio.sleep(SETTLE_SECONDS)

    async def _end(self) -> None:
        cluster = self.cluster
        left = [f"{n.name}: {ranges_noted(n)}" for n in cluster.nodes.values() if ranges_noted(n)]
        self.history.rotten = [*cluster.rotten(), *left]

    def _probe_profile(self) -> ProducerProfile:
        return classic_producer(
            name="probe",
            ip="127.0.1.99",
            contract=Contract.REPLICATED,
            pause_seconds=0.5,
            body_bytes_max=100,
            timeout_ms=self.settings.producers[0].timeout_ms,
        )

    def _send_again_seconds(self) -> float:
        return SEND_AGAIN_SECONDS

    def _log_end(self, name: str) -> int:
        life = self.cluster.nodes[name].current
        return -1 if life is None else life.tail.end()

    def _undrained(self, fault: str) -> list[Finding]:
        return [Finding(Kind.STUCK, fault)]

    def _check(self) -> list[Finding]:
        cluster = self.cluster
        expected = Expectations(
            master_lost_cache=cluster.master_lost_cache,
            acks_survive_power_loss=(
                self.settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
            ),
            slaves_needed=(self.settings.replication.in_sync_replicas or 2) - 1,
            send_again_within_seconds=SEND_AGAIN_SECONDS,
        )
        slaves = {slave.name: walk_log(read_log(slave)) for slave in cluster.slaves}
        return check(self.history, walk_log(read_log(cluster.master)), slaves, expected)


@contextmanager
def _scrubbed_often() -> Iterator[None]:
    """Have the scrub look sooner whether it is its turn, for as long as a run lasts."""
    real = scrub_service.LOOK_SECONDS
    scrub_service.LOOK_SECONDS = SCRUB_LOOK_SECONDS  # type: ignore[misc]
    try:
        yield
    finally:
        scrub_service.LOOK_SECONDS = real  # type: ignore[misc]


def cluster_config(settings: ClassicSettings) -> ClusterConfig:
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
            for index, name in enumerate(settings.node_names)
        ),
        secret=SECRET,
    )
