r"""Lines of a process's log, back into records. What was written them is `tandem.process_log`.

    2026-11-22 14:09:29,104 INFO broker-a-0 serving at 127.0.0.1:10911     text, local time
    {"time": "2026-11-22T13:09:29.104+00:00", "level": "INFO", ...}        JSON, UTC

A line that is neither continues the record before it: the traceback of a record, or what a process
wrote on standard error besides its log.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tandem.plain_text import one_line
from tandem.wire.untrusted import UnreadableError, decode_json

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""The lowest first."""

_TEXT: Final = re.compile(
    rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) (%b) (\S+) ?(.*)"
    % b"|".join(map(str.encode, LEVELS))
)


class LogRecord(msgspec.Struct):
    """One record. `at_seconds` since 1970, `more` the lines that continue it."""

    at_seconds: float
    level: str
    process: str
    message: str
    more: list[str] = []

    @property
    def local_time(self) -> dt.datetime:
        """When it was logged, in the time zone of this machine."""
        return dt.datetime.fromtimestamp(self.at_seconds).astimezone()

    def is_at_least(self, level: str) -> bool:
        """Whether it is of this level or a graver one."""
        return LEVELS.index(self.level) >= LEVELS.index(level)

    def has(self, pattern: re.Pattern[str]) -> bool:
        """Whether its message, or a line that continues it, matches."""
        return any(pattern.search(line) for line in (self.message, *self.more))


class RecordReader:
    """Makes records of the lines of one process. Fed line by line, without line ends.

    A record is whole once the next one begins, or when `flush` says that no more is there now. A
    line that continues a record which was given out already becomes a record of the same time.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._record: LogRecord | None = None
        self._last = LogRecord(0.0, "INFO", process, "")
        self._second = b""
        self._second_at = 0.0

    def records(self, lines: Iterable[bytes]) -> Iterator[LogRecord]:
        """Yield the records that become whole with these lines."""
        for line in lines:
            if not line.strip():
                continue
            begun = self._begun(line)
            if begun is not None:
                yield from self.flush()
                self._record = self._last = begun
            else:
                self._go_on(line)

    def flush(self) -> Iterator[LogRecord]:
        """Yield the record that has begun, if there is one."""
        record, self._record = self._record, None
        if record is not None:
            yield record

    def _go_on(self, line: bytes) -> None:
        text = one_line(line.decode(errors="replace"))
        if self._record is None:
            last = self._last
            self._record = LogRecord(last.at_seconds, last.level, self._process, text)
        else:
            self._record.more.append(text)

    def _begun(self, line: bytes) -> LogRecord | None:
        if line.startswith(b"{"):
            return _of_json(line)
        found = _TEXT.fullmatch(line)
        if found is None:
            return None
        second, milliseconds, level, process, message = found.groups()
        if second != self._second:
            try:
                at = dt.datetime.fromisoformat(second.decode(errors="replace")).astimezone()
            except ValueError:  # the 31st of February
                return None
            self._second, self._second_at = second, at.timestamp()
        return LogRecord(
            self._second_at + int(milliseconds) / 1000,
            level.decode(errors="replace"),
            one_line(process.decode(errors="replace")),
            one_line(message.decode(errors="replace")),
        )


class _JsonLine(msgspec.Struct):
    time: dt.datetime
    level: str
    process: str
    message: str
    traceback: list[str] = []


def _of_json(line: bytes) -> LogRecord | None:
    try:
        found = decode_json(line, _JsonLine)
    except UnreadableError:
        return None
    if found.level not in LEVELS:
        return None
    more = [f"  | {one_line(each)}" for each in found.traceback]
    at_seconds = found.time.timestamp()
    return LogRecord(
        at_seconds, found.level, one_line(found.process), one_line(found.message), more
    )
