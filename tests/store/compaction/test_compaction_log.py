"""One queue: what it takes, and what a reader gets when something is wrong."""

import pytest

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.compaction.compaction_log import CompactionLog
from store.results import GetMessageStatus
from tandem.wire.message_properties import property_value
from tests.store.compaction.compaction_world import (
    TOPIC,
    bodies,
    keyed_message,
    open_compacted,
    put_keys,
)
from tests.store.store_world import put
from tests.support.logged import logged


def log_of(store: MessageStore) -> CompactionLog:
    (log,) = store.compaction._logs.open_logs()
    return log


class OnlyKey:
    """A filter of properties."""

    cost = 1
    uses_bit_maps = False

    def may_match(self, at: int, unit: object) -> bool:
        del at, unit
        return True

    def matches(self, properties: bytes) -> bool:
        return property_value(properties, b"KEYS") == b"b"


def test_a_filter_is_asked_for_each_message() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "abab")
        result = store.reads.get_message(TOPIC, 0, 0, 32, message_filter=OnlyKey())
        assert (result.message_count, result.filtered_count) == (2, 2)
        assert result.next_begin_offset == 4


@pytest.mark.parametrize("what", ["ends", "goes on"])
def test_a_damaged_record_ends_a_read_or_is_passed_over(what: str) -> None:
    skips = what == "goes on"
    with open_compacted(SimulatedDisk(), skip_damaged_records=skips) as store:
        put_keys(store, "abc")
        assert len(bodies(store)) == 3
        pair = log_of(store).current.pairs[0]
        pair.log.buffer[pair.unit(1).offset + 88] ^= 1
        if skips:
            assert bodies(store) == ["0:a0", "2:c2"]
            return
        assert bodies(store) == ["0:a0"]
        result = store.reads.get_message(TOPIC, 0, 1, 32)
        assert result.status is GetMessageStatus.MESSAGE_DAMAGED
        assert result.damaged is not None
        assert result.damaged.queue_offset == result.next_begin_offset == 1


def test_a_damaged_record_of_the_commit_log_is_waited_for() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "abc")
        buffer = store.commit_log.files.files[0].buffer
        buffer[bytes(buffer).index(b"b1")] ^= 1
        assert bodies(store) == ["0:a0"]
        assert log_of(store).is_stuck
        assert store.compaction.keep_from(7) == 7, "it does not hold the commit log for ever"


def test_a_record_with_another_kind_of_host_keeps_its_store_time() -> None:
    with open_compacted(SimulatedDisk()) as store:
        put(store, keyed_message("a", "x"))
        bodies(store)
        unit = log_of(store).current.pairs[0].unit(0)
        (message,) = store.reads.get_message(TOPIC, 0, 0, 1).body
        assert unit.store_timestamp_ms == int.from_bytes(message[56:64], "big")


def test_what_left_the_commit_log_before_it_was_followed_is_said_to_be_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_compacted(SimulatedDisk()) as store:
        put_keys(store, "ab")
        queue = store.queues.find(TOPIC, 0)
        assert queue is not None
        queue.correct_min_offset(store.max_physical_offset)
        put_keys(store, "c", start=2)
        assert bodies(store) == ["2:c2"]
    (line,) = logged(caplog, "store.compaction.compaction_log")
    assert line == (TOPIC, 0, 0, 1)
