import msgspec
import pytest
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import GetMessageStatus, MessageStore
from store.messages.message_filter import READ_COST_MAX, record_properties
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_ext import CqExtUnit
from tandem.wire.message import decode_messages
from tests.ha.fingerprinted import take_fingerprints
from tests.store.store_world import a_message, open_store, put


class Wanted(msgspec.Struct):
    """Wants messages whose property string is one of these."""

    properties: set[bytes]
    cost: int = 1
    uses_bit_maps: bool = False
    looked_at: int = 0

    def may_match(self, at: int, unit: CqExtUnit) -> bool:
        return unit.filter_bit_map != b"no"

    def matches(self, properties: bytes) -> bool:
        self.looked_at += 1
        return properties in self.properties


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        message = msgspec.structs.replace(
            a_message(number), properties=f"n\x01{number % 10}\x02".encode()
        )
        put(store, message)


def read(store: MessageStore, wanted: Wanted, offset: int = 0) -> tuple[list[int], int, int]:
    result = store.reads.get_message("TopicA", 0, offset, 32, message_filter=wanted)
    found = [m.queue_offset for view in result.body for m in decode_messages(view)]
    for view in result.body:
        view.release()
    assert (result.status is GetMessageStatus.FOUND) == bool(found)
    return found, result.next_begin_offset, result.filtered_count


def test_only_what_is_wanted_is_read_and_the_rest_is_passed_over() -> None:
    with open_store(SimulatedDisk(), consume_queue_bytes=2_000) as store:
        fill(store, 25)
        wanted = Wanted({b"n\x013\x02", b"n\x014\x02"})
        assert read(store, wanted) == ([3, 4, 13, 14, 23, 24], 25, 19)
        assert read(store, wanted, 5) == ([13, 14, 23, 24], 25, 16)
        assert read(store, Wanted(set())) == ([], 25, 25)
        result = store.reads.get_message("TopicA", 0, 0, 32, message_filter=Wanted(set()))
        assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE


def test_what_one_read_puts_into_a_filter_is_bounded() -> None:
    with open_store(SimulatedDisk(), consume_queue_bytes=2_000) as store:
        fill(store, 25)
        dear = Wanted({b"n\x013\x02"}, cost=READ_COST_MAX // 10)
        assert read(store, dear) == ([3], 10, 9)
        assert read(store, dear, 10) == ([13], 20, 9)
        too_dear = Wanted(set(), cost=10 * READ_COST_MAX)
        assert read(store, too_dear, 7) == ([], 8, 1)


def test_a_bit_map_that_says_no_saves_the_look_at_the_record() -> None:
    with open_store(
        SimulatedDisk(), consume_queue_bytes=2_000, enable_consume_queue_ext=True
    ) as store:
        store.calculate_bit_maps(lambda topic, properties: b"no" if b"3" in properties else b"")
        fill(store, 20)
        wanted = Wanted({b"n\x013\x02", b"n\x014\x02"}, uses_bit_maps=True)
        assert read(store, wanted) == ([4, 14], 20, 18)
        assert wanted.looked_at == 18
        wanted.uses_bit_maps = False
        assert read(store, wanted)[0] == [3, 4, 13, 14]


def test_bit_maps_are_kept_for_all_ways_into_a_queue() -> None:
    seen = []

    def bit_map_of(topic: str, properties: bytes) -> bytes:
        seen.append((topic, properties))
        return properties

    with open_store(
        SimulatedDisk(), consume_queue_bytes=2_000, enable_consume_queue_ext=True
    ) as store:
        fill(store, 1)
        store.calculate_bit_maps(bit_map_of)
        fill(store, 2)
        queue = store.queues.find("TopicA", 0)
        assert isinstance(queue, ConsumeQueue)
        units = [queue.ext_unit(number) for number in range(3)]
        assert [unit.filter_bit_map for unit in units if unit] == [
            *(b"", b"n\x010\x02", b"n\x011\x02"),
        ]
        assert seen == [("TopicA", b"n\x010\x02"), ("TopicA", b"n\x011\x02")]


def test_a_place_without_a_record_has_no_properties() -> None:
    with open_store(SimulatedDisk(), consume_queue_bytes=2_000) as store:
        fill(store, 2)
        end = store.commit_log.max_offset
        assert record_properties(store.commit_log, end, 100) is None
        assert record_properties(store.commit_log, 5, end - 10) is None


@pytest.mark.parametrize("ext", [True, False])
def test_a_queue_says_what_its_extension_keeps(*, ext: bool) -> None:
    with open_store(SimulatedDisk(), enable_consume_queue_ext=ext) as store:
        fill(store, 1)
        queue = store.queues.find("TopicA", 0)
        assert isinstance(queue, ConsumeQueue)
        assert (queue.ext_unit(0) is not None) is ext


def rot(store: MessageStore, number: int, at: int) -> None:
    """Change a byte of a record that is known to be sound."""
    queue = store.queues.find("TopicA", 0)
    assert queue is not None
    offset = queue.unit(number)[0] + at
    file = store.commit_log.files.find_by_offset(offset)
    assert file is not None
    file.buffer[offset - file.file_from_offset] ^= 1


@pytest.mark.parametrize("at", [2, 30, 87])
def test_a_record_that_has_rotted_is_not_taken_for_one_that_is_not_wanted(at: int) -> None:
    """A length, the place, the length of the body."""
    with open_store(SimulatedDisk(), consume_queue_bytes=2_000) as store:
        fill(store, 25)
        rot(store, 5, at)
        wanted = Wanted({b"n\x013\x02", b"n\x016\x02"})
        assert read(store, wanted)[:2] == ([3], 5)
        damaged = store.reads.get_message("TopicA", 0, 5, 32, message_filter=wanted)
        assert damaged.status is GetMessageStatus.MESSAGE_DAMAGED
        assert damaged.next_begin_offset == 5
        rot(store, 5, at)
        store.commit_log.damage.healed(0, 1 << 62)
        assert read(store, wanted, 5)[:2] == ([6, 13, 16, 23], 25)


async def test_a_property_that_has_rotted_in_a_closed_file_is_noticed(
    autojump_clock: MockClock,
) -> None:
    with open_store(SimulatedDisk(), consume_queue_bytes=2_000) as store:
        fill(store, 100)
        await take_fingerprints(store)
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        rot(store, 5, queue.unit(5)[1] - 2)
        assert read(store, Wanted({b"n\x013\x02"}))[0] == []
        result = store.reads.get_message("TopicA", 0, 0, 32, message_filter=Wanted(set()))
        assert result.status is GetMessageStatus.MESSAGE_DAMAGED
        assert result.damaged is not None
        assert store.commit_log.damage.covers(queue.unit(5)[0], queue.unit(5)[0] + 1)


def test_who_skips_damaged_records_passes_over_one_that_is_not_wanted() -> None:
    with open_store(SimulatedDisk(), consume_queue_bytes=2_000, skip_damaged_records=True) as store:
        fill(store, 25)
        rot(store, 5, 30)
        assert read(store, Wanted({b"n\x013\x02"}))[:2] == ([3, 13, 23], 25)
        assert store.record_check.passed_over == 1
