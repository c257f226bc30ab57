import contextlib

import pytest
import trio
import trio.testing

from tandem.drill.outcomes import SEND_OK, UNKNOWN, SendMode
from tandem.drill.scenario import NotPossibleError, UnmetError
from tandem.drill.scenario_file import parse_scenario
from tandem.drill.sentences.expectations import bad_status
from tests.tandem.drill.fake_world import MASTER, SLAVES, World
from tests.tandem.drill.samples import status


async def test_an_election_that_does_not_come_ends_the_scenario(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.elects = False
    with pytest.raises(UnmetError):
        await world.play("begin kill", "kill the master", "expect a new master within 3 s")
    (expectation,) = world.failed
    assert expectation.expected == "there is a new master"
    assert expectation.waited_seconds == pytest.approx(3.0, abs=0.1)


async def test_an_election_that_nobody_should_have_held_is_noted(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def elect_for_nothing() -> None:
        await trio.sleep(1)
        world.epoch = 2

    nursery.start_soon(elect_for_nothing)
    await world.play("play 2 s", "check no election")
    assert [each.expected for each in world.failed] == ["there was no election"]


async def test_being_unavailable_for_too_long_is_noted(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.elects = False
    await world.play(
        "begin freeze",
        "freeze the master",
        "play 6 s",
        "resume the old master",
        "expect sends ok within 5 s",
        "check unavailable at most 7 s",
        "check unavailable at most 2 s",
    )
    (expectation,) = world.failed
    assert expectation.expected == "sync sends were acknowledged at least every 2 s"
    assert float(expectation.seen.split()[0]) == pytest.approx(6.0, abs=0.3)


async def test_two_nodes_that_both_take_sends_are_noted(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play()
    world.claims.add(SLAVES[1])
    await trio.sleep(0.2)
    (step,) = parse_scenario("promise: x\nsteps: [check at most one master]\n", "x", "here").steps
    await step.play(world.stage)
    assert world.failed[0].seen == f"{MASTER}, {SLAVES[1]}"


async def test_the_old_word_of_a_master_that_has_given_up_since_makes_no_second_one(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    """Nodes are asked in turn, and a slow one is heard last."""
    await world.play()
    assert world.watched is not None
    now = trio.current_time()
    world.master, world.epoch = SLAVES[0], 2
    world.watched.node_said(now, now, SLAVES[0], status(SLAVES[0], SLAVES[0], 2))
    assert world.watched.masters == [MASTER, SLAVES[0]]
    (step,) = parse_scenario("promise: x\nsteps: [check at most one master]\n", "x", "here").steps

    await step.play(world.stage)

    assert world.failed == []


async def test_time_in_which_the_drill_did_not_run_is_none_to_step_down_in(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """What it knows then is old, and no slow machine would excuse what it says."""
    await world.play()

    async def stand_still() -> None:
        await trio.sleep(0.5)
        autojump_clock.jump(60)
        await trio.sleep(1)
        world.master, world.epoch = SLAVES[0], 2

    nursery.start_soon(stand_still)
    (step,) = parse_scenario(
        "promise: x\nsteps: [expect broker-a-0 to step down within 5 s]\n", "x", "here"
    ).steps

    await step.play(world.stage)

    assert world.failed == []


async def test_what_no_slow_machine_explains_is_noted_as_such(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play()

    async def failed(line: str) -> list[tuple[str, bool]]:
        before = len(world.failed)
        steps = parse_scenario(f"promise: x\nsteps: [{line}]\n", "x", "here").steps
        with contextlib.suppress(UnmetError):
            for step in steps:
                await step.play(world.stage)
        return [(each.expected, each.is_liveness) for each in world.failed[before:]]

    stays = [(f"{MASTER} no longer says that it is master", False)]
    assert await failed("expect the master to step down within 1 s") == stays
    world.claims.add(SLAVES[1])
    await trio.sleep(0.2)
    two = [("at most one node says that it takes sends", False)]
    assert await failed("check at most one master") == two
    late = [("there is a new master", True)]
    assert await failed("expect a new master within 1 s") == late


async def test_a_send_that_did_not_end_well_is_noted(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    answers: list[str] = []

    def once_in_a_while(mode: SendMode) -> str:
        answers.append(mode)
        return UNKNOWN if mode == "sync" and len(answers) % 10 == 9 else SEND_OK

    world.answer = once_in_a_while
    await world.play("begin steady", "play 1 s", "check all sends are ok")
    assert "UNKNOWN" in world.failed[0].seen


async def test_a_slave_leaves_the_in_sync_set(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play("kill slave 1", "expect slave 1 out of sync within 5 s")
    with pytest.raises(UnmetError):
        await world.play("expect slave 2 out of sync within 1 s")


async def test_what_needs_sends_without_slaves_is_not_possible_where_there_are_none(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(NotPossibleError, match="a master alone acknowledges nothing"):
        await world.play("need sends ok without slaves")
    world.stage.status_without_slaves = SEND_OK
    await world.play("need sends ok without slaves")
    assert not world.failed


def test_a_status_that_no_send_has_is_found() -> None:
    assert bad_status("SEND_OK or FAILED or NO_SLAVE") == ""
    assert bad_status("SEND_OK or SENT") == "SENT"
