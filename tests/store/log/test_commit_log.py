"""The log itself: how records, batches and raw bytes get into it, and how they are read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.files.transient_store_pool import TransientStorePool
from store.log.commit_log import CommitLog
from store.log.message_encoder import IllegalBatchError, IllegalMessageError
from store.machine.errors import AppendGapError, StoreFullError
from store.results import PutMessage
from tandem.wire.message import (
    Host,
    Message,
    MessageExt,
    decode_message,
    encode_batch_body,
    encode_record,
)
from tandem.wire.message_properties import decode_properties, tags_code
from tandem.wire.property_crc import property_crc_fault
from tests.store.step_disk import StepDisk
from tests.store.store_world import BORN_HOST, BORN_MS, STORE_HOST, a_batch, a_message

SIZE = 8192
NOW_MS = 1_800_000_000_000


def _reserve(count: int) -> None:
    assert count > 0


def a_log(
    disk: SimulatedDisk | None = None,
    size: int = SIZE,
    host: Host = STORE_HOST,
    *,
    pool: TransientStorePool | None = None,
    crc: bool = False,
) -> CommitLog:
    return CommitLog("/log", size, disk or SimulatedDisk(), host, pool=pool, append_prop_crc=crc)


def a_pool(disk: SimulatedDisk) -> TransientStorePool:
    return TransientStorePool(2, SIZE, disk, fast_fail=False)


def append(log: CommitLog, message: PutMessage, queue_offset: int = 0) -> tuple[int, int]:
    return log.append_message(message, message.topic.encode(), queue_offset, NOW_MS)


GOLDEN = PutMessage(
    topic="TopicA",
    queue_id=1,
    body=b"hello0",
    properties=b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U0\x02TAGS\x01TagA\x02",
    born_timestamp_ms=BORN_MS,
    born_host=BORN_HOST.packed,
)


def test_the_golden_record_is_written() -> None:
    """MessageExtEncoder.encode and DefaultAppendMessageCallback.doAppend."""
    log = a_log()
    place = log.append_message(GOLDEN, b"TopicA", 0, 1_795_218_857_974)
    assert place == (0, 136)
    assert bytes(log.read(0, SIZE)) == bytes.fromhex(
        "00000088 daa320a7 7036e992 00000001 00000000 0000000000000000 0000000000000000"
        "00000000 0000018bcfe56800 0a010203000004d2 000001a1fb61dff6 7f00000100002a9f"
        "00000000 0000000000000000 00000006 68656c6c6f30 06 546f70696341 0021"
        "4b455953016b31206b3202 554e49515f4b455901553002 5441475301 5461674102"
    )
    assert (log.last_record_offset, log.last_store_timestamp_ms) == (0, 1_795_218_857_974)


HOSTS = st.sampled_from([Host("10.1.2.3", 1234), Host("2001:db8::1", 65535)])
TOPICS = st.sampled_from(["T", "TopicA", "%RETRY%" + "g" * 120, "%RETRY%" + "g" * 121])


@given(
    body=st.binary(max_size=200),
    topic=TOPICS,
    born=HOSTS,
    stored=HOSTS,
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.integers(-(2**31), 2**31 - 1),
    reconsume=st.integers(0, 100),
    queue_offset=st.integers(0, 2**62),
)
def test_a_record_is_what_the_encoder_of_the_wire_writes(
    body: bytes,
    topic: str,
    born: Host,
    stored: Host,
    flag: int,
    sys_flag: int,
    reconsume: int,
    queue_offset: int,
) -> None:
    """Two encoders, written apart: one field by field, one in a single call per shape.

    All bits of SYSFLAG are kept but the two about hosts, which are the store's own.
    """
    log = a_log(host=stored)
    append(log, a_message(0))
    message = msgspec.structs.replace(
        GOLDEN,
        topic=topic,
        body=body,
        born_host=born.packed,
        flag=flag,
        sys_flag=sys_flag,
        reconsume_times=reconsume,
        prepared_transaction_offset=queue_offset,
    )
    offset, size = append(log, message, queue_offset)
    expected = MessageExt(
        topic=topic,
        body=body,
        properties=decode_properties(GOLDEN.properties),
        queue_id=1,
        queue_offset=queue_offset,
        physical_offset=offset,
        store_size=0,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=BORN_MS,
        born_host=born,
        store_timestamp_ms=NOW_MS,
        store_host=stored,
        reconsume_times=reconsume,
        prepared_transaction_offset=queue_offset,
        body_crc=0,
    )
    record = bytes(log.read(offset, SIZE))
    assert len(record) == size
    assert record == encode_record(expected)
    hosts = 0x10 * born.is_v6 | 0x20 * stored.is_v6
    assert decode_message(record)[0].sys_flag == sys_flag & ~0x30 | hosts


@given(
    st.lists(
        st.tuples(st.binary(max_size=40), st.sampled_from(["", "TagA", "TagB"])),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([b"", b"CLUSTER\x01c\x02", b"CLUSTER\x01c\x02TAGS\x01All\x02"]),
)
def test_a_batch_is_the_run_of_its_messages(
    contents: list[tuple[bytes, str]], shared: bytes
) -> None:
    """MessageExtEncoder.encode(MessageExtBatch); the last TAGS of a record counts."""
    messages = [Message("TopicA", body, keys="k", tags=tags) for body, tags in contents]
    batch = msgspec.structs.replace(
        a_batch(range(1)), body=encode_batch_body(messages), properties=shared
    )
    log = a_log(size=1 << 16)
    units = log.append_batch(batch, b"TopicA", 7, NOW_MS, _reserve)
    data = bytes(log.read(0, 1 << 16))
    position = 0
    for number, message in enumerate(messages):
        found, end = decode_message(data, position)
        assert (found.body, found.queue_offset) == (message.body, 7 + number)
        assert found.properties == message.property_map() | decode_properties(shared)
        code = tags_code(found.properties.get("TAGS"))
        assert units[3 * number : 3 * number + 3] == [position, end - position, code]
        if len(found.properties) == len(message.property_map()) + len(decode_properties(shared)):
            assert encode_record(found) == data[position:end]
        position = end
    assert position == len(data)
    assert log.last_record_offset == units[-3]


def test_a_batch_may_reach_over_into_the_next_file_only_as_a_whole() -> None:
    log = a_log()
    append(log, a_message(0, body_bytes=7900))
    units = log.append_batch(a_batch(range(3)), b"TopicA", 0, NOW_MS, _reserve)
    assert units[0] == SIZE
    _, end = decode_message(bytes(log.read(SIZE, SIZE)))
    assert end == units[1]
    with pytest.raises(IllegalBatchError):
        log.append_batch(a_batch(range(1000)), b"TopicA", 0, NOW_MS, _reserve)
    assert log.max_offset == units[-3] + units[-2]


@pytest.mark.parametrize("field", ["queue_id", "flag", "sys_flag", "reconsume_times"])
def test_a_number_that_does_not_fit_leaves_zeros_behind_the_log(field: str) -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    append(log, a_message(0))
    end = log.max_offset
    with pytest.raises(IllegalMessageError):
        append(log, msgspec.structs.replace(a_message(1), **{field: 2**31}))
    assert log.max_offset == end
    assert (disk.read(f"/log/{0:020d}") or b"")[end:] == bytes(SIZE - end)


def test_without_room_for_the_next_file_there_is_no_blank_either() -> None:
    """RocketMQ has written the blank by then, and reports a put that wrote nothing."""
    disk = SimulatedDisk()
    log = a_log(disk)
    append(log, a_message(0, body_bytes=7900))
    end, before = log.max_offset, disk.read(f"/log/{0:020d}")
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StoreFullError):
        append(log, a_message(1, body_bytes=500))
    with pytest.raises(StoreFullError):
        log.append_batch(a_batch(range(5)), b"TopicA", 0, NOW_MS, _reserve)
    assert (log.max_offset, disk.read(f"/log/{0:020d}")) == (end, before)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 100, 8192, 20_000])
def test_raw_bytes_are_appended_as_they_are_over_the_ends_of_files(size: int) -> None:
    """CommitLog.appendData."""
    data = bytes(range(256)) * 80
    log = a_log()
    for start in range(0, len(data), size):
        log.append_data(start, memoryview(data)[start : start + size])
        assert log.max_offset == min(start + size, len(data))
    read = b"".join(bytes(log.read(at, SIZE)) for at in range(0, len(data), SIZE))
    assert read == data
    log.append_data(len(data), b"")
    assert log.max_offset == len(data)


def test_the_first_bytes_of_a_run_are_written_last() -> None:
    """So that a kill leaves all of it or nothing: a log ends at zeros."""
    disk = StepDisk()
    log = a_log(disk)
    log.append_data(0, b"first")
    seen: list[bytes] = []
    disk.on_step = lambda _: seen.append((disk.read(f"/log/{0:020d}") or b"")[5:15])
    log.append_data(5, b"0123456789")
    assert seen == [bytes(10), bytes(4) + b"456789"]


@pytest.mark.parametrize("offset", [0, 4, 6, SIZE])
def test_raw_bytes_elsewhere_are_a_gap(offset: int) -> None:
    log = a_log()
    log.append_data(0, b"first")
    with pytest.raises(AppendGapError):
        log.append_data(offset, b"x")


def test_an_empty_log_is_at_zero() -> None:
    log = a_log()
    assert (log.min_offset, log.max_offset, log.last_record_offset) == (0, 0, -1)
    assert bytes(log.read(0, 10)) == b""
    assert log.message(0, 10) is None
    assert log.store_timestamp_ms(0) == -1


def test_records_are_read_by_place_and_size() -> None:
    """CommitLog.getMessage; beyond what is written there is nothing."""
    log = a_log()
    offset, size = append(log, a_message(0))
    record = log.message(offset, size)
    assert record is not None
    assert decode_message(record)[0].body == b"0:"
    assert log.message(offset, size + 1) is None
    assert log.message(offset + 1, size) is None
    assert log.message(-1, 1) is None
    assert log.message(10**9, 1) is None


def append_files(log: CommitLog, count: int) -> None:
    """Fill `count` files, each with one record and a blank."""
    for number in range(count):
        append(log, a_message(number, body_bytes=SIZE - 300))
    assert len(log.files.files) == count


def test_a_read_ends_with_its_file() -> None:
    """CommitLog.getData: everything from the offset on that this file has."""
    log = a_log()
    append_files(log, 3)
    assert len(log.read(0, 1 << 30)) == SIZE
    assert len(log.read(SIZE + 100, 1 << 30)) == SIZE - 100
    assert len(log.read(2 * SIZE, 1 << 30)) == log.max_offset - 2 * SIZE
    assert len(log.read(SIZE - 1, 1 << 30)) == 1
    assert bytes(log.read(log.max_offset, 1)) == b""
    assert bytes(log.read(3 * SIZE, 1)) == b""


@pytest.mark.parametrize("is_cleaned_up", [False, True])
def test_a_first_file_that_goes_away_holds_nothing_any_more(*, is_cleaned_up: bool) -> None:
    """CommitLog.getMinOffset. 5.3.3 answers offset 0 with bytes of the next file then."""
    disk = SimulatedDisk()
    log = a_log(disk)
    append_files(log, 3)
    first = log.files.files[0]
    if is_cleaned_up:
        assert log.files.delete_expired_file_by_offset(1, lambda f: f.file_from_offset) == [first]
    else:
        assert first.hold()
        first.shutdown(0, 1000)
    assert log.min_offset == SIZE
    assert bytes(log.read(0, SIZE)) == b""
    assert log.message(0, 100) is None
    assert log.store_timestamp_ms(0) == -1
    assert log.store_timestamp_ms(SIZE) == NOW_MS
    assert len(log.read(SIZE, SIZE)) == SIZE


@pytest.mark.parametrize("put_batch", [False, True])
def test_readers_see_only_what_was_committed(*, put_batch: bool) -> None:
    """DefaultMappedFile.getReadPosition: with a pool, puts go to a buffer first."""
    disk = SimulatedDisk()
    log = a_log(disk, pool=a_pool(disk))
    if put_batch:
        units = log.append_batch(a_batch(range(2)), b"TopicA", 0, NOW_MS, _reserve)
        end = units[-3] + units[-2]
    else:
        end = sum(append(log, a_message(0)))
    assert (log.max_offset, log.append_offset) == (0, end)
    assert bytes(log.read(0, SIZE)) == b""
    assert log.message(0, 91) is None
    assert log.store_timestamp_ms(0) == -1
    assert not any(disk.read(f"/log/{0:020d}") or b"")
    log.files.commit(0)
    assert (log.max_offset, log.append_offset) == (end, end)
    assert len(log.read(0, SIZE)) == end
    assert log.store_timestamp_ms(0) == NOW_MS


def test_with_and_without_a_pool_the_same_bytes_are_written() -> None:
    plain_disk, pool_disk = SimulatedDisk(), SimulatedDisk()
    plain, pooled = a_log(plain_disk), a_log(pool_disk, pool=a_pool(pool_disk))
    for log in (plain, pooled):
        for number in range(40):
            append(log, a_message(number, body_bytes=500), number)
            if number % 5 == 0:
                log.append_batch(a_batch(range(4)), b"TopicA", 0, NOW_MS, _reserve)
            if number % 7 == 0:
                log.append_data(log.append_offset, b"raw bytes of a master")
            if number % 3 == 0:
                log.files.commit(0)
        log.files.commit(0)
    assert plain.max_offset == pooled.max_offset
    for file in plain.files.files:
        path = f"/log/{file.file_from_offset:020d}"
        assert plain_disk.read(path) == pool_disk.read(path)


@pytest.mark.parametrize(
    "properties", [b"", b"A\x01B\x02", b"A\x01B", b"__CRC32#\x01forged\x02A\x01B\x02"]
)
@pytest.mark.parametrize("born", [Host("10.1.2.3", 1), Host("::1", 1)])
def test_with_the_setting_every_record_ends_in_its_crc(properties: bytes, born: Host) -> None:
    """enabledAppendPropCRC: over what the record is at its place, TOTALSIZE included."""
    log = a_log(crc=True)
    records = []
    for number in range(3):
        message = msgspec.structs.replace(
            a_message(number), properties=properties, born_host=born.packed
        )
        offset, size = append(log, message, number)
        record = bytes(log.read(offset, SIZE))
        records.append(record)
        assert len(record) == size
        assert property_crc_fault(record, 0, size) is None
        found = decode_message(record)[0].properties
        assert found.pop("__CRC32#") != "forged"
        assert found == ({"A": "B"} if properties else {})
    assert len({record[-11:] for record in records}) == 3


def test_a_batch_that_moves_to_the_next_file_has_the_crc_of_its_place_there() -> None:
    log = a_log(crc=True)
    append(log, a_message(0, body_bytes=7800))
    units = log.append_batch(a_batch(range(3)), b"TopicA", 0, NOW_MS, _reserve)
    data = bytes(log.read(SIZE, SIZE))
    assert units[0] == SIZE
    for offset, size in zip(units[::3], units[1::3], strict=True):
        assert property_crc_fault(data, offset - SIZE, offset - SIZE + size) is None


def test_a_crc_is_in_place_before_the_record_is() -> None:
    """A kill in between leaves a log that ends in front of the record."""
    disk = StepDisk()
    log = a_log(disk, crc=True)
    end = sum(append(log, a_message(0)))
    seen: list[bytes] = []
    disk.on_step = lambda _: seen.append((disk.read(f"/log/{0:020d}") or b"")[end:])
    append(log, a_message(1))
    assert seen
    assert all(not any(content[:4]) for content in seen)
    assert property_crc_fault(log.read(end, SIZE), 0, log.max_offset - end) is None


@pytest.mark.parametrize("born", [Host("10.1.2.3", 1), Host("::1", 1)])
def test_store_times_are_read_behind_short_and_long_hosts(born: Host) -> None:
    """CommitLog.pickupStoreTimestamp."""
    log = a_log()
    offset, _ = append(log, msgspec.structs.replace(a_message(0), born_host=born.packed))
    assert log.store_timestamp_ms(offset) == NOW_MS
    assert log.store_timestamp_ms(offset + 100_000) == -1


@pytest.mark.parametrize(
    ("offset", "following"), [(0, SIZE), (1, SIZE), (SIZE - 1, SIZE), (SIZE, 2 * SIZE)]
)
def test_the_next_file_starts_at_the_next_boundary(offset: int, following: int) -> None:
    """CommitLog.rollNextFile."""
    assert a_log().roll_next_file(offset) == following
