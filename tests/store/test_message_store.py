"""Putting and getting: what is taken, what is refused and why, and what a reader is told."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import (
    AppendGapError,
    GetMessageStatus,
    MessageStore,
    PutBatch,
    PutMessage,
    PutMessageStatus,
    StoreClosedError,
    StoreFullError,
)
from store.results import Arrival
from tandem.wire.message import Host, Message, decode_messages, encode_batch_body
from tandem.wire.message_properties import tags_code
from tests.store.store_world import (
    BORN_HOST,
    BORN_MS,
    COMMIT_LOG_BYTES,
    CONSUME_QUEUE_BYTES,
    DIRECTORY,
    Clock,
    a_batch,
    a_message,
    check_store,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
    queue_messages,
    recover_and_check,
)
from tests.support.listening import Listener, told_by
from tests.support.logged import logged
from tests.support.reasons import words

REFUSED = PutMessageStatus


def a_store(count: int = 0, **settings: int) -> MessageStore:
    store = open_store(SimulatedDisk(), **settings)  # type: ignore[arg-type] # sizes only
    for number in range(count):
        put(store, a_message(number))
    return store


# -- putting ---------------------------------------------------------------------------------------


def test_a_put_says_where_the_message_lies() -> None:
    """PutMessageResult and AppendMessageResult; the id is the offsetMsgId."""
    store = open_store(SimulatedDisk(), clock=Clock(BORN_MS, 7))
    first = store.puts.put_message(a_message(0))
    second = store.puts.put_message(a_message(1))
    assert (first.status, first.reason) == (PutMessageStatus.PUT_OK, "")
    assert (first.wrote_offset, first.queue_offset, first.msg_num) == (0, 0, 1)
    assert (second.wrote_offset, second.queue_offset) == (first.end_offset, 1)
    assert second.end_offset == store.max_physical_offset
    assert first.msg_id == "7F00000100002A9F0000000000000000"
    assert second.store_timestamp_ms == first.store_timestamp_ms + 7 == BORN_MS + 14
    assert [m.store_timestamp_ms for m in log_messages(store)] == [BORN_MS + 7, BORN_MS + 14]


def test_puts_and_batches_of_many_queues_agree_with_the_log_and_survive() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 60)
    put(store, a_batch(range(60, 75)))
    assert [number_of(m) for m in check_store(store)] == list(range(75))
    assert sorted(store.list_queues()) == [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)]
    store.close()
    recover_and_check(disk)


def test_a_batch_says_where_each_message_lies() -> None:
    """CommitLog.asyncPutMessages; ids are joined by commas."""
    store = a_store(3)
    end = store.max_physical_offset
    result = store.puts.put_batch(a_batch(range(3, 8)))
    messages = check_store(store)[3:]
    assert result.status is PutMessageStatus.PUT_OK
    assert (result.queue_offset, result.msg_num) == (3, 5)
    assert (result.wrote_offset, result.end_offset) == (end, store.max_physical_offset)
    assert result.record_offsets == tuple(m.physical_offset for m in messages)
    assert result.msg_id == ",".join(m.offset_msg_id for m in messages)
    assert all(m.properties["CLUSTER"] == "c" for m in messages)


@pytest.mark.parametrize("last", [b"", b"\x02"])
def test_entry_and_batch_properties_are_joined_with_one_separator(last: bytes) -> None:
    """MessageExtEncoder.encode: 0x02 in between if the entry's part lacks it."""
    store = a_store()
    body = bytes(16) + (1).to_bytes(4, "big") + b"x" + bytes([0, 3 + len(last)]) + b"a\x01b" + last
    put(store, msgspec.structs.replace(a_batch(range(1)), body=body))
    record = store.reads.look_message_by_offset(0)
    assert record is not None
    assert record.endswith(b"\x00\x0ea\x01b\x02CLUSTER\x01c\x02")


def test_a_batch_that_does_not_fit_goes_to_the_next_file_as_a_whole() -> None:
    """DefaultAppendMessageCallback: one blank at the start of the batch."""
    store = a_store()
    put(store, a_message(0, body_bytes=7900))
    end = store.max_physical_offset
    result = store.puts.put_batch(a_batch(range(1, 6)))
    assert result.wrote_offset == COMMIT_LOG_BYTES
    assert bytes(store.read_log(end, 8)) == (
        (COMMIT_LOG_BYTES - end).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    )
    assert [number_of(m) for m in check_store(store)] == list(range(6))


def test_the_blank_is_the_golden_one() -> None:
    """A 512-byte file closed at 384: the size of the rest, the magic, zeros."""
    store = a_store(commit_log_bytes=512)
    first = put(store, a_message(0))
    put(store, a_message(0, body_bytes=2 + 384 - 2 * first))
    put(store, a_message(0, body_bytes=150))
    assert bytes(store.read_log(384, 1000)) == bytes.fromhex("00000080cbd43194") + bytes(120)
    assert log_messages(store)[-1].physical_offset == 512


PROPERTIES = a_message().properties


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        (
            {"topic": "T" * 128},
            REFUSED.MESSAGE_ILLEGAL,
            "the topic has 128 bytes, allowed are 1 to 127",
        ),
        ({"topic": "\u4e2d" * 43}, REFUSED.MESSAGE_ILLEGAL, "129 bytes"),
        ({"topic": "%RETRY%" + "T" * 249}, REFUSED.MESSAGE_ILLEGAL, "1 to 255"),
        ({"topic": ""}, REFUSED.MESSAGE_ILLEGAL, "0 bytes"),
        ({"topic": ".."}, REFUSED.MESSAGE_ILLEGAL, "name of a directory"),
        ({"topic": "a/b"}, REFUSED.MESSAGE_ILLEGAL, "name of a directory"),
        ({"topic": "a\0b"}, REFUSED.MESSAGE_ILLEGAL, "name of a directory"),
        ({"properties": b"p" * 32_768}, REFUSED.PROPERTIES_SIZE_EXCEEDED, "the limit is 32767"),
        ({"properties": b"KEYS\x01a\0"}, REFUSED.MESSAGE_ILLEGAL, "NUL"),
        ({"properties": b"a" + bytes(512) + b"b"}, REFUSED.MESSAGE_ILLEGAL, "NUL"),
        ({"body": bytes(4097)}, REFUSED.MESSAGE_ILLEGAL, "max_message_size_bytes"),
        ({"sys_flag": 0x80}, REFUSED.MESSAGE_ILLEGAL, "inner batches"),
        ({"flag": 2**31}, REFUSED.MESSAGE_ILLEGAL, "a number does not fit"),
        ({"born_timestamp_ms": 2**63}, REFUSED.MESSAGE_ILLEGAL, "a number does not fit"),
        ({"reconsume_times": -(2**31) - 1}, REFUSED.MESSAGE_ILLEGAL, "a number does not fit"),
    ],
)
def test_a_message_that_cannot_be_stored_is_refused_with_the_reason(
    changes: dict[str, object], status: PutMessageStatus, reason: str
) -> None:
    """HookUtils.checkBeforePutMessage, MessageExtEncoder; NULs are refused beyond RocketMQ."""
    disk = SimulatedDisk()
    store = open_store(disk, max_message_size_bytes=4096)
    put(store, a_message(0))
    result = store.puts.put_message(msgspec.structs.replace(a_message(1), **changes))
    assert result.status is status
    assert not result.status.is_stored
    assert reason in result.reason
    put(store, a_message(1))
    assert [number_of(m) for m in recover_and_check(disk.crashed()).messages] == [0, 1]


def test_what_a_refused_message_left_in_the_mapping_is_wiped() -> None:
    """Behind the log there must be zeros, or a recovery could take them for something."""
    disk = SimulatedDisk()
    store = open_store(disk)
    end = put(store, a_message(0))
    store.puts.put_message(msgspec.structs.replace(a_message(1), reconsume_times=2**31))
    file = disk.open(f"{DIRECTORY}/commitlog/{0:020d}")
    assert bytes(file.buffer[end:]) == bytes(COMMIT_LOG_BYTES - end)


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
@pytest.mark.parametrize("ip", ["10.1.2.3", "2001:db8::1"])
@pytest.mark.parametrize("batch", [False, True])
def test_flags_of_a_client_do_not_lie_about_the_hosts(
    sys_flag: int, ip: str, *, batch: bool
) -> None:
    """A wrong host flag moves every field behind it: recovery would stop at such a record."""
    disk = SimulatedDisk()
    store = open_store(disk)
    changes = {"sys_flag": sys_flag | 1, "born_host": Host(ip, 1).packed}
    if batch:
        put(store, msgspec.structs.replace(a_batch(range(2)), **changes))
    else:
        put(store, msgspec.structs.replace(a_message(0), **changes))
        put(store, a_message(1))
    first, _ = recover_and_check(disk.crashed()).messages
    assert first.born_host == Host(ip, 1)
    assert first.sys_flag == 1 + 0x10 * (":" in ip)


def entry(body: bytes, properties: bytes, **lengths: int) -> bytes:
    body_bytes = lengths.get("body_bytes", len(body))
    properties_bytes = lengths.get("properties_bytes", len(properties))
    return b"".join(
        (
            bytes(16),
            body_bytes.to_bytes(4, "big", signed=True),
            body,
            properties_bytes.to_bytes(2, "big"),
            properties,
        )
    )


@pytest.mark.parametrize(
    ("body", "shared", "reason"),
    [
        (b"", b"", "the batch is empty"),
        (bytes(4097), b"", "max_message_size_bytes"),
        (b"x", b"", "is cut"),
        (entry(b"", b"")[:-1], b"", "is cut"),
        (entry(b"x", b"", body_bytes=2), b"", "is cut"),
        (entry(b"x", b"", body_bytes=-1), b"", "-1 bytes of body"),
        (entry(b"x", b"", body_bytes=2**31 - 1), b"", "is cut"),
        (entry(b"x", b"a\x01b", properties_bytes=4), b"", "4 bytes of properties"),
        (entry(b"x", b"p" * 3000, properties_bytes=40_000), b"", "bytes of properties"),
        (entry(b"x", b"a\x01\0"), b"", "NUL"),
        (entry(b"x", b"a\x01" + bytes(512) + b"b\x02"), b"", "NUL"),
        (entry(b"x", b"a\x01b\x02"), b"c\x01\0", "NUL"),
        (entry(b"x", b""), b"c\x01" + bytes(600) + b"d", "NUL"),
        (entry(b"x", b"a\x01b"), b"p" * 32_764, "the limit is 32767"),
    ],
)
def test_a_batch_that_cannot_be_stored_is_refused_as_a_whole(
    body: bytes, shared: bytes, reason: str
) -> None:
    """RocketMQ throws in some of these, and writes unreadable records in others."""
    disk = SimulatedDisk()
    store = open_store(disk, max_message_size_bytes=4096)
    put(store, a_message(0))
    good = entry(b"1:", b"") if body else b""
    batch = msgspec.structs.replace(a_batch(range(1)), body=good + body, properties=shared)
    result = store.puts.put_batch(batch)
    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert reason in result.reason
    put(store, a_message(1))
    assert [number_of(m) for m in recover_and_check(disk.crashed()).messages] == [0, 1]


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_a_batch_is_not_transactional(sys_flag: int) -> None:
    """CommitLog.asyncPutMessages: MESSAGE_ILLEGAL."""
    batch = msgspec.structs.replace(a_batch(range(2)), sys_flag=sys_flag)
    assert a_store().puts.put_batch(batch).status is PutMessageStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(("sys_flag", "number"), [(0, 1), (8, 1), (4, 0), (12, 0)])
def test_prepared_and_rolled_back_messages_have_no_place_in_a_queue(
    sys_flag: int, number: int
) -> None:
    """CommitLogDispatcherBuildConsumeQueue; their queue offset is 0 (section "Queue offset")."""
    disk = SimulatedDisk()
    store = open_store(disk)
    put(store, a_message(0))
    result = store.puts.put_message(msgspec.structs.replace(a_message(1), sys_flag=sys_flag))
    assert result.queue_offset == number
    assert store.reads.max_offset_in_queue("TopicA", 0) == 1 + number
    again = open_store(disk.crashed())
    assert again.reads.max_offset_in_queue("TopicA", 0) == 1 + number


def test_a_slave_a_closed_store_and_a_failed_one_say_why_they_refuse() -> None:
    slave = open_store(SimulatedDisk(), is_slave=True)
    result = slave.puts.put_message(a_message(0))
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert result.reason == words(slave.refusal)
    store = a_store(1)
    store.close()
    for refused in (store.puts.put_message(a_message(1)), store.puts.put_batch(a_batch(range(2)))):
        assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert refused.reason == words(store.refusal)
    with pytest.raises(StoreClosedError):
        store.append_data(0, b"")
    store.close()


def test_a_batch_whose_queue_had_no_room_is_stored_and_stops_further_puts() -> None:
    """The log has it: it is not refused. The next start enters it in the queue."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(5):
        put(store, a_message(number))
    disk.capacity_bytes = disk.used_bytes + CONSUME_QUEUE_BYTES
    result = store.puts.put_batch(a_batch(range(5, 30)))  # two queue files more
    assert result.status is PutMessageStatus.PUT_OK
    refused = store.puts.put_message(a_message(30))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "free space, then restart" in refused.reason
    store.close()
    assert disk.exists(f"{DIRECTORY}/abort")
    disk.capacity_bytes *= 2
    assert [number_of(m) for m in recover_and_check(disk).messages] == list(range(30))


def test_a_batch_reserves_its_place_in_the_queue_first() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(5):
        put(store, a_message(number))
    disk.capacity_bytes = disk.used_bytes
    end = store.max_physical_offset
    result = store.puts.put_batch(a_batch(range(5, 15)))
    assert result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    assert store.max_physical_offset == end
    assert store.refusal is None
    assert len(check_store(store)) == 5


def test_a_full_disk_refuses_puts_with_a_clear_text_and_takes_them_again_later() -> None:
    """CREATE_MAPPED_FILE_FAILED; reads go on all the while."""
    disk = SimulatedDisk()
    store = open_store(disk)
    disk.capacity_bytes = disk.used_bytes + 3 * COMMIT_LOG_BYTES
    number = 0
    while (result := store.puts.put_message(a_message(number, body_bytes=500))).status.is_stored:
        number += 1
    for _ in range(3):
        result = store.puts.put_message(a_message(number, body_bytes=500))
        assert result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        assert "free space on that disk, then send again" in result.reason
        assert len(check_store(store)) == number
    put_small = store.puts.put_message(a_message(number))  # what fits is taken
    assert put_small.status in (PutMessageStatus.PUT_OK, PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
    number += put_small.status.is_stored
    disk.capacity_bytes *= 2
    for more in range(number, number + 30):
        put(store, a_message(more, body_bytes=500))
    store.close()
    assert [number_of(m) for m in recover_and_check(disk).messages] == list(range(number + 30))


# -- replicated bytes ------------------------------------------------------------------------------


def test_replicated_bytes_must_continue_the_log() -> None:
    """CommitLog.appendData; a gap is the caller's error, not silently taken."""
    master = a_store(3)
    data = bytes(master.read_log(0, 10_000))
    slave = open_store(SimulatedDisk(), is_slave=True)
    slave.append_data(0, data[:-100])
    for offset in (0, len(data), len(data) - 101):
        with pytest.raises(AppendGapError) as caught:
            slave.append_data(offset, data[-100:])
        assert (caught.value.offset, caught.value.expected) == (offset, len(data) - 100)
    slave.append_data(len(data) - 100, data[-100:])
    assert log_messages(slave) == log_messages(master)


def test_an_empty_log_starts_at_any_file_but_never_inside_one() -> None:
    """Section "6.4": recovery walks a file from its start, so it would find nothing and cut all."""
    disk = SimulatedDisk()
    with open_store(SimulatedDisk()) as master:
        put_many(master, 60)
        tail = bytes(master.read_log(COMMIT_LOG_BYTES, COMMIT_LOG_BYTES))
        slave = open_store(disk, is_slave=True)
        with pytest.raises(AppendGapError):
            slave.append_data(COMMIT_LOG_BYTES + 400, tail[400:])
        slave.append_data(COMMIT_LOG_BYTES, tail)
        slave.reput_service.reput_from_offset = COMMIT_LOG_BYTES
    again = open_store(disk.crashed(), is_slave=True)
    assert again.min_physical_offset == COMMIT_LOG_BYTES
    assert again.max_physical_offset == 2 * COMMIT_LOG_BYTES
    first = log_messages(again)[0]
    key = (first.topic, first.queue_id)
    assert again.reads.min_offset_in_queue(*key) == first.queue_offset > 0
    assert queue_messages(again, *key)[0] == first


def test_a_full_disk_takes_what_fits_of_replicated_bytes() -> None:
    with open_store(SimulatedDisk()) as master:
        put_many(master, 60)
        parts = [bytes(master.read_log(at, 1 << 20)) for at in range(0, 25_000, COMMIT_LOG_BYTES)]
    disk = SimulatedDisk()
    slave = open_store(disk, is_slave=True)
    disk.capacity_bytes = disk.used_bytes + 2 * COMMIT_LOG_BYTES
    with pytest.raises(StoreFullError):
        slave.append_data(0, b"".join(parts))
    assert slave.max_physical_offset == 2 * COMMIT_LOG_BYTES
    disk.capacity_bytes *= 3
    slave.append_data(2 * COMMIT_LOG_BYTES, b"".join(parts[2:]))
    assert len(log_messages(slave)) == 60


# -- getting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "status", "next_master", "next_slave"),
    [
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 4, -1),
        (3, GetMessageStatus.OFFSET_TOO_SMALL, 4, 3),
        (4, GetMessageStatus.FOUND, 20, 20),
        (19, GetMessageStatus.FOUND, 20, 20),
        (20, GetMessageStatus.OFFSET_OVERFLOW_ONE, 20, 20),
        (21, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 20, 21),
        (10**9, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 20, 10**9),
    ],
)
def test_what_a_reader_is_told_about_its_offset(
    offset: int, status: GetMessageStatus, next_master: int, next_slave: int
) -> None:
    """DefaultMessageStore.getMessage; a slave does not correct (offsetCheckInSlave=false)."""
    disk = SimulatedDisk()
    with open_store(disk, consume_queue_bytes=2000) as store:
        for number in range(20):
            put(store, a_message(number, body_bytes=1600))
    disk.remove(f"{DIRECTORY}/commitlog/{0:020d}")
    for is_slave, expected in ((False, next_master), (True, next_slave)):
        with open_store(disk, consume_queue_bytes=2000, is_slave=is_slave) as store:
            assert store.reads.min_offset_in_queue("TopicA", 0) == 4
            result = store.reads.get_message("TopicA", 0, offset, 32)
            assert (result.status, result.next_begin_offset) == (status, expected)
            assert (result.min_offset, result.max_offset) == (4, 20)
            assert result.message_count == (20 - offset if status is GetMessageStatus.FOUND else 0)


def test_unknown_and_empty_queues_are_told_apart() -> None:
    """NO_MATCHED_LOGIC_QUEUE and NO_MESSAGE_IN_QUEUE, next offset 0."""
    store = a_store(1)
    result = store.reads.get_message("Other", 0, 5, 32)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    store.puts.put_message(msgspec.structs.replace(a_message(1, "Half"), sys_flag=4))
    result = store.reads.get_message("Half", 0, 5, 32)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert (
        store.reads.min_offset_in_queue("Other", 0)
        == store.reads.max_offset_in_queue("Other", 0)
        == 0
    )


def test_messages_are_filtered_by_the_code_of_their_tags() -> None:
    """ConsumeQueue's tagsCode; what is filtered out is skipped for good."""
    store = a_store(20, consume_queue_bytes=6000)
    wanted = frozenset([tags_code("TagA")])
    result = store.reads.get_message("TopicA", 0, 0, 3, tags_codes=wanted)
    bodies = [number_of(m) for view in result.body for m in decode_messages(view)]
    assert bodies == [1, 4, 7]
    # Up to, not including, the first message that did not fit any more.
    assert result.next_begin_offset in (8, 10)
    rest = store.reads.get_message("TopicA", 0, result.next_begin_offset, 32, tags_codes=wanted)
    assert [number_of(m) for view in rest.body for m in decode_messages(view)] == [10, 13, 16, 19]
    none = store.reads.get_message("TopicA", 0, 0, 32, tags_codes=frozenset([4711]))
    assert none.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert (none.next_begin_offset, none.message_count) == (20, 0)


def test_one_read_looks_at_800_units_at_most() -> None:
    """maxFilterMessageSize: 16,000 bytes of units."""
    store = a_store(1000, consume_queue_bytes=60_000, commit_log_bytes=1 << 20)
    result = store.reads.get_message("TopicA", 0, 0, 32, tags_codes=frozenset([4711]))
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 800)


def test_a_read_ends_with_its_queue_file() -> None:
    """travelCqFileNumWhenGetMessage is 1."""
    store = a_store(25)
    assert [
        store.reads.get_message("TopicA", 0, at, 32).message_count for at in (0, 7, 10, 20)
    ] == [*(10, 3, 10, 5)]


def test_at_most_32_messages_are_answered() -> None:
    """maxTransferCountOnMessageInMemory."""
    store = a_store(50, consume_queue_bytes=6000)
    assert store.reads.get_message("TopicA", 0, 0, 10_000).message_count == 32
    assert store.reads.get_message("TopicA", 0, 0, 5).message_count == 5
    assert store.reads.get_message("TopicA", 0, 0, 1).next_begin_offset == 1


def test_the_bytes_of_an_answer_are_limited_but_the_first_message_always_comes() -> None:
    """maxTransferBytesOnMessageInMemory, 256 KiB; isTheBatchFull wants one message first."""
    store = a_store(commit_log_bytes=1 << 20, consume_queue_bytes=6000)
    for number, size in enumerate((300_000, 100_000, 100_000, 100_000)):
        put(store, a_message(number, body_bytes=size))
    assert store.reads.get_message("TopicA", 0, 0, 32).message_count == 1
    second = store.reads.get_message("TopicA", 0, 1, 32)
    assert second.message_count == 2
    assert second.body_bytes == sum(map(len, second.body)) < 262_144
    assert store.reads.get_message("TopicA", 0, 1, 32, max_bytes=1000).message_count == 1


def test_records_that_lie_together_are_one_view() -> None:
    store = a_store()
    for number in range(9):
        put(store, a_message(number, "TopicB" if number == 5 else "TopicA"))
    result = store.reads.get_message("TopicA", 0, 0, 32)
    assert (len(result.body), result.message_count) == (2, 8)


def test_messages_whose_file_is_gone_are_skipped() -> None:
    """MESSAGE_WAS_REMOVING; the rest of that commit log file is not looked at."""
    disk = SimulatedDisk()
    store = open_store(disk, consume_queue_bytes=2000)
    for number in range(20):
        put(store, a_message(number, body_bytes=1600))
    store.commit_log.files.files.pop(0)
    result = store.reads.get_message("TopicA", 0, 0, 32)
    assert result.status is GetMessageStatus.FOUND
    assert [number_of(m) for view in result.body for m in decode_messages(view)] == list(
        range(4, 20)
    )
    result = store.reads.get_message("TopicA", 0, 0, 32, tags_codes=frozenset([tags_code("TagX")]))
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    del store.commit_log.files.files[:-1]
    result = store.reads.get_message("TopicA", 0, 0, 3)
    assert result.status is GetMessageStatus.FOUND


def test_a_queue_whose_log_starts_late_begins_with_fillers() -> None:
    """ConsumeQueue.fillPreBlank: first message is number 15, files hold 10 units."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(40):
            put(store, a_message(number, body_bytes=400))
        first = log_messages(store)[15]
    path = f"{DIRECTORY}/commitlog"
    assert first.physical_offset == COMMIT_LOG_BYTES
    disk.remove(f"{path}/{0:020d}")
    for name, _ in disk.list_files(f"{DIRECTORY}/consumequeue/TopicA/0"):
        disk.remove(f"{DIRECTORY}/consumequeue/TopicA/0/{name}")
    for _ in range(2):
        with open_store(disk) as store:
            assert store.reads.min_offset_in_queue("TopicA", 0) == 15
            assert store.reads.max_offset_in_queue("TopicA", 0) == 40
            assert number_of(queue_messages(store, "TopicA", 0)[0]) == 15
            assert (
                store.reads.get_message("TopicA", 0, 14, 1).status
                is GetMessageStatus.OFFSET_TOO_SMALL
            )
        names = disk.list_files(f"{DIRECTORY}/consumequeue/TopicA/0")
        assert names[0][0] == "00000000000000000200"
        units = disk.read(f"{DIRECTORY}/consumequeue/TopicA/0/{names[0][0]}") or b""
        filler = bytes.fromhex("0000000000000000 7fffffff 0000000000000000")
        assert units[:100] == filler * 5
        assert units[100:112] == (COMMIT_LOG_BYTES).to_bytes(8, "big") + first.store_size.to_bytes(
            4, "big"
        )


def test_messages_are_found_by_their_place_and_nowhere_else() -> None:
    """DefaultMessageStore.lookMessageByOffset."""
    store = a_store(5)
    starts = [m.physical_offset for m in log_messages(store)]
    for offset in range(store.max_physical_offset + 100):
        record = store.reads.look_message_by_offset(offset)
        assert (record is not None) == (offset in starts)
        if record is not None:
            assert decode_messages(record)[0].physical_offset == offset
    assert store.reads.look_message_by_offset(-1) is None


def test_raw_bytes_come_from_one_file_and_end_with_the_log() -> None:
    """CommitLog.getData."""
    store = a_store()
    put_many(store, 30)
    assert len(store.read_log(0, 100)) == 100
    assert len(store.read_log(100, 1 << 30)) == COMMIT_LOG_BYTES - 100
    end = store.max_physical_offset
    assert len(store.read_log(end - 5, 100)) == 5
    for offset in (end, end + 1, end + 10**9, -1):
        assert bytes(store.read_log(offset, 100)) == b""


@pytest.fixture(scope="module")
def timed() -> MessageStore:
    """Messages stored at 100, 200, 200, 200, 300 and 500 ms; the first two files are gone."""
    disk = SimulatedDisk()
    clock = Clock(0, 0)
    with open_store(disk, clock=clock) as store:
        for number in range(10):
            clock.now_ms = 10
            put(store, a_message(number, body_bytes=1900))
        for now_ms in (100, 200, 200, 200, 300, 500):
            clock.now_ms = now_ms
            put(store, a_message(0, body_bytes=1900))
    disk.remove(f"{DIRECTORY}/commitlog/{0:020d}")
    disk.remove(f"{DIRECTORY}/commitlog/{COMMIT_LOG_BYTES:020d}")
    return open_store(disk)


@pytest.mark.parametrize(
    ("timestamp_ms", "lower", "upper"),
    [
        (-5, 8, 8),
        (9, 8, 8),
        (10, 8, 9),
        (99, 10, 9),
        (100, 10, 10),
        (101, 11, 10),
        (200, 11, 13),
        (250, 14, 13),
        (300, 14, 14),
        (499, 15, 14),
        (500, 15, 15),
        (501, 16, 15),
        (10**15, 16, 15),
    ],
)
def test_messages_are_found_by_time(
    timed: MessageStore, timestamp_ms: int, lower: int, upper: int
) -> None:
    """ConsumeQueue.getOffsetInQueueByTime, LOWER and UPPER, held within the queue's bounds."""
    assert timed.reads.min_offset_in_queue("TopicA", 0) == 8
    assert timed.reads.offset_in_queue_by_time("TopicA", 0, timestamp_ms) == lower
    assert timed.reads.offset_in_queue_by_time("TopicA", 0, timestamp_ms, upper=True) == upper


def test_an_unknown_queue_has_no_times(timed: MessageStore) -> None:
    assert timed.reads.offset_in_queue_by_time("Other", 0, 100) == 0


# -- running ---------------------------------------------------------------------------------------


def test_arrivals_are_told_with_the_new_end_and_the_code() -> None:
    store = a_store()
    told = told_by(store)
    store.puts.put_message(a_message(1))
    store.puts.put_batch(a_batch(range(2, 5)))
    store.puts.put_message(msgspec.structs.replace(a_message(5), sys_flag=4))
    assert told == [], "not from within a put"
    store.announce()
    assert told == [("TopicA", 0, 1, tags_code("TagA")), ("TopicA", 0, 4, None)]


async def test_who_runs_the_store_hears_of_arrivals() -> None:
    store = a_store()
    heard: list[Arrival] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, Listener(heard.extend, lambda: None))
        store.puts.put_message(a_message(3))
        store.announce()
        nursery.cancel_scope.cancel()
    assert [arrival[1:4] for arrival in heard] == [("TopicA", 0, 1)]


async def test_growth_is_announced_once_for_many_puts(autojump_clock: MockClock) -> None:
    store = a_store()
    woken = 0

    async def watch() -> None:
        nonlocal woken
        while True:
            await store.grown.wait()
            woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await trio.sleep(1)
        for number in range(5):
            store.puts.put_message(a_message(number))
        store.announce()
        await trio.sleep(1)
        assert woken == 1
        store.announce()  # nothing new
        await trio.sleep(1)
        assert woken == 1
        nursery.cancel_scope.cancel()


async def test_the_next_file_is_ready_before_it_is_needed(autojump_clock: MockClock) -> None:
    """AllocateMappedFileService; an unused one is deleted at a clean stop."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            put(store, a_message(0, body_bytes=5000))
            await trio.sleep(1)
            path = f"{DIRECTORY}/commitlog/{COMMIT_LOG_BYTES:020d}"
            assert disk.exists(path)
            put(store, a_message(1, body_bytes=5000))
            assert len(check_store(store)) == 2
            await trio.sleep(1)
            assert disk.exists(f"{DIRECTORY}/commitlog/{2 * COMMIT_LOG_BYTES:020d}")
            nursery.cancel_scope.cancel()
    assert disk.list_files(f"{DIRECTORY}/commitlog") == [
        (f"{0:020d}", COMMIT_LOG_BYTES),
        (f"{COMMIT_LOG_BYTES:020d}", COMMIT_LOG_BYTES),
    ]
    assert len(recover_and_check(disk).messages) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
async def test_a_log_faster_than_the_preparation_keeps_its_own_files(
    seed: int, autojump_clock: MockClock
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.1 * (seed % 5))
    store = open_store(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(60):
            put(store, a_message(number, body_bytes=1000))
            if number % (seed + 1) == 0:
                await trio.sleep(0.05 * (seed % 3))
        assert len(check_store(store)) == 60
        killed = disk.crashed()
        nursery.cancel_scope.cancel()
    assert len(recover_and_check(killed).messages) == 60
    store.close()
    found = recover_and_check(disk)
    assert [number_of(m) for m in found.messages] == list(range(60))
    assert not [path for path in found.files if path.endswith("next.tmp")]


async def test_a_full_disk_at_the_preparation_is_told_and_tried_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    put(store, a_message(0))
    capacity = disk.capacity_bytes
    disk.capacity_bytes = disk.used_bytes
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        put(store, a_message(1, body_bytes=6000))
        await trio.sleep(1)
        assert len(logged(caplog, "store.services.allocate_mapped_file_service")) == 1
        disk.capacity_bytes = capacity
        await trio.sleep(10)
        put(store, a_message(2))
        await trio.sleep(1)
        assert disk.exists(f"{DIRECTORY}/commitlog/{COMMIT_LOG_BYTES:020d}")
        nursery.cancel_scope.cancel()
    store.close()


def test_a_message_of_a_producer_goes_through_unchanged() -> None:
    store = a_store()
    message = Message("TopicA", b"0:", keys="a", tags="b", properties={"p": "\u4e2d\U0001f600"})
    batch = PutBatch(
        topic="TopicA",
        queue_id=0,
        body=encode_batch_body([message]),
        properties=b"",
        born_timestamp_ms=BORN_MS,
        born_host=BORN_HOST.packed,
    )
    put(store, batch)
    put(store, PutMessage("TopicA", 0, b"0:", b"a\x01b", BORN_MS, BORN_HOST.packed))
    first, second = check_store(store)
    assert first.properties == message.property_map()
    assert second.properties == {"a": "b"}


async def test_log_files_may_be_deleted_only_when_their_queues_are_on_disk(
    autojump_clock: MockClock,
) -> None:
    with open_store(SimulatedDisk()) as store:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            end = put(store, a_message(0))
            await trio.sleep(5)
            assert store.flush_service.queues_flushed_where == 0
            await trio.sleep(7)
            assert store.flush_service.queues_flushed_where == end
            put(store, a_message(1))
            await trio.sleep(5)
            assert store.flush_service.queues_flushed_where == end
            nursery.cancel_scope.cancel()
