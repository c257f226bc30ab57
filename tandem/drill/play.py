"""Plays the scenarios on a real cluster: nodes, load, watch on replication, live view.

    nodes (LocalCluster)            from the first start to the last exit
      fault proxy, small disks      if a scenario needs them
      clients                       one connection set per producer and reader
        producers, followers, watch, live view
          the scenarios, one after the other

What is collected is in a `Recording` that the caller owns, so that an interrupted drill can still
say what it saw. Cancelling `play` kills the nodes at once.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec
import trio
from rich.console import Console

from tandem.client import Admin, ClientError, MessageQueue, Producer, PullConsumer
from tandem.cluster.local_cluster import LocalCluster
from tandem.coordinator.client import connect
from tandem.drill.drilled import DrilledNetwork, DrilledNodes
from tandem.drill.errors import DrillError
from tandem.drill.fault_proxy import FaultProxy, ProxiedPair
from tandem.drill.group_view import GroupView
from tandem.drill.ledger import Ledger
from tandem.drill.live import LiveView
from tandem.drill.orders import BodySource
from tandem.drill.preflight import CoordinatorSettings, Group
from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.scenario import (
    ENDED_EARLY,
    LOOK_SECONDS,
    NOT_POSSIBLE,
    PLAYED,
    Disks,
    Expectation,
    NotPossibleError,
    ScenarioRun,
    Stage,
    UnmetError,
)
from tandem.drill.scenario_file import Scenario
from tandem.drill.timeline import Timeline
from tandem.drill.vocabulary import drain, play_step
from tandem.drill.watch import watch_node, watch_records
from tandem.drill.workload import Clock, ProducerState, QueueReader, Retries, Workload
from tandem.wire.group_state import GroupKeys

TOPIC: Final = "tandem-drill"
QUEUE_COUNT: Final = 4
FOLLOWER_COUNT: Final = 2
WATCH_SECONDS: Final = 0.25
WATCH_SECONDS_MAX: Final = 1.0
TOPIC_SECONDS_MAX: Final = 20.0

SEND_MARGIN_MS: Final = 2_000
"""A client waits this much longer than the master waits for a slave, so as to hear its verdict."""

FENCED_ATTEMPT_MS: Final = 1_500
"""One attempt of a send to a fenced group: shorter than its master waits for slaves, because a
frozen master never answers, and sending again is harmless there."""

FENCED_SEND_SECONDS_MAX: Final = 45.0
"""All attempts of a send together: longer than the slowest failover of the catalogue."""

REST_SECONDS_MIN: Final = 30.0
REST_RATE_SHARE: Final = 0.25
"""The rest of an input file may take four times as long as the rate says."""


class Recording:
    """Everything a drill collects, from before its first phase on."""

    def __init__(self, clock: Clock, group: Group) -> None:
        self.clock = clock
        self.timeline = Timeline()
        is_fenced = group.kind == "fenced"
        self.view = GroupView([node.name for node in group.nodes]) if is_fenced else None
        self.replication = Replication(_known_by(group), self.timeline)
        self.expectations: list[Expectation] = []
        self.runs: list[ScenarioRun] = []
        self.master = "" if is_fenced else group.nodes[0].name
        """Whose log the audit goes by."""
        self.confirm: int | None = None
        """Of a fenced group: below this every node has the whole log."""
        self.disorder: list[str] = []
        self.ended_at: float | None = None
        self.stopped_because = ""


def _known_by(group: Group) -> dict[str, str]:
    """By what the master's reports name each node: its address, or in a fenced group its name."""
    if group.kind == "fenced":
        return {node.name: node.name for node in group.nodes}
    return {node.name: node.address for node in group.slaves}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be played on what."""

    config: Path
    cluster: str
    group: Group
    coordinator: CoordinatorSettings
    slave_timeout_ms: int
    max_message_size_bytes: int
    scenarios: Sequence[Scenario]
    repeat: int
    duration_seconds: float
    rate_per_second: float
    producers: Sequence[ProducerState]
    pairs: Sequence[ProxiedPair] = ()

    @property
    def is_fenced(self) -> bool:
        """Whether the group elects its master."""
        return self.group.kind == "fenced"


async def play(
    plan: Plan,
    recording: Recording,
    source: BodySource,
    ledger: Ledger,
    disks: Disks,
    console: Console,
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
        retries=Retries(FENCED_SEND_SECONDS_MAX) if plan.is_fenced else None,
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
    recording.timeline.start_phase(recording.clock.now(), plan.scenarios[0].name, "start")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(view.run)
            proxy = FaultProxy(plan.pairs)
            await nursery.start(proxy.run)
            async with LocalCluster(plan.config) as cluster:
                await cluster.start()
                await _play_on(cluster, proxy, disks, plan, recording, workload)
            nursery.cancel_scope.cancel()
    finally:
        recording.ended_at = recording.clock.now()
        recording.timeline.end_phase(recording.ended_at)


async def _play_on(
    cluster: LocalCluster,
    proxy: FaultProxy,
    disks: Disks,
    plan: Plan,
    recording: Recording,
    workload: Workload,
) -> None:
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(_name_servers(plan)))
        stage = Stage(
            nodes=[node.name for node in plan.group.nodes],
            cluster=DrilledNodes(
                cluster,
                view=recording.view,
                orders=admin if plan.is_fenced else None,
                coordinator=cluster if plan.is_fenced else None,
                now=recording.clock.now,
            ),
            network=DrilledNetwork(proxy, plan.group) if plan.pairs else None,
            disks=disks,
            load=workload,
            replication=recording.replication,
            view=recording.view,
            timeline=recording.timeline,
            now=recording.clock.now,
            status_without_slaves=plan.group.status_without_slaves,
            expectations=recording.expectations,
        )
        await _create_topic(admin, plan, workload)
        clients = await _Clients.enter(stack, plan)
        watchers = await _watchers(stack, admin, plan, recording)
        # Inside of the clients: a nursery around them would be left before them.
        async with trio.open_nursery() as nursery:
            for watcher in watchers:
                nursery.start_soon(watcher)
            clients.start(nursery, workload)
            await _play_scenarios(stage, plan, recording)
            _note_end(recording)
            nursery.cancel_scope.cancel()


async def _watchers(
    stack: AsyncExitStack, admin: Admin, plan: Plan, recording: Recording
) -> list[Callable[[], Awaitable[None]]]:
    """What looks at the cluster while it is drilled; to be run until cancelled."""
    view = recording.view
    if view is None:
        return [partial(_watch, admin, plan.group, recording)]
    coordinator = connect(plan.coordinator)
    stack.push_async_callback(coordinator.aclose)
    keys = GroupKeys(plan.cluster, plan.group.name)
    found: list[Callable[[], Awaitable[None]]] = [
        partial(watch_records, coordinator, keys, view, recording.clock)
    ]
    for node in plan.group.nodes:
        # One connection set each: a frozen node must not hold up the answers of the others.
        asker = await stack.enter_async_context(Admin(_name_servers(plan)))
        found.append(
            partial(
                watch_node,
                asker,
                node.name,
                node.client_address,
                view,
                recording.replication,
                recording.clock,
            )
        )
    return found


def _note_end(recording: Recording) -> None:
    """Keep what the audit goes by: the last master, and up to where all logs must agree."""
    view = recording.view
    if view is None:
        return
    recording.master = view.master or (view.state.master if view.state else "")
    status = view.statuses.get(recording.master)
    if status is not None and not recording.stopped_because:
        recording.confirm = status.confirm
    else:
        recording.confirm = min(view.confirms.values(), default=0)


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
                # The drill sends again by itself, so that it can count the attempts.
                retry_times_when_send_failed=0,
                send_msg_timeout_ms=(
                    FENCED_ATTEMPT_MS if plan.is_fenced else plan.slave_timeout_ms + SEND_MARGIN_MS
                ),
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
    master = group.nodes[0].client_address
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
    rounds = [
        (scenario, number) for number in range(1, plan.repeat + 1) for scenario in plan.scenarios
    ]
    for place, (scenario, number) in enumerate(rounds):
        stage.bind(scenario.name if plan.repeat == 1 else f"{scenario.name} {number}")
        stage.load_seconds = plan.duration_seconds / len(plan.scenarios)
        left = stage.load.left_to_send()
        if place == len(rounds) - 1 and left:
            seconds = left / (plan.rate_per_second * REST_RATE_SHARE)
            stage.rest_seconds_max = max(REST_SECONDS_MIN, seconds)
        if not await _play_scenario(stage, scenario, recording):
            phase = recording.timeline.phase
            recording.stopped_because = f"{phase.scenario} could not go on after {phase.name}"
            return


async def _play_scenario(stage: Stage, scenario: Scenario, recording: Recording) -> bool:
    """Play one; return whether another may follow."""
    started_at = stage.now()
    outcome = PLAYED
    try:
        try:
            for step in scenario.steps:
                await play_step(stage, step)
        except NotPossibleError as error:
            outcome = f"{NOT_POSSIBLE}: {error}"
            await drain(stage)
    except UnmetError:
        outcome = ENDED_EARLY
    seconds, since = stage.unavailable()
    recording.runs.append(
        ScenarioRun(
            name=scenario.name,
            promise=scenario.promise,
            started_at_seconds=round(started_at, 3),
            ended_at_seconds=round(stage.now(), 3),
            outcome=outcome,
            unavailable_seconds=seconds,
            unavailable_from_seconds=since,
        )
    )
    return outcome != ENDED_EARLY
