"""Which records are wanted: by topic, queue, offsets, store time, tags and key.

All conditions have to hold. Ranges are half open. Columns decide first and at once; topic, tags and
key are looked at only in what is left.
"""

import re
from datetime import UTC, datetime
from typing import Final

import msgspec
import numpy as np

from tandem.log.errors import BadRequestError, RequestFault
from tandem.log.log_scan import LogWindow
from tandem.wire.column_values import distinct_values, property_values
from tandem.wire.record_keys import key_values
from tandem.wire.record_scan import Bools, Int64s
from tandem.wire.store_layout import OFFSET_MAX

_RANGE: Final = re.compile(r"(\d*)(:?)(\d*)", re.ASCII)


class Range(msgspec.Struct, frozen=True):
    """Numbers from `start` up to but without `end`."""

    start: int = 0
    end: int = OFFSET_MAX

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.start == 0 and self.end == OFFSET_MAX


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted; None means everything. Times are store times in ms."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queue_offsets: Range = Range()
    physical_offsets: Range = Range()
    since_ms: int | None = None
    until_ms: int | None = None
    tags: frozenset[str] | None = None
    key: str | None = None

    def rows(self, window: LogWindow) -> Int64s:
        """Return the rows of `window.columns` that are wanted, in log order."""
        rows = np.flatnonzero(self._by_columns(window))
        if self.topics is not None:
            rows = _with_topic(window, rows, {topic.encode() for topic in self.topics})
        if self.key is not None:
            rows = _with_key(window, rows, self.key.encode())
        if self.tags is not None:
            rows = _with_tags(window, rows, {tag.encode() for tag in self.tags})
        return rows

    def _by_columns(self, window: LogWindow) -> Bools:
        columns = window.columns
        wanted = np.ones(len(columns), np.bool_)
        if self.queue_ids is not None:
            wanted &= np.isin(columns.queue_id, list(self.queue_ids))
        for values, limits in (
            (columns.queue_offset, self.queue_offsets),
            (columns.physical_offset, self.physical_offsets),
        ):
            if not limits.is_all:
                wanted &= (values >= limits.start) & (values < limits.end)
        if self.since_ms is not None:
            wanted &= columns.store_timestamp_ms >= self.since_ms
        if self.until_ms is not None:
            wanted &= columns.store_timestamp_ms < self.until_ms
        return wanted


def _with_topic(window: LogWindow, rows: Int64s, topics: set[bytes]) -> Int64s:
    columns = window.columns.take(rows)
    values, numbers = distinct_values(window.data, columns.topic_start, columns.topic_size)
    return rows[_among(values, topics)[numbers]]


def _with_tags(window: LogWindow, rows: Int64s, tags: set[bytes]) -> Int64s:
    found = property_values(window.data, window.columns.take(rows), b"TAGS")
    rows = rows[found.start >= 0]
    tagged = found.start >= 0
    values, numbers = distinct_values(window.data, found.start[tagged], found.size[tagged])
    return rows[_among(values, tags)[numbers]]


def _among(values: list[bytes], wanted: set[bytes]) -> Bools:
    return np.array([value in wanted for value in values], np.bool_)


def _with_key(window: LogWindow, rows: Int64s, key: bytes) -> Int64s:
    # Few records hold the bytes at all, and finding those is quick.
    hits = [found.start() for found in re.finditer(re.escape(key), window.data)]
    candidates = np.searchsorted(window.columns.start, np.array(hits, np.int64), "right") - 1
    rows = np.intersect1d(rows, candidates)
    found = [key in key_values(properties_of(window, row)) for row in rows.tolist()]
    return rows[np.array(found, np.bool_)]


def properties_of(window: LogWindow, row: int) -> bytes:
    """Return the property string of one record."""
    start = int(window.columns.properties_start[row])
    return window.data[start : start + int(window.columns.properties_size[row])].tobytes()


def parse_range(text: str | None, name: str) -> Range:
    """Return the range that `5`, `5:`, `:9` or `5:9` (9 not included) stands for.

    Raises:
        BadRequestError: it is something else, or empty.
    """
    if text is None:
        return Range()
    found = _RANGE.fullmatch(text)
    if found is None or not text:
        raise BadRequestError(
            f"{name} {text!r}: write one number, or START:END without END",
            RequestFault.UNREADABLE,
            name,
        )
    start = _offset(found[1])
    if not found[2]:
        return Range(start, start + 1)
    end = _offset(found[3]) if found[3] else OFFSET_MAX
    if end <= start:
        raise BadRequestError(
            f"{name} {text!r} is empty: {end} is not after {start}", RequestFault.EMPTY_RANGE, name
        )
    return Range(start, end)


def parse_time_ms(text: str | None, name: str) -> int | None:
    """Return milliseconds since 1970 for a number of them, or for an ISO 8601 time.

    A time without a zone is taken for UTC, in which times are printed.

    Raises:
        BadRequestError: it is neither.
    """
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) > 8:
        return _offset(text)
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise BadRequestError(
            f"{name} {text!r}: write milliseconds since 1970, or a time such as"
            " 2026-11-20T23:54:18.001 (UTC unless it says otherwise)",
            RequestFault.UNREADABLE,
            name,
        ) from error


def _offset(digits: str) -> int:
    """Return what decimal digits say, however many there are; at most `OFFSET_MAX`."""
    return min(int(digits.lstrip("0")[:20] or 0), OFFSET_MAX)


def time_text(timestamp_ms: int) -> str:
    """Return a time in ISO 8601, UTC; the bare number if no calendar has it."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
