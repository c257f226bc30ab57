from collections.abc import Callable

import pytest
import trio.testing

from tandem.drill.scenario import UnmetError
from tests.tandem.drill.fake_world import MASTER, SLAVES, World


async def test_what_rots_is_scrubbed_and_waited_for(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play(
        "flip a bit in the log of slave 1",
        "scrub slave 1",
        "expect slave 1 healed within 10 s",
        "lose a file of the log of the master",
        "scrub the master",
        "expect every node healed within 10 s",
    )
    assert world.done == [
        f"flip {SLAVES[0]}",
        f"scrub {SLAVES[0]}",
        f"lose {MASTER}",
        f"scrub {MASTER}",
    ]
    assert not world.failed


async def test_what_is_not_healed_in_time_ends_the_scenario(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.heals = False
    with pytest.raises(UnmetError):
        await world.play("zero a page of the log of slave 2", "expect slave 2 healed within 3 s")
    (failed,) = world.failed
    assert failed.expected == f"what rotted on the disk of {SLAVES[1]} is healed"
    assert failed.seen.startswith("not healed: zero the page of ")


async def test_a_file_gets_short_only_under_a_node_that_is_down(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(UnmetError):
        await world.play("shorten a file of the log of slave 1")
    assert not world.failed[0].is_liveness
    await world.play("kill slave 1", "shorten a file of the log of slave 1")
    assert world.done == [f"shorten {SLAVES[0]}"]


async def test_disks_rot_one_after_the_other_and_nodes_die_in_between(
    world: World, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    # The clock would jump while a thread is at work.
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    await world.play("let disks rot for 100 %, one every 1 s")

    rotten = [done for done in world.done if not done.startswith("scrub")]
    assert 10 <= len(rotten) <= 20
    assert len(world.done) == 2 * len(rotten)
    assert {done.split()[1] for done in rotten} == {MASTER, *SLAVES}
    assert set(world.up) == {MASTER, *SLAVES}
    assert not world.stage.rotten
    assert not world.failed
