from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
import trio.testing

from tandem.cluster_file.choices import GroupKind
from tandem.drill.nemesis import Case, World, case_of, scenario_text
from tandem.drill.outcomes import NOT_SENT
from tandem.drill.scenario import UnmetError
from tandem.drill.scenario_file import parse_scenario
from tandem.drill.shrinking import Broken, StoppedError, shrink
from tests.tandem.drill.fake_world import World as MadeUpCluster

NODES = ("broker-a-0", "broker-a-1", "broker-a-2")
WORLD = World(group=GroupKind.FENCED, nodes=NODES, owns_coordinator=True)
LOST: Broken = frozenset(["sync_lost"])
SOUND: Broken = frozenset()


def breaks_if(condition: Callable[[list[str]], bool]) -> Callable[[Case], Broken]:
    return lambda case: LOST if condition(case.steps()) else SOUND


def a_case(holds: Callable[[list[str]], bool]) -> Case:
    """The first seed that breaks."""
    return next(case for seed in range(9_999) if holds((case := case_of(seed, WORLD)).steps()))


def one_then_other(one: str, other: str) -> Callable[[list[str]], bool]:
    def holds(steps: list[str]) -> bool:
        return one in steps and other in steps[steps.index(one) :]

    return holds


def test_two_faults_that_break_it_together_are_all_that_is_left() -> None:
    breaks = one_then_other("kill broker-a-1", "cut broker-a-2 from everything")
    case = a_case(breaks)
    assert case.faults > 5

    found = shrink(case, LOST, breaks_if(breaks), tries=1)

    faults = [fault.step for faults in found.case.rounds for fault in faults]
    assert faults == ["kill broker-a-1", "cut broker-a-2 from everything"]
    assert (found.is_repeated, found.is_shortest) == (True, True)
    assert all(fault.pause_seconds == 0 for faults in found.case.rounds for fault in faults)


def test_what_breaks_without_any_fault_is_the_load_alone() -> None:
    found = shrink(case_of(1, WORLD), LOST, lambda case: LOST)
    assert (found.case.faults, found.plays) == (0, 1)
    assert found.is_shortest


def test_a_pause_that_is_needed_stays() -> None:
    case = next(
        case
        for seed in range(999)
        if (case := case_of(seed, WORLD)).rounds[0][0].pause_seconds == 4.0
    )
    fault = case.rounds[0][0]

    def play(case: Case) -> Broken:
        return LOST if any(fault in faults for faults in case.rounds) else SOUND

    found = shrink(case, LOST, play, tries=1)
    assert found.case.rounds == ((fault,),)


def test_another_thing_that_breaks_is_not_the_same() -> None:
    found = shrink(case_of(1, WORLD), LOST, lambda case: frozenset(["duplicated"]), tries=1)
    assert (found.case, found.is_repeated) == (case_of(1, WORLD), False)


def test_what_does_not_break_again_is_left_as_it_was() -> None:
    found = shrink(case_of(1, WORLD), LOST, lambda case: SOUND, tries=3)
    assert (found.case, found.is_repeated, found.is_shortest) == (case_of(1, WORLD), False, False)
    assert found.plays == 6, "the load alone and the whole, three times each"


def test_what_breaks_now_and_then_is_played_more_than_once() -> None:
    breaks = one_then_other("kill broker-a-1", "cut broker-a-2 from everything")
    played: dict[Case, int] = {}

    def play(case: Case) -> Broken:
        played[case] = played.get(case, 0) + 1
        return LOST if breaks(case.steps()) and played[case] == 2 else SOUND

    found = shrink(a_case(breaks), LOST, play, tries=2, plays_max=200)
    assert found.case.faults == 2
    assert max(played.values()) == 2


def test_the_search_ends_when_its_plays_are_used_up_with_the_shortest_so_far() -> None:
    breaks = one_then_other("kill broker-a-1", "cut broker-a-2 from everything")
    case = a_case(breaks)
    found = shrink(case, LOST, breaks_if(breaks), tries=1, plays_max=4)
    assert (found.plays, found.is_shortest) == (4, False)
    assert breaks(found.case.steps())


def test_a_person_may_end_the_search() -> None:
    breaks = one_then_other("kill broker-a-1", "cut broker-a-2 from everything")
    plays = 0

    def play(case: Case) -> Broken:
        nonlocal plays
        plays += 1
        if plays == 5:
            raise StoppedError
        return breaks_if(breaks)(case)

    found = shrink(a_case(breaks), LOST, play, tries=1)
    assert (found.plays, found.is_shortest) == (5, False)
    assert breaks(found.case.steps())


def test_any_two_faults_of_any_seed_are_found() -> None:
    for seed in range(60):
        case = case_of(seed, WORLD)
        steps = [fault.step for faults in case.rounds for fault in faults]
        one, other = steps[0], steps[-1]

        def play(case: Case, one: str = one, other: str = other) -> Broken:
            return LOST if {one, other} <= set(case.steps()) else SOUND

        found = shrink(case, LOST, play, tries=1, plays_max=1_000)
        assert {fault.step for faults in found.case.rounds for fault in faults} == {one, other}
        assert found.case.faults == len({one, other})
        assert found.is_shortest


async def play_made_up(case: Case) -> Broken:
    """Play the sentences of a case on a cluster that answers nothing after a freeze and a kill."""
    scenario = parse_scenario(scenario_text(case, "x"), "random", "here")
    async with trio.open_nursery() as nursery:
        world = MadeUpCluster(is_fenced=True)
        freeze, kill = world.freeze, world.kill
        frozen: list[str] = []

        async def freeze_and_note(node: str) -> None:
            frozen.append(node)
            await freeze(node)

        async def kill_and_forget(node: str) -> None:
            await kill(node)
            if frozen:
                world.answer = lambda mode: NOT_SENT

        world.freeze = freeze_and_note  # type: ignore[method-assign]
        world.kill = kill_and_forget  # type: ignore[method-assign]
        nursery.start_soon(world.run)
        world.stage.bind("random")
        with suppress(UnmetError):
            for step in scenario.steps:
                await step.play(world.stage)
        nursery.cancel_scope.cancel()
    return frozenset(each.expected for each in world.failed)


@pytest.mark.slow
def test_a_planted_fault_is_found_through_the_sentences_that_are_played() -> None:
    """On virtual time: a play of minutes takes a moment."""

    def play(case: Case) -> Broken:
        return trio.run(play_made_up, case, clock=trio.testing.MockClock(autojump_threshold=0))

    cases = (case_of(seed, WORLD, rounds=2) for seed in range(99_999))
    case = next(
        case
        for case in cases
        if [fault.step.split()[0] for faults in case.rounds for fault in faults]
        == ["cut", "freeze", "delay", "kill"]
    )
    broken = play(case)
    assert broken == {"sync sends answer SEND_OK"}
    found = shrink(case, broken, play, tries=1)
    assert found.is_shortest
    steps = [fault.step.split()[0] for faults in found.case.rounds for fault in faults]
    assert steps == ["freeze", "kill"]
