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
from typing import Final

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
        DrillError: the cluster or a client could not be started, or the ledger not be written.
    """
    recording.timeline.start_phase(recording.clock.now(), plan.scenarios[0], "start")
    try:
        async with LocalCluster(plan.config) as cluster:
            await cluster.start()
            await _play_on(cluster, plan, recording, source, ledger, console)
    except ClusterError as error:
        raise DrillError(str(error)) from error
    finally:
        recording.ended_at = recording.clock.now()
        recording.timeline.end_phase(recording.ended_at)


async def _play_on(
    cluster: LocalCluster,
    plan: Plan,
    recording: Recording,
    source: BodySource,
    ledger: Ledger,
    console: Console,
) -> None:
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
    stage = Stage(
        master=plan.group.master.name,
        slaves=[node.name for node in plan.group.slaves],
        cluster=DrilledNodes(cluster),
        load=workload,
        replication=recording.replication,
        timeline=recording.timeline,
        now=recording.clock.now,
        status_without_slaves=plan.status_without_slaves,
        expectations=recording.expectations,
    )
    view = LiveView(
        console=console,
        timeline=recording.timeline,
        expectations=recording.expectations,
        replication=recording.replication,
        left_to_read=workload.left_to_read,
        now=recording.clock.now,
    )
    async with AsyncExitStack() as clients, trio.open_nursery() as nursery:
        nursery.start_soon(view.run)
        admin = await clients.enter_async_context(Admin(_name_servers(plan)))
        await _create_topic(admin, plan, workload)
        nursery.start_soon(_watch, admin, plan.group, recording)
        await _start_load(clients, nursery, workload, plan)
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


async def _start_load(
    clients: AsyncExitStack, nursery: trio.Nursery, workload: Workload, plan: Plan
) -> None:
    name_servers = _name_servers(plan)
    for state in workload.producers:
        producer = Producer(
            name_servers,
            group="tandem-drill-producers",
            wait_store_msg_ok=state.mode == "sync",
            retry_times_when_send_failed=0,
            send_msg_timeout_ms=plan.slave_timeout_ms + SEND_MARGIN_MS,
            max_message_size_bytes=plan.max_message_size_bytes,
        )
        nursery.start_soon(workload.produce, state, await clients.enter_async_context(producer))
    readers = list(workload.readers.values())
    for part in (readers[::2], readers[1::2]):
        follower = PullConsumer(name_servers, group="tandem-drill-followers")
        client = await clients.enter_async_context(follower)
        for reader in part:
            nursery.start_soon(workload.follow, reader, client)
    rereader = PullConsumer(name_servers, group="tandem-drill-rereaders")
    nursery.start_soon(workload.reread, await clients.enter_async_context(rereader))


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
