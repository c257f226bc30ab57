from pathlib import Path

import pytest

from tandem.log.errors import BadRequestError, RequestFault
from tandem.log.log_scan import LogWindow, scan_log
from tandem.log.record_filter import (
    Range,
    RecordFilter,
    parse_range,
    parse_time_ms,
    properties_of,
    time_text,
)
from tandem.log.store_directory import open_store_directory
from tandem.wire.store_layout import OFFSET_MAX
from tests.support.log_builder import BORN_TIMESTAMP_MS, LogBuilder


@pytest.fixture
def window(tmp_path: Path) -> LogWindow:
    log = LogBuilder()
    log.put("orders", b"0", tags="a", keys="k0 shared")
    log.put("orders", b"1", queue_id=1, tags="b", keys="k1", properties={"UNIQ_KEY": "U1"})
    log.put("other", b"2 k1 in the body", tags="a", keys="k10")
    log.put("orders", b"3", keys="shared")
    (found,) = scan_log(open_store_directory(log.write(tmp_path)).commit_log)
    assert isinstance(found, LogWindow)
    return found


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (RecordFilter(), [0, 1, 2, 3]),
        (RecordFilter(topics=frozenset({"orders"})), [0, 1, 3]),
        (RecordFilter(topics=frozenset({"orders", "other"})), [0, 1, 2, 3]),
        (RecordFilter(topics=frozenset({"order"})), []),
        (RecordFilter(queue_ids=frozenset({1})), [1]),
        (RecordFilter(queue_offsets=Range(1, 2)), [3]),
        (RecordFilter(physical_offsets=Range(1)), [1, 2, 3]),
        (RecordFilter(since_ms=BORN_TIMESTAMP_MS + 6), [1, 2, 3]),
        (RecordFilter(until_ms=BORN_TIMESTAMP_MS + 6), [0]),
        (RecordFilter(tags=frozenset({"a"})), [0, 2]),
        (RecordFilter(tags=frozenset({"a", "b"}), topics=frozenset({"orders"})), [0, 1]),
        (RecordFilter(tags=frozenset({"none"})), []),
        (RecordFilter(key="k1"), [1]),
        (RecordFilter(key="shared"), [0, 3]),
        (RecordFilter(key="U1"), [1]),
        (RecordFilter(key="body"), []),
    ],
)
def test_all_conditions_have_to_hold(
    window: LogWindow, wanted: RecordFilter, rows: list[int]
) -> None:
    assert wanted.rows(window).tolist() == rows


def test_properties_are_given_as_stored(window: LogWindow) -> None:
    assert properties_of(window, 3) == b"KEYS\x01shared\x02"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Range()),
        ("5", Range(5, 6)),
        ("5:", Range(5)),
        (":9", Range(0, 9)),
        ("5:9", Range(5, 9)),
        (":", Range()),
        ("9" * 40 + ":", None),
        ("9:5", None),
        ("", None),
        ("-1", None),
        ("a", None),
        ("٣", None),
    ],
)
def test_a_range_is_one_number_or_start_and_end(text: str | None, expected: Range | None) -> None:
    if expected is None:
        with pytest.raises(BadRequestError) as caught:
            parse_range(text, "--offset")
        is_range = text is not None and text[:1] == "9"
        fault = RequestFault.EMPTY_RANGE if is_range else RequestFault.UNREADABLE
        assert (caught.value.fault, caught.value.subject) == (fault, "--offset")
    else:
        assert parse_range(text, "--offset") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("1700000000001", 1_700_000_000_001),
        ("2023-11-14T22:13:20.001", 1_700_000_000_001),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
        ("20231114", 1_699_920_000_000),
        ("9" * 30, OFFSET_MAX),
    ],
)
def test_a_time_is_milliseconds_or_iso(text: str | None, expected: int | None) -> None:
    assert parse_time_ms(text, "--since") == expected


def test_a_time_that_cannot_be_read_is_named() -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_time_ms("yesterday", "--since")
    assert (caught.value.fault, caught.value.subject) == (RequestFault.UNREADABLE, "--since")


def test_times_are_shown_in_utc_and_mad_ones_as_numbers() -> None:
    assert time_text(1_700_000_000_001) == "2023-11-14T22:13:20.001Z"
    assert time_text(2**62) == str(2**62)
    assert time_text(-5) == "1969-12-31T23:59:59.995Z"
