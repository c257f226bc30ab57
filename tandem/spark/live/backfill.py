"""The older part of a queue out of the files of a store, the rest from brokers, in one query.

Queue offsets decide: what a range of a queue holds is the same in a node's files and at its broker,
and a range is cut in two at an offset, the *seam*. So nothing is read twice and nothing is left
out, wherever the seam is, and a stream's checkpoint does not know of it.

With `backfillSeam=brokers` files give what the brokers have deleted by now, and nothing else. With
`files` they give all that they have, and brokers are spared. Records are found through
`consumequeue`. Messages of files are checked as a broker's are. A query ends at what the brokers
say that is confirmed, whatever else is in the files.

What reads files is imported by a query that has some: every process of Spark imports this module.
"""

# ruff: noqa: PLC0415 - see above
import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tandem.client.results import MessageQueue
from tandem.data_file import DataFile
from tandem.spark.errors import OptionError, SparkSourceError
from tandem.spark.live.bounds import KnownCluster
from tandem.spark.live.offsets import Offsets
from tandem.spark.live.options import ANY_BROKER, WHOSE, LiveOptions
from tandem.spark.live.pull_window import Piece
from tandem.spark.live.ranges import QueueRange
from tandem.wire.record_rule import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from tandem.spark.commitlog.queue_starts import QueueUnits

UNITS_AT_ONCE: Final = 1024
READ_BYTES_MAX: Final = 1024 * 1024
"""How much of the log is read at once, unless one record is longer."""


class BackfillGoneError(SparkSourceError):
    """Files of a backfill have changed since the query was planned.

    `offset` is the queue offset from where on something is not there any more.
    """

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text, offset)
        self.offset = offset


class BackfillStore:
    """The queues of one store, as its files have them."""

    def __init__(self, path: str) -> None:
        """Open the store at `path`.

        Raises:
            SparkSourceError: there is none, or only its log.
        """
        from tandem.spark.commitlog.places import list_files, place_of

        self.path = path
        self._place = place_of(path)
        self._storage = self._place.storage
        self._queues = self._place.beside("consumequeue")
        if not self._queues:
            raise SparkSourceError(
                f"{WHOSE}: backfill={path} is a log without its queues: give the store it is in"
            )
        self._files = list_files(self._place)
        self._starts = [file.offset for file in self._files]

    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset of a queue that is in the files, and the one after the last."""
        units = self._units(queue)
        if units is None or not units.paths or not self._files:
            return 0, 0
        first = max(units.bases[0], units.index_of(self._starts[0]))
        return min(first, units.end), units.end

    def pieces(self, place: int, wanted: QueueRange) -> Iterator[Piece]:
        """Yield the records of a range, in order.

        Raises:
            SparkSourceError: they are not there any more.
        """
        from tandem.spark.commitlog.queue_starts import load_units

        units = self._units(wanted.queue)
        for first in range(wanted.start, wanted.end, UNITS_AT_ONCE):
            end = min(first + UNITS_AT_ONCE, wanted.end)
            found = units.pieces(first, end) if units is not None else []
            if sum(piece.count for piece in found) != end - first:
                raise _gone(self.path, wanted, first)
            loaded = load_units(self._storage, found)
            places = zip(loaded["offset"].tolist(), loaded["size"].tolist(), strict=True)
            yield from self._read(place, wanted, first, list(places))

    def _read(
        self, place: int, wanted: QueueRange, first: int, units: list[tuple[int, int]]
    ) -> Iterator[Piece]:
        """Yield the records at some places of the log, those that are near each other at once."""
        at = 0
        while at < len(units):
            file, end = self._file_of(units[at]), at + 1
            if file is None:
                raise _gone(self.path, wanted, first + at)
            while end < len(units) and self._is_near(file, units[at], units[end - 1], units[end]):
                end += 1
            start, size = units[at][0], sum(units[end - 1]) - units[at][0]
            data = bytearray(size)
            try:
                with self._storage.opened(file.path) as opened:
                    got = opened.read_into(memoryview(data), start - file.offset)
            except OSError as error:
                raise _gone(self.path, wanted, first + at) from error
            if got < size:
                raise _gone(self.path, wanted, first + at)
            records = [
                data[offset - start : offset - start + length] for offset, length in units[at:end]
            ]
            yield Piece(place, first + at, first + end, b"".join(records))
            at = end

    def _file_of(self, unit: tuple[int, int]) -> DataFile | None:
        """The file that the record of a unit is in; None if there is none."""
        offset, size = unit
        if not 0 < size <= RECORD_BYTES_MAX or offset < 0:
            return None
        index = bisect.bisect_right(self._starts, offset) - 1
        if index < 0 or offset + size > self._files[index].end_offset:
            return None
        return self._files[index]

    def _is_near(
        self, file: DataFile, first: tuple[int, int], last: tuple[int, int], unit: tuple[int, int]
    ) -> bool:
        gap = unit[0] - sum(last)
        return (
            0 <= gap <= self._storage.gap_bytes
            and sum(unit) - first[0] <= READ_BYTES_MAX
            and self._file_of(unit) == file
        )

    def _units(self, queue: MessageQueue) -> "QueueUnits | None":
        from tandem.spark.commitlog.queue_starts import QueueUnits

        folder = f"{self._queues}/{queue.topic}/{queue.queue_id}"
        try:
            return QueueUnits(self._storage, folder)
        except (FileNotFoundError, NotADirectoryError):
            return None


class Backfill:
    """The stores of a query by broker name, beside the cluster that has the rest.

    It is asked like a cluster; only its queues begin earlier.
    """

    def __init__(self, options: LiveOptions, cluster: KnownCluster) -> None:
        self._options = options
        self._cluster = cluster
        self._stores: dict[str, BackfillStore] = {}

    def queues(self, *, unknown_is_error: bool) -> dict[MessageQueue, str]:
        """Every queue that is subscribed to, and the cluster that it is in.

        Raises:
            OptionError: one store was given, and there are brokers of several names.
        """
        found = self._cluster.queues(unknown_is_error=unknown_is_error)
        names = sorted({queue.broker_name for queue in found})
        if len(names) > 1 and ANY_BROKER in (self._options.backfill or {}):
            raise OptionError(
                f"{WHOSE}: backfill names one store, and the topics are at {', '.join(names)}: give"
                ' {"broker": "store"} with all of them, or those whose stores there are',
                ["backfill"],
            )
        return found

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The first offset of each queue, in files or at brokers."""
        found = self._cluster.min_offsets(queues)
        for queue, lowest in found.items():
            first, end = self._bounds(queue)
            if first < end:
                found[queue] = min(first, lowest)
        return found

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The end of each queue, by the brokers' word alone."""
        return self._cluster.max_offsets(queues)

    def offsets_at(self, queues: Iterable[MessageQueue], time_ms: int) -> Offsets:
        """The first offset stored at or after a time, or the end, as brokers know it."""
        return self._cluster.offsets_at(queues, time_ms)

    def cut(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        """Return the ranges, each in up to three: brokers, files, brokers."""
        bounds = {each.queue: self._bounds(each.queue) for each in ranges if len(each)}
        seams = self._seams([q for q, (first, end) in bounds.items() if first < end])
        found = []
        for each in ranges:
            if len(each) == 0 or each.queue not in seams:
                found.append(each)
                continue
            first, end = bounds[each.queue]
            start = max(each.start, first)
            stop = max(start, min(each.end, end, seams[each.queue]))
            store = self._store(each.queue)
            assert store is not None
            found += each.parts(start, stop, store.path)
        return found

    def _seams(self, queues: list[MessageQueue]) -> Mapping[MessageQueue, int]:
        if not queues:
            return {}
        if self._options.backfill_seam == "files":
            return dict.fromkeys(queues, 2**63)
        return self._cluster.min_offsets(queues)

    def _bounds(self, queue: MessageQueue) -> tuple[int, int]:
        store = self._store(queue)
        return store.bounds(queue) if store is not None else (0, 0)

    def _store(self, queue: MessageQueue) -> BackfillStore | None:
        given = self._options.backfill or {}
        path = given.get(queue.broker_name) or given.get(ANY_BROKER)
        if path is None:
            return None
        if path not in self._stores:
            self._stores[path] = BackfillStore(path)
        return self._stores[path]


def file_pieces(ranges: Sequence[QueueRange]) -> Iterator[list[Piece]]:
    """Yield the records of ranges of one store, in order.

    Raises:
        SparkSourceError: they are not there any more.
    """
    store = BackfillStore(ranges[0].store)
    for place, each in enumerate(ranges):
        for piece in store.pieces(place, each):
            yield [piece]


def _gone(path: str, wanted: QueueRange, offset: int) -> BackfillGoneError:
    queue = wanted.queue
    return BackfillGoneError(
        f"{WHOSE}: backfill={path} has no record for offset {offset} of queue {queue.queue_id} of"
        f" topic {queue.topic!r} any more: its files changed since the query was planned",
        offset,
    )
