"""Which messages a batch reads, and by which task: rules over offsets, without Spark or brokers.

admitted      how far a batch may go, if its size is limited
cut_ranges    one partition a range of a queue; long ones cut, short ones gathered
Patience      whether a batch that would be small has to wait
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final

import msgspec

from tandem.client.results import MessageQueue
from tandem.spark.live.offsets import Offsets

GATHERED_RECORDS_MAX: Final = 25_000
"""Ranges of one broker are read by one task up to this many messages together: a task of Python
costs tens of milliseconds, in which it reads thousands."""


class QueueRange(msgspec.Struct, frozen=True, order=True):
    """The messages of a queue from offset `start` on, up to `end` and without it.

    `store` is where the files are that they are read from; "": they are pulled from brokers.
    """

    queue: MessageQueue
    start: int
    end: int
    cluster_name: str = ""
    store: str = ""

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def cut(self, pieces_count: int) -> "list[QueueRange]":
        """Return this many pieces of about the same length; fewer if there are fewer messages."""
        count = max(1, min(pieces_count, len(self)))
        bounds = [self.start + len(self) * index // count for index in range(count + 1)]
        return [
            msgspec.structs.replace(self, start=start, end=end) for start, end in pairwise(bounds)
        ]

    def parts(self, first: int, stop: int, store: str) -> "list[QueueRange]":
        """Return what is before, in and after the offsets that are read from a store."""
        return [
            msgspec.structs.replace(self, start=start, end=end, store=where)
            for start, end, where in (
                (self.start, first, ""),
                (first, stop, store),
                (stop, self.end, ""),
            )
            if start < end
        ]


def cut_ranges(
    ranges: Iterable[QueueRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[list[QueueRange]]:
    """Return the ranges of each partition; those of one partition are at one broker or store.

    `max_records` bounds the messages of a partition, and `min_partitions` asks for at least so
    many, as far as there are messages. Without either, one partition a range, and short ranges
    together.

    Source: Spark 4.3, KafkaOffsetRangeCalculator, for the order in which the two limits are met.
    """
    full = [each for each in ranges if len(each) > 0]
    if max_records is not None:
        full = [piece for each in full for piece in each.cut(-(-len(each) // max_records))]
    if min_partitions is not None and len(full) < min_partitions:
        full = _cut_to(full, min_partitions)
    if min_partitions is not None or max_records is not None:
        return [[each] for each in full]
    return _gathered(full)


def _cut_to(ranges: list[QueueRange], count: int) -> list[QueueRange]:
    """Cut the longest pieces until there are `count`."""
    pieces = [1] * len(ranges)
    for _ in range(min(count, sum(len(each) for each in ranges)) - len(ranges)):
        longest = max(range(len(ranges)), key=lambda index: len(ranges[index]) / pieces[index])
        pieces[longest] += 1
    return [
        piece
        for each, pieces_count in zip(ranges, pieces, strict=True)
        for piece in each.cut(pieces_count)
    ]


def _gathered(ranges: list[QueueRange]) -> list[list[QueueRange]]:
    partitions: list[list[QueueRange]] = []
    open_ones: dict[tuple[str, str], tuple[list[QueueRange], int]] = {}
    for each in ranges:
        place = (each.queue.broker_name, each.store)
        gathered, records = open_ones.get(place, ([], GATHERED_RECORDS_MAX))
        if records + len(each) > GATHERED_RECORDS_MAX:
            gathered, records = [], 0
            partitions.append(gathered)
        gathered.append(each)
        open_ones[place] = gathered, records + len(each)
    return partitions


def admitted(start: Mapping[MessageQueue, int], latest: Offsets, records_max: int) -> Offsets:
    """Return how far a batch of at most `records_max` messages goes, each queue by its share.

    A queue that `start` does not know is read from `latest` on, so it has no messages.

    Source: Spark 4.3, KafkaMicroBatchStream.rateLimit; that one may exceed the limit by one a
    queue.
    """
    backlog = {queue: max(0, end - start.get(queue, end)) for queue, end in latest.items()}
    total = sum(backlog.values())
    if total <= records_max:
        return dict(latest)
    shares = {queue: records_max * size // total for queue, size in backlog.items()}
    left = records_max - sum(shares.values())
    # The rest goes to the largest remainders, so that a small queue is not forgotten.
    by_remainder = sorted(
        backlog, key=lambda queue: (-(records_max * backlog[queue] % total), queue)
    )
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return {queue: start.get(queue, end) + shares[queue] for queue, end in latest.items()}


def backlog_of(start: Mapping[MessageQueue, int], latest: Offsets) -> int:
    """Return how many messages there are between two places."""
    return sum(max(0, end - start.get(queue, end)) for queue, end in latest.items())


class Patience:
    """Whether a batch of fewer than `records_min` messages still has to wait. `clock`: seconds.

    The first batch never waits.

    Source: Spark 4.3, KafkaMicroBatchStream.delayBatch.
    """

    def __init__(
        self, records_min: int, delay_max_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._records_min = records_min
        self._delay_max_seconds = delay_max_seconds
        self._clock = clock
        self._last: float | None = None

    def is_over(self, records: int) -> bool:
        """Whether a batch of `records` messages goes now."""
        now = self._clock()
        waits = self._last is not None and now - self._last < self._delay_max_seconds
        if records < self._records_min and waits:
            return False
        self._last = now
        return True
