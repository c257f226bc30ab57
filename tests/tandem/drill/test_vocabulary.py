"""What each sentence does, on a make-believe fenced group."""

import pytest
import trio
import trio.testing

from tandem.drill.outcomes import SEND_OK, UNKNOWN, SendMode
from tandem.drill.scenario import Expectation, NotPossibleError, UnmetError
from tandem.drill.scenario_file import catalogue, parse_scenario
from tandem.drill.vocabulary import SENTENCES, drain, match, play_step
from tests.tandem.drill.fake_world import MASTER, SLAVES, World
from tests.tandem.drill.samples import status


def failed(world: World) -> list[Expectation]:
    return [expectation for expectation in world.stage.expectations if not expectation.held]


async def play(world: World, *sentences: str) -> None:
    """Play sentences, after the load has begun."""
    lines = "".join(f"  - {sentence}\n" for sentence in ("start the load", *sentences))
    scenario = parse_scenario(f"promise: x\nsteps:\n{lines}", "a-scenario", "here")
    world.stage.bind("a-scenario")
    for step in scenario.steps:
        await play_step(world.stage, step)


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    found = World(is_fenced=True)
    nursery.start_soon(found.run)
    return found


async def test_a_killed_master_is_replaced_and_that_is_seen(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(
        world,
        "begin kill",
        "kill the master",
        "expect a new master within 5 s",
        "expect sends ok within 5 s",
        "start the old master",
        "check no election",
        "check at most one master",
    )
    assert failed(world) == [], "the election that was wanted is no reproach"
    assert world.master == SLAVES[0]
    assert [fault.text for fault in world.timeline.faults] == [
        f"kill -9 {MASTER}",
        f"start {MASTER}",
    ]


async def test_an_election_that_does_not_come_ends_the_scenario(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.elects = False
    with pytest.raises(UnmetError):
        await play(world, "begin kill", "kill the master", "expect a new master within 3 s")
    (expectation,) = failed(world)
    assert expectation.expected == "there is a new master"
    assert expectation.waited_seconds == pytest.approx(3.0, abs=0.1)


async def test_an_election_that_nobody_should_have_held_is_noted(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def elect_for_nothing() -> None:
        await trio.sleep(1)
        world.epoch = 2

    nursery.start_soon(elect_for_nothing)
    await play(world, "play 2 s", "check no election")
    assert [each.expected for each in failed(world)] == ["there was no election"]


async def test_being_unavailable_for_too_long_is_noted(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.elects = False
    await play(
        world,
        "begin freeze",
        "freeze the master",
        "play 6 s",
        "resume the old master",
        "expect sends ok within 5 s",
        "check unavailable at most 7 s",
        "check unavailable at most 2 s",
    )
    (expectation,) = failed(world)
    assert expectation.expected == "sync sends were acknowledged at least every 2 s"
    assert float(expectation.seen.split()[0]) == pytest.approx(6.0, abs=0.3)


async def test_two_nodes_that_both_take_sends_are_noted(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(world)
    assert world.view is not None
    world.view.node_said(0.0, 0.0, SLAVES[1], status(SLAVES[1], SLAVES[1], 1))
    (step,) = parse_scenario("promise: x\nsteps: [check at most one master]\n", "x", "here").steps
    await play_step(world.stage, step)
    assert failed(world)[0].seen == f"{MASTER}, {SLAVES[1]}"


async def test_a_send_that_did_not_end_well_is_noted(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    answers: list[str] = []

    def once_in_a_while(mode: SendMode) -> str:
        answers.append(mode)
        return UNKNOWN if mode == "sync" and len(answers) % 10 == 9 else SEND_OK

    world.answer = once_in_a_while
    await play(world, "begin steady", "play 1 s", "check all sends are ok")
    assert "UNKNOWN" in failed(world)[0].seen


async def test_links_are_cut_by_direction_and_port(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(
        world,
        "cut slave 1 from everything",
        "cut bytes from the master to the coordinator",
        "cut replication between the master and slave 2",
        "delay slave 1 and slave 2 by 50 ms",
        "limit bytes to slave 1 to 20 kB/s",
        "reset connections of slave 1",
        "disturb slave 2",
        "heal the network",
    )
    one, two = SLAVES
    assert world.done == [
        *(f"cut {a} {b}" for other in (MASTER, two) for a, b in ((one, other), (other, one))),
        f"cut {one} coordinator",
        f"cut coordinator {one}",
        f"cut {MASTER} coordinator",
        f"cut {MASTER} {two} replication",
        f"cut {two} {MASTER} replication",
        f"slow {one} {two} 0.05 0",
        f"slow {two} {one} 0.05 0",
        *(f"slow {other} {one} 0 20000" for other in (MASTER, two, "coordinator")),
        f"reset {one}",
        f"disturb {two}",
        "heal",
    ]


async def test_disks_are_filled_freed_and_damaged(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(world, "fill the disk of slave 1")
    assert world.full == {SLAVES[0]}
    await play(
        world,
        "free the disk of slave 1",
        "cut the last 4096 bytes of the log of slave 1",
        "garble the last 20 bytes of the log of slave 2",
    )
    assert world.full == set()
    assert world.done == [f"cut 4096 {SLAVES[0]}", f"garble 20 {SLAVES[1]}"]


async def test_what_this_machine_cannot_do_is_told_with_the_line(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.disks_possible = False
    with pytest.raises(NotPossibleError, match=r"line 4, 'fill the disk of slave 1': only root"):
        await play(world, "fill the disk of slave 1")
    assert failed(world) == []


async def test_orders_to_nobody_end_the_scenario_in_words(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(UnmetError):
        await play(world, "kill slave 7")
    assert failed(world)[0].seen == "there is no slave 7 now"


async def test_resigning_promoting_and_restarting_change_who_is_master(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(
        world,
        "ask the master to resign",
        "expect a new master within 5 s",
        "promote slave 2",
        "expect a new master within 5 s",
        "expect slave 2 to be master within 5 s",
        "restart the master",
        "expect a new master within 5 s",
    )
    assert world.epoch == 4
    assert failed(world) == []


async def test_whoever_is_down_is_started(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(world, "kill the slaves", "start whoever is down")
    assert set(world.up) == {MASTER, *SLAVES}


async def test_a_group_can_rest_and_work_again(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(world, "rest")
    assert not world.sending
    await play(world, "work again")
    assert world.sending


async def test_a_slave_leaves_the_in_sync_set(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(world, "kill slave 1", "expect slave 1 out of sync within 5 s")
    with pytest.raises(UnmetError):
        await play(world, "expect slave 2 out of sync within 1 s")


async def test_the_drain_waits_for_readers(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await play(world)
    world.reading = False
    with pytest.raises(UnmetError):
        await drain(world.stage)
    assert failed(world)[0].seen == "7 messages to go"


def test_every_sentence_is_used_or_can_be_matched() -> None:
    examples = {
        "{who}": "the master",
        "{other}": "everything",
        "{seconds}": "2.5",
        "{share}": "20",
        "{number}": "5",
        "{name}": "steady",
        "{mode}": "sync",
        "{statuses}": "SEND_OK or UNKNOWN",
    }
    for sentence in SENTENCES:
        text = sentence.template
        for place, example in examples.items():
            text = text.replace(place, example)
        found = match(text)
        assert found is not None, text
        assert found[0] is sentence, text
    assert match("bring me a coffee") is None
    used = {step.sentence.template for scenario in catalogue() for step in scenario.steps}
    assert len(used) > 30
