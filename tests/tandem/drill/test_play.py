"""How scenarios follow each other. Whole plays on real nodes: tests/faults/test_drill*.py."""

from pathlib import Path

import pytest
import trio
import trio.testing

from tandem.cluster.spec import NodeSpec
from tandem.drill.play import Plan, Recording, _note_end, _play_scenarios
from tandem.drill.preflight import CoordinatorSettings, Group
from tandem.drill.scenario_file import Scenario, parse_scenario
from tandem.drill.workload import Clock
from tandem.wire.group_state import GroupState, LeaderRecord
from tests.tandem.drill.fake_world import MASTER, SLAVES, World
from tests.tandem.drill.samples import status


def scenario(name: str, *sentences: str) -> Scenario:
    lines = "".join(f"  - {sentence}\n" for sentence in sentences)
    return parse_scenario(f"promise: x\nsteps:\n{lines}", name, name)


def group() -> Group:
    nodes = [
        NodeSpec(
            name=name,
            group="broker-a",
            broker_id=number,
            role="SLAVE",
            address="127.0.0.1",
            port=1,
            ha_port=2,
            name_server_port=3,
            directory=Path("data"),
        )
        for number, name in enumerate((MASTER, *SLAVES))
    ]
    return Group(name="broker-a", kind="fenced", nodes=nodes)


async def play(world: World, *scenarios: Scenario, repeat: int = 1) -> Recording:
    recording = Recording(Clock(0.0, 0.0), group())
    recording.timeline = world.timeline
    plan = Plan(
        config=Path("cluster.yaml"),
        cluster="c",
        group=group(),
        coordinator=CoordinatorSettings(),
        slave_timeout_ms=3000,
        max_message_size_bytes=1000,
        scenarios=scenarios,
        repeat=repeat,
        duration_seconds=4.0,
        rate_per_second=100,
        producers=[],
    )
    await _play_scenarios(world.stage, plan, recording)
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
HOPELESS = scenario("hopeless", "start the load", "kill slave 9", "drain")
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
    assert [run.outcome for run in recording.runs] == ["played"] * 3
    assert {phase.scenario for phase in world.timeline.phases} == {"kill 1", "kill 2", "kill 3"}
    assert all((run.unavailable_seconds or 0) < 1 for run in recording.runs)
    assert recording.stopped_because == ""


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
    assert recording.runs[1].outcome == "played"


def test_the_audit_goes_by_the_last_master_and_what_it_had_confirmed() -> None:
    recording = Recording(Clock(0.0, 0.0), group())
    view = recording.view
    assert view is not None
    state = GroupState(epoch=2, master=SLAVES[0], isr={}, min_isr=2)
    view.coordinator_said(0, 0, state, LeaderRecord(node=SLAVES[0], session="s", epoch=2))
    view.node_said(0, 0, SLAVES[0], status(SLAVES[0], SLAVES[0], 2))

    _note_end(recording)

    assert (recording.master, recording.confirm) == (SLAVES[0], 1000)


def test_after_a_play_that_ended_early_only_what_all_have_confirmed_is_compared() -> None:
    recording = Recording(Clock(0.0, 0.0), group())
    assert recording.view is not None
    recording.stopped_because = "it could not go on"
    recording.view.confirms = {MASTER: 500, SLAVES[0]: 300}

    _note_end(recording)

    assert recording.confirm == 300
