"""Whatever is found in columns is what is found record by record."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.wire import column_values
from tandem.wire.column_values import distinct_values, property_values, tags_codes
from tandem.wire.message_properties import property_value, tags_code_of
from tandem.wire.record_scan import RecordColumns, read_columns, scan_records, walk_records
from tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.usefixtures("_in_c_and_python")

VECTORS = Path("tests/data/rocketmq-5.3.3")

names = st.sampled_from([b"TAGS", b"XTAGS", b"TAGSX", b"KEYS", b"", b"T"])
values = st.sampled_from([b"", b"a", b"TagA", b"TAGS", b"TAGS\x01x", b"\x01", b"v" * 70, b"k1 k2"])
pieces = st.tuples(names, st.sampled_from([b"\x01", b""]), values).map(b"".join)
property_strings = st.lists(pieces, max_size=5).map(b"\x02".join)


def records_with(strings: list[bytes], body: bytes = b"TAGS\x01body\x02") -> bytes:
    """Build sound records with these property strings."""
    log = LogBuilder(file_bytes=1 << 24)
    data = bytearray()
    for string in strings:
        log.put(body=body)
        record = log.log[-log.messages[-1].store_size :]
        record[-2:] = len(string).to_bytes(2, "big") + string
        record[:4] = len(record).to_bytes(4, "big")
        data += record
    return bytes(data)


def columns_of(data: bytes) -> RecordColumns:
    columns = read_columns(data, walk_records(data).starts)
    assert columns.sound.all()
    return columns


@settings(deadline=None)
@given(st.lists(property_strings, min_size=1, max_size=6), st.binary(max_size=3))
def test_properties_are_found_as_in_each_record_alone(strings: list[bytes], ending: bytes) -> None:
    strings = [string + ending for string in strings]
    data = records_with(strings)
    columns = columns_of(data)
    for name in (b"TAGS", b"KEYS", b"T"):
        found = property_values(data, columns, name)
        assert len(found) == len(strings)
        for row, string in enumerate(strings):
            start, size = int(found.start[row]), int(found.size[row])
            value = data[start : start + size] if start >= 0 else None
            assert value == property_value(string, name), string
            assert size or start == -1
            assert start < 0 or data[:start].endswith(name + b"\x01")
            assert start < 0 or start >= int(columns.properties_start[row])
    assert tags_codes(data, columns).tolist() == [tags_code_of(string) for string in strings]


@pytest.mark.parametrize("size", [0, 3, 60, 64, 65, 127, 128, 129, 700, 5000, 32_760])
def test_property_strings_of_any_size_are_searched(size: int) -> None:
    tail = b"TAGS\x01TagA\x02"
    strings = [b"K\x01" + b"x" * size + b"\x02" + tail, tail + b"K\x01" + b"x" * size, b"K\x01v"]
    data = records_with([string[:32_767] for string in strings], body=b"")
    assert tags_codes(data, columns_of(data)).tolist() == [
        2_598_919 * (size < 32_700),
        2_598_919,
        0,
    ]


def test_tags_that_are_no_text_have_the_code_of_java() -> None:
    strings = [b"TAGS\x01\xff\xfe\x02", "TAGS\x01标签\x02".encode(), b"TAGS\x01\xf0\x9f\x98\x80"]
    data = records_with(strings)
    assert tags_codes(data, columns_of(data)).tolist() == [tags_code_of(s) for s in strings]


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=3) | st.integers(0, 40).map(lambda n: b"%d" % n), max_size=60),
    st.integers(0, 20),
)
def test_equal_values_get_the_same_number(found: list[bytes], peeled: int) -> None:
    data = b"".join(found)
    size = np.array([len(value) for value in found], np.int64)
    start = np.cumsum(size) - size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_values, "_PEELED_VALUES_MAX", peeled)
        distinct, numbers = distinct_values(data, start, size)
    assert [distinct[number] for number in numbers.tolist()] == found
    assert len(set(distinct)) == len(distinct)
    assert distinct == list(dict.fromkeys(found))


@pytest.mark.parametrize("store", ["basic", "batch", "crc", "ext", "idx", "sch", "tran", "v6"])
def test_golden_records_are_read_alike(store: str) -> None:
    data = (VECTORS / store / "commitlog" / ("0" * 20)).read_bytes()
    columns = scan_records(data, 0).columns
    strings = [
        data[start : start + size]
        for start, size in zip(
            columns.properties_start.tolist(), columns.properties_size.tolist(), strict=True
        )
    ]
    assert tags_codes(data, columns).tolist() == [tags_code_of(string) for string in strings]


def test_nothing_has_no_values() -> None:
    columns = columns_of(b"")
    assert len(property_values(b"", columns, b"TAGS")) == 0
    assert tags_codes(b"", columns).tolist() == []
    distinct, numbers = distinct_values(b"", columns.start, columns.size)
    assert distinct == numbers.tolist() == []


def test_nothing_returned_holds_on_to_the_buffer() -> None:
    data = bytearray(records_with([b"TAGS\x01a\x02"] * 40))
    columns = read_columns(data, walk_records(data).starts)
    kept = property_values(data, columns, b"TAGS"), tags_codes(data, columns)
    distinct = distinct_values(data, columns.topic_start, columns.topic_size)
    data.clear()
    assert len(kept[0]) == 40
    assert distinct[0] == [b"TopicA"]
