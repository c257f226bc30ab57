import pytest
import trio.testing

from tandem.drill.scenario import UnmetError
from tandem.drill.sentences.load import UNPROMISED_SECONDS_MAX, drain
from tests.tandem.drill.fake_world import World


async def test_a_group_can_rest_and_work_again(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play("rest")
    assert not world.sending
    await world.play("work again")
    assert world.sending


async def test_the_drain_waits_for_readers(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play()
    world.reading = False
    with pytest.raises(UnmetError):
        await drain(world.stage)
    assert world.failed[0].seen == "7 messages to go"
    assert not world.failed[0].is_liveness  # they were acknowledged


async def test_the_drain_waits_for_what_groups_are_owed(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.owed = "3 not handled by a group"
    await world.play()
    with pytest.raises(UnmetError):
        await drain(world.stage)
    assert world.failed[0].seen == "3 not handled by a group"
    assert world.failed[0].is_liveness  # they come sooner or later


async def test_the_drain_gives_what_nobody_promised_some_time_and_goes_on(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.owed = ""
    world.unpromised = 3
    await world.play()
    started = trio.current_time()
    await drain(world.stage)
    assert not world.failed
    assert trio.current_time() - started >= UNPROMISED_SECONDS_MAX


async def test_what_nodes_write_by_themselves_at_the_end_is_waited_for_on_all_of_them(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.owed = ""
    world.stage.settle_seconds = 6.0
    await world.play()
    started = trio.current_time()
    await drain(world.stage)
    assert trio.current_time() - started >= 6.0
    said = [each.expected for each in world.stage.expectations]
    assert said.index("groups have got what they were promised") < len(said) - 1
    assert said[-1] == "the other nodes have the whole log"


async def test_what_nobody_promised_is_waited_for_at_the_end_of_the_last_scenario_alone(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.owed = ""
    world.unpromised = 3
    world.stage.settle_seconds = 6.0
    world.stage.is_last = False
    await world.play()
    started = trio.current_time()
    await drain(world.stage)
    assert trio.current_time() - started < 6.0
    said = [each.expected for each in world.stage.expectations]
    assert said[-1] == "groups have got what they were promised"


async def test_a_drain_says_that_groups_have_what_they_were_promised(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.owed = ""
    await world.play("drain")
    assert not world.failed
    assert any("groups" in each.expected for each in world.stage.expectations)
