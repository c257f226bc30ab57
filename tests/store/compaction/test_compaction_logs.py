"""Opening: a compaction log and its queue agree, whatever a stop has left."""

import random

import pytest

from node.simulated.disk import SimulatedDisk
from store.recovery.truncation import TruncationIntent, write_intent
from tests.store.compaction.compaction_world import (
    CQ,
    LOG,
    TOPIC,
    bodies,
    compact,
    names,
    open_compacted,
    put_keys,
)
from tests.store.store_world import DIRECTORY

POSITIONS = "/store/compaction/position-checkpoint"


def test_positions_are_a_file_as_rocketmq_writes_it() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abcabcabcabcabcabcd")
        compact(store)
    expected = b'{\n\t"empty":false,\n\t"queueOffsetMap":{\n\t\t"State_0":13\n\t}\n}'
    assert disk.read(POSITIONS) == expected
    with open_compacted(disk) as store:
        assert store.compaction._logs.position(TOPIC, 0) == 13
        assert store.compaction._logs.position(TOPIC, 1) == -1


def test_a_store_without_such_topics_has_no_files_of_them() -> None:
    disk = SimulatedDisk()
    open_compacted(disk).close()
    assert disk.read(POSITIONS) is None


def test_without_positions_all_is_compacted_anew() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abcabcabcabcabcabcd")
        compact(store)
        found = bodies(store)
    for name in ("", ".bak", ".crc"):
        disk.remove(POSITIONS + name)
    with open_compacted(disk) as store:
        compact(store)
        assert bodies(store) == found


def test_where_it_is_switched_off_such_topics_are_as_others() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk, enable_compaction=False) as store:
        put_keys(store, "aa")
        compact(store)
        assert bodies(store) == ["0:a0", "1:a1"]
    assert names(disk, LOG) == []
    with open_compacted(disk) as store:
        assert bodies(store) == ["0:a0", "1:a1"]
    assert names(disk, LOG) == [0]


def test_messages_that_were_cut_off_the_log_are_cut_here_as_well() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abc")
        cut = store.max_physical_offset
        put_keys(store, "de", start=3)
        assert len(bodies(store)) == 5
    write_intent(disk, DIRECTORY, TruncationIntent(cut, "a test", {}, "cut"))
    with open_compacted(disk) as store:
        assert bodies(store) == ["0:a0", "1:b1", "2:c2"]
        put_keys(store, "fg", start=3)
        assert bodies(store, 2) == ["2:c2", "3:f3", "4:g4"]


@pytest.mark.parametrize("seed", range(40))
def test_what_a_power_loss_took_is_taken_from_the_queue_again(seed: int) -> None:
    disk = SimulatedDisk()
    store = open_compacted(disk)
    put_keys(store, "abcabcabcabcabcabcd")
    found = bodies(store)
    store.sync_log()
    store.queues.sync_all()
    with open_compacted(disk.powered_off(random.Random(seed))) as again:
        assert bodies(again) == found


def test_files_of_a_topic_that_was_deleted_and_made_again_go() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, "abc")
        assert len(bodies(store)) == 3
        hidden = store.max_physical_offset
        put_keys(store, "d", start=3)
    with open_compacted(disk, hidden_before=lambda _: hidden) as store:
        store.queues.correct_min_offset(store.min_physical_offset)
        assert bodies(store, 3) == ["3:d3"]
        assert store.compaction._logs.open_logs()[0].min_offset == 3
    assert len(names(disk, CQ)) == 1


def test_a_topic_that_is_made_again_meanwhile_begins_anew() -> None:
    hidden = 0
    disk = SimulatedDisk()
    with open_compacted(disk, hidden_before=lambda _: hidden) as store:
        put_keys(store, "abc")
        assert len(bodies(store)) == 3
        hidden = store.max_physical_offset
        store.queues.correct_min_offset(store.min_physical_offset)
        put_keys(store, "d", start=3)
        assert bodies(store) == ["3:d3"]
