"""Plays the scenarios on a real cluster: nodes, load, watch on replication, live view.

    nodes (LocalCluster)            from the first start to the last exit
      clients                       one connection set per producer and reader
        producers, followers, watch, live view
          the scenarios, one after the other

What is collected is in a `Recording` that the caller owns, so that an interrupted drill can still
say what it saw. Cancelling `play` kills the nodes at once.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import msgspec
import trio
from rich.console import Console

from tandem.client import Admin, ClientError, MessageQueue, Producer, PullConsumer
from tandem.cluster.errors import ClusterError
from tandem.cluster.local_cluster import LocalCluster
from tandem.cluster.node_lifecycle import NodeState
from tandem.drill.errors import DrillError
from tandem.drill.ledger import Ledger
from tandem.drill.live import LiveView
from tandem.drill.orders import BodySource
from tandem.drill.preflight import Group
from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.scenario import (
    LOOK_SECONDS,
    SCENARIOS,
    Expectation,
    NodeFailedError,
    Stage,
    UnmetError,
)
from tandem.drill.timeline import Timeline
from tandem.drill.workload import Clock, ProducerState, QueueReader, Workload

TOPIC: Final = "tandem-drill"
QUEUE_COUNT: Final = 4
FOLLOWER_COUNT: Final = 2
WATCH_SECONDS: Final = 0.25
WATCH_SECONDS_MAX: Final = 1.0
TOPIC_SECONDS_MAX: Final = 15.0

SEND_MARGIN_MS: Final = 2_000
"""A client waits this much longer than the master waits for a slave, so as to hear its verdict."""

REST_SECONDS_MIN: Final = 30.0
REST_RATE_SHARE: Final = 0.25
"""The rest of an input file may take four times as long as the rate says."""


class Recording:
    """Everything a drill collects, from before its first phase on."""

    def __init__(self, clock: Clock, slave_addresses: dict[str, str]) -> None:
        self.clock = clock
        self.timeline = Timeline()
        self.replication = Replication(slave_addresses, self.timeline)
        self.expectations: list[Expectation] = []
        self.disorder: list[str] = []
        self.ended_at: float | None = None
        self.stopped_because = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be played on what."""

    config: Path
    group: Group
    status_without_slaves: str
    slave_timeout_ms: int
    max_message_size_bytes: int
    scenarios: Sequence[str]
    duration_seconds: float
    rate_per_second: float
    producers: Sequence[ProducerState]


class DrilledNodes:
    """A LocalCluster as scenarios see it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    async def start(self, node: str) -> None:
        """Start a node that is not running; returns once it serves."""
        try:
            await self._cluster.start(node)
        except ClusterError as error:
            raise NodeFailedError(str(error)) from error

    async def kill(self, node: str) -> None:
        """End a node with SIGKILL; returns when it is gone."""
        try:
            await self._cluster.kill(node)
        except ClusterError as error:
            raise NodeFailedError(str(error)) from error

    def unexpected_exits(self) -> list[str]:
        """Nodes that ended although nobody stopped them."""
        return [
            f"{status.name} {status.last_exit}"
            for status in self._cluster.status()
            if status.state is NodeState.FAILED
        ]


async def play(
    plan: Plan, recording: Recording, source: BodySource, ledger: Ledger, console: Console
) -> None:
    """Start the cluster, play all scenarios, stop the cluster.

    A scenario that cannot go on ends the play and is named in the recording.

    Raises:
        DrillError, ClusterError: in a group; the cluster or a client could not be started, or the
            ledger not be written.
    """
    workload = Workload(
        topic=TOPIC,
        source=source,
        ledger=ledger,
        timeline=recording.timeline,
        clock=recording.clock,
        rate_per_second=plan.rate_per_second,
        producers=plan.producers,
    )
    recording.disorder = workload.disorder
    view = LiveView(
        console=console,
        timeline=recording.timeline,
        expectations=recording.expectations,
        replication=recording.replication,
        left_to_read=workload.left_to_read,
        now=recording.clock.now,
    )
    recording.timeline.start_phase(recording.clock.now(), plan.scenarios[0], "start")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(view.run)
            async with LocalCluster(plan.config) as cluster:
                await cluster.start()
                await _play_on(DrilledNodes(cluster), plan, recording, workload)
            nursery.cancel_scope.cancel()
    finally:
        recording.ended_at = recording.clock.now()
        recording.timeline.end_phase(recording.ended_at)


async def _play_on(
    cluster: DrilledNodes, plan: Plan, recording: Recording, workload: Workload
) -> None:
    stage = Stage(
        master=plan.group.master.name,
        slaves=[node.name for node in plan.group.slaves],
        cluster=cluster,
        load=workload,
        replication=recording.replication,
        timeline=recording.timeline,
        now=recording.clock.now,
        status_without_slaves=plan.status_without_slaves,
        expectations=recording.expectations,
    )
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(_name_servers(plan)))
        await _create_topic(admin, plan, workload)
        clients = await _Clients.enter(stack, plan)
        # Inside of the clients: a nursery around them would be left before them.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, admin, plan.group, recording)
            clients.start(nursery, workload)
            await _play_scenarios(stage, plan, recording)
            nursery.cancel_scope.cancel()


def _name_servers(plan: Plan) -> list[str]:
    return [f"{node.address}:{node.name_server_port}" for node in plan.group.nodes]


async def _create_topic(admin: Admin, plan: Plan, workload: Workload) -> None:
    """Create the drill's topic and wait until clients can find it.

    Raises:
        DrillError: they could not in time.
    """
    broker_name = plan.group.name
    reason = "no answer"
    with trio.move_on_after(TOPIC_SECONDS_MAX):
        while True:
            try:
                await admin.create_topic(TOPIC, queue_nums=QUEUE_COUNT, broker_name=broker_name)
                await admin.topic_route(TOPIC)
            except ClientError as error:
                reason = str(error)
                await trio.sleep(LOOK_SECONDS)
            else:
                for queue_id in range(QUEUE_COUNT):
                    queue = MessageQueue(TOPIC, broker_name, queue_id)
                    workload.readers[queue_id] = QueueReader(queue)
                return
    raise DrillError(f"topic {TOPIC} could not be created in {TOPIC_SECONDS_MAX:g} s: {reason}")


class _Clients:
    """One producer for each producer of the plan, two followers and a rereader."""

    def __init__(
        self, producers: list[Producer], followers: list[PullConsumer], rereader: PullConsumer
    ) -> None:
        self._producers = producers
        self._followers = followers
        self._rereader = rereader

    @classmethod
    async def enter(cls, stack: AsyncExitStack, plan: Plan) -> Self:
        """Make them; the stack closes them."""
        name_servers = _name_servers(plan)
        producers = [
            Producer(
                name_servers,
                group="tandem-drill-producers",
                wait_store_msg_ok=state.mode == "sync",
                retry_times_when_send_failed=0,
                send_msg_timeout_ms=plan.slave_timeout_ms + SEND_MARGIN_MS,
                max_message_size_bytes=plan.max_message_size_bytes,
            )
            for state in plan.producers
        ]
        followers = [
            PullConsumer(name_servers, group="tandem-drill-followers")
            for _ in range(FOLLOWER_COUNT)
        ]
        rereader = PullConsumer(name_servers, group="tandem-drill-rereaders")
        clients: list[Producer | PullConsumer] = [*producers, *followers, rereader]
        for client in clients:
            await stack.enter_async_context(client)
        return cls(producers, followers, rereader)

    def start(self, nursery: trio.Nursery, workload: Workload) -> None:
        """Let them work until the nursery is cancelled."""
        for state, producer in zip(workload.producers, self._producers, strict=True):
            nursery.start_soon(workload.produce, state, producer)
        for number, reader in enumerate(workload.readers.values()):
            follower = self._followers[number % len(self._followers)]
            nursery.start_soon(workload.follow, reader, follower)
        nursery.start_soon(workload.reread, self._rereader)


async def _watch(admin: Admin, group: Group, recording: Recording) -> None:
    """Ask the master for its slaves, four times a second."""
    master = group.master.client_address
    while True:
        asked_at = recording.clock.now()
        try:
            with trio.fail_after(WATCH_SECONDS_MAX):
                info = await admin.ha_runtime_info(master)
        except (ClientError, trio.TooSlowError):
            recording.replication.silent(asked_at)
        else:
            reports = [
                SlaveReport(slave.addr.rpartition(":")[0], slave.slave_ack_offset, slave.diff)
                for slave in info.ha_connection_info
            ]
            recording.replication.sampled(asked_at, info.master_commit_log_max_offset, reports)
        await trio.sleep(WATCH_SECONDS)


async def _play_scenarios(stage: Stage, plan: Plan, recording: Recording) -> None:
    for name in plan.scenarios:
        stage.scenario = name
        stage.load_seconds = plan.duration_seconds / len(plan.scenarios)
        left = stage.load.left_to_send()
        if name == plan.scenarios[-1] and left:
            seconds = left / (plan.rate_per_second * REST_RATE_SHARE)
            stage.rest_seconds_max = max(REST_SECONDS_MIN, seconds)
        try:
            await SCENARIOS[name](stage)
        except UnmetError:
            phase = recording.timeline.phase
            recording.stopped_because = f"{phase.scenario} could not go on after {phase.name}"
            return
