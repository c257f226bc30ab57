"""Runs a function on many things: here, or in the tasks of Spark. Jobs do not know which."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from pyspark.sql import SparkSession

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Runner(Protocol):
    """Who does the work of a job."""

    @property
    def parallelism(self) -> int:
        """How many things are done at the same time."""

    def run(
        self, function: Callable[[ItemT], ResultT], items: Sequence[ItemT]
    ) -> Iterator[ResultT]:
        """Yield the result of each item, in their order."""


class HereRunner:
    """Does everything in this process, one after the other."""

    parallelism = 1

    def run(
        self, function: Callable[[ItemT], ResultT], items: Sequence[ItemT]
    ) -> Iterator[ResultT]:
        """See `Runner`."""
        return map(function, items)


class SparkRunner:
    """Does each thing in a task. Functions, items and results are pickled."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @property
    def parallelism(self) -> int:
        """As many as the cluster has cores."""
        return self._context.defaultParallelism

    def run(
        self, function: Callable[[ItemT], ResultT], items: Sequence[ItemT]
    ) -> Iterator[ResultT]:
        """See `Runner`."""
        if not items:
            return iter(())
        return iter(self._context.parallelize(items, len(items)).map(function).collect())
