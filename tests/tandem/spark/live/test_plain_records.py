import zlib

import msgspec
import pytest

from tandem.spark.errors import SparkSourceError
from tandem.spark.live.plain_records import plain_records
from tandem.spark.record_batches import RecordSlice
from tandem.wire.message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    Message,
    MessageExt,
    encode_batch_body,
    encode_record,
)
from tandem.wire.record_scan import read_columns, walk_records
from tests.tandem.client.fake_broker import message_ext

ZLIB = COMPRESSED_FLAG | 0x300
BATCH = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG


def part_of(*messages: MessageExt) -> RecordSlice:
    data = bytearray(b"".join(map(encode_record, messages)))
    return RecordSlice(data, read_columns(data, walk_records(data).starts), "broker-a")


def rows(part: RecordSlice) -> list[tuple[int, bytes, str | None, bool]]:
    batch = part.batch(["queueOffset", "body", "keys", "crcOk"])
    return [tuple(row.values()) for row in batch.to_pylist()]


def a_batch(offset: int, count: int) -> MessageExt:
    singles = [Message("orders", b"body %d" % (offset + i), keys=f"k{i}") for i in range(count)]
    return message_ext(encode_batch_body(singles), queue_offset=offset, sys_flag=BATCH)


def test_where_nothing_has_to_change_nothing_is_copied() -> None:
    part = part_of(message_ext(b"a"), message_ext(b"b", queue_offset=1))
    assert [*plain_records(part, 0, 2)] == [part]


def test_bodies_are_decompressed_among_others() -> None:
    body = b"long " * 2000
    part = part_of(
        message_ext(b"a"),
        message_ext(zlib.compress(body), queue_offset=1, sys_flag=ZLIB, properties={"KEYS": "k"}),
        message_ext(b"c", queue_offset=2),
    )
    (plain,) = plain_records(part, 0, 3)
    assert rows(plain) == [(0, b"a", None, True), (1, body, "k", True), (2, b"c", None, True)]
    assert not (plain.records.sys_flag & COMPRESSED_FLAG).any()
    assert plain.records.physical_offset.tolist() == part.records.physical_offset.tolist()


@pytest.mark.parametrize("sys_flag", [0, ZLIB])
def test_batches_are_taken_apart_within_the_offsets(sys_flag: int) -> None:
    batch = a_batch(5, 4)
    if sys_flag:
        compressed = zlib.compress(batch.body)
        batch = msgspec.structs.replace(batch, body=compressed, sys_flag=BATCH | sys_flag)
    part = part_of(batch, message_ext(b"next", queue_offset=9))
    (plain,) = plain_records(part, 6, 10)
    assert rows(plain) == [
        (6, b"body 6", "k1", True),
        (7, b"body 7", "k2", True),
        (8, b"body 8", "k3", True),
        (9, b"next", None, True),
    ]


def test_a_batch_that_does_not_parse_is_given_out_as_it_is() -> None:
    part = part_of(message_ext(b"no batch", sys_flag=BATCH))
    assert [rows(each) for each in plain_records(part, 0, 1)] == [[(0, b"no batch", None, True)]]


def test_what_grows_is_handed_on_in_parts() -> None:
    body = zlib.compress(bytes(100_000))
    messages = [message_ext(body, queue_offset=offset, sys_flag=ZLIB) for offset in range(5)]
    parts = [*plain_records(part_of(*messages), 0, 5, part_bytes_max=150_000)]
    assert [len(each) for each in parts] == [2, 2, 1]


def test_a_body_that_cannot_be_read_stays_as_it_is_where_that_is_wanted() -> None:
    part = part_of(message_ext(b"not zlib", queue_offset=7, sys_flag=ZLIB))
    (kept,) = plain_records(part, 7, 8, keeps_broken=True)
    assert len(kept) == 1
    assert b"not zlib" in bytes(kept.data)


def test_a_body_that_cannot_be_read_is_said_with_its_place_and_the_remedy() -> None:
    part = part_of(message_ext(b"not zlib", queue_offset=7, sys_flag=ZLIB))
    with pytest.raises(SparkSourceError, match=r"offset 7 of queue 0 .*decompress=false"):
        [*plain_records(part, 0, 9)]
