"""What is bad in a log is healed from whoever has it, and only from who is right."""

from types import SimpleNamespace

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from ha.fenced.comparing_service import AWAY_SECONDS
from ha.fenced.replica_role import ReplicaRole
from tandem.wire.fingerprint import BLOCK_BYTES, crcs_of
from tests.ha.fenced_world import Replica
from tests.ha.fingerprinted import flip
from tests.ha.healing_bench import FILE_BYTES, Bench
from tests.ha.healing_world import open_group, unconfirmed
from tests.ha.world import FILE_SIZE_BYTES, read_whole_log
from tests.store.store_world import check_store

WORDS = "a bit has flipped"


def damage(node: Replica, offset: int, size: int = 1) -> None:
    flip(node.store, offset)
    node.store.commit_log.damage.note(offset, offset + size, WORDS)


async def test_a_follower_is_healed_and_says_from_whom(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        damage(group.first, 5_000)
        assert "damaged" in group.first.ha.status().damage
        await group.healed(group.first)
        status = group.first.ha.status()
        assert (status.damage, status.bad_bytes, status.not_healed) == ("", 0, [])
        (healed,) = status.healed
        assert (healed.start, healed.end, healed.reason) == (0, FILE_SIZE_BYTES, WORDS)
        assert healed.source in {group.master.name, group.second.name}


async def test_what_was_healed_is_known_after_a_restart(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        damage(group.first, 5_000)
        await group.healed(group.first)
        before = group.first.ha.status().healed
        group.first.kill()
        again = group.world.start(group.first.name)
        await group.world.wait_for(lambda: again.serves)
        assert again.ha.status().healed == before


async def test_a_master_gives_way_and_is_healed_from_followers(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        damage(group.master, 5_000)
        heir = await group.world.master(but=group.master.name)
        await group.healed(group.master)
        assert heir.ha.role is ReplicaRole.MASTER
        assert [part.reason for part in group.master.ha.status().healed] == [WORDS]


async def test_nodes_that_are_damaged_at_different_places_heal_each_other(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        damage(group.first, 5_000)
        damage(group.second, FILE_SIZE_BYTES + 5_000)
        damage(group.master, 2 * FILE_SIZE_BYTES + 50)
        await group.healed(*group.nodes)


async def test_the_file_that_is_being_written_is_healed_by_records(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        at = group.end - group.end % FILE_SIZE_BYTES
        record = group.first.store.commit_log.record_at(at)
        assert record is not None
        flip(group.first.store, at + 90)
        group.first.store.commit_log.damage.note(at, at + len(record), WORDS)
        await group.healed(group.first)


async def test_without_any_fingerprint_a_closed_file_is_healed_by_records(
    autojump_clock: MockClock,
) -> None:
    async with open_group(has_fingerprints=False) as group:
        group.first.store.commit_log.files.files[1].buffer[:] = bytes(FILE_SIZE_BYTES)
        group.first.store.commit_log.damage.note(FILE_SIZE_BYTES, 2 * FILE_SIZE_BYTES, "it is gone")
        await group.healed(group.first)


async def test_the_fingerprint_of_a_file_that_has_none_comes_from_others(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        store = group.first.store
        store.fingerprints.drop(0)
        store.commit_log.files.files[0].buffer[:] = bytes(FILE_SIZE_BYTES)
        store.commit_log.damage.note(0, FILE_SIZE_BYTES, "it is gone")
        await group.healed(group.first)
        found = store.fingerprints.of(0)
        assert found is not None
        assert found.crcs == crcs_of(group.log[:FILE_SIZE_BYTES])


async def test_a_doubt_that_was_none_is_over(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_group() as group:
        group.first.store.commit_log.damage.note(0, 1 << 62, "damage.json cannot be read")
        await group.healed(group.first)
        assert group.first.ha.status().healed == []
        assert "whole from 0 to" in caplog.text


async def test_what_nobody_has_is_not_healed_and_that_is_said(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        for node in group.nodes:
            damage(node, 5_000)
        status = group.first.ha.status
        await group.world.wait_for(lambda: status().not_healed)
        assert "is damaged at" in status().not_healed[0]
        assert status().bad_bytes == 1
        await group.world.master()
        await group.world.wait_for(lambda: group.master.serves)
        flip(group.master.store, 5_000)
        group.master.store.commit_log.damage.healed(0, 6_000)
        await group.healed(*group.nodes)
        assert group.first.ha.status().not_healed == []


def lose_file(node: Replica, start: int) -> None:
    """Put a stand-in where a file of the log was, as a start does."""
    file = node.store.commit_log.files.find_by_offset(start)
    assert file is not None
    node.store.fingerprints.drop(start)
    file.buffer[:] = bytes(FILE_SIZE_BYTES)
    node.store.commit_log.damage.note(start, start + FILE_SIZE_BYTES, "the file is missing")


async def delete_as_too_old(node: Replica, end: int) -> None:
    """As retention does: not before the queues are on the disk."""
    with trio.fail_after(60):
        while not node.store.clean_service.commit_log.give_up_before(end):
            await trio.sleep(1)


async def test_a_lost_file_that_all_others_have_deleted_as_too_old_is_given_up(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_group() as group:
        for node in (group.master, group.second):
            await delete_as_too_old(node, FILE_SIZE_BYTES)
        lose_file(group.first, 0)
        store = group.first.store
        await group.world.wait_for(lambda: not store.commit_log.damage, 100)
        assert store.min_physical_offset == FILE_SIZE_BYTES
        assert f"the log begins at {FILE_SIZE_BYTES} now" in caplog.text
        assert group.first.ha.status().not_healed == []
        store.queues.correct_min_offset(store.min_physical_offset)
        check_store(store)
        # So does the next start: nothing is missed that is gone for good.
        group.first.kill()
        group.world.reap(group.first.name)
        again = group.world.start(group.first.name)
        await group.world.wait_for(lambda: group.world.is_back(again))
        assert again.store.min_physical_offset == FILE_SIZE_BYTES
        assert not again.store.commit_log.damage


@pytest.mark.slow
async def test_a_lost_file_is_not_given_up_while_one_has_it_or_does_not_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        await delete_as_too_old(group.master, FILE_SIZE_BYTES)
        group.second.kill()
        lose_file(group.first, 0)
        await group.world.wait_for(lambda: group.first.ha.status().not_healed)
        await trio.sleep(100)
        assert group.first.store.min_physical_offset == 0
        assert group.first.ha.status().bad_bytes == FILE_SIZE_BYTES
        group.world.reap(group.second.name)
        second = group.world.start(group.second.name)
        await group.healed(group.first)
        assert second.name in {part.source for part in group.first.ha.status().healed}


async def test_where_nobody_answers_it_is_tried_again(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        group.master.kill()
        group.second.kill()
        damage(group.first, 5_000)
        status = group.first.ha.status
        await group.world.wait_for(lambda: "no other node answers" in status().not_healed)
        group.world.start(group.second.name)
        await group.healed(group.first)


async def test_bytes_that_do_not_fit_are_not_taken(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_group() as group:
        for node in (group.master, group.second):
            monkeypatch.setattr(
                node.ha.served_log, "data", lambda start, end, _: bytes(end - start)
            )
        damage(group.first, 5_000)
        status = group.first.ha.status
        await group.world.wait_for(lambda: status().not_healed)
        assert "does not have the right checksum" in status().not_healed[0]
        assert status().bad_bytes == 1
        monkeypatch.undo()
        await group.healed(group.first)


async def test_what_is_not_confirmed_is_healed_from_who_has_it_from_the_same_master(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group, unconfirmed(group, group.second) as (start, end):
        log = read_whole_log(group.master.store)
        damage(group.first, start + 90)
        await group.world.wait_for(lambda: not group.first.store.commit_log.damage, 4.0)
        assert read_whole_log(group.first.store) == log
        assert group.first.store.confirm_offset <= start
        assert [part.source for part in group.first.ha.status().healed] == [group.master.name]
        assert end == len(log)


async def test_what_is_not_confirmed_and_perhaps_of_another_master_waits(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group, unconfirmed(group, group.second) as (start, _):
        epochs = group.first.ha.replica.epochs
        epochs.replace(tuple(replace(entry, id="") for entry in epochs.entries))
        damage(group.first, start + 90)
        status = group.first.ha.status
        await group.world.wait_for(lambda: status().not_healed, 4.0)
        assert f"{group.master.name} has confirmed only" in status().not_healed[0]
        assert status().bad_bytes == 1
        assert not status().healed


# -- beside peers that are made up ---------------------------------------------------------------


async def test_a_false_alarm_says_nothing_of_another_block(autojump_clock: MockClock) -> None:
    """The second block cannot be healed; those around it, and the next file, are whole."""
    bench = Bench()
    await bench.take_fingerprints()
    bench.flip(BLOCK_BYTES + 50)
    bench.note(BLOCK_BYTES, 2 * BLOCK_BYTES)
    for peer in bench.peers:
        peer.bad = ((BLOCK_BYTES, BLOCK_BYTES + 1),)
    for start in (0, 2 * BLOCK_BYTES, FILE_BYTES):
        bench.note(start, start + 100)
    await bench.healing.heal()
    assert bench.bad == [(BLOCK_BYTES, 2 * BLOCK_BYTES)]
    assert [(piece.start, piece.end) for piece in bench.healing.stuck] == bench.bad
    for peer in bench.peers:
        peer.bad = ()
    await bench.healing.heal()
    assert bench.is_equal
    assert bench.bad == []
    assert bench.healing.stuck == {}


async def test_a_file_that_is_being_written_gets_no_fingerprint_from_nodes_that_are_ahead(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    first = next(record for record in bench.records if record >= 2 * FILE_BYTES)
    second = bench.records[bench.records.index(first) + 1]
    bench.flip(first + 200)
    bench.note(first, second)
    for peer in bench.peers:
        peer.log += bytes(FILE_BYTES)
    await bench.healing.heal()
    assert bench.is_equal
    assert 2 * FILE_BYTES not in bench.store.fingerprints


async def test_bytes_as_written_are_right_against_what_was_read_later(
    autojump_clock: MockClock,
) -> None:
    """Ours are of the disk, and had changed by then."""
    bench = Bench()
    bench.flip(50)
    await bench.take_fingerprints(written_from=FILE_BYTES)
    bench.note(0, 100)
    bench.peers[1].written_from = 1 << 40
    bench.peers[1].log[50] ^= 2
    await bench.healing.heal()
    assert bench.is_equal
    assert bench.bad == []


async def test_a_node_that_is_away_is_waited_for_before_memory_decides(
    autojump_clock: MockClock,
) -> None:
    """The other one's memory had changed before its fingerprint was taken; the third knows it."""
    bench = Bench()
    await bench.take_fingerprints(written_from=FILE_BYTES)
    bench.peers[0].log[50] ^= 1
    bench.peers[1].answers = False
    for _ in range(2):
        await bench.comparing.compare_now(0)
        await trio.sleep(AWAY_SECONDS - 1)
        assert bench.is_equal
        assert bench.bad == []
        assert list(bench.comparing.undecided) == [0]
        bench.peers[1].answers = True
        await bench.comparing.compare_now(0)
        assert bench.is_equal
        assert bench.bad == []
        assert not bench.comparing.undecided
        bench.peers[1].answers = False


async def test_a_node_that_stays_away_does_not_keep_damage_from_being_healed(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    bench.flip(50)
    await bench.take_fingerprints(written_from=FILE_BYTES)
    bench.note(0, 100)
    bench.peers[1].answers = False
    await bench.healing.heal()
    assert bench.bad == [(0, 100)]
    assert all(stuck.is_undecided for stuck in bench.healing.stuck.values())
    await trio.sleep(AWAY_SECONDS)
    await bench.healing.heal()
    assert bench.is_equal
    assert bench.bad == []


async def test_damage_is_not_over_because_our_fingerprint_was_taken_of_it(
    autojump_clock: MockClock,
) -> None:
    """Memory had changed before; the record says so, and nobody else answers yet."""
    bench = Bench()
    record, after = bench.records[1:3]
    bench.flip(record + 2_000)  # of its body
    await bench.take_fingerprints()
    bench.note(record, after)
    for peer in bench.peers:
        peer.answers = False
    await bench.healing.heal()
    assert bench.bad == [(record, after)]
    for peer in bench.peers:
        peer.answers = True
    await bench.healing.heal()
    assert bench.bad == []
    assert bench.is_equal


async def test_who_was_away_at_one_damage_is_waited_for_anew_at_the_next(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    bench.flip(50)
    await bench.take_fingerprints(written_from=FILE_BYTES)
    bench.note(0, 100)
    bench.peers[1].answers = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.healing.run)
        await trio.sleep(1.5)
        assert bench.bad == [(0, 100)]
        await trio.sleep(60)
        assert bench.bad == []
        bench.flip(50)
        await bench.take_fingerprints(written_from=FILE_BYTES)
        bench.note(0, 100)
        await trio.sleep(1.5)
        assert bench.bad == [(0, 100)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_known", [True, False])
async def test_before_the_in_sync_set_is_known_all_nodes_have_to_agree(
    autojump_clock: MockClock,
    is_known: bool,  # noqa: FBT001
) -> None:
    bench = Bench(peer_count=4)
    bench.flip(50)
    bench.note(0, BLOCK_BYTES)
    for peer in bench.peers:
        peer.written_from = FILE_BYTES
    bench.peers[0].log[60] ^= 1
    if not is_known:
        bench.view = None
    await bench.healing.heal()
    assert bench.is_equal is is_known
    assert bool(bench.healing.stuck) is not is_known


@pytest.mark.parametrize("other", [0, 1, 2])
async def test_without_fingerprints_the_bytes_of_most_are_right(
    autojump_clock: MockClock, other: int
) -> None:
    bench = Bench(peer_count=3)
    bench.flip(bench.records[1] + 200)
    bench.note(bench.records[1], bench.records[2])
    for peer in bench.peers:
        peer.written_from = None
    bench.peers[other].log[bench.records[1] + 30] ^= 1  # no checksum of a record covers that
    await bench.healing.heal()
    assert not bench.is_equal, "two of four are no majority"
    (stuck,) = bench.healing.stuck.values()
    assert stuck.is_undecided
    bench.view = SimpleNamespace(state=SimpleNamespace(isr=dict.fromkeys(("a1", "a2", "a3"), "i")))
    await bench.healing.heal()
    assert bench.is_equal


async def test_who_is_not_in_the_in_sync_set_counts_as_one_more(autojump_clock: MockClock) -> None:
    bench = Bench()
    bench.flip(bench.records[1] + 200)
    bench.note(bench.records[1], bench.records[2])
    for peer in bench.peers:
        peer.written_from = None
    bench.peers[0].log[bench.records[1] + 30] ^= 1
    bench.view = SimpleNamespace(state=SimpleNamespace(isr={"a2": "i"}))
    await bench.healing.heal()
    (stuck,) = bench.healing.stuck.values()
    assert stuck.is_undecided, "it is one of two who answer"


async def test_what_cannot_be_healed_is_asked_for_less_and_less_and_news_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    bench = Bench()
    await bench.take_fingerprints()
    bench.flip(50)
    for peer in bench.peers:
        peer.bad = ((0, BLOCK_BYTES),)
    asked = bench.peers[0].asked
    nursery.start_soon(bench.healing.run)
    await trio.sleep(1)
    bench.note(0, BLOCK_BYTES)
    await trio.sleep(80.7)
    assert 5 <= len(asked) <= 8
    before = len(asked)
    await trio.sleep(600)
    assert 9 <= len(asked) - before <= 11, "once a minute"
    before = len(asked)
    bench.flip(FILE_BYTES + 50)
    bench.note(FILE_BYTES, FILE_BYTES + 100)
    await trio.sleep(2.5)
    assert bench.bad == [(0, BLOCK_BYTES)]
    await trio.sleep(4)
    assert len(asked) - before > 3, "something has become better: it is tried sooner again"
    await trio.sleep(1000)
    for peer in bench.peers:
        peer.bad = ()
    await trio.sleep(61)
    assert bench.bad == []
    assert bench.is_equal
    before = len(asked)
    await trio.sleep(1000)
    assert len(asked) == before, "nothing is bad"
    bench.flip(50)
    for peer in bench.peers:
        peer.bad = ((0, BLOCK_BYTES),)
    bench.note(0, BLOCK_BYTES)
    await trio.sleep(8.3)
    assert len(asked) - before >= 3, "and it begins with short pauses again"
    nursery.cancel_scope.cancel()


async def test_what_others_have_healed_is_not_said_to_be_stuck(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    bench = Bench()
    await bench.take_fingerprints()
    bench.flip(50)
    for peer in bench.peers:
        peer.bad = ((0, BLOCK_BYTES),)
    bench.note(0, BLOCK_BYTES)
    nursery.start_soon(bench.healing.run)
    await trio.sleep(200.3)
    assert bench.healing.stuck
    bench.flip(50)
    bench.store.commit_log.damage.healed(0, BLOCK_BYTES)
    await trio.sleep(3)
    assert bench.healing.stuck == {}
    asked = bench.peers[0].asked
    before = len(asked)
    bench.flip(50)
    bench.note(0, BLOCK_BYTES)
    await trio.sleep(8.3)
    assert len(asked) - before >= 3, "new damage is looked at with short pauses"
    nursery.cancel_scope.cancel()
