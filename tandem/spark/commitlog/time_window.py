"""Which parts of a log can hold records that were stored within a window of time.

A master stamps each record with its clock while it holds the log, so store times rise with the
offsets as far as the clock does. A clock that is set back, or a new master with another clock,
makes a step down. The rule here allows for one:

    no record is stored more than `margin_ms` before any record that precedes it in the log

With that, what precedes a place whose record was stored before start - margin can be left out, and
so can what follows one stored at end + margin or later. Such places are found by bisecting: an hour
out of a day opens some ten files. RocketMQ searches a log by time likewise, without a margin.

Source: RocketMQ 5.3.3, CommitLog.asyncPutMessage (the store time is set within the put lock),
ConsumeQueue.getOffsetInQueueByTime.
"""

import bisect
from collections.abc import Callable
from typing import Final

from tandem.data_file import DataFile
from tandem.spark.commitlog.storage import Storage
from tandem.wire.record_rule import find_record_start, store_timestamp_ms

MARGIN_MS_DEFAULT: Final = 10 * 60 * 1000
_HEAD_BYTES: Final = 88


class TimeWindow:
    """Store times in ms, from `start_ms` up to and not including `end_ms`; None is no bound."""

    def __init__(self, start_ms: int | None, end_ms: int | None, margin_ms: int) -> None:
        self._start_ms = start_ms
        self._end_ms = end_ms
        self._margin_ms = margin_ms

    def __bool__(self) -> bool:
        return self._start_ms is not None or self._end_ms is not None

    def places(self, count: int, first_time: Callable[[int], int | None]) -> range:
        """Return which of `count` pieces in log order may hold records of the window.

        `first_time` gives the store time of the first record of a piece, None if there is no
        sound one: then nothing is concluded from it.
        """

        def is_past(number: int) -> bool:
            return self._is_after(first_time(number))

        def is_reached(number: int) -> bool:
            return not self._is_before(first_time(number))

        pieces = range(count)
        end = bisect.bisect_left(pieces, 1, key=is_past) if self._end_ms is not None else count
        if self._start_ms is None:
            return range(end)
        first = bisect.bisect_left(pieces, 1, hi=end, key=is_reached)
        return range(max(first - 1, 0), end)  # the piece before may end within the window

    def _is_before(self, time_ms: int | None) -> bool:
        if self._start_ms is None or time_ms is None:
            return False
        return time_ms < self._start_ms - self._margin_ms

    def _is_after(self, time_ms: int | None) -> bool:
        if self._end_ms is None or time_ms is None:
            return False
        return time_ms >= self._end_ms + self._margin_ms


def time_of_record(storage: Storage, file: DataFile, position: int) -> int | None:
    """Return when the record at `position` of a file was stored; None if none begins there."""
    head = bytearray(_HEAD_BYTES)
    with storage.opened(file.path) as opened:
        size = opened.read_into(memoryview(head), position)
    if size < _HEAD_BYTES or find_record_start(head, file.offset + position) != 0:
        return None
    return store_timestamp_ms(head, 0)
