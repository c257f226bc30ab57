import pytest
import trio.testing

from tandem.drill.scenario import UnmetError
from tests.tandem.drill.fake_world import SLAVES, World


async def test_disks_are_filled_freed_and_damaged(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play("fill the disk of slave 1")
    assert world.full == {SLAVES[0]}
    await world.play(
        "free the disk of slave 1",
        "kill the slaves",
        "cut the last 4096 bytes of the log of slave 1",
        "garble the last 20 bytes of the log of slave 2",
    )
    assert world.full == set()
    assert world.done == [f"cut 4096 {SLAVES[0]}", f"garble 20 {SLAVES[1]}"]


@pytest.mark.parametrize(
    "sentence",
    [
        "cut the last 20 bytes of the log of slave 1",
        "garble the last 20 bytes of the log of slave 1",
        "put the copy of the directory of slave 1 back",
    ],
)
async def test_files_are_not_changed_under_a_node_that_runs(
    sentence: str, world: World, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(UnmetError):
        await world.play(sentence)
    assert world.done == []
    (refusal,) = world.failed
    assert not refusal.is_liveness  # no slow machine explains it
