"""Plays the scenarios on a real cluster: nodes, load, watch on replication, live view.

    the target                      from the first start to the last exit
      fault proxy, small disks      if a scenario needs them
      clients                       one connection set per producer and reader
        producers, readers, watch, live view
          the scenarios, one after the other

A `Plan` says what is asked; a `Recording` takes what is seen. The caller owns it, so that an
interrupted drill can still say what it saw. Cancelling `play` kills the nodes at once.
"""

import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Final

import trio
from rich.console import Console

from tandem.client import ClientError, MessageQueue, Producer, PullConsumer
from tandem.drill.breakable import Disks, Load
from tandem.drill.consumers.both_loads import BothLoads
from tandem.drill.consumers.client_log import client_log
from tandem.drill.consumers.clients import consumer_tasks, create_topics
from tandem.drill.consumers.load import ConsumerLoad
from tandem.drill.consumers.names import groups_of
from tandem.drill.consumers.promises import Promises
from tandem.drill.errors import NotReadyError
from tandem.drill.java_witness import finish as finish_witness
from tandem.drill.java_witness import witnessing
from tandem.drill.judgement import READS
from tandem.drill.ledger import Ledger
from tandem.drill.live import LiveView
from tandem.drill.lost_leases import Late, is_slow
from tandem.drill.orders import BodySource, Orders
from tandem.drill.outcomes import SEND_OK
from tandem.drill.plan import Plan
from tandem.drill.recording import Recording
from tandem.drill.scenario import (
    ENDED_EARLY,
    LOOK_SECONDS,
    NOT_POSSIBLE,
    PLAYED,
    NotPossibleError,
    ScenarioRun,
    Seen,
    Stage,
    UnmetError,
    until,
)
from tandem.drill.scenario_file import Scenario
from tandem.drill.sentences.load import drain
from tandem.drill.sentences.sentence import Fault
from tandem.drill.spark_stream import finish, order_of, streaming
from tandem.drill.subjects import too_few
from tandem.drill.targets.target import Running, Target, Task, cannot
from tandem.drill.undisturbed import CalmTime
from tandem.drill.watch import watch_lateness
from tandem.drill.witness_audit import compare_witness
from tandem.drill.workload import QueueReader, Retries, Workload

CONSUMERS_LEDGER: Final = "consumers.ndjson"
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

SEND_PAUSE_SECONDS: Final = 0.05
CONSUMERS_PAUSE_SECONDS: Final = 0.5
"""Between two attempts of a send. Each asks all name servers while there is no master, and the
coordinator of a local cluster is in the process of the drill: it has to get its turn."""

STREAM_TAKES_TIME: Final = (
    "starting Java and Spark for the stream: the load begins when it is ready, after 10 s or more"
)

READ_SECONDS_MAX: Final = 10.0
"""For our readers, to read what another client was given already."""

REST_SECONDS_MIN: Final = 30.0
REST_RATE_SHARE: Final = 0.25
"""The rest of an input file may take four times as long as the rate says."""


async def play(
    plan: Plan,
    target: Target,
    recording: Recording,
    source: BodySource,
    ledger: Ledger,
    disks: Mapping[str, Disks],
    console: Console,
) -> None:
    """Start the cluster, play all scenarios, stop the cluster. `disks`: those of each group.

    A scenario that cannot go on ends the play and is named in the recording.

    Raises:
        DrillError, ClusterError: in a group; the cluster or a client could not be started, or the
            ledger not be written.
    """
    workload = _workload(plan, recording, source, ledger)
    try:
        async with (
            _consumer_load(plan, recording) as consumers,
            _cluster_under_load(
                plan, target, recording, workload, consumers, disks, console
            ) as stage,
        ):
            async with _witness(stage, plan, recording):
                if plan.options.spark_stream:
                    await _play_beside_a_stream(stage, plan, target, recording, console)
                else:
                    await play_scenarios(stage, plan, recording, target.faults)
            for each in (recording, *recording.beside.values()):
                each.note_end()
    finally:
        for each in (recording, *recording.beside.values()):
            each.ended_at = recording.clock.now()
            each.timeline.end_phase(each.ended_at)
        recording.input_lines = source.line_count
        recording.input_lines_acknowledged = source.acknowledged_count


def _workload(plan: Plan, recording: Recording, source: BodySource, ledger: Ledger) -> Workload:
    """Return the load of a group; its first phase begins."""
    found = Workload(
        topic=plan.topic,
        source=source,
        ledger=ledger,
        timeline=recording.timeline,
        clock=recording.clock,
        rate_per_second=plan.rate_per_second,
        producers=plan.producers,
        retries=_retries(plan),
        refusal_is_clear=plan.target.refusal_is_clear,
        reads=None if plan.witness is None else recording.reads,
        owed_reads=_owed_reads(plan),
    )
    recording.disorder = found.disorder
    recording.timeline.start_phase(recording.clock.now(), plan.scenarios[0].name, "start")
    return found


def _owed_reads(plan: Plan) -> Collection[tuple[str, str]] | None:
    """Return the sends that readers have to see at the end, as the audit has them in the log.

    In a group that elects its master, no other answer promises that the last one has the message.
    """
    if READS in plan.target.not_promised:
        return ()
    return {("sync", SEND_OK)} if plan.is_fenced else None


def wall_ms() -> float:
    """Return the wall clock of now, in milliseconds since 1970."""
    return time.time_ns() / 1e6


@asynccontextmanager
async def _consumer_load(plan: Plan, recording: Recording) -> AsyncIterator[ConsumerLoad | None]:
    """Give the consumers' load with its ledger open, or None where consumers are not audited."""
    topics = plan.consumer_topics
    if topics is None:
        yield None
        return
    recording.promises = Promises(
        groups_of(topics), not_promised=plan.target.not_promised, rules=plan.target.rules
    )
    log = plan.out / "data" / "logs" / "consumers.log"
    with Ledger(plan.out / CONSUMERS_LEDGER) as ledger, client_log(log):
        yield ConsumerLoad(
            ledger=ledger,
            promises=recording.promises,
            wall_ms=wall_ms,
            broker_of=lambda _: plan.group.name,
            topics=topics,
            retries=_retries(plan, CONSUMERS_PAUSE_SECONDS),
            refusal_is_clear=plan.target.refusal_is_clear,
            chance=Random(plan.options.seed),
        )


@asynccontextmanager
async def _cluster_under_load(
    plan: Plan,
    target: Target,
    recording: Recording,
    workload: Workload,
    consumers: ConsumerLoad | None,
    disks: Mapping[str, Disks],
    console: Console,
) -> AsyncIterator[Stage]:
    """Have a target with everything around it; give what scenarios act on."""
    view = LiveView(
        console=console,
        timeline=recording.timeline,
        expectations=recording.expectations,
        replication=recording.replication,
        left_to_read=workload.left_to_read,
        now=recording.clock.now,
    )
    async with trio.open_nursery() as outer:
        outer.start_soon(view.run)
        outer.start_soon(watch_lateness, recording.lateness, recording.clock)
        async with target.running(plan, recording) as running, AsyncExitStack() as stack:
            await _create_topic(running, plan, workload, recording.lateness)
            recording.ready_at = recording.clock.now()
            tasks = [*running.watchers, *await _clients(stack, plan, workload)]
            if consumers is not None:
                tasks += await consumer_tasks(
                    stack,
                    plan.access,
                    consumers,
                    attempt_ms=attempt_ms(plan),
                    has_timers=plan.target.has_timers and running.has_timers,
                )
            others = []
            for other, hurtable in zip(plan.others, running.others, strict=True):
                stage, more = await _beside(stack, hurtable, other, recording, disks)
                others.append(stage)
                tasks += more
            # Inside of the clients: a nursery around them would be left before them.
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(task)
                loads = BothLoads(workload, consumers)
                yield _stage(running, disks, plan, recording, loads, others)
                nursery.cancel_scope.cancel()
        outer.cancel_scope.cancel()


async def _beside(
    stack: AsyncExitStack,
    running: Running,
    plan: Plan,
    recording: Recording,
    disks: Mapping[str, Disks],
) -> tuple[Stage, list[Task]]:
    """Return the stage of one more group of the cluster, and what goes on there."""
    own = recording.beside[plan.group.name]
    ledger = stack.enter_context(Ledger(plan.out / "ledger.ndjson"))
    workload = _workload(plan, own, Orders(plan.options.seed), ledger)
    await _create_topic(running, plan, workload, recording.lateness)
    tasks = [*running.watchers, *await _clients(stack, plan, workload)]
    loads = BothLoads(workload, None)
    return _stage(running, disks, plan, own, loads, whole=recording), tasks


def _stage(
    running: Running,
    disks: Mapping[str, Disks],
    plan: Plan,
    recording: Recording,
    load: Load,
    others: Sequence[Stage] = (),
    whole: Recording | None = None,
) -> Stage:
    return Stage(
        name=plan.group.name,
        others=others,
        whole=None if whole is None else whole.timeline,
        nodes=[node.name for node in plan.group.nodes],
        cluster=running.nodes,
        network=running.network,
        disks=disks[plan.group.name],
        load=load,
        replication=recording.replication,
        watched=recording.watched,
        timeline=recording.timeline,
        now=recording.clock.now,
        status_without_slaves=plan.group.status_without_slaves,
        expectations=(whole or recording).expectations,
        seed=plan.options.seed,
        patience=plan.patience,
        settle_seconds=plan.target.settle_seconds if load.left_to_handle() is not None else 0.0,
        machines=plan.machines,
        effects=(whole or recording).effects,
    )


async def _create_topic(
    running: Running, plan: Plan, workload: Workload, lateness: Sequence[Late]
) -> None:
    """Create the drill's topic and wait until clients can find it.

    Raises:
        NotReadyError: they could not in time.
    """
    broker_name = plan.group.name
    reason, admin, topics = "no answer", running.admin, plan.consumer_topics
    seconds_max = max(TOPIC_SECONDS_MAX * plan.patience, plan.target.topic_copy_seconds)
    with trio.move_on_after(seconds_max):
        while True:
            try:
                await admin.create_topic(
                    plan.topic, queue_nums=QUEUE_COUNT, broker_name=broker_name
                )
                if topics is not None:
                    await create_topics(admin, broker_name, topics)
                await admin.topic_route(plan.topic)
            except ClientError as error:
                reason = str(error)
                await trio.sleep(LOOK_SECONDS)
            else:
                reason = "not every node knows it"
                await running.wait_for_topic(plan.topic)
                for topic in topics.queue_counts if topics is not None else ():
                    await running.wait_for_topic(topic)
                for queue_id in range(QUEUE_COUNT):
                    queue = MessageQueue(plan.topic, broker_name, queue_id)
                    workload.readers[queue_id] = QueueReader(queue)
                return
    late_seconds = max((each.seconds for each in lateness), default=0.0)
    raise NotReadyError(
        f"topic {plan.topic} could not be created in {seconds_max:g} s: {reason}",
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
            send_msg_timeout_ms=attempt_ms(plan),
            max_message_size_bytes=plan.max_message_size_bytes,
        )
        tasks.append(partial(workload.produce, state, await stack.enter_async_context(producer)))
    consumers = [
        await stack.enter_async_context(PullConsumer(plan.access, group=plan.readers_group))
        for _ in range(READER_CLIENTS)
    ]
    for number, reader in enumerate(workload.readers.values()):
        tasks.append(partial(workload.read_along, reader, consumers[number % READER_CLIENTS]))
    rereader = PullConsumer(plan.access, group=plan.rereaders_group)
    tasks.append(partial(workload.reread, await stack.enter_async_context(rereader)))
    return tasks


def _retries(plan: Plan, pause_seconds: float = SEND_PAUSE_SECONDS) -> Retries | None:
    if not plan.is_fenced:
        return None
    seconds_max = plan.target.send_seconds_max or FENCED_SEND_SECONDS_MAX
    return Retries(seconds_max * plan.options.patience, pause_seconds * plan.patience)


def attempt_ms(plan: Plan) -> int:
    """How long one attempt of a send waits for its answer."""
    if plan.target.attempt_ms is not None:
        return plan.target.attempt_ms
    if plan.is_fenced:
        return round(FENCED_ATTEMPT_MS * plan.patience)
    return plan.slave_timeout_ms + SEND_MARGIN_MS


async def _play_beside_a_stream(
    stage: Stage, plan: Plan, target: Target, recording: Recording, console: Console
) -> None:
    """Play while a Spark stream reads; then it has to read what is left."""
    log = plan.out / "data" / "logs" / "spark-stream.log"
    console.print(STREAM_TAKES_TIME, highlight=False, soft_wrap=True)
    async with streaming(order_of(plan, plan.topic), log) as stream:
        stage.check("a Spark stream reads the topic", Seen(held=True, text="ready"))
        await play_scenarios(stage, plan, recording, target.faults)
        # Expectations that were not seen are in the recording.
        with suppress(UnmetError):
            await finish(stream, stage)


@asynccontextmanager
async def _witness(stage: Stage, plan: Plan, recording: Recording) -> AsyncIterator[None]:
    """Have another client consume meanwhile; then it has to be given what is left."""
    java = plan.witness
    if java is None:
        yield
        return
    async with witnessing(java, plan.name_servers, plan.topic, plan.out) as witness:
        stage.check("Java's consumer has started", Seen(held=True, text=java.client))
        yield
        # Expectations that were not seen are in the recording.
        with suppress(UnmetError):
            await finish_witness(witness, stage, recording.reads)
        # It may be ahead by what our readers need not see, and are about to.
        with trio.move_on_after(READ_SECONDS_MAX * plan.patience):
            await until(lambda: witness.places <= recording.reads.keys())
        given = [(each.place, each.content) for each in witness.deliveries]
        recording.witness = compare_witness(
            java.client, given, recording.reads, is_whole=not recording.stopped_because
        )


async def play_scenarios(
    stage: Stage, plan: Plan, recording: Recording, faults: frozenset[Fault] = frozenset(Fault)
) -> None:
    """Play every round, until a scenario cannot go on: then the recording says which.

    One that needs more than the target's `faults` is not played.
    """
    rounds = plan.rounds()
    why_nots = [
        cannot(plan.target.name, faults, scenario) or too_few(scenario, stage.roles.nodes)
        for _, scenario in rounds
    ]
    for place, (name, scenario) in enumerate(rounds):
        stage.bind(name)
        for each in stage.every:
            each.is_last = all(why_nots[place + 1 :])
        stage.load_seconds = plan.duration_seconds / len(plan.scenarios)
        left = stage.load.left_to_send()
        if place == len(rounds) - 1 and left:
            seconds = left / (plan.rate_per_second * REST_RATE_SHARE)
            stage.rest_seconds_max = max(REST_SECONDS_MIN, seconds)
        why_not = why_nots[place]
        played = _not_played(stage, scenario, why_not) if why_not else None
        played = played or await _play_scenario(stage, scenario)
        _note_calm(stage, scenario, recording)
        recording.runs.append(played)
        recording.exits.update(stage.cluster.unexpected_exits())
        if played.outcome == ENDED_EARLY:
            phase = recording.timeline.phase
            recording.stopped_because = f"{phase.scenario} could not go on after {phase.name}"
            return


def _note_calm(stage: Stage, scenario: Scenario, recording: Recording) -> None:
    """Note for each group when others were hurt and it was not.

    What is done to the coordinator is done to all of them.
    """
    if Fault.COORDINATOR in scenario.faults:
        return
    hurt = [each.first_fault_at for each in stage.every if each.first_fault_at is not None]
    for each in stage.every if hurt else ():
        if each.first_fault_at is None:
            until = stage.now() if each.drained_at is None else each.drained_at
            of_group = recording if each is stage else recording.beside[each.name]
            of_group.calm.append(CalmTime(stage.scenario, min(hurt), until))


def _not_played(stage: Stage, scenario: Scenario, why_not: str) -> ScenarioRun:
    at = round(stage.now(), 3)
    return ScenarioRun(
        name=scenario.name,
        promise=scenario.promise,
        started_at_seconds=at,
        ended_at_seconds=at,
        outcome=f"{NOT_POSSIBLE}: {why_not}",
        unavailable_seconds=None,
        unavailable_from_seconds=None,
    )


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
    stage.effects.end_all()
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
