"""Which rows a job is for: by queue, queue offset, store time, tag and key."""

import datetime as dt
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandem.cluster_file.errors import ClusterConfigError
from tandem.wire.record_scan import Bools


class Window(msgspec.Struct, frozen=True):
    """What is wanted of one topic; None means "all". Ends are excluded, times are in ms."""

    topic: str
    queues: frozenset[int] | None = None
    start_offsets: dict[int, int] = {}
    end_offsets: dict[int, int] = {}
    start_ms: int | None = None
    end_ms: int | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None

    def chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are wanted. Needs the columns that are asked about."""
        wanted = _true(len(batch))
        if "topic" in batch.schema.names:
            wanted &= _of(pc.equal(batch.column("topic"), self.topic))
        ids = batch.column("queueId").to_numpy()
        offsets = batch.column("queueOffset").to_numpy()
        if self.queues is not None:
            wanted &= np.isin(ids, list(self.queues))
        for queue_id, first in self.start_offsets.items():
            wanted &= (ids != queue_id) | (offsets >= first)
        for queue_id, end in self.end_offsets.items():
            wanted &= (ids != queue_id) | (offsets < end)
        wanted &= self._in_time(batch)
        if self.tags is not None:
            wanted &= _of(pc.is_in(batch.column("tags"), pa.array(sorted(self.tags), pa.string())))
        if self.keys is not None:
            wanted &= np.array([self._has_key(text) for text in batch.column("keys").to_pylist()])
        return batch if wanted.all() else batch.filter(pa.array(wanted))

    def _in_time(self, batch: pa.RecordBatch) -> Bools:
        wanted = _true(len(batch))
        if self.start_ms is None and self.end_ms is None:
            return wanted
        times = batch.column("storeTimestamp").cast(pa.int64()).to_numpy()
        if self.start_ms is not None:
            wanted &= times >= self.start_ms * 1000
        if self.end_ms is not None:
            wanted &= times < self.end_ms * 1000
        return wanted

    def _has_key(self, text: str | None) -> bool:
        assert self.keys is not None
        return text is not None and not self.keys.isdisjoint(text.split(" "))


def time_ms(text: str, key: str) -> int | None:
    """Return a time: milliseconds since 1970, or ISO 8601, of UTC if it names no zone.

    Raises:
        ClusterConfigError: it is neither.
    """
    if not text:
        return None
    if text.lstrip("-").isdecimal() and len(text) <= 15:
        return int(text)
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ClusterConfigError(
            f"{key}: {text!r} is no time; give milliseconds since 1970, or 2026-01-31T12:00:00Z"
        ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return int(time.timestamp() * 1000)


def check_times(start_ms: int | None, end_ms: int | None) -> None:
    """See that a window does not end before it begins: no rows would look like an answer.

    Raises:
        ClusterConfigError: it does.
    """
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise ClusterConfigError(
            f"ending_timestamp: {end_ms} ms is before starting_timestamp, {start_ms} ms"
        )


def numbers(texts: Iterable[str], key: str) -> frozenset[int]:
    """Return queue ids that are given as texts.

    Raises:
        ClusterConfigError: one is none.
    """
    return frozenset(_number(text, key) for text in texts)


def numbers_by_queue(texts: Mapping[str, str], key: str) -> dict[int, int]:
    """Return queue offsets by queue id.

    Raises:
        ClusterConfigError: a queue id or an offset is none.
    """
    return {_number(queue, key): _number(offset, key) for queue, offset in texts.items()}


def _number(text: str, key: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise ClusterConfigError(f"{key}: {text!r} is no whole number")
    return int(text)


def _true(count: int) -> Bools:
    return np.ones(count, np.bool_)


def _of(mask: pa.BooleanArray) -> Bools:
    found: Bools = mask.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return found
