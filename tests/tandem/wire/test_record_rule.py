import pytest

from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    BORNHOST_V6_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
)
from tandem.wire.record_rule import (
    RecordParts,
    ScanStop,
    body_at,
    body_fault,
    find_record_start,
    look,
    record_fault,
    record_parts,
    record_starts,
    store_timestamp_ms,
)
from tandem.wire.record_scan import (
    body_crcs,
    crc_agrees,
    read_columns,
    scan_records,
    walk_records,
)
from tests.support.log_builder import LogBuilder, mixed_log


@pytest.mark.parametrize(
    ("data", "stop", "needed_bytes"),
    [
        (b"", ScanStop.END, 0),
        (b"\0\0\0", ScanStop.TORN, 8),
        (bytes(8), ScanStop.ZEROS, 0),
        (b"\0\0\0\x64" + BLANK_MAGIC_CODE.to_bytes(4, "big"), ScanStop.BLANK, 100),
        (b"\0\0\0\x64\xda\xa3\x20\xa7", ScanStop.TORN, 100),
        (b"\0\0\0\x5a\xda\xa3\x20\xa7", ScanStop.CORRUPT, 0),
        (b"\0\0\0\x64\xda\xa3\x20\xa8", ScanStop.CORRUPT, 0),
    ],
)
def test_size_and_magic_say_what_is_at_a_place(
    data: bytes, stop: ScanStop, needed_bytes: int
) -> None:
    found, _, needed = look(data, 0, len(data))
    assert (found, needed) == (stop, needed_bytes)


def test_the_parts_of_every_shape_of_record_are_where_the_columns_say() -> None:
    log = mixed_log()
    columns = read_columns(log.log, walk_records(log.log).starts)
    for row, message in enumerate(log.messages):
        start = message.physical_offset
        assert look(log.log, start, len(log.log)) == (None, "", message.store_size)
        parts = record_parts(log.log, 0, start)
        assert isinstance(parts, RecordParts)
        assert parts.body_start == start + body_at(int(columns.sys_flag[row]))
        assert parts.body_start == columns.body_start[row]
        assert log.log[parts.body_start : parts.body_end] == message.body
        assert log.log[parts.topic_start : parts.topic_end] == message.topic.encode()
        assert parts.properties_start == columns.properties_start[row]
        assert parts.properties_end == start + message.store_size
        assert store_timestamp_ms(log.log, start) == message.store_timestamp_ms
        assert body_fault(log.log, parts) is None


def test_a_record_of_another_place_has_no_parts() -> None:
    log = LogBuilder()
    log.put()
    assert record_parts(log.log, 4096, 0) == "physical offset 0 in the record at 4096"


def test_lengths_that_do_not_add_up_are_found_wherever_they_are() -> None:
    log = mixed_log()
    for message in log.messages:
        start = message.physical_offset
        hosts = 12 * bool(message.sys_flag & BORNHOST_V6_FLAG)
        hosts += 12 * bool(message.sys_flag & STOREHOSTADDRESS_V6_FLAG)
        hosts += 12 * message.born_host.is_v6 + 12 * message.store_host.is_v6
        body_size_at = start + 84 + hosts
        topic_at = body_size_at + 4 + len(message.body)
        for at, value in (
            (body_size_at, b"\xff\xff\xff\xff"),
            (body_size_at, b"\x7f\xff\xff\xff"),
            (body_size_at + 3, bytes([len(message.body) + 1])),
            (topic_at, b"\xff"),
        ):
            data = bytearray(log.log)
            data[at : at + len(value)] = value
            fault = record_fault(data, 0, start)
            assert fault
            assert scan_records(data, 0).check.end == start, fault


def test_crc_of_an_empty_body_is_not_looked_at() -> None:
    """RocketMQ checks the CRC only when there is a body (checkMessageAndReturnSize)."""
    log = LogBuilder()
    log.put(body=b"")
    log.log[8:12] = b"\x01\x02\x03\x04"
    columns = read_columns(log.log, walk_records(log.log).starts)
    assert crc_agrees(columns, body_crcs(log.log, columns)).tolist() == [True]
    assert record_fault(log.log, 0, 0) is None


def test_a_record_start_is_found_from_any_position() -> None:
    log = mixed_log()
    data = bytes(log.log)
    starts = [message.physical_offset for message in log.messages]
    for position in range(len(data)):
        behind = [start for start in starts if start >= position]
        assert find_record_start(data, 0, position) == (behind[0] if behind else -1)


def test_a_record_inside_a_body_is_not_taken_for_a_start() -> None:
    inner = LogBuilder()
    inner.put(body=b"forged")
    log = LogBuilder()
    log.put(body=bytes(inner.log))
    second = log.put()
    assert find_record_start(bytes(log.log), 0, 1) == second.physical_offset


def test_a_start_is_accepted_before_the_record_is_whole() -> None:
    log = mixed_log()
    last = log.messages[-1]
    data = bytes(log.log[: last.physical_offset + 60])
    assert find_record_start(data, 0, last.physical_offset) == last.physical_offset
    assert find_record_start(data[: last.physical_offset + 39], 0, last.physical_offset) == -1


@pytest.mark.parametrize("piece_bytes", [41, 79, 127, 4096, 1 << 20])
def test_record_starts_are_the_same_in_pieces_of_any_size(piece_bytes: int) -> None:
    log = mixed_log()
    data = bytes(100) + bytes(log.log) + bytes(57)
    wanted = [100 + message.physical_offset for message in log.messages]

    def read(position: int, size: int) -> bytes:
        return data[position : position + size]

    for start, end in ((0, len(data)), (wanted[1], wanted[-1]), (wanted[1] + 1, wanted[-1] + 40)):
        found = list(record_starts(read, -100, start, end, piece_bytes))
        assert found == [at for at in wanted if start <= at <= end - 40]


def test_the_search_ends_where_a_file_does_and_leaves_out_what_is_skipped() -> None:
    log = mixed_log()
    data = bytes(log.log)
    half = log.messages[len(log.messages) // 2].physical_offset
    asked: list[int] = []

    def read(position: int, size: int) -> bytes:
        asked.append(position)
        return data[position : position + size]

    found = record_starts(read, 0, 1, 1 << 40, 512, lambda position: max(position, half - 8))
    assert next(found) == half
    assert asked == [half - 8]
    assert list(found)[-1] == log.messages[-1].physical_offset
    assert max(asked) < len(data)
