"""A group in which one log is damaged goes on: what is bad is not sent, and parts no logs."""

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.giving_way import GivingWay
from ha.fenced.healing_service import HealingService
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.replica_server import ReplicaServer
from tests.ha.fenced_world import Replica
from tests.ha.fingerprinted import flip
from tests.ha.healing_world import Group, open_group
from tests.ha.world import FILE_SIZE_BYTES, read_whole_log


def server(group: Group) -> ReplicaServer:
    mastership = group.master.ha.standing.mastership
    assert mastership is not None
    return mastership.server


async def lagging(group: Group) -> Replica:
    """Restart a follower with an empty disk: it has all to get."""
    group.second.kill()
    group.world.reap(group.second.name)
    await group.world.wait_for(lambda: group.second.name not in group.world.isr)
    del group.world.disks[group.second.name]
    return group.world.start(group.second.name)


async def test_what_is_known_to_be_bad_is_not_sent_and_the_link_waits(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_group() as group:
        monkeypatch.setattr(HealingService, "heal", not_now)
        monkeypatch.setattr(GivingWay, "why_resign", lambda _: None)
        at = FILE_SIZE_BYTES + 95
        flip(group.master.store, at)
        group.master.store.commit_log.damage.note(FILE_SIZE_BYTES, at + 10, "a bit has flipped")
        follower = await lagging(group)
        await group.world.wait_for(lambda: follower.serves)
        await group.world.wait_for(lambda: follower.store.max_physical_offset == FILE_SIZE_BYTES)
        connection = server(group).links[follower.name]
        await trio.sleep(20)
        assert server(group).links[follower.name] is connection
        assert follower.store.max_physical_offset == FILE_SIZE_BYTES
        trouble = {r.name: r.trouble for r in group.master.ha.status().replicas}
        assert f"is not sent what is damaged here, from {FILE_SIZE_BYTES}" in trouble[follower.name]
        flip(group.master.store, at)
        group.master.store.commit_log.damage.healed(0, group.end)
        await group.world.wait_for(lambda: follower.store.max_physical_offset >= group.end, 1.0)
        assert read_whole_log(follower.store)[: group.end] == group.log


async def test_a_bad_record_that_a_master_sends_is_healed_there_and_the_copy_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_group(has_fingerprints=False) as group:
        flip(group.master.store, FILE_SIZE_BYTES + 95)  # in the body of the file's first record
        follower = await lagging(group)
        await group.world.wait_for(lambda: follower.serves)
        await group.world.wait_for(lambda: follower.store.max_physical_offset >= group.end, 100.0)
        await group.healed(group.master, group.first, follower)
        assert f"the log of {group.master.name} is damaged: it sends a bad record" in caplog.text
        (healed,) = group.master.ha.status().healed
        assert healed.start == FILE_SIZE_BYTES


async def test_damage_before_the_joint_does_not_part_two_logs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_group() as group:
        monkeypatch.setattr(HealingService, "heal", not_now)
        monkeypatch.setattr(GivingWay, "why_resign", lambda _: None)
        for node, at in ((group.master, 5_000), (group.second, 7_000)):
            flip(node.store, at)
            node.store.commit_log.damage.note(at, at + 10, "a bit has flipped")
        group.second.kill()
        group.world.reap(group.second.name)
        again = group.world.start(group.second.name)
        await group.world.wait_for(lambda: group.world.is_back(again))


@pytest.mark.parametrize("side", ["master", "follower"])
async def test_damage_that_the_joint_shows_is_noted_and_heals(
    side: str, autojump_clock: MockClock
) -> None:
    """On either side: where there are fingerprints, they say whose bytes are bad."""
    async with open_group() as group:
        if side == "master":
            flip(group.master.store, 5_000)
        group.first.kill()
        group.world.reap(group.first.name)
        if side == "follower":
            with group.world.open_store(group.first.name) as closed:
                flip(closed, 5_000)
        back = group.world.start(group.first.name)
        damaged = back if side == "follower" else group.master
        await group.world.wait_for(lambda: damaged.serves and damaged.ha.status().healed, 100)
        await group.world.master(seconds=100)
        await group.healed(group.master, back, group.second)
        assert {node.ha.role for node in group.world.replicas.values()} == {
            ReplicaRole.MASTER,
            ReplicaRole.FOLLOWER,
        }


async def not_now(_: HealingService) -> None:
    """Heal nothing."""
