"""A log that cannot be opened is healed from peers first, if they have what it lacks."""

import random

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.closed_healing import ClosedHealing
from ha.fenced.healed_parts import HealedParts
from node.simulated.virtual_clock import WallClock
from store import MessageStore
from store.files.store_checkpoint import StoreCheckpoint
from store.machine.errors import CorruptLogError, LogFault
from store.machine.machine import Machine
from tandem.wire.fingerprint import BLOCK_BYTES
from tandem.wire.peer_log import EpochPart
from tests.ha.fenced_world import WorldPeerLogs
from tests.ha.fingerprinted import flip
from tests.ha.healing_bench import FILE_BYTES, Bench
from tests.ha.healing_world import Group, open_group, unconfirmed
from tests.ha.world import DIRECTORY, FILE_SIZE_BYTES, fenced_config, read_whole_log
from tests.store.store_world import DIRECTORY as DIRECTORY_OF_BENCH
from tests.store.store_world import check_store
from tests.support.reasons import words

RECORD = 2 * FILE_SIZE_BYTES
"""One that begins the last file: every start walks it."""


def lost_end(start: int, end: int) -> CorruptLogError:
    """The error of a start that finds bad bytes before what was on the disk."""
    return CorruptLogError(
        "bad", path="log", fault=LogFault.LOST_END, offset=start, damaged_end=end
    )


class Closed:
    """The first follower is down, with bits that have flipped in its log."""

    def __init__(self, group: Group, *offsets: int) -> None:
        self.world, self.group, self.name = group.world, group, group.first.name
        settings = group.first.store.config
        group.first.kill()
        with self.world.open_store(self.name) as store:
            for offset in offsets:
                flip(store, offset)
        machine = Machine(
            disk=self.world.disks[self.name],
            network=group.first.machine,
            wall_clock_ms=WallClock().now_ms,
            boottime=trio.current_time,
            boot_id="boot-1",
            random=random.Random(1),
        )
        peers = WorldPeerLogs(self.world)
        self.healing = ClosedHealing(fenced_config(self.name), settings, machine, peers)
        self.tries = 0

    def open_store(self) -> MessageStore:
        self.tries += 1
        return self.world.open_store(self.name)

    async def open(self) -> MessageStore:
        return await self.healing.open(self.open_store)


async def test_what_stops_the_start_comes_from_a_peer(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_group() as group:
        closed = Closed(group, RECORD + 95)
        with pytest.raises(CorruptLogError):
            closed.world.open_store(closed.name)
        with await closed.open() as store:
            assert read_whole_log(store) == group.log
            assert not store.commit_log.damage
        assert closed.tries == 2
        assert "the log is healed from 32768 to" in caplog.text
        again = group.world.start(closed.name)
        await group.world.wait_for(lambda: again.serves)
        (healed,) = again.ha.status().healed
        assert healed.start == RECORD
        assert "body CRC" in healed.reason


async def test_what_the_peers_have_not_got_either_keeps_nobody_from_beginning(
    autojump_clock: MockClock,
) -> None:
    """Several nodes are damaged, each in another place: all of them would wait for one another.

    The part that the opening has named begins where the peers are bad, and this node is not.
    """
    async with open_group() as group:
        for node in (group.master, group.second):
            flip(node.store, 1_000)
            node.store.commit_log.damage.note(0, 4_096, "bad")
        closed = Closed(group, RECORD + 95)
        opens = 0

        def open_store() -> MessageStore:
            nonlocal opens
            opens += 1
            if opens == 1:
                raise lost_end(0, RECORD + 4_096)
            return closed.open_store()

        with await closed.healing.open(open_store) as store:
            assert read_whole_log(store) == group.log
        assert opens == 2


LAST = 2 * FILE_SIZE_BYTES


def last_file(closed: Closed) -> str:
    return f"{DIRECTORY}/commitlog/{LAST:020d}"


def shorten(closed: Closed, size: int) -> None:
    """Leave so much of the last file; -1: it is gone."""
    disk = closed.world.disks[closed.name]
    whole = disk.read(last_file(closed)) or b""
    assert len(whole) == FILE_SIZE_BYTES
    if size < 0:
        disk.remove(last_file(closed))
    else:
        disk.replace(last_file(closed), whole[:size])


@pytest.mark.parametrize("size", [-1, 0, 1, 4_097, FILE_SIZE_BYTES - 1])
async def test_the_end_of_the_row_comes_from_a_peer_as_far_as_it_was_on_disk(
    size: int, autojump_clock: MockClock
) -> None:
    """Gone, empty, or cut anywhere: what the node had acknowledged there is there again."""
    async with open_group() as group:
        assert LAST < group.end < LAST + FILE_SIZE_BYTES
        closed = Closed(group)
        shorten(closed, size)
        with await closed.open() as store:
            assert read_whole_log(store) == group.log
            assert not store.commit_log.damage
            store.confirm(group.end)
            check_store(store)
        again = group.world.start(closed.name)
        await group.world.wait_for(lambda: group.world.is_back(again))
        assert read_whole_log(again.store)[: group.end] == group.log


async def test_a_lost_end_that_no_peer_has_stays_lost_and_the_file_is_not_made_up(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        closed = Closed(group)
        shorten(closed, -1)
        for node in (group.master, group.second):
            node.kill()
        with pytest.raises(CorruptLogError) as caught:
            await closed.open()
        assert (caught.value.offset, caught.value.damaged_end) == (LAST, group.end)
        assert not closed.world.disks[closed.name].exists(last_file(closed))


async def test_what_came_after_the_last_sync_is_lost_with_the_file_and_costs_the_incarnation(
    autojump_clock: MockClock,
) -> None:
    """The checkpoint speaks for the first records of the file only; what else was there, who knows.

    So the node is another replica: what it had acknowledged counts again when it has caught up.
    """
    async with open_group() as group:
        record = group.first.store.commit_log.record_at(LAST)
        assert record is not None
        before = group.first.ha.replica.file.incarnation
        synced = LAST + len(record)
        closed = Closed(group)
        disk = closed.world.disks[closed.name]
        checkpoint = StoreCheckpoint(f"{DIRECTORY}/checkpoint", disk)
        checkpoint.confirm_physical_offset = checkpoint.replicated_offset = synced
        checkpoint.flush_blocking()
        checkpoint.close()
        shorten(closed, -1)
        again = group.world.start(closed.name)
        await group.world.wait_for(lambda: again.rounds)
        assert "longer" in words(again.store.damaged_end)
        await group.world.wait_for(lambda: group.world.is_back(again))
        (healed,) = again.ha.status().healed
        assert (healed.start, healed.end) == (LAST, synced)
        assert again.ha.replica.file.incarnation != before
        assert read_whole_log(again.store)[: group.end] == group.log


async def test_all_of_a_block_comes_from_a_peer_where_more_of_it_has_changed(
    autojump_clock: MockClock,
) -> None:
    """The blank that ends the file: no record that a start looks at is damaged by that."""
    async with open_group() as group:
        start = FILE_SIZE_BYTES
        end = start + int.from_bytes(group.log[start : start + 4], "big")
        closed = Closed(group, start + 95, 2 * FILE_SIZE_BYTES - 3)
        failing = [
            CorruptLogError(
                "bad", path="log", fault=LogFault.LOST_END, offset=start, damaged_end=end
            )
        ]

        def open_store() -> MessageStore:
            if failing:
                raise failing.pop()
            return closed.open_store()

        with await closed.healing.open(open_store) as store:
            assert read_whole_log(store) == group.log


@pytest.mark.slow
async def test_a_start_with_several_bad_places_gets_further_each_time(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        record = group.first.store.commit_log.record_at(RECORD)
        assert record is not None
        second = group.first.store.commit_log.record_at(RECORD + len(record))
        assert second is not None
        third = RECORD + len(record) + len(second)
        closed = Closed(group, RECORD + 95, third + 95)
        with await closed.open() as store:
            assert read_whole_log(store) == group.log
        assert closed.tries == 3


async def test_a_log_that_is_whole_is_opened_at_once(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        closed = Closed(group)
        with await closed.open():
            assert closed.tries == 1


async def test_where_no_peer_can_help_the_error_stands(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_group() as group:
        closed = Closed(group, RECORD + 95)
        for node in (group.master, group.second):
            node.store.commit_log.damage.note(RECORD, RECORD + 10, "a flip")
            node.kill()
        began = trio.current_time()
        with pytest.raises(CorruptLogError):
            await closed.open()
        assert closed.tries == 1
        assert trio.current_time() - began < 15
        assert "cannot be healed by other nodes" in caplog.text


async def test_what_does_not_become_better_is_not_tried_for_ever(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        closed = Closed(group, RECORD + 95)

        def always_bad() -> MessageStore:
            closed.tries += 1
            raise CorruptLogError(
                "bad", path="p", fault=LogFault.LOST_END, offset=RECORD, damaged_end=RECORD + 96
            )

        with pytest.raises(CorruptLogError):
            await closed.healing.open(always_bad)
        assert closed.tries <= 2


async def test_what_nobody_has_confirmed_comes_from_who_has_it_from_the_same_master(
    autojump_clock: MockClock,
) -> None:
    """The group confirms no more before this node has started, where all members are needed."""
    async with open_group() as group, unconfirmed(group, group.second) as (start, _):
        log = read_whole_log(group.master.store)
        closed = Closed(group, start + 95)
        assert group.master.store.confirm_offset <= start
        with await closed.open() as store:
            assert read_whole_log(store) == log
        assert closed.tries == 2


# -- beside peers that are made up ---------------------------------------------------------------


class BadStart:
    """A start that fails once, with a part of the log that is said to be bad."""

    def __init__(self, bench: Bench, start: int, end: int) -> None:
        self.bench = bench
        self.failing = [
            CorruptLogError(
                "bad", path="log", fault=LogFault.LOST_END, offset=start, damaged_end=end
            )
        ]

    def __call__(self) -> MessageStore:
        if self.failing:
            raise self.failing.pop()
        return self.bench.open_store()


async def test_what_is_bad_in_two_files_is_healed_in_both(autojump_clock: MockClock) -> None:
    bench = Bench()
    await bench.take_fingerprints()
    bench.flip(2 * BLOCK_BYTES + 50)
    bench.flip(FILE_BYTES + 50)
    start = BadStart(bench, 2 * BLOCK_BYTES, FILE_BYTES + BLOCK_BYTES)
    store = await bench.closed_healing().open(start)
    assert read_whole_log(store) == bench.log
    parts = [(part.start, part.end) for part in HealedParts(bench.disk, DIRECTORY_OF_BENCH).parts]
    assert parts == [(2 * BLOCK_BYTES, FILE_BYTES + BLOCK_BYTES)]


async def test_peers_that_are_starting_too_are_waited_for(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    bench = Bench()
    await bench.take_fingerprints()
    bench.flip(50)
    for peer in bench.peers:
        peer.answers = False

    async def start_peer() -> None:
        await trio.sleep(5)
        bench.peers[1].answers = True

    nursery.start_soon(start_peer)
    store = await bench.closed_healing().open(BadStart(bench, 0, BLOCK_BYTES))
    assert read_whole_log(store) == bench.log


async def refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> str:
    """Have the first record healed, which is without a fingerprint; return what is said."""
    bench.flip(200)
    with pytest.raises(CorruptLogError):
        await bench.closed_healing().open(BadStart(bench, 0, bench.records[1]))
    return caplog.text


async def test_bytes_of_other_masters_are_not_taken(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    for peer in bench.peers:
        peer.epochs = (EpochPart(3, 0, "another"),)
    assert "a1 has it from other masters" in await refused(bench, caplog)
    assert bench.disk.read(f"{DIRECTORY_OF_BENCH}/commitlog/{0:020d}") != bench.log[:FILE_BYTES]


class OtherEnd:
    """The peers have other bytes from the fourth record on, from another master."""

    def __init__(self, bench: Bench) -> None:
        self.at = bench.records[3]
        assert self.at < BLOCK_BYTES
        for peer in bench.peers:
            peer.epochs = (EpochPart(3, self.at, "another"),)
            peer.log[self.at :] = bytes(len(peer.log) - self.at)


async def test_what_comes_before_the_end_that_only_this_node_has_is_healed(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A master that was alone filled a file, which has a fingerprint, and is down since."""
    bench = Bench()
    await bench.take_fingerprints()
    other = OtherEnd(bench)
    bench.flip(200)
    bench.flip(bench.records[2] + 20)
    store = await bench.closed_healing().open(BadStart(bench, 0, bench.records[1]))
    assert read_whole_log(store) == bench.log
    assert f"is healed from 0 to {other.at} with the bytes of a1" in caplog.text
    parts = [(part.start, part.end) for part in HealedParts(bench.disk, DIRECTORY_OF_BENCH).parts]
    assert parts == [(0, other.at)]


async def test_what_only_this_node_has_nobody_can_heal(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    await bench.take_fingerprints()
    other = OtherEnd(bench)
    bench.flip(other.at + 100)
    with pytest.raises(CorruptLogError):
        await bench.closed_healing().open(BadStart(bench, 0, BLOCK_BYTES))
    assert "has another fingerprint" in caplog.text
    assert not HealedParts(bench.disk, DIRECTORY_OF_BENCH).parts


async def test_what_a_peer_has_not_confirmed_is_not_taken(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    for peer in bench.peers:
        peer.confirm = bench.records[1] - 1
    assert "has not confirmed all of it" in await refused(bench, caplog)


@pytest.mark.parametrize(("peer_count", "wrong"), [(2, 1), (3, 1)])
async def test_peers_that_differ_without_more_than_half_of_all_nodes_heal_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, peer_count: int, wrong: int
) -> None:
    bench = Bench(peer_count=peer_count)
    for peer in bench.peers[:wrong]:
        peer.log[30] ^= 1  # no checksum of a record covers that
    assert "it is not known who is right: a1" in await refused(bench, caplog)


@pytest.mark.parametrize("other", [0, 3])
async def test_more_than_half_of_all_nodes_are_right(autojump_clock: MockClock, other: int) -> None:
    bench = Bench(peer_count=4)
    bench.flip(200)
    bench.peers[other].log[30] ^= 1
    store = await bench.closed_healing().open(BadStart(bench, 0, bench.records[1]))
    assert read_whole_log(store) == bench.log
