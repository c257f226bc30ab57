"""Compares the logs of two stores byte by byte.

A log is its bytes from the start of its first file to its end (see `log_files`); the zeros that
follow it do not count. The range is cut into pieces, so that Spark can spread them over tasks.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tandem.data_file import DataFile, opened, read_into
from tandem.spark.commitlog.confirmed import confirmed_end
from tandem.spark.commitlog.log_files import (
    commit_log_folder,
    list_log_files,
    local_path,
    log_tail,
)
from tandem.spark.commitlog.places import place_of
from tandem.spark.errors import NotAStoreError

PIECE_BYTES: Final = 32 * 1024 * 1024
_CHUNK_BYTES: Final = 4 * 1024 * 1024


class Log(msgspec.Struct, frozen=True):
    """The files of a log, and its first and last physical offset (the end not included)."""

    files: tuple[DataFile, ...]
    start: int
    end: int


class Piece(msgspec.Struct, frozen=True):
    """A range of physical offsets to compare."""

    master: Log
    other: Log
    start: int
    end: int


def open_extent(store: str) -> Log:
    """Return what there is of the log of `store`; a store that was never written to has none."""
    try:
        files = tuple(list_log_files(commit_log_folder(local_path(store))))
    except NotAStoreError:
        files = ()
    if not files:
        return Log((), 0, 0)
    tail = log_tail(files[-1])
    end = tail.end if tail.clean else files[-1].size
    return Log(files, files[0].offset, files[-1].offset + end)


def open_logs(
    stores: Mapping[str, str | Path], master: str, confirm: int | None = None
) -> dict[str, Log]:
    """Return the log of each of these stores, by node, up to `confirm` if that is given.

    Raises:
        NotAStoreError: the master's directory is not a store.
    """
    commit_log_folder(local_path(str(stores[master])))
    logs = {node: open_extent(str(path)) for node, path in stores.items()}
    return logs if confirm is None else {node: bounded(log, confirm) for node, log in logs.items()}


def known_confirmed(stores: Mapping[str, str | Path]) -> int | None:
    """Return up to where any of these stores says that the log of its group is confirmed.

    None: they are not those of a fenced group.

    Raises:
        NotAStoreError: a store of a fenced node lacks its checkpoint.
    """
    found = []
    for path in stores.values():
        try:
            place = place_of(str(local_path(str(path))))
        except NotAStoreError:  # a node that was never started; the master's is looked at elsewhere
            continue
        if (confirmed := confirmed_end(place)) is not None:
            found.append(confirmed)
    return max(found, default=None)


def differences_by_node(
    logs: Mapping[str, Log],
    master: str,
    find: Callable[[Sequence[tuple[str, Piece]]], Iterable[tuple[str, int]]],
    since: int = 0,
) -> dict[str, int | None]:
    """Return where each other node's log first differs.

    `find` is `differences_in`, or spreads it over tasks. `since`: see `logs_differ_at`.
    """
    others = {node: log for node, log in logs.items() if node != master}
    work = [(node, piece) for node, log in others.items() for piece in pieces(logs[master], log)]
    found = list(find(work)) if work else []
    return {
        node: logs_differ_at(logs[master], log, [at for name, at in found if name == node], since)
        for node, log in others.items()
    }


def pieces(master: Log, other: Log) -> list[Piece]:
    """Cut what both logs have into pieces."""
    start = max(master.start, other.start)
    end = min(master.end, other.end)
    return [
        Piece(_within(master, at, stop), _within(other, at, stop), at, stop)
        for at in range(start, end, PIECE_BYTES)
        for stop in (min(at + PIECE_BYTES, end),)
    ]


def _within(log: Log, start: int, end: int) -> Log:
    """Return a log with the files alone that [start, end) is in: a task needs no more.

    A log of terabytes has thousands of files, and as many pieces.
    """
    first = bisect_right(log.files, start, key=lambda file: file.end_offset)
    last = bisect_left(log.files, end, key=lambda file: file.offset)
    return Log(log.files[first:last], log.start, log.end)


def differences_in(work: Iterable[tuple[str, Piece]]) -> Iterator[tuple[str, int]]:
    """Yield node and physical offset of the first difference in each piece that has one."""
    for node, piece in work:
        at = first_difference(piece)
        if at is not None:
            yield node, at


def first_difference(piece: Piece) -> int | None:
    """Return the physical offset of the first byte in the piece that the logs do not share."""
    for start in range(piece.start, piece.end, _CHUNK_BYTES):
        end = min(start + _CHUNK_BYTES, piece.end)
        ours = read_log(piece.master, start, end)
        theirs = read_log(piece.other, start, end)
        if ours != theirs:
            return start + _first_different(ours, theirs)
        if len(ours) < end - start:  # a file is missing, in both
            return start + len(ours)
    return None


def logs_differ_at(master: Log, other: Log, differences: list[int], since: int = 0) -> int | None:
    """Return where two logs first differ, given the differences found in their pieces.

    None: same start, same bytes, same end. Up to `since` a log may start anywhere: old files are
    deleted by each node for itself, and a slave of RocketMQ that was empty has begun with the last
    file of its master (DefaultHAConnection).
    """
    starts = {master.start, other.start}
    if len(starts) > 1 and max(starts) > since and master.files and other.files:
        return min(starts)
    if differences:
        return min(differences)
    return None if master.end == other.end else min(master.end, other.end)


def bounded(log: Log, end: int) -> Log:
    """Return a log as if it ended at `end`, if it goes on after that."""
    return Log(log.files, log.start, min(log.end, end))


def read_log(log: Log, start: int, end: int) -> bytearray:
    """Return the bytes of [start, end), up to the first that is missing."""
    data = bytearray()
    for file in log.files:
        at = start + len(data)
        if file.offset <= at < min(end, file.end_offset):
            wanted = min(end, file.end_offset) - at
            part = bytearray(wanted)
            with opened(file.path) as descriptor:
                got = read_into(descriptor, memoryview(part), at - file.offset)
            if got == end - start:
                return part  # the usual case: one file has it all
            data += part[:got]
    return data


def _first_different(ours: bytearray, theirs: bytearray) -> int:
    size = min(len(ours), len(theirs))
    a = np.frombuffer(ours, np.uint8, size)
    b = np.frombuffer(theirs, np.uint8, size)
    different = np.flatnonzero(a != b)
    return int(different[0]) if len(different) else size
