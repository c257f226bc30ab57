"""A damaged master makes room for a whole member, and only for one that follows."""

import pytest
from trio.testing import MockClock

from ha.fenced.healing_service import HealingService
from ha.fenced.replica_role import ReplicaRole
from store import PutMessageStatus
from tests.ha.fenced_world import Replica, open_world

OK = PutMessageStatus.PUT_OK


@pytest.fixture(autouse=True)
def _nothing_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heal(self: HealingService) -> None:
        """Leave it as it is."""

    monkeypatch.setattr(HealingService, "heal", heal)


def damage(replica: Replica) -> None:
    replica.store.commit_log.damage.note(0, 90, "a bit has flipped")


def is_known(by: Replica, replica: Replica) -> bool:
    """Whether one node has read that another is damaged."""
    view = by.ha.session.view
    return view is not None and bool(view.nodes[replica.name].damage)


async def test_a_damaged_master_gives_way_to_a_whole_member(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert await master.send(b"|m1|") is OK
        damage(master)
        heir = await world.master(but=master.name)
        assert heir.ha.status().last_switch_reason == (
            f"{master.name} stepped down: its log is damaged from 0 to 90 (a bit has flipped), and"
            f" the log of {', '.join(n for n in 'abc' if n != master.name)} is whole"
        )
        await world.wait_for(lambda: world.is_back(master))
        assert "damaged from 0 to 90" in master.ha.status().damage
        assert await heir.send(b"|m2|") is OK


async def test_it_stays_where_nobody_is_whole_and_goes_when_somebody_is(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert await master.send(b"|m0|") is OK
        first, second = world.slaves()
        damage(first)
        damage(second)
        await world.wait_for(lambda: is_known(master, first) and is_known(master, second))
        damage(master)
        assert await master.send(b"|m1|") is OK
        await world.wait_for(lambda: is_known(master, master))
        assert await master.send(b"|m2|") is OK
        second.store.commit_log.damage.healed(0, 90)
        assert await world.master(but=master.name) is second


async def test_a_whole_member_that_does_not_follow_is_not_given_way_to(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert await master.send(b"|m0|") is OK
        first, second = world.slaves()
        damage(second)
        await world.wait_for(lambda: is_known(master, second))
        world.isolate(master.config.address, first.config.address)
        await world.wait_for(lambda: first.name not in world.isr)
        damage(master)
        assert await master.send(b"|m1|") is OK
        await world.wait_for(lambda: is_known(master, master))
        assert master.ha.role is ReplicaRole.MASTER
