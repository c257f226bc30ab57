import datetime as dt
import json
import logging
import os
import re
import time
from collections.abc import Iterator

import pytest

from tandem.cluster.log_records import LogRecord, RecordReader
from tandem.process_log import JsonFormatter, TextFormatter


def records_of(*lines: str | bytes) -> list[LogRecord]:
    reader = RecordReader("broker-a-0")
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    return [*reader.records(raw), *reader.flush()]


def logged(created: float, message: str, *, error: bool = False) -> logging.LogRecord:
    record = logging.LogRecord("node.x", logging.WARNING, "", 0, message, (), None)
    record.created, record.msecs = created, created % 1 * 1000
    if error:
        try:
            os.stat("/no/such/file")  # noqa: PTH116 - any error with a traceback
        except OSError as failure:
            record.exc_info = (type(failure), failure, failure.__traceback__)
    return record


@pytest.fixture(params=["UTC", "America/New_York"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize("formatter", [TextFormatter, JsonFormatter])
def test_what_a_process_logs_comes_back(
    formatter: type[TextFormatter] | type[JsonFormatter],
) -> None:
    at = dt.datetime(2026, 11, 22, 13, 9, 29, 104_000, dt.UTC).timestamp()
    text = formatter("broker-a-1").format(logged(at, "serving at 127.0.0.1:1", error=True))
    (record,) = records_of(*text.split("\n"))
    assert record.at_seconds == pytest.approx(at)
    assert (record.level, record.process) == ("WARNING", "broker-a-1")
    assert record.message == "serving at 127.0.0.1:1"
    assert record.more[0] == "  | Traceback (most recent call last):"
    assert (
        record.more[-1]
        == "  | FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'"
    )


def test_what_a_process_wrote_besides_its_log_belongs_to_the_record_before_it() -> None:
    first, second = records_of(
        "2026-11-22 14:09:29,104 INFO broker-a-0 one",
        "Fatal Python error: Segmentation fault",
        "",
        "2026-11-22 14:09:30,000 ERROR broker-a-0 two",
    )
    assert first.more == ["Fatal Python error: Segmentation fault"]
    assert (second.message, second.more) == ("two", [])


def test_lines_before_any_record_are_shown_all_the_same() -> None:
    (record,) = records_of("python: command not found")
    assert (record.process, record.message) == ("broker-a-0", "python: command not found")


def test_a_line_that_comes_later_than_its_record_has_its_time_and_level() -> None:
    reader = RecordReader("broker-a-0")
    (head,) = [*reader.records([b"2026-11-22 14:09:29,104 ERROR broker-a-0 one"]), *reader.flush()]
    (late,) = [*reader.records([b"  | Traceback"]), *reader.flush()]
    assert (late.at_seconds, late.level, late.message) == (
        head.at_seconds,
        "ERROR",
        "  | Traceback",
    )


@pytest.mark.parametrize(
    "line",
    [
        b"2026-02-31 14:09:29,104 INFO broker-a-0 no such day",
        b"2026-11-22 14:09:29,104 LOUD broker-a-0 no such level",
        b'{"time": 5}',
        b'{"time": "2026-11-22T13:09:29+00:00", "level": "x", "process": "p", "message": "m"}',
        b"{",
        b"\xff\xfe",
    ],
)
def test_a_line_that_only_looks_like_one_is_text(line: bytes) -> None:
    (record,) = records_of(line)
    assert record.at_seconds == 0.0
    assert record.message == line.decode(errors="replace")


def test_nothing_in_a_line_moves_a_terminal() -> None:
    forged = {"time": "2026-11-22T13:09:29+00:00", "level": "INFO", "process": "\x1b[2J"}
    (record, more) = records_of(
        json.dumps({**forged, "message": "a\nb", "traceback": ["\x1b]0;x"]}),
        "2026-11-22 14:09:29,104 INFO broker-a-0 \x1b[31mred",
    )
    assert record.process == "\\x1b[2J"
    assert (record.message, record.more) == ("a\\nb", ["  | \\x1b]0;x"])
    assert more.message == "\\x1b[31mred"


def test_levels_are_compared_and_patterns_are_looked_for_in_all_lines() -> None:
    record = LogRecord(0.0, "WARNING", "p", "one", ["  | two"])
    assert record.is_at_least("INFO")
    assert record.is_at_least("WARNING")
    assert not record.is_at_least("ERROR")
    assert record.has(re.compile("tw"))
    assert not record.has(re.compile("three"))
