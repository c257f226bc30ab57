import trio.testing

from tests.tandem.drill.fake_world import SLAVES, World


async def test_disks_are_filled_freed_and_damaged(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play("fill the disk of slave 1")
    assert world.full == {SLAVES[0]}
    await world.play(
        "free the disk of slave 1",
        "cut the last 4096 bytes of the log of slave 1",
        "garble the last 20 bytes of the log of slave 2",
    )
    assert world.full == set()
    assert world.done == [f"cut 4096 {SLAVES[0]}", f"garble 20 {SLAVES[1]}"]
