"""Nodes whose bytes differ where they are joined find out whose have changed, and go on."""

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from ha.fenced.comparing_service import OPEN_BLOCK_BYTES
from ha.fenced.disputed_joint import DECIDED_SECONDS
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.served_log import ServedLog
from tests.ha.fenced_world import Replica, open_world
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.ha.healing_world import Group, open_group
from tests.ha.world import FILE_SIZE_BYTES

PLACE = 2 * FILE_SIZE_BYTES - 3
"""In the blank that ends a file: no record's checksum covers it."""


async def rotten(node: Replica, place: int = PLACE) -> None:
    """Let a byte change, and nobody notice: the fingerprints are taken afterwards."""
    flip(node.store, place)
    await take_fingerprints(node.store, is_written=False)


def rotten_at_the_end(group: Group, *nodes: Replica) -> int:
    """Let a byte of the file that is being written change, which no checksum covers: the flags."""
    place = group.end - group.end % FILE_SIZE_BYTES + 19
    for number, node in enumerate(nodes):
        flip(node.store, place, 1 << number)
    return place


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Which nodes were asked to look at their logs."""
    names: set[str] = set()
    doubted = ServedLog.doubted

    def noted(log: ServedLog, start: int, end: int) -> None:
        names.add(log.part(start, end).node)
        doubted(log, start, end)

    monkeypatch.setattr(ServedLog, "doubted", noted)
    return names


def dial_again(group: Group) -> None:
    for slave in (group.first, group.second):
        slave.machine.reset_streams_to(group.master.config.address)


def nobody_is_in_quarantine(group: Group) -> bool:
    return all(not node.ha.is_quarantined for node in group.nodes)


@pytest.mark.slow
async def test_a_follower_whose_bytes_changed_is_healed_and_follows(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_group() as group:
        await rotten(group.first)
        dial_again(group)
        await group.world.wait_for(lambda: group.first.ha.status().healed)
        await group.healed(*group.nodes)
        await group.world.wait_for(lambda: group.world.in_sync(group.master))
        assert nobody_is_in_quarantine(group)
        assert "all nodes are asked who is right" in caplog.text


async def test_a_master_whose_bytes_changed_is_healed_and_followed(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        await rotten(group.master)
        dial_again(group)
        await group.world.wait_for(lambda: group.master.ha.status().healed)
        await group.healed(*group.nodes)
        master = await group.world.master()
        await group.world.wait_for(lambda: group.world.in_sync(master))
        assert nobody_is_in_quarantine(group)


async def test_records_decide_where_a_follower_has_no_fingerprint(
    autojump_clock: MockClock,
) -> None:
    async with open_group(has_fingerprints=False) as group:
        flip(group.first.store, group.log.index(b"\x1e" * 40) + 20)
        dial_again(group)
        await group.world.wait_for(lambda: group.first.ha.status().healed)
        await group.healed(*group.nodes)
        assert nobody_is_in_quarantine(group)


async def test_the_majority_decides_where_all_were_read_later(
    autojump_clock: MockClock, asked: set[str]
) -> None:
    """Who has a fingerprint has said what there is to say: to look again costs the whole file."""
    async with open_group(has_fingerprints=False) as group:
        for node in group.nodes:
            await take_fingerprints(node.store, is_written=False)
        await rotten(group.first)
        group.first.machine.reset_streams_to(group.master.config.address)
        await group.world.wait_for(lambda: group.first.ha.status().healed)
        await group.healed(*group.nodes)
        assert nobody_is_in_quarantine(group)
        assert asked == {group.master.name}


async def test_a_third_node_without_a_fingerprint_takes_one_and_decides(
    autojump_clock: MockClock, asked: set[str]
) -> None:
    """It was killed after it had filled the file. Two that differ decide nothing."""
    async with open_group(has_fingerprints=False) as group:
        world = group.world
        group.second.kill()
        third = world.start(group.second.name)
        await world.wait_for(lambda: third.serves and world.is_back(third))
        assert third.store.fingerprints.of(FILE_SIZE_BYTES) is None
        await take_fingerprints(group.master.store, is_written=False)
        await rotten(group.first)
        group.first.machine.reset_streams_to(group.master.config.address)
        await world.wait_for(lambda: group.first.ha.status().healed)
        await group.healed(group.master, group.first, third)
        assert third.store.fingerprints.of(FILE_SIZE_BYTES) is not None
        assert asked == {group.master.name, third.name}


@pytest.mark.slow
async def test_what_nobody_can_decide_is_left_to_an_operator_after_a_while(
    autojump_clock: MockClock,
) -> None:
    async with open_group(has_fingerprints=False) as group:
        await take_fingerprints(group.master.store, is_written=False)
        await rotten(group.first)
        await rotten(group.second, PLACE - 1)
        dial_again(group)
        first = group.first.ha
        await group.world.wait_for(lambda: "not known yet who is right" in str(first.status()))
        began = trio.current_time()
        assert first.role is ReplicaRole.FOLLOWER
        await group.world.wait_for(lambda: first.is_quarantined, 2 * DECIDED_SECONDS)
        assert trio.current_time() - began > DECIDED_SECONDS - 1
        assert "other bytes" in first.status().refusal


async def test_in_the_file_that_is_being_written_the_majority_decides_too(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        place = rotten_at_the_end(group, group.first)
        dial_again(group)
        await group.world.wait_for(lambda: group.first.ha.status().healed)
        await group.healed(*group.nodes)
        await group.world.wait_for(lambda: group.world.in_sync(group.master))
        (healed,) = group.first.ha.status().healed
        assert healed.start <= place < healed.end <= healed.start + OPEN_BLOCK_BYTES
        assert "other replicas have other bytes, and are right" in healed.reason
        assert nobody_is_in_quarantine(group)


async def test_a_master_whose_bytes_changed_in_the_file_that_it_writes_is_healed_and_followed(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        rotten_at_the_end(group, group.master)
        dial_again(group)
        # Long before it would give up its place because nobody follows.
        await group.world.wait_for(lambda: group.master.ha.status().healed, 3.0)
        await group.healed(*group.nodes)
        master = await group.world.master()
        await group.world.wait_for(lambda: group.world.in_sync(master))
        assert nobody_is_in_quarantine(group)


@pytest.mark.slow
async def test_three_opinions_of_the_file_that_is_being_written_are_left_to_an_operator(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        rotten_at_the_end(group, group.first, group.second)
        dial_again(group)
        first = group.first.ha
        await group.world.wait_for(lambda: first.status().undecided)
        assert all(not node.store.commit_log.damage for node in group.nodes)
        await group.world.wait_for(lambda: first.is_quarantined, 2 * DECIDED_SECONDS)


@pytest.mark.parametrize("is_known", [True, False])
async def test_without_closed_files_it_is_decided_only_if_the_masters_are_known(
    autojump_clock: MockClock,
    is_known: bool,  # noqa: FBT001
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"m1|")
        first, _ = world.slaves()
        await world.wait_for(lambda: first.store.confirm_offset == master.store.confirm_offset > 0)
        if not is_known:
            for node in world.replicas.values():
                entries = node.ha.replica.epochs.entries
                node.ha.replica.epochs.replace(tuple(replace(entry, id="") for entry in entries))
        flip(first.store, 19)
        first.machine.reset_streams_to(master.config.address)
        await world.wait_for(lambda: first.ha.status().healed or first.ha.is_quarantined)
        assert first.ha.is_quarantined is not is_known
