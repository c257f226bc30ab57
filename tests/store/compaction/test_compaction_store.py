import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.results import GetMessageStatus
from tandem.wire.message_properties import tags_code
from tests.store.compaction.compaction_world import (
    CQ,
    LOG,
    LOG_BYTES,
    TOPIC,
    bodies,
    compact,
    keyed_message,
    names,
    open_compacted,
    put_keys,
    read_all,
)
from tests.store.store_world import put


def test_before_compacting_everything_is_read_in_order() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "abab")
        assert bodies(store) == ["0:a0", "1:b1", "2:a2", "3:b3"]
        assert bodies(store, 2) == ["2:a2", "3:b3"]


def test_of_each_key_the_newest_message_stays_with_its_number() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abcabcabcabcabcabcd")
        before = bodies(store)
        assert len(before) == 19
        compact(store)
        after = bodies(store)
        assert after == ["11:c11", "12:a12", "13:b13", *before[14:]]
        first, second, *_ = read_all(store)
        assert (first.physical_offset, second.physical_offset) == (0, first.store_size)
        assert names(disk, LOG) == names(disk, CQ) == [0, 2 * LOG_BYTES]
        assert store.reads.min_offset_in_queue(TOPIC, 0) == 0
        assert store.reads.max_offset_in_queue(TOPIC, 0) == 19


def test_a_second_time_nothing_is_compacted_that_was() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abcabcabcabcabcabcd")
        compact(store)
        found = bodies(store)
        compact(store)
        assert bodies(store) == found
        put_keys(store, "abcdabcdabcdabcdabcdabcd", start=19)
        compact(store)
        # 43 messages: six files are closed, and the seventh has one.
        assert bodies(store) == ["38:d38", "39:a39", "40:b40", "41:c41", "42:d42"]


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_store_that_is_opened_again_goes_on(how: str) -> None:
    disk = SimulatedDisk()
    store = open_compacted(disk)
    put_keys(store, "abcabcabcabcabcabcd")
    compact(store)
    found = bodies(store)
    if how == "closed":
        store.close()
    else:
        disk = disk.crashed()
    with open_compacted(disk) as again:
        assert bodies(again) == found
        put_keys(again, "ab", start=19)
        assert bodies(again) == [*found, "19:a19", "20:b20"]


def test_an_empty_body_deletes_its_key() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "abcdef")
        put(store, keyed_message("a", ""))
        put_keys(store, "ghijklmno", start=7)
        compact(store)
        assert [each.split(":")[1][:1] for each in bodies(store)] == list("bcdefghijklmno")


def test_if_all_keys_are_deleted_only_the_last_file_stays() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        for _ in range(8):
            put(store, keyed_message("a", ""))
        assert len(bodies(store)) == 8
        compact(store)
        assert names(disk, LOG) == [LOG_BYTES]
        assert bodies(store) == ["7:"]
    with open_compacted(disk) as store:
        assert bodies(store) == ["7:"]


def test_a_message_without_a_key_is_passed_over() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "a")
        put(store, keyed_message(" ", "blank"))
        put(store, keyed_message("", "none"))
        assert bodies(store) == ["0:a0"]
        assert store.reads.get_message(TOPIC, 0, 1, 32).next_begin_offset == 3
        put_keys(store, "b", start=3)
        assert bodies(store) == ["0:a0", "3:b3"]


def test_reads_end_where_the_queue_ends() -> None:
    with open_compacted(SimulatedDisk()) as store:
        result = store.reads.get_message(TOPIC, 0, 0, 32)
        assert result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
        put_keys(store, "ab")
        at_end = store.reads.get_message(TOPIC, 0, 2, 32)
        assert (at_end.status, at_end.next_begin_offset) == (
            GetMessageStatus.OFFSET_OVERFLOW_ONE,
            2,
        )
        past = store.reads.get_message(TOPIC, 0, 9, 32)
        assert (past.status, past.next_begin_offset) == (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 2)
        some = store.reads.get_message(TOPIC, 0, 0, 1)
        assert (some.message_count, some.next_begin_offset, some.max_offset) == (1, 1, 2)


def test_a_reader_gets_what_has_its_tags() -> None:
    with open_compacted(SimulatedDisk()) as store:
        for number, tags in enumerate(["x", "y", "x"]):
            put(store, keyed_message(f"k{number}", tags, tags=tags))
        found = store.reads.get_message(TOPIC, 0, 0, 32, tags_codes=frozenset({tags_code("x")}))
        assert (found.message_count, found.next_begin_offset) == (2, 3)


def test_what_is_not_on_the_disk_is_not_compacted() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abcabcabcabcabcabcd")
        trio.run(store.compaction.compact_all)
        assert len(names(disk, LOG)) == 3


def test_only_what_is_confirmed_is_in_the_compaction_log() -> None:
    with open_compacted(SimulatedDisk(), confirm_bounds_reads=True) as store:
        put_keys(store, "a")
        end = store.max_physical_offset
        put_keys(store, "b", start=1)
        store.confirm(end)
        assert bodies(store) == ["0:a0"]
        store.confirm(store.max_physical_offset)
        assert bodies(store) == ["0:a0", "1:b1"]


async def test_a_running_store_follows_and_compacts(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    with open_compacted(disk, compaction_schedule_internal_ms=60_000) as store:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            put_keys(store, "abcabcabcabcabcabcd")
            await trio.sleep(3)
            assert len(names(disk, LOG)) == 3
            await trio.sleep(120)
            assert len(names(disk, LOG)) == 2
            nursery.cancel_scope.cancel()


def test_the_commit_log_keeps_what_is_not_in_the_compaction_log() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "ab")
        store.compaction.follow_the_rest()
        assert store.compaction.keep_from(1 << 40) == 0
        for file, flushed in store.compaction.dirty_files(0):
            file.sync()
            flushed()
        assert store.compaction.keep_from(1 << 40) == 1 << 40


def test_what_was_followed_is_durable_when_the_last_of_its_files_is() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "ab")
        store.compaction.follow_the_rest()
        (log,) = store.compaction._logs.open_logs()
        *others, (last, flushed) = store.compaction.dirty_files(0)
        assert others
        for file, other_flushed in others:
            file.sync()
            other_flushed()
            assert log.durable_to == 0
        last.sync()
        flushed()
        assert log.durable_to == 2


def test_nothing_is_left_of_a_topic_that_is_deleted_while_its_files_are_made() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abc")
        assert len(bodies(store)) == 3
        for directory in (LOG, CQ):
            disk.replace(f"{directory}/compacting/{0:020d}", b"made")
        store.compaction.hide(TOPIC)
        for directory in (LOG, CQ):
            assert disk.list_directories(directory) == []


def test_a_topic_that_was_deleted_has_no_log() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abc")
        assert len(bodies(store)) == 3
        store.compaction.hide(TOPIC)
        assert names(disk, LOG) == names(disk, CQ) == []
        put_keys(store, "d", start=3)
        assert bodies(store, 3) == ["3:d3"]
