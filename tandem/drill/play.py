"""Plays the scenarios on a real cluster: nodes, load, watch on replication, live view.

    nodes (LocalCluster)            from the first start to the last exit
      fault proxy, small disks      if a scenario needs them
      clients                       one connection set per producer and reader
        producers, readers, watch, live view
          the scenarios, one after the other

A `Plan` says what is asked; a `Recording` takes what is seen. The caller owns it, so that an
interrupted drill can still say what it saw. Cancelling `play` kills the nodes at once.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final

import trio
from rich.console import Console

from tandem.client import Admin, ClientError, MessageQueue, Producer, PullConsumer
from tandem.client.cluster_access import ClusterAccess
from tandem.cluster.local_cluster import LocalCluster
from tandem.coordinator.client import connect
from tandem.drill.drilled import DrilledNetwork, DrilledNodes
from tandem.drill.errors import NotReadyError
from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.ledger import Ledger
from tandem.drill.live import LiveView
from tandem.drill.lost_leases import Late, is_slow
from tandem.drill.orders import BodySource
from tandem.drill.plan import Plan
from tandem.drill.recording import Recording
from tandem.drill.scenario import (
    ENDED_EARLY,
    LOOK_SECONDS,
    NOT_POSSIBLE,
    PLAYED,
    Disks,
    NotPossibleError,
    ScenarioRun,
    Seen,
    Stage,
    UnmetError,
)
from tandem.drill.scenario_file import Scenario
from tandem.drill.sentences.load import drain
from tandem.drill.spark_stream import finish, order_of, streaming
from tandem.drill.watch import (
    watch_classic_master,
    watch_lateness,
    watch_node,
    watch_records,
)
from tandem.drill.workload import QueueReader, Retries, Workload
from tandem.wire.group_state import GroupKeys

TOPIC: Final = "tandem-drill"
QUEUE_COUNT: Final = 4
READER_CLIENTS: Final = 2
"""Queues are shared out among this many consumers."""

TOPIC_SECONDS_MAX: Final = 20.0

SEND_MARGIN_MS: Final = 2_000
"""A client waits this much longer than the master waits for other nodes, to hear its verdict."""

FENCED_ATTEMPT_MS: Final = 1_500
"""One attempt of a send to a fenced group: shorter than its master waits for followers, because a
frozen master never answers, and sending again is harmless there."""

FENCED_SEND_SECONDS_MAX: Final = 45.0
"""All attempts of a send together: longer than the slowest failover of the catalogue."""

STREAM_TAKES_TIME: Final = (
    "starting Java and Spark for the stream: the load begins when it is ready, after 10 s or more"
)

REST_SECONDS_MIN: Final = 30.0
REST_RATE_SHARE: Final = 0.25
"""The rest of an input file may take four times as long as the rate says."""


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
    recording.timeline.start_phase(recording.clock.now(), plan.scenarios[0].name, "start")
    try:
        async with _cluster_under_load(plan, recording, workload, disks, console) as stage:
            if plan.options.spark_stream:
                await _play_beside_a_stream(stage, plan, recording, console)
            else:
                await play_scenarios(stage, plan, recording)
            recording.note_end()
    finally:
        recording.ended_at = recording.clock.now()
        recording.timeline.end_phase(recording.ended_at)
        recording.input_lines = source.line_count
        recording.input_lines_acknowledged = source.acknowledged_count


@asynccontextmanager
async def _cluster_under_load(
    plan: Plan, recording: Recording, workload: Workload, disks: Disks, console: Console
) -> AsyncIterator[Stage]:
    """Have a cluster with everything around it; give what scenarios act on."""
    view = LiveView(
        console=console,
        timeline=recording.timeline,
        expectations=recording.expectations,
        replication=recording.replication,
        left_to_read=workload.left_to_read,
        now=recording.clock.now,
    )
    proxy = FaultProxy(plan.pairs)
    async with trio.open_nursery() as outer:
        outer.start_soon(view.run)
        outer.start_soon(watch_lateness, recording.lateness, recording.clock)
        await outer.start(proxy.run)
        async with LocalCluster(plan.config) as cluster, AsyncExitStack() as stack:
            await cluster.start()
            secret = cluster.spec.read_secret()
            access = ClusterAccess(plan.name_servers, secret=secret, tls=plan.tls)
            admin = await stack.enter_async_context(Admin(access))
            await _create_topic(admin, plan, workload, recording.lateness)
            recording.ready_at = recording.clock.now()
            tasks = [
                *await _watchers(stack, admin, plan, recording, secret),
                *await _clients(stack, plan, workload),
            ]
            # Inside of the clients: a nursery around them would be left before them.
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(task)
                yield _stage(cluster, proxy, admin, disks, plan, recording, workload)
                nursery.cancel_scope.cancel()
        outer.cancel_scope.cancel()


def _stage(
    cluster: LocalCluster,
    proxy: FaultProxy,
    admin: Admin,
    disks: Disks,
    plan: Plan,
    recording: Recording,
    workload: Workload,
) -> Stage:
    return Stage(
        nodes=[node.name for node in plan.group.nodes],
        cluster=DrilledNodes(
            cluster,
            watched=recording.watched,
            orders=admin if plan.is_fenced else None,
            coordinator=cluster if plan.is_fenced else None,
            group=plan.group.name,
            now=recording.clock.now,
        ),
        network=DrilledNetwork(proxy, plan.group) if plan.pairs else None,
        disks=disks,
        load=workload,
        replication=recording.replication,
        watched=recording.watched,
        timeline=recording.timeline,
        now=recording.clock.now,
        status_without_slaves=plan.group.status_without_slaves,
        expectations=recording.expectations,
        seed=plan.options.seed,
    )


Task = Callable[[], Awaitable[None]]
"""Runs until it is cancelled."""


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
    found: list[Task] = [partial(watch_records, coordinator, keys, watched, clock)]
    for node in plan.group.nodes:
        # One connection set each: a frozen node must not hold up the answers of the others.
        asker = await stack.enter_async_context(Admin(plan.access))
        address = node.client_address
        found.append(
            partial(watch_node, asker, node.name, address, watched, recording.replication, clock)
        )
    return found


async def _create_topic(
    admin: Admin, plan: Plan, workload: Workload, lateness: Sequence[Late]
) -> None:
    """Create the drill's topic and wait until clients can find it.

    Raises:
        NotReadyError: they could not in time.
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
    late_seconds = max((each.seconds for each in lateness), default=0.0)
    raise NotReadyError(
        f"topic {TOPIC} could not be created in {TOPIC_SECONDS_MAX:g} s: {reason}",
        late_seconds=late_seconds,
        machine_was_slow=is_slow(late_seconds, plan.coordinator.lease_ttl_ms / 1000),
    )


async def _clients(stack: AsyncExitStack, plan: Plan, workload: Workload) -> list[Task]:
    """A client for each producer of the plan, two that read along, one that reads again.

    The stack closes them. Returns the work of each.
    """
    tasks: list[Task] = []
    for state in workload.producers:
        producer = Producer(
            plan.access,
            group="tandem-drill-producers",
            wait_store_msg_ok=state.mode == "sync",
            # The drill sends again by itself, so that it can count the attempts.
            retry_times_when_send_failed=0,
            resend_until_ok=False,
            send_msg_timeout_ms=(
                FENCED_ATTEMPT_MS if plan.is_fenced else plan.slave_timeout_ms + SEND_MARGIN_MS
            ),
            max_message_size_bytes=plan.max_message_size_bytes,
        )
        tasks.append(partial(workload.produce, state, await stack.enter_async_context(producer)))
    consumers = [
        await stack.enter_async_context(PullConsumer(plan.access, group="tandem-drill-readers"))
        for _ in range(READER_CLIENTS)
    ]
    for number, reader in enumerate(workload.readers.values()):
        tasks.append(partial(workload.read_along, reader, consumers[number % READER_CLIENTS]))
    rereader = PullConsumer(plan.access, group="tandem-drill-rereaders")
    tasks.append(partial(workload.reread, await stack.enter_async_context(rereader)))
    return tasks


async def _play_beside_a_stream(
    stage: Stage, plan: Plan, recording: Recording, console: Console
) -> None:
    """Play while a Spark stream reads; then it has to read what is left."""
    log = plan.out / "data" / "logs" / "spark-stream.log"
    console.print(STREAM_TAKES_TIME, highlight=False, soft_wrap=True)
    async with streaming(order_of(plan, TOPIC), log) as stream:
        stage.check("a Spark stream reads the topic", Seen(held=True, text="ready"))
        await play_scenarios(stage, plan, recording)
        # Expectations that were not seen are in the recording.
        with suppress(UnmetError):
            await finish(stream, stage)


async def play_scenarios(stage: Stage, plan: Plan, recording: Recording) -> None:
    """Play every round, until a scenario cannot go on: then the recording says which."""
    rounds = plan.rounds()
    for place, (name, scenario) in enumerate(rounds):
        stage.bind(name)
        stage.load_seconds = plan.duration_seconds / len(plan.scenarios)
        left = stage.load.left_to_send()
        if place == len(rounds) - 1 and left:
            seconds = left / (plan.rate_per_second * REST_RATE_SHARE)
            stage.rest_seconds_max = max(REST_SECONDS_MIN, seconds)
        played = await _play_scenario(stage, scenario)
        recording.runs.append(played)
        recording.exits.update(stage.cluster.unexpected_exits())
        if played.outcome == ENDED_EARLY:
            phase = recording.timeline.phase
            recording.stopped_because = f"{phase.scenario} could not go on after {phase.name}"
            return


async def _play_scenario(stage: Stage, scenario: Scenario) -> ScenarioRun:
    started_at = stage.now()
    outcome = PLAYED
    try:
        try:
            for step in scenario.steps:
                await step.play(stage)
        except NotPossibleError as error:
            outcome = f"{NOT_POSSIBLE}: {error}"
            await drain(stage)
    except UnmetError:
        outcome = ENDED_EARLY
    seconds, since = stage.unavailable()
    return ScenarioRun(
        name=scenario.name,
        promise=scenario.promise,
        started_at_seconds=round(started_at, 3),
        ended_at_seconds=round(stage.now(), 3),
        outcome=outcome,
        unavailable_seconds=seconds,
        unavailable_from_seconds=since,
    )
