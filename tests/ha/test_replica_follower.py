from trio.testing import MockClock

from tests.ha.fenced_world import BODIES, open_world


async def test_a_follower_copies_the_log_and_goes_on(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.fill("a", BODIES, epoch=1)
        async with world.master() as master, world.follower() as b:
            await master.wait_acked("b")
            assert b.log == master.log
            for body in BODIES[:10]:
                master.put(body)
            await master.wait_acked("b")
            assert b.log == master.log
            assert b.epochs.entries == master.epochs.entries
