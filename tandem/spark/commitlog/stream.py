"""The rules of a stream over logs that nodes are writing, by physical offset.

    {"data/broker-a-0": {"offset": 1073741824, "tail": 305419896}, …}      what a checkpoint holds

A batch ends where a record ends that was whole when it was planned, so what is planned again after
a restart has the same records. A record that is half written waits. Damage with a sound record
after it does not wait: the batch meets it, as a table does. What was read before must still be what
it was: the bytes before an offset are compared with `tail` before reading goes on from there.

Of a node of a fenced group a batch ends where the log is confirmed, so that no change of master
takes back a message that a sink has; what is planned again after a restart is what it was, whatever
is known to be confirmed by then.

A limit in bytes is shared between stores by how much each has, and a batch takes at least one
record of each that has any. A store that a pattern fits later on is read from its start. One that
a pattern fits no more is said once, and is read on from its mark if it comes back.

No clock, no Spark: the caller asks, again and again.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from tandem.spark.commitlog import data_loss
from tandem.spark.commitlog.offsets import (
    EARLIEST,
    LATEST,
    Mark,
    check_names,
    position_in,
    tail_crc,
)
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.parts import Part
from tandem.spark.commitlog.plan import StoreLog, open_logs, time_bounds
from tandem.spark.commitlog.queue_plan import plan_store
from tandem.spark.commitlog.split import LostRange

Marks: TypeAlias = Mapping[str, Mark]

_log = logging.getLogger(__name__)


class CommitLogStream:
    """Where a stream starts, how far a batch may go, what it reads. Looks anew at every call."""

    def __init__(self, options: ScanOptions) -> None:
        self._options = options
        self._bounds: Marks | None = None
        self._gone: frozenset[str] = frozenset()
        self.ends: Marks = {}
        """How far the logs were sound at the last look."""

    def initial(self) -> Marks:
        """Where a stream without a checkpoint starts.

        Raises:
            NotAStoreError: a path is something else.
            DataLossError: an offset that is asked for is not there any more, or not yet.
        """
        logs = open_logs(self._options)
        check_names(self._options.starting, [log.place.name for log in logs], "startingOffsets")
        return {log.place.name: self._initial(log) for log in logs}

    def _initial(self, log: StoreLog) -> Mark:
        starting = self._options.starting
        if starting is None:
            starting = LATEST if self._options.start_ms is None else EARLIEST
        mark = position_in(starting, log.place.name, "startingOffsets")
        if mark.offset == LATEST:
            return mark_at(log, log.sound_end)
        if mark.offset == EARLIEST:
            return mark_at(log, min(time_bounds(log, self._options)[0], log.sound_end))
        start, _ = self._resumed(log, mark)
        return mark_at(log, log.boundary_at(start))

    def stop_at_what_is_there(self) -> None:
        """From now on no batch goes further than the logs go at this moment."""
        self._bounds = {log.place.name: Mark(log.sound_end) for log in open_logs(self._options)}

    def next_end(self, start: Marks, limit_bytes: int | None) -> Marks:
        """Return where the batch that starts at `start` ends, `start` itself if there is nothing.

        Raises:
            DataLossError: what is between `start` and the logs' ends is not all there.
        """
        logs = {log.place.name: log for log in open_logs(self._options)}
        self._say_gone(start, frozenset(start.keys() - logs.keys()))
        starts: dict[str, int] = {}
        for name, log in logs.items():
            starts[name], loss = self._start_of(log, start)
            if loss is not None:  # a batch is made for it, with or without other records
                start = {other: mark for other, mark in start.items() if other != name}
        self.ends = {name: mark_at(log, log.sound_end) for name, log in logs.items()}
        ends = {name: self._bounded(log, starts[name]) for name, log in logs.items()}
        waiting = {name: ends[name] - starts[name] for name in logs}
        total = sum(waiting.values())
        if limit_bytes is not None and total > limit_bytes:
            for name, log in logs.items():
                share = max(limit_bytes * waiting[name] // total, 1)
                ends[name] = min(ends[name], log.boundary_at(starts[name] + share))
        return dict(start) | {
            name: mark_at(log, ends[name])
            for name, log in logs.items()
            if name not in start or ends[name] != starts[name]
        }

    def _say_gone(self, start: Marks, gone: frozenset[str]) -> None:
        """Say of each store that is not there any more that it is not, once for each time."""
        for name in sorted(gone - self._gone):
            _log.warning(
                "store %s, read up to physical offset %d, is not there any more: what it had after"
                " that is not read until it is there again; was it moved, or deleted?",
                name,
                start[name].offset,
            )
        self._gone = gone

    def _start_of(self, log: StoreLog, start: Marks) -> tuple[int, LostRange | None]:
        known = start.get(log.place.name)
        return (log.start, None) if known is None else self._resumed(log, known)

    def _bounded(self, log: StoreLog, start: int) -> int:
        """How far a batch may go in a log, and not before `start`."""
        if self._bounds is None:
            return max(log.sound_end, start)
        bound = self._bounds.get(log.place.name)
        return start if bound is None else max(min(log.sound_end, bound.offset), start)

    def splits(self, start: Marks, end: Marks) -> list[Part]:
        """Return what a batch reads.

        Raises:
            DataLossError: not all of it is there, or it is not what it was.
        """
        found: list[Part] = []
        logs = open_logs(self._options)
        for name in sorted(end.keys() - {log.place.name for log in logs}):
            if start.get(name) != end[name]:
                first = start[name].offset if name in start else 0
                loss = data_loss.deleted(name, first, end[name].offset)
                data_loss.report(loss, self._options)
                found.append(loss)
        for log in logs:
            name = log.place.name
            if name not in end or start.get(name) == end[name]:
                continue
            found += self._splits_of(log, start.get(name), end[name])
        return found

    def _splits_of(self, log: StoreLog, start: Mark | None, end: Mark) -> Sequence[Part]:
        first, loss = (log.start, None) if start is None else self._resumed(log, start)
        last, end_loss = self._resumed(log, end)
        lost = [each for each in (loss or end_loss,) if each is not None]
        if first >= last:
            return lost
        return [*lost, *plan_store(log, self._options, first, last)]

    def _resumed(self, log: StoreLog, mark: Mark) -> tuple[int, LostRange | None]:
        """Return from where reading can go on that got to `mark`, and what was lost there.

        Raises:
            DataLossError: something was, and `failOnDataLoss` is true.
        """
        loss: LostRange | None = None
        at = mark.offset
        name = log.place.name
        tail = tail_crc(log.place.storage, log.files, at)
        is_same = mark.tail is not None and tail == mark.tail
        if is_same:
            log.proven = at
            log.was_confirmed(at)
        elif at < log.start:
            loss, at = data_loss.deleted(name, at, log.start), log.start
        elif at > log.sound_end:
            loss = data_loss.cut(name, at, log.sound_end, is_bounded=log.is_bounded)
            at = log.sound_end
        elif mark.tail is not None and tail is not None:
            loss, at = data_loss.rewritten(name, at), log.boundary_at(at)
        if loss is not None:
            data_loss.report(loss, self._options)
        return at, loss


def mark_at(log: StoreLog, offset: int) -> Mark:
    """Return a place in a log with the CRC of what precedes it."""
    return Mark(offset, tail_crc(log.place.storage, log.files, offset))


def to_json(marks: Marks) -> dict[str, dict[str, int]]:
    """Return marks as Spark keeps them in a checkpoint."""
    return {
        name: {
            key: value for key, value in msgspec.structs.asdict(mark).items() if value is not None
        }
        for name, mark in marks.items()
    }


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Marks:
    """Return the marks of a checkpoint."""
    return {name: Mark(mark["offset"], mark.get("tail")) for name, mark in offsets.items()}
