"""The plain loop reads what the careful reader reads, and stops at everything else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.log.log_end import TORN_BYTES_MIN, DispatchRequest, read_record
from store.services.usual_records import usual_records
from tandem.wire.message import (
    INNER_BATCH_FLAG,
    RECORD_BYTES_MIN,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
)
from tandem.wire.message_properties import tags_code_of
from tests.support.log_builder import V6, LogBuilder


def count_of(log: bytes) -> int:
    return len(list(usual_records(log, 0, len(log), 0)))


def three(**fields: Any) -> bytes:  # noqa: ANN401
    """Return a log whose second record is not like the other two."""
    log = LogBuilder(file_bytes=1 << 20)
    log.put(tags="TagA")
    log.put(**fields)
    log.put()
    return bytes(log.log)


@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=20).filter(lambda topic: "\0" not in topic),
            st.binary(max_size=30),
            st.dictionaries(
                st.sampled_from(["TAGS", "KEYS", "X"]), st.sampled_from(["a", "b c", "é"])
            ),
        ),
        max_size=20,
    ),
    st.integers(0, 1 << 40),
)
def test_usual_records_are_read_as_the_careful_reader_reads_them(
    messages: list[tuple[str, bytes, dict[str, str]]], start_offset: int
) -> None:
    log = LogBuilder(file_bytes=1 << 20, start_offset=start_offset)
    for topic, body, properties in messages:
        log.put(topic, body, properties=properties, queue_id=len(body))
    data = b"before" + bytes(log.log)
    found = list(usual_records(memoryview(data), 6, len(data), start_offset))
    assert len(found) == len(messages)
    for offset, size, queue_id, queue_offset, stored_ms, topic_bytes, texts in found:
        request = read_record(data, offset - start_offset + 6, len(data), offset)
        assert isinstance(request, DispatchRequest)
        assert (request.topic.encode(), request.queue_id) == (topic_bytes, queue_id)
        assert (request.offset, request.size) == (offset, size)
        assert (request.queue_offset, request.store_timestamp_ms) == (queue_offset, stored_ms)
        assert request.tags_code == tags_code_of(texts)


@pytest.mark.parametrize(
    "fields",
    [
        {"sys_flag": TRANSACTION_PREPARED_TYPE},
        {"sys_flag": TRANSACTION_COMMIT_TYPE},
        {"sys_flag": INNER_BATCH_FLAG},
        {"born_host": V6},
        {"store_host": V6},
        {"topic": "t" * 128},
        {"topic": "Topic\0"},
        {"properties": {"X": "x" * TORN_BYTES_MIN}},
        {"properties": {"X": "\0"}},
    ],
)
def test_the_loop_stops_at_what_is_not_usual(fields: dict[str, Any]) -> None:
    if fields.get("properties") == {"X": "\0"}:
        log = three(properties={"X": "y"}).replace(b"X\x01y\x02", b"X\x01y\0")
    else:
        log = three(**fields)
    assert count_of(log) == 1


@given(st.data())
def test_it_takes_no_damaged_record_that_the_careful_reader_does_not(data: st.DataObject) -> None:
    log = bytearray(three(topic="TopicB", body=b"", properties={"TAGS": "x"}))
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(log)))
    for offset, size, *_, topic, texts in usual_records(bytes(log), 0, end, 0):
        request = read_record(bytes(log), offset, end, offset, check_crc=False)
        assert isinstance(request, DispatchRequest)
        assert request.size == size
        assert request.topic == topic.decode("utf-8", "replace")
        assert request.tags_code == tags_code_of(texts)


def test_the_length_of_a_topic_has_a_sign() -> None:
    log = three(topic="t" * 127, properties={"X": "y"})
    texts = b"\x7f" + b"t" * 127 + b"\0\4X\1y\2"
    longer = b"\x80" + b"t" * 128 + b"\0\3X\1y"
    assert texts in log
    assert len(texts) == len(longer)
    assert count_of(log) == 3
    assert count_of(log.replace(texts, longer)) == 1


def test_nothing_is_read_behind_the_end_or_of_another_place() -> None:
    log = three()
    assert count_of(log) == 3
    assert count_of(log[:-1]) == 2
    assert count_of(log[:RECORD_BYTES_MIN]) == 0
    assert not list(usual_records(log, 0, len(log), 8))
