"""Logs that differ at rest are found by comparing, and the wrong one is healed."""

import re

import msgspec
import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from ha.fenced.comparing_service import AWAY_SECONDS, OPEN_BLOCK_BYTES, ComparingService
from store.services.fingerprint_service import LOOK_SECONDS
from tandem.wire.fingerprint import BLOCK_BYTES, crcs_of
from tandem.wire.peer_log import EpochPart, PeerLogPart
from tests.ha.fenced_world import Replica
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.ha.healing_bench import FILE_BYTES, Bench, Peer
from tests.ha.healing_world import open_group
from tests.ha.world import FILE_SIZE_BYTES


async def test_a_flip_that_was_taken_into_a_fingerprint_is_found_and_healed(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a properties byte, which no record's checksum covers."""
    async with open_group() as group:
        flip(group.first.store, 5_000)
        await take_fingerprints(group.first.store, is_written=False)
        await group.world.wait_for(lambda: group.first.ha.status().healed, 100.0)
        await group.healed(*group.nodes)
        (healed,) = group.first.ha.status().healed
        assert (healed.start, healed.end) == (0, FILE_SIZE_BYTES)
        assert "other replicas have other bytes, and are right" in healed.reason
        found = group.first.store.fingerprints.of(0)
        assert found is not None
        assert found.crcs == crcs_of(group.log[:FILE_SIZE_BYTES])
        assert all(not node.ha.status().undecided for node in group.nodes)


async def test_two_that_read_the_same_are_right_against_one(autojump_clock: MockClock) -> None:
    async with open_group(has_fingerprints=False) as group:
        flip(group.first.store, 5_000)
        for node in group.nodes:
            await take_fingerprints(node.store, is_written=False)
        await group.world.wait_for(lambda: group.first.ha.status().healed, 100.0)
        await group.healed(*group.nodes)


async def test_who_has_lost_its_fingerprint_looks_and_decides_between_two(
    autojump_clock: MockClock,
) -> None:
    """A byte that no record covers changed before its fingerprint was taken, on one of two."""
    async with open_group() as group:
        flip(group.first.store, FILE_SIZE_BYTES - 3)  # in the blank at its end
        await trio.sleep(2 * LOOK_SECONDS)  # each has taken those of its own
        await take_fingerprints(group.first.store)
        group.second.store.fingerprints.drop(0)
        await group.world.wait_for(lambda: group.first.ha.status().healed, 100.0)
        await group.healed(*group.nodes)
        assert group.second.store.fingerprints.of(0) is not None


async def test_where_nobody_knows_who_is_right_nothing_is_changed(
    autojump_clock: MockClock,
) -> None:
    async with open_group(has_fingerprints=False) as group:
        flip(group.first.store, 5_000)
        flip(group.second.store, 6_000)
        for node in group.nodes:
            await take_fingerprints(node.store, is_written=False)
        await group.world.wait_for(
            lambda: all(node.ha.status().undecided for node in group.nodes), 100.0
        )
        words = group.first.ha.status().undecided[0]
        assert f"replicas differ from 0 to {FILE_SIZE_BYTES}" in words
        assert all(f"{node.name} " in words for node in group.nodes)
        assert all(not node.ha.status().damage for node in group.nodes)
        flip(group.second.store, 6_000)
        await take_fingerprints(group.second.store, is_written=False)
        await group.world.wait_for(lambda: group.first.ha.status().healed, 200.0)
        await group.world.wait_for(
            lambda: not any(node.ha.status().undecided for node in group.nodes), 2000.0
        )


async def test_what_all_have_confirmed_is_not_asked_for_again(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        comparing = group.first.ha._healing._comparing
        assert comparing is not None
        starts = group.first.store.fingerprints.starts
        await group.world.wait_for(lambda: len(comparing._equal) == len(starts))
        asked: list[int] = []
        served = group.master.ha.served_log
        real = served.part

        def part(start: int, end: int) -> object:
            asked.append(start)
            return real(start, end)

        served.part = part  # type: ignore[method-assign,assignment]
        await comparing.compare()
        assert FILE_SIZE_BYTES not in asked
        fingerprint = group.first.store.fingerprints.of(0)
        assert fingerprint is not None
        group.first.store.fingerprints.drop(0)
        await comparing.compare()
        flip(group.first.store, 5_000)
        await take_fingerprints(group.first.store, is_written=False)
        await comparing.compare()
        assert 0 in asked


def comparing_of(node: Replica) -> ComparingService:
    comparing = node.ha._healing._comparing
    assert comparing is not None
    return comparing


def bad(node: Replica) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in node.store.commit_log.damage.ranges]


async def test_blocks_of_an_open_file_that_are_side_by_side_are_one_range(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        start = group.end - group.end % FILE_SIZE_BYTES
        block = start + 2 * OPEN_BLOCK_BYTES
        for place in (start + 19, block + 5, block + OPEN_BLOCK_BYTES + 5):
            flip(group.first.store, place)
        assert await comparing_of(group.first).compare_open(start, group.end)
        assert bad(group.first) == [
            (start, start + OPEN_BLOCK_BYTES),
            (block, block + 2 * OPEN_BLOCK_BYTES),
        ]
        assert await comparing_of(group.master).compare_open(start, group.end)
        assert not bad(group.master)


async def test_of_an_open_file_only_those_count_who_have_it_from_the_same_masters(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        start = group.end - group.end % FILE_SIZE_BYTES
        flip(group.first.store, start + 19)
        epochs = group.second.ha.replica.epochs
        epochs.replace(tuple(replace(each, id="another") for each in epochs.entries))
        comparing = comparing_of(group.first)
        assert await comparing.compare_open(start, group.end)
        assert not bad(group.first)
        assert f"replicas differ from {start} to" in comparing.undecided[start]
        said = re.findall(r"(\w+) [0-9a-f]{8} \(", comparing.undecided[start])
        assert said == sorted([group.first.name, group.master.name])
        flip(group.first.store, start + 19)
        assert await comparing.compare_open(start + 5, group.end)
        assert not comparing.undecided


# -- beside peers that are made up ---------------------------------------------------------------


async def test_a_file_that_not_all_confirm_is_asked_for_less_and_less(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    bench = Bench()
    await bench.take_fingerprints()
    first, second = bench.peers
    second.answers = False
    nursery.start_soon(bench.comparing.run)
    await trio.sleep(100)
    assert 2 * 4 <= len(first.asked) <= 2 * 6
    before = len(first.asked)
    await trio.sleep(10_000)
    assert 2 * 16 <= len(first.asked) - before <= 2 * 24, "every ten minutes at last"
    second.answers = True
    await trio.sleep(610)
    before = len(first.asked)
    await trio.sleep(10_000)
    assert len(first.asked) == before, "all have confirmed it"
    await change_fingerprint(bench)
    second.answers = False
    await trio.sleep(30)
    assert first.asked[before:].count(0) >= 2, "it is another one, and begins anew"
    nursery.cancel_scope.cancel()


async def change_fingerprint(bench: Bench) -> None:
    """Have one of the first file that is another, and equal to that of the first peer."""
    own = bench.store.fingerprints.of(0)
    assert own is not None
    crcs = b"?" * 4 + own.crcs[4:]
    assert await bench.store.fingerprints.save(msgspec.structs.replace(own, crcs=crcs))


async def test_a_peer_that_has_no_fingerprint_has_confirmed_nothing(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    await bench.take_fingerprints()
    bench.peers[0].written_from = None
    await bench.comparing.compare()
    bench.peers[0].written_from = 0
    await trio.sleep(6)
    before = len(bench.peers[0].asked)
    await bench.comparing.compare()
    await trio.sleep(6)
    await bench.comparing.compare()
    assert len(bench.peers[0].asked) == before + 2


@pytest.mark.parametrize("block", [0, 1, 2])
async def test_only_the_block_that_differs_is_bad_and_its_fingerprint_is_that_of_the_others(
    autojump_clock: MockClock, block: int
) -> None:
    bench = Bench()
    bench.flip(FILE_BYTES + block * BLOCK_BYTES + 50)
    await bench.take_fingerprints(written_from=1 << 40)
    await bench.comparing.compare()
    start = FILE_BYTES + block * BLOCK_BYTES
    assert bench.bad == [(start, min(start + BLOCK_BYTES, 2 * FILE_BYTES))]
    found = bench.store.fingerprints.of(FILE_BYTES)
    assert found is not None
    assert found.crcs == crcs_of(bench.log[FILE_BYTES : 2 * FILE_BYTES])


async def test_where_the_fingerprint_cannot_be_written_nothing_is_bad(
    autojump_clock: MockClock,
) -> None:
    """Our own one would speak for the bytes that are there, and the note would go again."""
    bench = Bench()
    bench.flip(50)
    await bench.take_fingerprints(written_from=1 << 40)
    bench.disk.capacity_bytes = bench.disk.used_bytes
    bench.disk.sync_fails = True
    await bench.comparing.compare()
    assert bench.bad == []
    bench.disk.sync_fails = False
    bench.disk.capacity_bytes = 1 << 40
    await bench.take_fingerprints(written_from=1 << 40)
    await trio.sleep(6)
    await bench.comparing.compare()
    assert bench.bad == [(0, BLOCK_BYTES)]


async def test_what_masters_of_another_history_wrote_is_not_compared(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    await bench.take_fingerprints(written_from=1 << 40)
    for peer in bench.peers:
        peer.log[50] ^= 1
        peer.epochs = (EpochPart(3, 0, "another"),)
    await bench.comparing.compare()
    assert bench.bad == []
    assert bench.comparing.undecided == {}


class OtherSize(Peer):
    """One whose files have fewer blocks."""

    async def part(self, start: int, end: int) -> PeerLogPart:
        said = await super().part(start, end)
        assert said.fingerprint is not None
        other = msgspec.structs.replace(said.fingerprint, crcs=b"?" * 8)
        return msgspec.structs.replace(said, fingerprint=other)


async def test_fingerprints_of_files_of_another_size_are_not_compared(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    await bench.take_fingerprints(written_from=1 << 40)
    bench.peers[:] = [OtherSize(peer.name, bench.log) for peer in bench.peers]
    await bench.comparing.compare()
    assert bench.bad == []
    assert bench.comparing.undecided == {}


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_fingerprint_is_taken_over_only_if_it_is_known_who_is_right(
    autojump_clock: MockClock,
    is_known: bool,  # noqa: FBT001
) -> None:
    bench = Bench()
    for peer in bench.peers:
        peer.written_from = 1 << 40
    bench.peers[0].log[BLOCK_BYTES + 50] ^= 1
    if is_known:
        bench.peers[1].written_from = 0
    await ask_and_take_over(bench)
    found = bench.store.fingerprints.of(0)
    if is_known:
        assert found is not None
        assert found.crcs == crcs_of(bench.log[:FILE_BYTES])
        assert not found.is_written(0), "it was not our memory that it was taken from"
    else:
        assert found is None


async def ask_and_take_over(bench: Bench) -> None:
    parts = [await peer.part(0, FILE_BYTES) for peer in bench.peers]
    await bench.comparing.take_over((0, FILE_BYTES), parts)


async def test_a_fingerprint_of_ours_is_put_right_when_others_are_asked_about_damage(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    bench.flip(50)
    await bench.take_fingerprints(written_from=1 << 40)
    await ask_and_take_over(bench)
    assert bench.bad == [(0, BLOCK_BYTES)]


async def test_before_the_in_sync_set_is_known_all_nodes_have_to_agree(
    autojump_clock: MockClock,
) -> None:
    bench = Bench(peer_count=4)
    bench.view = None
    for peer in bench.peers:
        peer.written_from = 1 << 40
    bench.flip(50)
    await bench.take_fingerprints(written_from=1 << 40)
    await bench.comparing.compare()
    assert bench.bad == []
    assert list(bench.comparing.undecided) == [0]


async def test_what_was_undecided_is_forgotten_when_all_say_the_same(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    for number, peer in enumerate(bench.peers):
        peer.written_from = 1 << 40
        peer.log[50] ^= 1 + number
        peer.log[50 + BLOCK_BYTES] ^= 1 + number
    await bench.take_fingerprints(written_from=1 << 40)
    await bench.comparing.compare()
    assert f"from 0 to {BLOCK_BYTES}" in bench.comparing.undecided[0], "the first of two blocks"
    for peer in bench.peers:
        peer.log[:] = bench.log
    await trio.sleep(6)
    await bench.comparing.compare()
    assert bench.comparing.undecided == {}
    assert bench.bad == []


@pytest.mark.parametrize("block", [0, 1])
async def test_one_against_one_the_record_decides_that_is_none(
    autojump_clock: MockClock, block: int
) -> None:
    """Both say that theirs is as written: ours had changed in memory before it was closed."""
    bench = Bench(peer_count=1)
    at = next(each for each in bench.records if each >= FILE_BYTES + block * BLOCK_BYTES)
    bench.flip(at + 2_000)  # of its body
    await bench.take_fingerprints(written_from=0)
    await bench.comparing.compare()
    assert bench.comparing.undecided == {}
    start = FILE_BYTES + block * BLOCK_BYTES
    first = start + (at + 2_000 - start) // BLOCK_BYTES * BLOCK_BYTES
    assert bench.bad == [(first, min(first + BLOCK_BYTES, 2 * FILE_BYTES))]
    found = bench.store.fingerprints.of(FILE_BYTES)
    assert found is not None
    assert found.crcs == crcs_of(bench.log[FILE_BYTES : 2 * FILE_BYTES])
    await bench.healing.heal()
    assert bench.bad == []
    assert bench.is_equal


async def test_one_against_one_a_byte_that_no_record_covers_is_left_to_an_operator(
    autojump_clock: MockClock,
) -> None:
    """And whoever's records are sound waits for the other to find out."""
    bench = Bench(peer_count=1)
    bench.peers[0].log[50] ^= 1
    await bench.take_fingerprints(written_from=0)
    await bench.comparing.compare()
    assert list(bench.comparing.undecided) == [0]
    assert bench.bad == []


async def test_others_that_differ_from_each_other_decide_nothing(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    at = bench.records[1] + 2_000
    bench.flip(at)
    bench.peers[0].log[at + 1] ^= 1
    await bench.take_fingerprints(written_from=0)
    await bench.comparing.compare()
    assert list(bench.comparing.undecided) == [0]
    assert bench.bad == []


async def test_who_answers_is_not_all_others_while_a_node_is_away(
    autojump_clock: MockClock,
) -> None:
    """Our record is none, and so is that of the only one who answers: the third is right."""
    bench = Bench()
    at = bench.records[1] + 2_000
    bench.flip(at)
    bench.peers[0].log[at] ^= 2
    await bench.take_fingerprints(written_from=0)
    bench.peers[1].answers = False
    await bench.comparing.compare_now(0)
    assert list(bench.comparing.undecided) == [0]
    assert bench.bad == []


async def test_one_fingerprint_is_not_taken_over_while_a_node_is_away(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    part = await bench.peers[0].part(0, FILE_BYTES)
    await bench.comparing.take_over((0, FILE_BYTES), [part])
    assert 0 not in bench.store.fingerprints
    await trio.sleep(AWAY_SECONDS)
    await bench.comparing.take_over((0, FILE_BYTES), [part])
    assert 0 in bench.store.fingerprints
