"""Stores written by RocketMQ 5.3.3: opened, read, continued, and written again byte for byte.

What was put into each is told in tests/data/rocketmq-5.3.3/README.md.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from store import MessageStore, PutBatch, PutMessage
from store.files.store_checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.log.log_end import DispatchRequest, read_record
from store.machine.real_disk import RealDisk
from store.results import PutMessageResult
from tandem.wire.message import Host, MessageExt
from tandem.wire.property_crc import property_crc_agrees, property_crc_fault
from tandem.wire.record_scan import read_columns, walk_records
from tests.store.store_world import (
    BORN_HOST,
    BORN_MS,
    COMMIT_LOG_BYTES,
    STORE_HOST,
    Clock,
    a_message,
    log_messages,
    open_store,
    put,
    queue_messages,
)
from tests.support.paths import GOLDEN

ORDINARY = {
    "basic": [("TopicA", 1, b"hello%d" % n) for n in range(3)],
    "batch": [("T", 0, b"b0"), ("T", 0, b"b1")],
    "crc": [("TopicA", 0, b"hello")] * 4,
    "ext": [("T", 0, b"m")] * 6,
    "idx": [("T", 0, b"m")] * 7,
    "sch": [("T", 0, b"m")] * 5,
    "tran": [
        *(("T", 0, body) for body in (b"n", b"p", b"r", b"c")),
        *(("SCHEDULE_TOPIC_XXXX", 2, b"d"),) * 2,
    ],
    "v6": [("T", 3, b"b"), ("T", 3, b"b"), ("L" * 130, 0, b"v2")],
}
LOG_ENDS = {
    "basic": 408,
    "batch": 264,
    "crc": 503,
    "ext": 600,
    "idx": 819,
    "sch": 465,
    "tran": 649,
    "v6": 434,
}


SETTINGS: dict[str, dict[str, Any]] = {
    "crc": {"enabled_append_prop_crc": True, "force_verify_prop_crc": True},
    "idx": {"max_hash_slot_num": 7, "max_index_num": 5},
}
"""Where they differ from those of the others. `ext` is opened as a store without extensions."""


def opened(
    directory: Path, name: str, *, clock: Clock | None = None, store_host: Host = STORE_HOST
) -> MessageStore:
    """Open the store in `directory` with the settings of the golden store `name`."""
    return open_store(
        RealDisk(), str(directory), clock=clock, store_host=store_host, **SETTINGS.get(name, {})
    )


def opened_copy(tmp_path: Path, name: str) -> MessageStore:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    return opened(tmp_path / name, name)


def bytes_of(root: Path, folder: str) -> dict[str, bytes]:
    found = (root / folder).rglob("*")
    return {str(f.relative_to(root)): f.read_bytes() for f in found if f.is_file()}


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("name", ORDINARY)
def test_every_store_opens_and_holds_what_was_put(name: str, abort: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """After a clean stop and as after a crash; opening changes neither log nor queues."""
    root = shutil.copytree(GOLDEN / name, tmp_path / name)
    if abort:
        (root / "abort").write_text("4711")
    with opened(root, name) as store:
        messages = log_messages(store)
        assert [(m.topic, m.queue_id, m.body) for m in messages] == ORDINARY[name]
        assert store.max_physical_offset == LOG_ENDS[name]
        assert store.last_record_offset == messages[-1].physical_offset
        for key in store.list_queues():
            expected = [
                m
                for m in messages
                if (m.topic, m.queue_id) == key and m.sys_flag & 12 not in (4, 12)
            ]
            assert queue_messages(store, *key) == expected
            assert [m.queue_offset for m in expected] == list(range(len(expected)))
    for folder in ("commitlog", "consumequeue"):
        assert bytes_of(root, folder) == bytes_of(GOLDEN / name, folder)


@pytest.mark.parametrize("name", [name for name in ORDINARY if name != "ext"])
def test_queues_built_anew_are_byte_for_byte_the_same(name: str, tmp_path: Path) -> None:
    """ConsumeQueue.putMessagePositionInfo. `ext` has addresses where others have codes."""
    root = shutil.copytree(GOLDEN / name, tmp_path / name)
    shutil.rmtree(root / "consumequeue")
    opened(root, name).close()
    assert bytes_of(root, "consumequeue") == bytes_of(GOLDEN / name, "consumequeue")


@pytest.mark.parametrize("name", ORDINARY)
def test_every_store_can_be_continued(name: str, tmp_path: Path) -> None:
    with opened_copy(tmp_path, name) as store:
        before = len(log_messages(store))
        topic, queue_id = store.list_queues()[0]
        end = store.reads.max_offset_in_queue(topic, queue_id)
        for number in range(100):
            put(store, a_message(number, topic, queue_id, body_bytes=200))
    with opened(tmp_path / name, name) as store:
        assert len(log_messages(store)) == before + 100
        assert store.reads.max_offset_in_queue(topic, queue_id) == end + 100
        result = store.reads.get_message(topic, queue_id, end, 1)
        assert bytes(result.body[0])[20:28] == end.to_bytes(8, "big")


def raw_properties(root: Path, message: MessageExt) -> bytes:
    """Return the property string as stored: the decoded one has lost its exact form."""
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    end = message.physical_offset + message.store_size
    for size in range(message.store_size):
        if int.from_bytes(data[end - size - 2 : end - size], "big") == size:
            start = end - size - 2
            if data[start - len(message.topic) : start] == message.topic.encode():
                return data[end - size : end]
    raise AssertionError(message)


def put_again(
    store: MessageStore, clock: Clock, message: MessageExt, raw: bytes
) -> PutMessageResult:
    clock.now_ms = message.store_timestamp_ms - clock.step_ms
    return store.puts.put_message(
        PutMessage(
            topic=message.topic,
            queue_id=message.queue_id,
            body=message.body,
            properties=raw,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host.packed,
            flag=message.flag,
            sys_flag=message.sys_flag & 0xC,
            prepared_transaction_offset=message.prepared_transaction_offset,
        ),
        hooks=False,
    )


CRC_PROPERTIES = [b"KEYS\x01k\x02", b"", b"A\x01B", b"__CRC32#\x01forged\x02A\x01B\x02"]


@pytest.mark.parametrize("name", ["basic", "crc", "ext", "idx", "sch", "tran"])
def test_the_same_puts_make_the_same_bytes(name: str, tmp_path: Path) -> None:
    """MessageExtEncoder, DefaultAppendMessageCallback; PREPARED and ROLLBACK get offset 0.

    The records of `crc` had no properties, no closing separator, or a forged CRC among them.
    """
    with opened_copy(tmp_path, name) as golden:
        messages = log_messages(golden)
    clock = Clock()
    with opened(tmp_path / "ours", name, clock=clock) as store:
        for number, message in enumerate(messages):
            is_signed = name == "crc"
            raw = CRC_PROPERTIES[number] if is_signed else raw_properties(GOLDEN / name, message)
            result = put_again(store, clock, message, raw)
            assert (result.wrote_offset, result.queue_offset) == (
                message.physical_offset,
                message.queue_offset,
            )
            assert result.msg_id == message.offset_msg_id
    for folder in ("commitlog",) if name == "ext" else ("commitlog", "consumequeue"):
        assert bytes_of(tmp_path / "ours", folder) == bytes_of(GOLDEN / name, folder)


def a_log(directory: Path, store_host: Host, end: int) -> CommitLog:
    """Open a log that ends at `end`: the log alone, for what a broker's store does not take."""
    log = CommitLog(f"{directory}/commitlog", COMMIT_LOG_BYTES, RealDisk(), store_host)
    log.files.load()
    if log.files.last is not None:
        log.files.last.set_positions(end)
    return log


def queues_after_recovery(directory: Path) -> dict[str, bytes]:
    """Have a store build the queues from the log, as after a crash."""
    (directory / "abort").touch()
    open_store(RealDisk(), str(directory)).close()
    return bytes_of(directory, "consumequeue")


def test_the_units_of_delayed_messages_have_their_deliver_time(tmp_path: Path) -> None:
    """CommitLog.checkMessageAndReturnSize: level 3, and level 30, of which there are 18."""
    root = shutil.copytree(GOLDEN / "tran", tmp_path / "tran")
    shutil.rmtree(root / "consumequeue")
    with open_store(RealDisk(), str(root)) as store:
        delayed = queue_messages(store, "SCHEDULE_TOPIC_XXXX", 2)
        queue = store.queues.find("SCHEDULE_TOPIC_XXXX", 2)
        assert queue is not None
        codes = [queue.unit(number)[2] for number in range(2)]
    waits = [code - m.store_timestamp_ms for code, m in zip(codes, delayed, strict=True)]
    assert waits == [10_000, 7_200_000]


def test_transactional_records_are_stored_as_they_are(tmp_path: Path) -> None:
    """PREPARED and ROLLBACK: offset 0 whatever was given, no unit; COMMIT goes on counting."""
    with opened_copy(tmp_path, "tran") as store:
        messages = log_messages(store)[:4]
        assert [m.sys_flag for m in messages] == [0, 4, 12, 8]
        assert [m.queue_offset for m in messages] == [0, 0, 0, 1]
        assert [m.prepared_transaction_offset for m in messages] == [0, 0, 0, 5]
        assert [m.body for m in queue_messages(store, "T", 0)] == [b"n", b"c"]


@pytest.mark.parametrize("name", ORDINARY)
def test_the_checkpoint_says_no_more_than_what_is_stored(name: str, tmp_path: Path) -> None:
    """StoreCheckpoint: times of the last message synced in the log, and entered in a queue.

    5.3.3 says of its log what the last thorough flush knew, of its confirm offset where a record
    starts, or nothing. Ours says all of it after a clean stop; the layout is the same.
    """
    path = shutil.copy(GOLDEN / name / "checkpoint", tmp_path / "checkpoint")
    theirs = StoreCheckpoint(str(path), RealDisk())
    with opened_copy(tmp_path, name) as golden:
        messages = log_messages(golden)
    last_ms = stored_ms = messages[-1].store_timestamp_ms
    assert theirs.physic_msg_timestamp_ms <= theirs.logics_msg_timestamp_ms == last_ms
    safe_ms = min(theirs.physic_msg_timestamp_ms, theirs.logics_msg_timestamp_ms) - 3000
    assert theirs.min_timestamp_ms == safe_ms
    assert theirs.confirm_physical_offset in (0, *(m.physical_offset for m in messages))
    theirs.close()
    clock = Clock()
    with opened(tmp_path / "ours", "basic", clock=clock) as store:
        for message in messages:
            if message.topic != "L" * 130:
                stored_ms = put_again(store, clock, message, b"").store_timestamp_ms
        end = store.max_physical_offset
    ours = StoreCheckpoint(str(tmp_path / "ours" / "checkpoint"), RealDisk())
    assert ours.physic_msg_timestamp_ms == ours.logics_msg_timestamp_ms == stored_ms
    assert ours.confirm_physical_offset == end
    assert (tmp_path / "ours" / "checkpoint").stat().st_size == 4096
    ours.close()


def test_the_same_batch_makes_the_same_bytes(tmp_path: Path) -> None:
    """MessageExtEncoder.encode(MessageExtBatch): entry properties, then those of the batch."""
    body = bytes.fromhex(
        "00000034 00000000 00000000 00000000 00000002 6230 001c"
        "4b455953014b3002 57414954017472756502 5441475301 5461674202"
        "00000034 00000000 00000000 00000000 00000002 6231 001c"
        "4b455953014b3102 57414954017472756502 5441475301 5461674202"
    )
    with opened_copy(tmp_path, "batch") as golden:
        first, _ = log_messages(golden)
    clock = Clock(first.store_timestamp_ms, 0)
    ours = str(tmp_path / "ours")
    with open_store(RealDisk(), ours, clock=clock, store_host=first.store_host) as store:
        batch = PutBatch(
            topic="T",
            queue_id=0,
            body=body,
            properties=b"CLUSTER\x01c\x02",
            born_timestamp_ms=first.born_timestamp_ms,
            born_host=first.born_host.packed,
        )
        result = store.puts.put_batch(batch)
    assert (result.msg_num, result.wrote_bytes, result.queue_offset) == (2, 264, 0)
    assert result.msg_id == ("7F000001000000020000000000000000,7F000001000000020000000000000084")
    for folder in ("commitlog", "consumequeue"):
        assert bytes_of(tmp_path / "ours", folder) == bytes_of(GOLDEN / "batch", folder)


V6 = [
    ("T", 3, Host("fe80::1", 5), STORE_HOST),
    ("T", 3, BORN_HOST, Host("2001:db8::7", 10911)),
    ("L" * 130, 0, BORN_HOST, STORE_HOST),
]


def test_ipv6_hosts_and_long_topics_make_the_same_bytes(tmp_path: Path) -> None:
    """SYSFLAG says which host is long; a topic of more than 127 characters makes V2.

    The log changes its host on the way, and takes a topic that a store of RocketMQ's or ours takes
    only under %RETRY%.
    """
    with opened_copy(tmp_path, "v6") as golden:
        messages = log_messages(golden)
    for message, (topic, queue_id, born, stored) in zip(messages, V6, strict=True):
        log = a_log(tmp_path / "ours", stored, message.physical_offset)
        log.append_message(
            PutMessage(
                topic=topic,
                queue_id=queue_id,
                body=message.body,
                properties=b"",
                born_timestamp_ms=BORN_MS,
                born_host=born.packed,
            ),
            topic.encode(),
            message.queue_offset,
            message.store_timestamp_ms,
        )
        log.files.close()
        assert (message.born_host, message.store_host) == (born, stored)
    assert bytes_of(tmp_path / "ours", "commitlog") == bytes_of(GOLDEN / "v6", "commitlog")
    assert queues_after_recovery(tmp_path / "ours") == bytes_of(GOLDEN / "v6", "consumequeue")


def test_retry_topics_are_taken_up_to_255_bytes(tmp_path: Path) -> None:
    """HookUtils.checkBeforePutMessage; the record is V2 and comes back."""
    topic = "%RETRY%" + "g" * 248
    with open_store(RealDisk(), str(tmp_path / "ours")) as store:
        put(store, a_message(0, topic))
        assert [m.topic for m in queue_messages(store, topic, 0)] == [topic]
        record = store.reads.look_message_by_offset(0) or b""
        assert record[4:8].hex() == "daa320ab"


@pytest.mark.parametrize("name", ["ext", "tran"])
def test_what_stands_for_tags_codes_survives_a_crash(name: str, tmp_path: Path) -> None:
    """Delivery times, and addresses of an extended queue."""
    root = shutil.copytree(GOLDEN / name, tmp_path / name)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    opened(root, name).close()
    assert bytes_of(root, "consumequeue") == bytes_of(GOLDEN / name, "consumequeue")


def test_records_with_the_crc_property_pass_where_it_is_demanded() -> None:
    """CommitLog.checkMessageAndReturnSize with forceVerifyPropCRC: others count as damaged."""
    for name in ("crc", "basic"):
        data = (GOLDEN / name / "commitlog" / f"{0:020d}").read_bytes()
        columns = read_columns(data, walk_records(data).starts)
        expected = name == "crc"
        assert property_crc_agrees(data, columns).tolist() == [expected] * len(columns)
        position = 0
        while position < LOG_ENDS[name]:
            size = int.from_bytes(data[position : position + 4], "big")
            fault = property_crc_fault(data, position, position + size)
            assert (fault is None) is expected, fault
            position += size


def test_every_golden_record_passes_our_stricter_check() -> None:
    """PHYSICALOFFSET equals the place, and no NULs, in every record that 5.3.3 writes."""
    for name, ends in LOG_ENDS.items():
        data = bytearray((GOLDEN / name / "commitlog" / f"{0:020d}").read_bytes())
        position = count = 0
        while position < ends:
            record = read_record(data, position, len(data), position)
            assert isinstance(record, DispatchRequest), (name, record)
            position += record.size
            count += 1
        assert (position, count) == (ends, len(ORDINARY[name]))
