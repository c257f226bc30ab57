"""How scenarios follow each other. Whole plays on real nodes: tests/faults/test_drill*.py."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import trio
import trio.testing

from tandem.client import GroupNotFoundError, ReceivedMessage
from tandem.cluster_file.choices import GroupKind
from tandem.drill.consumers.lines import read_lines
from tandem.drill.consumers.names import GROUPS, Topics
from tandem.drill.java_witness import Delivery, WitnessJava
from tandem.drill.plan import Plan, TargetFacts
from tandem.drill.play import (
    CONSUMERS_LEDGER,
    QUEUE_COUNT,
    SEND_PAUSE_SECONDS,
    _consumer_load,
    _create_topic,
    _owed_reads,
    _retries,
    _stage,
    _witness,
    attempt_ms,
    play_scenarios,
)
from tandem.drill.recording import Recording
from tandem.drill.scenario import Seen
from tandem.drill.scenario_file import Scenario, parse_scenario
from tandem.drill.sentences.sentence import Fault
from tandem.drill.timeline import Timeline
from tandem.drill.workload import Clock
from tests.tandem.drill import samples
from tests.tandem.drill.fake_world import World


def scenario(name: str, *sentences: str) -> Scenario:
    lines = "".join(f"  - {sentence}\n" for sentence in sentences)
    return parse_scenario(f"promise: x\nsteps:\n{lines}", name, name)


async def play(
    world: World,
    *scenarios: Scenario,
    repeat: int = 1,
    faults: frozenset[Fault] = frozenset(Fault),
) -> Recording:
    recording = Recording(Clock(0.0, 0.0), samples.group(kind=GroupKind.FENCED))
    recording.timeline = world.timeline
    plan = samples.plan(*scenarios, kind=GroupKind.FENCED, repeat=repeat, duration_seconds=4.0)
    await play_scenarios(world.stage, plan, recording, faults)
    return recording


KILL = scenario(
    "kill",
    "start the load",
    "begin kill",
    "kill slave 1",
    "play 1 s",
    "start slave 1",
    "expect sends ok within 5 s",
    "drain",
)
FREEZE = scenario("freeze", "start the load", "freeze slave 1", "drain")
HOPELESS = scenario("hopeless", "start the load", "lose the disk of slave 1", "drain")
IMPOSSIBLE = scenario("impossible", "start the load", "fill the disk of slave 1", "play 99 s")


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    found = World(is_fenced=True)
    nursery.start_soon(found.run)
    return found


async def test_every_round_is_a_run_of_its_own(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    recording = await play(world, KILL, repeat=3)

    assert [run.name for run in recording.runs] == ["kill"] * 3
    assert [run.outcome for run in recording.runs] == ["ran to its end"] * 3
    assert {phase.scenario for phase in world.timeline.phases} == {"kill 1", "kill 2", "kill 3"}
    assert all((run.unavailable_seconds or 0) < 1 for run in recording.runs)
    assert recording.stopped_because == ""


async def test_nodes_are_given_time_to_write_after_the_last_run_that_is_played(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.owed = ""
    world.stage.settle_seconds = 60.0
    started = trio.current_time()

    await play(world, KILL, FREEZE, repeat=2, faults=frozenset(Fault) - {Fault.FREEZE})

    assert 60 < trio.current_time() - started < 120


async def test_a_scenario_that_cannot_go_on_ends_the_play(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    recording = await play(world, HOPELESS, KILL)

    assert [(run.name, run.outcome) for run in recording.runs] == [("hopeless", "ended early")]
    assert recording.stopped_because == "hopeless could not go on after start"


async def test_what_is_not_possible_here_is_told_and_others_are_played(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.disks_possible = False

    recording = await play(world, IMPOSSIBLE, KILL)

    assert recording.runs[0].outcome.startswith("not possible here: line 4")
    assert not recording.runs[0].is_possible
    assert recording.runs[1].outcome == "ran to its end"


async def test_what_the_target_cannot_do_is_not_begun(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    recording = await play(world, KILL, faults=frozenset((Fault.FREEZE,)))

    (run,) = recording.runs
    assert not run.is_possible
    assert "cannot kill a node" in run.outcome
    assert world.done == []
    assert recording.stopped_because == ""


async def test_a_scenario_for_more_nodes_than_there_are_is_not_begun(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    recording = await play(world, scenario("large", "start the load", "kill slave 9"), KILL)

    assert [run.is_possible for run in recording.runs] == [False, True]
    assert "slave 9" in recording.runs[0].outcome


async def test_what_a_fault_did_that_lasts_is_known_when_its_scenario_is_over(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    slow = scenario("slow", "start the load", "let syncs of slave 1 take 1 s longer", "drain")
    await play(world, slow, KILL)

    (effect,) = world.stage.effects.found
    assert (effect.scenario, effect.is_felt) == ("slow", True)


async def test_consumers_are_judged_by_the_wall_clock_of_now(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    plan = fenced_plan(1.0, TargetFacts(has_consumers=True))
    plan = msgspec.structs.replace(plan, out=tmp_path)
    (tmp_path / "data" / "logs").mkdir(parents=True)
    recording = Recording(Clock(0.0, 0.0), plan.group)
    before_ms = time.time_ns() / 1e6

    async with _consumer_load(plan, recording) as load:
        assert load is not None
        with trio.move_on_after(0.5):
            await load.read(GROUPS[0], "a member", Hopeless(), "a topic")

    (line,) = read_lines(tmp_path / CONSUMERS_LEDGER)
    assert before_ms - 1 <= line.at_ms <= time.time_ns() / 1e6 + 1


async def test_consumers_are_held_to_what_the_target_promises(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    for facts, counts in (
        (TargetFacts(has_consumers=True, rules={"consumers_member_ended": "of it"}), (1, 0)),
        (TargetFacts(has_consumers=True, not_promised={"consumers_member_ended": "of it"}), (0, 1)),
    ):
        plan = msgspec.structs.replace(fenced_plan(1.0, facts), out=tmp_path / str(counts))
        (plan.out / "data" / "logs").mkdir(parents=True)
        recording = Recording(Clock(0.0, 0.0), plan.group)
        async with _consumer_load(plan, recording) as load:
            assert load is not None
            with trio.move_on_after(0.5):
                await load.read(GROUPS[0], "a member", Hopeless(), "a topic")
        assert recording.promises is not None
        found = recording.promises.summary()
        assert (len(found.findings), len(found.not_promised)) == counts
        assert {each.reason for each in (*found.findings, *found.not_promised)} == {"of it"}


@pytest.mark.parametrize(("owed", "seconds"), [("", 6.0), (None, 0.0)])
async def test_nodes_are_given_time_to_write_where_groups_are_audited(
    world: World, owed: str | None, seconds: float
) -> None:
    world.owed = owed
    plan = fenced_plan(1.0, TargetFacts(settle_seconds=6.0))
    recording = Recording(Clock(0.0, 0.0), plan.group)
    running = SimpleNamespace(nodes=world, network=None)
    disks = {plan.group.name: world}
    stage = _stage(running, disks, plan, recording, world)  # type: ignore[arg-type]
    assert stage.settle_seconds == seconds


@pytest.mark.parametrize("has_consumers", [True, False])
async def test_the_load_waits_until_each_node_knows_each_topic_that_it_is_for(
    *, has_consumers: bool
) -> None:
    """A slave of RocketMQ that becomes master before it has copied a topic lacks it for good."""
    plan = fenced_plan(1.0, TargetFacts(has_consumers=has_consumers))
    created: list[str] = []
    awaited: list[str] = []

    async def create_topic(topic: str, **_: object) -> None:
        await trio.lowlevel.checkpoint()
        created.append(topic)

    async def note(topic: str) -> None:
        await trio.lowlevel.checkpoint()
        awaited.append(topic)

    async def topic_route(topic: str) -> None:
        await trio.lowlevel.checkpoint()
        assert topic == plan.topic

    admin = SimpleNamespace(create_topic=create_topic, topic_route=topic_route)
    running = SimpleNamespace(admin=admin, wait_for_topic=note)
    workload = SimpleNamespace(readers={})

    await _create_topic(running, plan, workload, ())  # type: ignore[arg-type]

    assert awaited == created == [plan.topic, *(Topics().queue_counts if has_consumers else ())]
    assert len(workload.readers) == QUEUE_COUNT


class Hopeless:
    """A client that an error ends at once."""

    async def consume(
        self,
        topic: str,
        handler: Callable[[ReceivedMessage], Awaitable[object]],
        *,
        concurrency: int = 1,
    ) -> None:
        await trio.lowlevel.checkpoint()
        raise GroupNotFoundError(topic)


def fenced_plan(patience: float, target: TargetFacts | None = None) -> Plan:
    plan = samples.plan(KILL, kind=GroupKind.FENCED)
    options = msgspec.structs.replace(plan.options, patience=patience)
    return msgspec.structs.replace(plan, options=options, target=target or TargetFacts())


def test_patience_gives_sends_and_their_attempts_more_time() -> None:
    usual, patient = fenced_plan(1.0), fenced_plan(4.0)
    before, after = _retries(usual), _retries(patient)

    assert before is not None
    assert after is not None
    assert after.deadline_seconds == 4 * before.deadline_seconds
    assert after.pause_seconds == 4 * before.pause_seconds
    assert attempt_ms(patient) == 4 * attempt_ms(usual)


def test_a_target_that_says_how_long_sends_take_is_believed_and_patience_adds_to_that() -> None:
    facts = TargetFacts(attempt_ms=5_000, send_seconds_max=120.0, patience=3.0)
    retries = _retries(fenced_plan(2.0, facts))

    assert retries is not None
    assert retries.deadline_seconds == 240.0
    assert retries.pause_seconds == 6 * SEND_PAUSE_SECONDS
    assert attempt_ms(fenced_plan(2.0, facts)) == 5_000


def test_a_classic_group_is_sent_to_once_and_answers_before_the_client_gives_up() -> None:
    plan = samples.plan(KILL, kind=GroupKind.CLASSIC)

    assert _retries(plan) is None
    assert attempt_ms(plan) > plan.slave_timeout_ms


@pytest.fixture
async def two(nursery: trio.Nursery) -> tuple[World, World]:
    shown = Timeline()
    beside = World(is_fenced=True, name="broker-b", whole=shown)
    hurt = World(is_fenced=True, others=[beside], timeline=shown)
    nursery.start_soon(hurt.run)
    nursery.start_soon(beside.run)
    return hurt, beside


async def play_two(two: tuple[World, World], *sentences: str) -> tuple[Recording, Recording]:
    """Play on two groups; return what was seen of each."""
    hurt, beside = two
    recording = Recording(Clock(0.0, 0.0), samples.group(kind=GroupKind.FENCED))
    recording.timeline = hurt.timeline
    recording.expectations = hurt.stage.expectations
    own = Recording(Clock(0.0, 0.0), samples.group(kind=GroupKind.FENCED))
    own.timeline = beside.timeline
    recording.beside = {"broker-b": own}
    steps = ("start the load", *sentences, "drain")
    plan = samples.plan(scenario("two", *steps), kind=GroupKind.FENCED, duration_seconds=4.0)
    await play_scenarios(hurt.stage, plan, recording)
    return recording, own


async def test_another_group_has_load_and_is_calm_while_one_is_hurt(
    two: tuple[World, World], autojump_clock: trio.testing.MockClock
) -> None:
    hurt, beside = two
    recording, own = await play_two(two, "begin kill", "kill the master", "play 2 s")

    assert [run.outcome for run in recording.runs] == ["ran to its end"]
    assert len(hurt.up) == 2
    assert len(beside.up) == 3
    assert [phase.name for phase in beside.timeline.phases] == ["start", "kill", "drain"]
    assert beside.timeline.phases[1].count("sync", "SEND_OK") > 30
    assert not beside.sending
    (calm,) = own.calm
    assert (recording.calm, calm.scenario) == ([], "two")
    assert calm.until_seconds - calm.from_seconds == pytest.approx(2.0, abs=0.5)


@pytest.mark.parametrize("whose", ["of group broker-b", "in another group"])
async def test_a_sentence_may_mean_another_group(
    two: tuple[World, World], autojump_clock: trio.testing.MockClock, whose: str
) -> None:
    hurt, beside = two
    recording, own = await play_two(
        two,
        "begin kill",
        f"kill the master {whose}",
        f"expect a new master within 5 s {whose}",
        "check no election",
        f"start the old master {whose}",
    )

    seen = [*hurt.stage.expectations, *beside.stage.expectations]
    assert all(each.held for each in seen), seen
    assert any(each.expected == "broker-b: there is a new master" for each in seen)
    assert [run.outcome for run in recording.runs] == ["ran to its end"]
    assert (hurt.epoch, beside.epoch) == (1, 2)
    assert own.calm == []
    assert len(recording.calm) == 1
    (shown,) = hurt.timeline.faults
    assert not shown.hurts, "nothing was done to the group itself"


async def test_what_is_done_to_the_coordinator_is_done_to_all(
    two: tuple[World, World], autojump_clock: trio.testing.MockClock
) -> None:
    recording, own = await play_two(two, "stop the coordinator", "start the coordinator")
    assert (recording.calm, own.calm) == ([], [])


async def test_without_another_group_a_sentence_that_means_one_is_not_possible(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    (run,) = (
        await play(
            world, scenario("x", "start the load", "kill the master of another group", "drain")
        )
    ).runs
    assert not run.is_possible


def test_readers_have_to_see_what_the_last_master_was_promised_to_have() -> None:
    elects = samples.plan(KILL, kind=GroupKind.FENCED)
    assert _owed_reads(elects) == {("sync", "SEND_OK")}
    assert _owed_reads(samples.plan(KILL, kind=GroupKind.CLASSIC)) is None
    free = TargetFacts(not_promised={"sync_lost": "why", "read_out_of_order": "why"})
    assert _owed_reads(msgspec.structs.replace(elects, target=free)) == ()


async def test_a_witness_that_is_ahead_of_our_readers_for_a_moment_is_not_wrong(
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """They are not waited for where the next master might lack what it was given."""
    world = World(is_fenced=True)
    recording = Recording(Clock(0.0, 0.0), samples.group(kind=GroupKind.FENCED))
    world.timeline.start_phase(0.0, "kill", "drain")
    given = [Delivery(0, offset, offset, 0, f"async-1-{offset}") for offset in range(3)]

    @asynccontextmanager
    async def witnessing(*_: object) -> AsyncIterator[SimpleNamespace]:
        await trio.lowlevel.checkpoint()
        yield SimpleNamespace(
            deliveries=given,
            places={each.place for each in given},
            seen=lambda ours: Seen(held=True, text=f"{len(ours)} messages"),
        )

    async def read() -> None:
        await trio.sleep(1)
        recording.reads |= {each.place: each.content for each in given}

    monkeypatch.setattr("tandem.drill.play.witnessing", witnessing)
    java = WitnessJava(java="java", class_path="", version="5.3.3")
    plan = msgspec.structs.replace(samples.plan(KILL, kind=GroupKind.FENCED), witness=java)

    nursery.start_soon(read)
    async with _witness(world.stage, plan, recording):
        pass

    assert recording.witness is not None
    assert (recording.witness.deliveries, recording.witness.promises_broken) == (3, 0)
