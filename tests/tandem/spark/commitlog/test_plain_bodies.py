"""Bodies as consumers get them, and hostile bytes in them."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plain_bodies import plain_batches
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split
from tandem.spark.errors import LogDamagedError
from tandem.spark.record_batches import COLUMNS, RecordSlice
from tandem.wire.compression import (
    COMPRESSION_TYPES,
    Codec,
    CompressionError,
    compress,
    decompressed,
)
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAGS,
    Message,
    decode_message,
    encode_batch_body,
    unwrap_inner_batch,
)
from tandem.wire.record_scan import scan_records
from tests.support.log_builder import LogBuilder

NAMES = tuple(COLUMNS)
PLAIN = ScanOptions(paths=("x",), decompress=True)
PLAIN_ROWS = ScanOptions(paths=("x",), decompress=True, on_error="row")
CODECS: list[Codec] = ["zlib", "lz4", "zstd"]
ZLIB = COMPRESSED_FLAG | COMPRESSION_TYPES["zlib"]
BATCH = encode_batch_body(
    [Message("T", b"one", keys="k1", flag=1), Message("T", b""), Message("T", b"three", tags="x")]
)


def part_of(log: LogBuilder, *, check_crc: bool = True) -> RecordSlice:
    data = bytearray(log.log)
    return RecordSlice(
        data, scan_records(data, 0, check_crc=False).columns, "s", check_crc=check_crc
    )


def rows(
    part: RecordSlice, options: ScanOptions = PLAIN, names: tuple[str, ...] = NAMES
) -> list[dict[str, Any]]:
    batches = plain_batches(part, "file", options, names)
    return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]


def expected(log: LogBuilder) -> list[dict[str, Any]]:
    """The rows by the decoders that take one message at a time."""
    return [
        {
            "physicalOffset": stored.physical_offset,
            "storeSize": stored.store_size,
            "bodyCrc": stored.body_crc,
            "queueOffset": plain.queue_offset,
            "sysFlag": plain.sys_flag,
            "flag": plain.flag,
            "body": plain.body,
            "properties": plain.properties,
            "keys": plain.keys or None,
            "topic": plain.topic,
            "bornHost": str(plain.born_host),
            "crcOk": True,
            "error": None,
        }
        for stored in log.messages
        for plain in unwrap_inner_batch(decompressed(stored))
    ]


def mixed() -> LogBuilder:
    log = LogBuilder(file_bytes=1 << 20)
    log.put(body=b"plain", keys="a")
    for codec in CODECS:
        flag = COMPRESSED_FLAG | COMPRESSION_TYPES[codec]
        log.put(body=compress(b"long " * 900, codec), sys_flag=flag, tags=codec)
    log.put(body=BATCH, sys_flag=INNER_BATCH_FLAGS, keys="of the record", queue_offset=7)
    log.put(topic="Other", body=b"", queue_id=3)
    log.put(body=zlib.compress(BATCH), sys_flag=ZLIB | INNER_BATCH_FLAGS, queue_offset=10)
    log.put(body=b"last")
    return log


def test_every_codec_and_batches_agree_with_the_decoder() -> None:
    log = mixed()
    part = part_of(log)
    seen = rows(part)
    wanted = expected(log)
    assert [{name: row[name] for name in wanted[0]} for row in seen] == wanted
    assert len(seen) == len(log.messages) + 4


def test_of_a_batch_the_messages_with_a_tag_are_left(tmp_path: Path) -> None:
    log = mixed()
    options = ScanOptions(
        paths=(str(log.write(tmp_path)),), decompress=True, tags=frozenset({"x", "lz4"})
    )
    (split,) = plan_splits(options)
    seen = [
        row for batch in read_split(split, options, ("body", "tags")) for row in batch.to_pylist()
    ]
    assert seen == [
        {"body": b"long " * 900, "tags": "lz4"},
        {"body": b"three", "tags": "x"},
        {"body": b"three", "tags": "x"},
    ]


def test_without_the_option_and_without_such_records_nothing_is_copied() -> None:
    log = mixed()
    part = part_of(log)
    raw = rows(part, ScanOptions(paths=("x",)))
    assert [row["body"] for row in raw] == [message.body for message in log.messages]
    assert [row["sysFlag"] for row in raw] == [message.sys_flag for message in log.messages]


def test_memory_is_bounded_by_handing_on_what_there_is() -> None:
    part = part_of(mixed())
    batches = [*plain_batches(part, "file", PLAIN, ("body",), part_bytes_max=4000)]
    assert len(batches) > 3
    whole = [row for batch in batches for row in batch.to_pylist()]
    assert whole == rows(part, names=("body",))


def test_where_no_body_is_read_only_batches_are_opened() -> None:
    log = LogBuilder()
    log.put(body=b"not zlib at all", sys_flag=ZLIB)
    log.put()
    assert rows(part_of(log), names=("queueOffset", "sysFlag")) == [
        {"queueOffset": 0, "sysFlag": ZLIB & ~COMPRESSED_FLAG},
        {"queueOffset": 1, "sysFlag": 0},
    ]


@pytest.mark.parametrize(
    ("body", "sys_flag", "cause"),
    [
        (b"not zlib", ZLIB, CompressionError),
        (zlib.compress(b"cut" * 99)[:-5], ZLIB, CompressionError),
        (b"?", COMPRESSED_FLAG | 0x500, CompressionError),
        (BATCH[:-1], INNER_BATCH_FLAGS, MalformedMessageError),
        (zlib.compress(b"\xff" * 40), ZLIB | INNER_BATCH_FLAGS, MalformedMessageError),
    ],
)
def test_what_cannot_be_undone_is_damage_of_its_row(
    body: bytes, sys_flag: int, cause: type[Exception]
) -> None:
    log = LogBuilder()
    log.put(body=b"before")
    bad = log.put(body=body, sys_flag=sys_flag)
    log.put(body=b"after")
    with pytest.raises(LogDamagedError) as caught:
        rows(part_of(log))
    assert (caught.value.kind, caught.value.physical_offset) == ("corrupt", bad.physical_offset)
    assert isinstance(caught.value.__context__, cause)
    seen = rows(part_of(log), PLAIN_ROWS)
    assert [row["body"] for row in seen] == [b"before", body, b"after"]
    assert [row["sysFlag"] for row in seen] == [0, sys_flag, 0]
    assert [row["error"] is None for row in seen] == [True, False, True]
    assert seen[1]["error"] == f"corrupt: {caught.value.reason} ({caught.value.file})"


@pytest.mark.slow
def test_a_bomb_is_damage_and_no_flood() -> None:
    log = LogBuilder(file_bytes=1 << 20)
    bomb = zlib.compress(bytes(65 * 1024 * 1024))
    log.put(body=bomb, sys_flag=ZLIB)
    (row,) = rows(part_of(log), PLAIN_ROWS)
    assert row["body"] == bomb
    assert "has more than" in row["error"]


def test_a_body_that_its_crc_does_not_fit_is_left_alone(tmp_path: Path) -> None:
    log = LogBuilder()
    log.put(body=zlib.compress(b"x"), sys_flag=ZLIB)
    log.log[8] ^= 1  # its BODYCRC
    log.put(body=zlib.compress(b"y"), sys_flag=ZLIB)
    seen = read(log, tmp_path)
    assert [row["body"] for row in seen] == [zlib.compress(b"x"), b"y"]
    assert [row["crcOk"] for row in seen] == [False, True]
    assert "body CRC" in seen[0]["error"]


def read(log: LogBuilder, root: Path) -> list[dict[str, Any]]:
    options = ScanOptions(
        paths=(str(log.write(root)),), decompress=True, on_error="row", with_system_topics=True
    )
    found = []
    for split in plan_splits(options):
        for batch in read_split(split, options, NAMES):
            found += batch.to_pylist(maps_as_pydicts="strict")
    return found


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_flipped_bytes_hurt_only_the_records_that_have_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = mixed()
    whole = {row["physicalOffset"]: row for row in expected(log)}
    flips = data.draw(st.lists(st.integers(0, len(log.log) - 1), min_size=1, max_size=3))
    for flip in flips:
        log.log[flip] ^= data.draw(st.integers(1, 255))
    seen = read(log, tmp_path_factory.mktemp("flipped"))
    hurt = {
        message.physical_offset
        for message in log.messages
        for flip in flips
        if message.physical_offset <= flip < message.physical_offset + message.store_size
    }
    sound = [row for row in expected(mixed()) if row["physicalOffset"] not in hurt]
    known = [row for row in seen if row["physicalOffset"] in whole.keys() - hurt]
    assert [{name: row[name] for name in sound[0]} for row in known] == sound


@pytest.mark.parametrize("store", ["batch", "tran", "sch", "v6"])
def test_stores_of_rocketmq_are_read_as_its_decoder_does(store: str) -> None:
    raw = bytearray(Path("tests/data/rocketmq-5.3.3", store, "commitlog", "0" * 20).read_bytes())
    columns = scan_records(raw, 0).columns
    part = RecordSlice(raw, columns, "s")
    wanted = [
        (plain.topic, plain.queue_offset, plain.body, plain.properties)
        for start in columns.start.tolist()
        for plain in unwrap_inner_batch(decompressed(decode_message(raw, start)[0]))
    ]
    assert wanted
    seen = rows(part, names=("topic", "queueOffset", "body", "properties"))
    assert [tuple(row.values()) for row in seen] == wanted
    assert np.count_nonzero(columns.sound) == len(columns)
