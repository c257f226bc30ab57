"""As much of Spark's RDDs as a job of ours uses, in this process: no Java, and milliseconds.

What goes through a shuffle is pickled, and arrives in another order than it was sent.
"""

import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

Rows = Iterable[Any]


class PlainRdd:
    """Partitions, and what is to be done with each."""

    def __init__(self, partitions: Sequence[Rows], chance: random.Random) -> None:
        self._partitions = partitions
        self._chance = chance

    def mapPartitions(self, work: Callable[[Iterator[Any]], Rows]) -> "PlainRdd":  # noqa: N802 - Spark's name
        """Do `work` with each partition."""
        return PlainRdd([list(work(iter(rows))) for rows in self._partitions], self._chance)

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> "PlainRdd":  # noqa: N802 - Spark's name
        """Shuffle pairs by their keys."""
        partitions: list[list[Any]] = [[] for _ in range(count)]
        for rows in self._partitions:
            for key, value in rows:
                partitions[place(key) % count].append(pickle.loads(pickle.dumps((key, value))))
        for rows_of_one in partitions:
            self._chance.shuffle(rows_of_one)
        return PlainRdd(partitions, self._chance)

    def collect(self) -> list[Any]:
        """Everything, in the order of the partitions."""
        return [row for rows in self._partitions for row in rows]


def plain_spark(seed: int = 1, parallelism: int = 2) -> Any:  # noqa: ANN401 - stands in for a SparkSession
    """What a job of ours asks a session for."""
    chance = random.Random(seed)

    def parallelize(items: Sequence[Any], count: int) -> PlainRdd:
        bounds = [len(items) * number // count for number in range(count + 1)]
        held = pickle.loads(pickle.dumps(list(items)))
        return PlainRdd([held[start:end] for start, end in pairwise(bounds)], chance)

    context = SimpleNamespace(parallelize=parallelize, defaultParallelism=parallelism)
    return SimpleNamespace(sparkContext=context)
