from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tandem.spark.record_batches import COLUMNS, RecordSlice, error_batch
from tandem.wire.message import Host, decode_message
from tandem.wire.record_scan import scan_records
from tests.support.log_builder import LogBuilder

VECTORS = Path("tests/data/rocketmq-5.3.3")
NAMES = tuple(COLUMNS)


def slice_of(data: bytes | bytearray, base_offset: int = 0) -> RecordSlice:
    data = bytearray(data)
    return RecordSlice(data, scan_records(data, base_offset, check_crc=False).columns, "store")


@pytest.mark.parametrize("store", ["basic", "batch", "crc", "ext", "idx", "sch", "tran", "v6"])
def test_every_column_agrees_with_the_decoder_on_golden_stores(store: str) -> None:
    data = (VECTORS / store / "commitlog" / ("0" * 20)).read_bytes()
    part = slice_of(data)
    rows = part.batch(NAMES).to_pylist(maps_as_pydicts="strict")
    assert rows
    for row, start in zip(rows, part.records.start.tolist(), strict=True):
        message, _ = decode_message(data, start)
        assert row == {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "physicalOffset": message.physical_offset,
            "storeSize": message.store_size,
            "flag": message.flag,
            "sysFlag": message.sys_flag,
            "bornTimestamp": row["bornTimestamp"],
            "storeTimestamp": row["storeTimestamp"],
            "bornHost": str(message.born_host),
            "storeHost": str(message.store_host),
            "reconsumeTimes": message.reconsume_times,
            "preparedTransactionOffset": message.prepared_transaction_offset,
            "keys": message.keys or None,
            "tags": message.tags or None,
            "properties": message.properties,
            "body": message.body,
            "bodyCrc": message.body_crc,
            "crcOk": True,
            "version": 2 if len(message.topic) > 127 else 1,
            "store": "store",
            "error": None,
        }
        assert row["bornTimestamp"].timestamp() * 1000 == message.born_timestamp_ms
        assert round(row["storeTimestamp"].timestamp() * 1000) == message.store_timestamp_ms


def test_the_types_are_the_declared_ones_whatever_the_rows() -> None:
    log = LogBuilder()
    log.put(body=b"")
    every = slice_of(log.log)
    none = every.take(np.zeros(1, np.bool_))
    for batch in (every.batch(NAMES), none.batch(NAMES), error_batch(NAMES, "s", 7, "torn")):
        assert [field.type for field in batch.schema] == [kind for kind, _ in COLUMNS.values()]


def test_an_error_row_says_where_and_what_and_nothing_else() -> None:
    (row,) = error_batch(NAMES, "data/a", 4096, "torn: half a record").to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "physicalOffset": 4096,
        "store": "data/a",
        "error": "torn: half a record",
    }


def test_times_beyond_what_can_be_shown_are_clipped() -> None:
    log = LogBuilder()
    log.put(born_timestamp_ms=2**63 - 1)
    log.put(born_timestamp_ms=-(2**63))
    times = slice_of(log.log).batch(["bornTimestamp"]).column(0).to_pylist()
    assert times == [
        datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC),
        datetime(1, 1, 1, tzinfo=UTC),
    ]


def test_without_a_crc_check_nothing_is_claimed() -> None:
    log = LogBuilder()
    log.put()
    data = bytearray(log.log)
    columns = scan_records(data, 0).columns
    part = RecordSlice(data, columns, "s", check_crc=False)
    assert part.batch(["crcOk"]).to_pylist() == [{"crcOk": None}]


def test_mixed_hosts_are_named() -> None:
    log = LogBuilder()
    log.put(born_host=Host("2001:db8::1", 1))
    log.put()
    log.put(store_host=Host("::1", 2))
    hosts = slice_of(log.log).batch(["bornHost", "storeHost"]).to_pydict()
    assert hosts == {
        "bornHost": ["[2001:db8::1]:1", "10.1.2.3:1234", "10.1.2.3:1234"],
        "storeHost": ["127.0.0.1:10911", "127.0.0.1:10911", "[::1]:2"],
    }


def test_nothing_refers_to_the_buffer_afterwards() -> None:
    log = LogBuilder()
    log.put(keys="k")
    part = slice_of(log.log)
    batch = part.batch(NAMES)
    part.data.clear()  # raises BufferError if Arrow still looked at it
    assert batch.num_rows == 1
