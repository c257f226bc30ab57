"""How scenarios follow each other. Whole plays on real nodes: tests/faults/test_drill*.py."""

import pytest
import trio
import trio.testing

from tandem.cluster_file.choices import GroupKind
from tandem.drill.play import play_scenarios
from tandem.drill.recording import Recording
from tandem.drill.scenario_file import Scenario, parse_scenario
from tandem.drill.sentences.sentence import Fault
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
    assert [run.outcome for run in recording.runs] == ["ran to its end"] * 3
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
