import pytest

from tandem.spark.errors import OptionError
from tandem.spark.option_reader import OptionReader
from tandem.spark.record_batches import RecordSlice
from tandem.spark.row_filter import (
    EVERY_ROW,
    RowFilter,
    check_times,
    message_is_wanted,
    read_queues,
    read_tags,
    with_tags,
)
from tandem.wire.message import INNER_BATCH_FLAGS
from tandem.wire.record_scan import scan_records
from tests.support.log_builder import LogBuilder

OPTIONS = ("tags", "queues", "startingTimestamp", "endingTimestamp")


def part_of(log: LogBuilder) -> RecordSlice:
    data = bytearray(log.log)
    return RecordSlice(data, scan_records(data, 0, check_crc=False).columns, "s")


def a_log() -> LogBuilder:
    log = LogBuilder()
    for tag in ("new", "", "paid", "newer", "new"):
        log.put(body=b"x", keys="k", tags=tag)
    return log


def chosen(rows: RowFilter, log: LogBuilder, *, batches_pass: bool = False) -> list[int]:
    part = part_of(log)
    is_wanted = rows.of(part, batches_pass=batches_pass)
    taken = rows.taken(part, batches_pass=batches_pass)
    assert len(taken) == is_wanted.sum()
    return [row for row, wanted in enumerate(is_wanted.tolist()) if wanted]


def test_a_tag_is_wanted_as_a_whole() -> None:
    assert chosen(RowFilter(frozenset({"new"})), a_log()) == [0, 4]
    assert chosen(RowFilter(frozenset({"new", "paid", "other"})), a_log()) == [0, 2, 4]
    assert chosen(RowFilter(frozenset({"other"})), a_log()) == []
    assert chosen(EVERY_ROW, a_log()) == [0, 1, 2, 3, 4]


def test_times_have_a_beginning_that_counts_and_an_end_that_does_not() -> None:
    times = [message.store_timestamp_ms for message in a_log().messages]
    assert times == list(range(times[0], times[0] + 5))
    rows = RowFilter(start_ms=times[1], end_ms=times[3])
    assert chosen(rows, a_log()) == [1, 2]
    assert chosen(RowFilter(frozenset({"paid"}), times[1], times[3]), a_log()) == [2]


def test_an_inner_batch_may_have_messages_of_every_tag() -> None:
    log = a_log()
    log.put(body=b"x", sys_flag=INNER_BATCH_FLAGS)
    rows = RowFilter(frozenset({"paid"}))
    assert chosen(rows, log) == [2]
    assert chosen(rows, log, batches_pass=True) == [2, 5]


def test_what_is_not_chosen_is_not_looked_at() -> None:
    part = part_of(a_log())
    before = part.records.queue_id < 0
    assert not with_tags(part, before, frozenset({"new"})).any()
    assert "properties" not in vars(part)


def test_one_message_is_judged_alike() -> None:
    assert message_is_wanted({"TAGS": "a"}, frozenset({"a"}))
    assert not message_is_wanted({}, frozenset({"a"}))
    assert message_is_wanted({}, None)


def read(name: str, text: str) -> object:
    given = OptionReader("source", OPTIONS, {name: text})
    found = read_tags(given) if name == "tags" else read_queues(given)
    given.finish()
    return found


@pytest.mark.parametrize("text", ["a,b", "a || b", " b , a ", "a||b,", "b,a,a"])
def test_tags_are_named_with_commas_or_as_consumers_do(text: str) -> None:
    assert read("tags", text) == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("tags", ""), ("tags", "*"), ("tags", "a || *"), ("tags", ","), ("queues", "0,x"),
     ("queues", "-1"), ("queues", str(2**31)), ("queues", ",")],
)  # fmt: skip
def test_what_is_no_tag_or_queue_is_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(name, text)
    assert caught.value.names == (name,)


def test_a_window_does_not_end_before_it_begins() -> None:
    given = OptionReader("source", OPTIONS, {"startingTimestamp": "5", "endingTimestamp": "4"})
    check_times(given, 5, 5)
    given.finish()
    check_times(given, 5, 4)
    with pytest.raises(OptionError) as caught:
        given.finish()
    assert set(caught.value.names) == {"startingTimestamp", "endingTimestamp"}
