import pytest
import trio.testing

from tandem.drill.scenario import UnmetError
from tests.tandem.drill.fake_world import MASTER, SLAVES, World


async def test_a_killed_master_is_replaced_and_that_is_seen(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play(
        "begin kill",
        "kill the master",
        "expect a new master within 5 s",
        "expect sends ok within 5 s",
        "start the old master",
        "check no election",
        "check at most one master",
    )
    assert world.failed == [], "the election that was wanted is no reproach"
    assert world.master == SLAVES[0]
    assert [fault.text for fault in world.timeline.faults] == [
        f"kill -9 {MASTER}",
        f"start {MASTER}",
    ]


async def test_orders_to_nobody_end_the_scenario_in_words(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(UnmetError):
        await world.play("kill slave 7")
    assert world.failed[0].seen == "there is no slave 7 now"


async def test_resigning_promoting_and_restarting_change_who_is_master(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play(
        "ask the master to resign",
        "expect a new master within 5 s",
        "promote slave 2",
        "expect a new master within 5 s",
        "expect slave 2 to be master within 5 s",
        "restart the master",
        "expect a new master within 5 s",
    )
    assert world.epoch == 4
    assert world.failed == []


async def test_whoever_is_down_is_started(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play("kill the slaves", "start whoever is down")
    assert set(world.up) == {MASTER, *SLAVES}


async def test_no_slow_machine_explains_an_order_that_makes_no_sense(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(UnmetError):
        await world.play("start slave 1")
    world.refuse_to_start = "nobody listens"
    with pytest.raises(UnmetError):
        await world.play("kill slave 1", "start slave 1")
    assert [(each.seen.split(": ")[0], each.is_liveness) for each in world.failed] == [
        (f"{SLAVES[0]} runs already", False),
        (f"{SLAVES[0]} did not start", True),
    ]
