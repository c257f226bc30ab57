"""Where the valid log ends, decided from bytes alone: the engine behind every start."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.log.log_end import (
    Blank,
    Damage,
    DispatchRequest,
    LogEnd,
    count_records,
    find_log_end,
    first_store_timestamp_ms,
    looks_torn,
    read_record,
    record_behind,
    start_index,
)
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import BLANK_MAGIC_CODE, Host
from tandem.wire.record_scan import RecordColumns
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN

FILE_BYTES = 2048


class MemoryFile:
    """A log file in memory."""

    def __init__(self, data: bytearray, file_from_offset: int) -> None:
        self.buffer = data
        self.file_from_offset = file_from_offset
        self.size = len(data)


def files_of(log: LogBuilder) -> list[MemoryFile]:
    return [MemoryFile(bytearray(data), int(name)) for name, data in log.files().items()]


class Seen:
    """Takes what a walk hands out, and copies of the bytes."""

    def __init__(self) -> None:
        self.columns: list[RecordColumns] = []
        self.records: list[bytes] = []

    def __call__(self, buffer: bytes | memoryview, columns: RecordColumns) -> None:
        self.columns.append(columns)
        for start, size in zip(columns.start.tolist(), columns.size.tolist(), strict=True):
            self.records.append(bytes(buffer[start : start + size]))

    def of(self, name: str) -> list[int]:
        return [value for columns in self.columns for value in getattr(columns, name).tolist()]


def end_by_the_plain_rule(
    files: list[MemoryFile], *, check_crc: bool = True, force_verify_prop_crc: bool = False
) -> LogEnd:
    """Walk with `read_record` alone, as the module's docstring tells it."""
    end = LogEnd(files[0].file_from_offset, "")
    for file in files:
        position = 0
        while True:
            offset = file.file_from_offset + position
            found = read_record(
                file.buffer,
                position,
                file.size,
                offset,
                check_crc=check_crc,
                force_verify_prop_crc=force_verify_prop_crc,
            )
            if isinstance(found, Damage):
                return msgspec.structs.replace(end, offset=offset, reason=found.reason)
            if isinstance(found, Blank):
                break
            position += found.size
            count = end.record_count + 1
            stored_ms = found.store_timestamp_ms
            fell = end.clock_went_back or stored_ms < end.last_store_timestamp_ms
            end = LogEnd(offset + found.size, "", offset, stored_ms, count, fell)
        file_end = file.file_from_offset + file.size
        end = msgspec.structs.replace(end, offset=file_end, reason="blank record")
    return end


def a_log(count: int = 20) -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(count):
        log.put("TopicA", b"b%d" % number * 20, queue_id=number % 2, tags="TagA", keys="k")
    return log


def one_record(topic: str = "TopicA", **fields: Any) -> bytearray:  # noqa: ANN401 - of MessageExt
    log = LogBuilder(file_bytes=FILE_BYTES)
    log.put(topic, b"hello0", queue_id=1, tags="TagA", **fields)
    return log.log


def test_a_record_tells_the_queues_what_they_need() -> None:
    """CommitLog.checkMessageAndReturnSize and DispatchRequest."""
    record = one_record(sys_flag=8)
    request = read_record(record, 0, len(record), 0)
    assert request == DispatchRequest(
        topic="TopicA",
        queue_id=1,
        offset=0,
        size=len(record),
        tags_code=2_598_919,
        queue_offset=0,
        store_timestamp_ms=1_700_000_000_005,
        sys_flag=8,
        msg_base_offset=0,
        batch_size=1,
    )


@pytest.mark.parametrize("ips", [("::1", "10.0.0.1"), ("10.0.0.1", "::1"), ("::1", "::2")])
def test_records_with_ipv6_hosts_are_read(ips: tuple[str, str]) -> None:
    born, stored = (Host(ip, 1) for ip in ips)
    record = one_record(born_host=born, store_host=stored, topic="T" * 200)
    request = read_record(record, 0, len(record), 0)
    assert isinstance(request, DispatchRequest)
    assert (request.topic, request.store_timestamp_ms) == ("T" * 200, 1_700_000_000_005)


@pytest.mark.parametrize("size", range(len(one_record())))
def test_a_record_cut_at_any_byte_is_damage(size: int) -> None:
    record = one_record()
    assert isinstance(read_record(record, 0, size, 0), Damage)
    lost = record[:size] + bytes(len(record) - size)
    assert isinstance(read_record(lost, 0, len(lost), 0), Damage)


# Flags, times, hosts, numbers and texts carry no checksum in RocketMQ's format.
UNPROTECTED = {*range(12, 28), 36, 37, 38, 39, *range(40, 84), *range(95, 101), *range(103, 113)}


@pytest.mark.parametrize("at", range(len(one_record())))
def test_a_flipped_bit_is_noticed_wherever_the_format_allows_it(at: int) -> None:
    record = one_record()
    record[at] ^= 0x40
    accepted = isinstance(read_record(record, 0, len(record), 0), DispatchRequest)
    assert not accepted or at in UNPROTECTED


@given(st.integers(1, 200), st.integers(0, 400))
def test_a_lost_run_of_512_bytes_is_noticed_wherever_it_lies(start: int, body_bytes: int) -> None:
    """A power loss takes whole sectors; what is in them becomes what was there before: zeros."""
    log = LogBuilder(file_bytes=4096)
    log.put("TopicA", b"x" * body_bytes, tags="TagA", properties={"long": "p" * 600})
    record = log.log
    lost = record.copy()
    lost[start : start + 512] = bytes(len(record[start : start + 512]))
    assert isinstance(read_record(lost, 0, len(lost), 0), Damage)


def test_the_body_is_checked_unless_told_otherwise() -> None:
    record = one_record()
    record[90] ^= 1
    damage = read_record(record, 0, len(record), 0)
    assert isinstance(damage, Damage)
    assert isinstance(read_record(record, 0, len(record), 0, check_crc=False), DispatchRequest)


def test_a_record_at_another_place_is_damage() -> None:
    record = one_record()
    damage = read_record(record, 0, len(record), 4096)
    assert isinstance(damage, Damage)


@pytest.mark.parametrize(("size", "accepted"), [(8, True), (100, True), (101, False), (7, False)])
def test_a_blank_must_not_be_longer_than_what_is_left(size: int, *, accepted: bool) -> None:
    """Section "Blank": its TOTALSIZE is only bounds-checked."""
    data = bytearray(struct.pack(">II", size, BLANK_MAGIC_CODE) + bytes(92))
    assert isinstance(read_record(data, 0, 100, 0), Blank if accepted else Damage)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_random_bytes_are_read_or_damage_and_nothing_else(data: bytes, position: int) -> None:
    for start in (b"", one_record()[:8], one_record()[:60], one_record()[:91]):
        whole = bytearray(start + data)
        at = min(position, len(whole))
        found = read_record(whole, at, len(whole), at)
        assert isinstance(found, DispatchRequest | Blank | Damage)


@pytest.mark.parametrize(
    ("properties", "torn"),
    [
        (b"", False),
        (b"KEYS\x01k\x02", False),
        (b"KEYS\x01k\0", True),
        (b"a" * 100 + bytes(511) + b"a" * 100, False),
        (b"a" * 100 + bytes(512) + b"a" * 100, True),
    ],
)
def test_properties_with_a_lost_sector_look_torn(properties: bytes, *, torn: bool) -> None:
    assert looks_torn(properties) == torn


def test_the_walk_hands_out_every_record_in_order_and_ends_at_the_zeros() -> None:
    """CommitLog.recoverNormally."""
    log = a_log()
    seen = Seen()
    end = find_log_end(files_of(log), seen)
    assert seen.of("physical_offset") == [m.physical_offset for m in log.messages]
    assert seen.of("queue_offset") == [m.queue_offset for m in log.messages]
    assert seen.records == [
        bytes(log.log[m.physical_offset : m.physical_offset + m.store_size]) for m in log.messages
    ]
    last = log.messages[-1]
    assert end.offset == log.end_offset
    assert end.last_record_offset == last.physical_offset
    assert end.last_store_timestamp_ms == last.store_timestamp_ms
    assert end.record_count == 20


def test_the_walk_of_nothing_ends_at_nothing() -> None:
    end = find_log_end([], Seen())
    assert (end.offset, end.last_record_offset) == (0, -1)


def test_the_walk_may_begin_at_any_file() -> None:
    log = a_log()
    seen = Seen()
    end = find_log_end(files_of(log)[1:], seen)
    assert end.offset == log.end_offset
    assert seen.of("physical_offset") == [
        m.physical_offset for m in log.messages if m.physical_offset >= FILE_BYTES
    ]


def test_a_blank_closes_its_file_even_if_no_file_follows() -> None:
    """RocketMQ goes back to the start of such a blank; see `find_log_end`."""
    log = a_log(3)
    log.roll()
    end = find_log_end(files_of(log), Seen())
    assert end.offset == FILE_BYTES
    assert end.last_record_offset == log.messages[-1].physical_offset
    empty = MemoryFile(bytearray(FILE_BYTES), FILE_BYTES)
    assert find_log_end([*files_of(log), empty], Seen()).offset == FILE_BYTES


def test_the_walk_stops_in_front_of_damage() -> None:
    log = a_log()
    for index, message in enumerate(log.messages):
        files = files_of(log)
        file = files[message.physical_offset // FILE_BYTES]
        file.buffer[message.physical_offset % FILE_BYTES + 95] ^= 1
        end = find_log_end(files, Seen())
        previous = log.messages[index - 1] if index else None
        if (
            previous
            and previous.physical_offset // FILE_BYTES == file.file_from_offset // FILE_BYTES
        ):
            assert end.offset == previous.physical_offset + previous.store_size
        assert end.offset == message.physical_offset
        assert end.record_count == index


def test_the_walk_goes_in_pieces_and_tells_how_far_it_is() -> None:
    log = a_log()
    whole = find_log_end(files_of(log), Seen())
    for piece_bytes in (1, 91, 200, 1000, 2048):
        told: list[int] = []
        seen = Seen()
        assert (
            find_log_end(files_of(log), seen, chunk_bytes=piece_bytes, progress=told.append)
            == whole
        )
        assert seen.of("physical_offset") == [m.physical_offset for m in log.messages]
        assert told == sorted(told)
        assert told[-1] == whole.offset


def test_a_record_larger_than_a_piece_is_not_copied() -> None:
    log = LogBuilder(file_bytes=8 << 20)
    log.put(body=b"small")
    log.put(body=b"x" * (3 << 20))
    log.put(body=b"small")
    seen = Seen()
    end = find_log_end(files_of(log), seen)
    assert (end.offset, end.record_count) == (log.end_offset, 3)
    assert seen.of("physical_offset") == [m.physical_offset for m in log.messages]
    assert seen.records[1][88:92] == b"xxxx"


def mixed_log() -> LogBuilder:
    """Every shape of record, in files of which the last one is not full."""
    log = LogBuilder(file_bytes=FILE_BYTES)
    v4, v6 = Host("10.0.0.1", 1), Host("::1", 2)
    for born, stored in ((v4, v4), (v4, v6), (v6, v4), (v6, v6)):
        log.put(body=b"body" * 20, tags="TagA", keys="k", born_host=born, store_host=stored)
        log.put("T" * 200, b"v2", born_host=born, store_host=stored, sys_flag=4)
        log.put("", b"", born_host=born, store_host=stored, sys_flag=12)
        log.put("SCHEDULE_TOPIC_XXXX", b"d", properties={"DELAY": "3", "p": "q" * 600})
    return log


@pytest.mark.slow
@settings(deadline=None, max_examples=4 * settings().max_examples)
@given(
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=4),
    lost=st.lists(st.tuples(st.integers(0, 1 << 20), st.sampled_from([1, 30, 512])), max_size=2),
    piece_bytes=st.sampled_from([100, 700, 4096]),
    check_crc=st.booleans(),
)
def test_the_walk_and_the_plain_rule_agree_on_damaged_bytes(
    damage: list[tuple[int, int]], lost: list[tuple[int, int]], piece_bytes: int, *, check_crc: bool
) -> None:
    files = files_of(mixed_log())
    total = sum(file.size for file in files)
    for at, value in damage:
        files[at % total // FILE_BYTES].buffer[at % FILE_BYTES] = value
    for at, count in lost:
        buffer = files[at % total // FILE_BYTES].buffer
        start = at % FILE_BYTES
        buffer[start : start + count] = bytes(len(buffer[start : start + count]))
    plain = end_by_the_plain_rule(files, check_crc=check_crc)
    seen = Seen()
    found = find_log_end(files, seen, chunk_bytes=piece_bytes, check_crc=check_crc)
    assert found == plain
    assert len(seen.records) == plain.record_count


@pytest.mark.slow
@pytest.mark.parametrize("store", ["basic", "batch", "crc", "ext", "idx", "sch", "tran", "v6"])
def test_the_walk_and_the_plain_rule_agree_on_every_byte_of_a_store_of_rocketmq_changed(
    store: str,
) -> None:
    data = (GOLDEN / store / "commitlog" / ("0" * 20)).read_bytes()
    force = store == "crc"
    whole = find_log_end([MemoryFile(bytearray(data), 0)], Seen(), force_verify_prop_crc=force)
    assert whole.record_count > 0
    for at in range(min(whole.offset + 9, len(data))):
        for flip in (0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= flip
            file = MemoryFile(changed, 0)
            assert find_log_end(
                [file], Seen(), force_verify_prop_crc=force
            ) == end_by_the_plain_rule([file], force_verify_prop_crc=force)


def test_the_crc_of_the_whole_record_takes_the_place_of_that_of_the_body() -> None:
    """CommitLog.checkMessageAndReturnSize with forceVerifyPropCRC; section 2.5 of the format."""
    data = bytearray((GOLDEN / "crc" / "commitlog" / ("0" * 20)).read_bytes())
    whole = find_log_end([MemoryFile(data, 0)], Seen(), force_verify_prop_crc=True)
    assert whole.record_count == 4
    # What no other checksum covers: flag, queue offset, times, topic, properties.
    for at in (16, 27, 45, 57, 95):
        changed = data.copy()
        changed[at] ^= 1
        files = [MemoryFile(changed, 0)]
        assert find_log_end(files, Seen(), force_verify_prop_crc=True).record_count == 0
        assert find_log_end(files, Seen()).record_count == 4
        unchecked = find_log_end(files, Seen(), force_verify_prop_crc=True, check_crc=False)
        assert unchecked.record_count == 4
    without = MemoryFile(bytearray((GOLDEN / "basic" / "commitlog" / ("0" * 20)).read_bytes()), 0)
    end = find_log_end([without], Seen(), force_verify_prop_crc=True)
    assert (end.offset, end.reason) == (0, "no property __CRC32# at its end")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"INNER_BASE": "40", "INNER_NUM": "7"}, (40, 7)),
        ({"INNER_NUM": "7"}, (0, 1)),
        ({"INNER_BASE": "40"}, (0, 1)),
        ({"INNER_BASE": "-1", "INNER_NUM": "7"}, (0, 1)),
        ({"INNER_BASE": "x", "INNER_NUM": "7"}, (0, 1)),
        ({"INNER_BASE": "40", "INNER_NUM": "0"}, (0, 1)),
        ({"INNER_BASE": "40", "INNER_NUM": "32768"}, (0, 1)),
        ({"INNER_BASE": "9" * 5000, "INNER_NUM": "7"}, (0, 1)),
    ],
)
def test_an_inner_batch_says_how_many_messages_it_is(
    properties: dict[str, str], expected: tuple[int, int]
) -> None:
    """CommitLog.setBatchSizeIfNeeded; what is no number makes RocketMQ stop at the record."""
    log = LogBuilder(file_bytes=16384)
    log.put(properties=properties)
    found = read_record(log.log, 0, len(log.log), 0)
    assert isinstance(found, DispatchRequest)
    assert (found.msg_base_offset, found.batch_size) == expected


def test_a_delayed_record_carries_its_deliver_time() -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    message = log.put("SCHEDULE_TOPIC_XXXX", tags="TagA", properties={"DELAY": "2"})
    for levels, delay_ms in ((DelayLevels(), 5000), (DelayLevels("1s 7s"), 7000)):
        found = read_record(log.log, 0, len(log.log), 0, levels=levels)
        assert isinstance(found, DispatchRequest)
        assert found.tags_code == message.store_timestamp_ms + delay_ms


def test_a_topic_length_is_signed_as_in_java() -> None:
    """A V1 record of 128 bytes of topic: RocketMQ reads -128 and stops."""
    record = one_record("T" * 127)
    at = record.index(b"\x7fTTT")
    record[at] = 128
    record[at + 1 : at + 1] = b"T"
    record[:4] = len(record).to_bytes(4, "big")
    found = read_record(record, 0, len(record), 0)
    assert found == Damage(f"topic size -128 in a record of {len(record)} bytes")


def test_hosts_that_do_not_fit_at_the_very_end_of_a_file_are_damage() -> None:
    log = LogBuilder(file_bytes=4096)
    log.put("", b"")
    record = log.log
    assert len(record) == 91
    record[36:40] = (0x30).to_bytes(4, "big")
    for end in (91, 92, 110):
        found = read_record(record + bytes(end - 91), 0, end, 0)
        assert found == Damage("total size 91 leaves no room for the hosts")


def test_a_whole_record_behind_the_end_is_found_in_every_file() -> None:
    log = a_log()
    for message in log.messages:
        found = record_behind(files_of(log), message.physical_offset - 1)
        assert found is not None
        assert found.offset == message.physical_offset
    assert record_behind(files_of(log), log.messages[-1].physical_offset) is None
    assert record_behind([], 0) is None


def test_a_magic_number_inside_a_body_is_no_record() -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    log.put(body=b"\xda\xa3\x20\xa7" * 10)
    inner = LogBuilder(file_bytes=FILE_BYTES, start_offset=0)
    inner.put(body=b"elsewhere")
    log.put(body=bytes(inner.log))
    assert record_behind(files_of(log), log.messages[1].physical_offset) is None


def test_times_of_first_records_are_read_and_nothing_else() -> None:
    """CommitLog.isMappedFileMatchedRecover."""
    log = a_log(1)
    file = files_of(log)[0]
    assert first_store_timestamp_ms(file) == log.messages[0].store_timestamp_ms
    v6 = LogBuilder(file_bytes=FILE_BYTES)
    v6.put(born_host=Host("::1", 1))
    assert first_store_timestamp_ms(files_of(v6)[0]) == v6.messages[0].store_timestamp_ms
    assert first_store_timestamp_ms(MemoryFile(bytearray(FILE_BYTES), 0)) == 0


def test_after_a_clean_stop_the_walk_begins_where_the_queues_end() -> None:
    """CommitLog.recoverNormally: the newest file that starts at or before maxPhyCQ."""
    files = files_of(a_log(40))
    assert len(files) > 2

    def index(queues_end: int) -> int:
        return start_index(files, clean=True, queues_end=queues_end, safe_timestamp_ms=0)

    assert index(-1) == index(0) == index(FILE_BYTES - 1) == 0
    assert index(FILE_BYTES) == 1
    assert index(10**9) == len(files) - 1


def test_the_walk_never_begins_behind_what_is_on_disk() -> None:
    """Where the clock was put back, a young file may have an old time."""
    files = files_of(a_log(40))

    def index(synced_end: int) -> int:
        return start_index(
            files, clean=False, queues_end=0, safe_timestamp_ms=10**18, synced_end=synced_end
        )

    assert index(FILE_BYTES - 1) == 0
    assert index(FILE_BYTES) == 1
    assert index(0) == len(files) - 1


def test_after_a_crash_the_walk_begins_where_the_checkpoint_vouches() -> None:
    """CommitLog.recoverAbnormally: the newest file whose first record is old enough."""
    files = files_of(a_log(40))
    firsts = [first_store_timestamp_ms(file) for file in files]

    def index(safe_ms: int) -> int:
        return start_index(files, clean=False, queues_end=10**9, safe_timestamp_ms=safe_ms)

    assert index(0) == index(firsts[1] - 1) == 0
    assert index(firsts[1]) == index(firsts[2] - 1) == 1
    assert index(firsts[-1]) == len(files) - 1
    # A file that was prepared and holds nothing yet does not count.
    files.append(MemoryFile(bytearray(FILE_BYTES), len(files) * FILE_BYTES))
    assert index(10**18) == len(files) - 2


def test_records_are_counted_between_two_places_of_the_log() -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    starts = [log.put(body=b"x" * 200).physical_offset for _ in range(20)]
    files = files_of(log)
    assert len(files) > 2
    for first in range(0, 20, 3):
        assert count_records(files, starts[first], log.end_offset) == 20 - first
        assert count_records(files, 0, starts[first]) == first
        assert count_records(files, starts[first], starts[first] + 1) == 1
    assert count_records(files, log.end_offset, log.end_offset) == 0
    assert count_records(files, 0, 1 << 40) == 20
    assert count_records([], 0, 100) == 0


def test_records_are_counted_behind_damage_too() -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    starts = [log.put(body=b"x" * 200).physical_offset for _ in range(12)]
    files = files_of(log)
    files[0].buffer[starts[2] + 4] ^= 255
    assert count_records(files, 0, log.end_offset) == 11
    assert count_records(files, starts[2] + 7, log.end_offset) == 9
