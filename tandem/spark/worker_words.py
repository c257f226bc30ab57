"""What a worker process of Spark says of an error of ours, and when its JVM hangs up: one sentence.

Spark puts the traceback of the worker around what a Python source raises, and shows all of it. Of
our errors the sentence says where and what, so in a worker they travel as that alone. Those of
anybody else's code keep their traceback. It is a switch of pyspark's, read when an error leaves the
worker, which ends with it; a version without the switch shows the traceback again.

A process that plans a stream ends when its JVM hangs up. pyspark takes that for an error, cannot
report it, and prints three tracebacks on the terminal of whoever started the session.
"""

import functools
import os
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from tandem.spark.errors import SparkSourceError
from tandem.spark.quiet_daemon import quieten_process

HIDES_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""Read by `pyspark.util.handle_worker_exception`."""

OF_WORKERS: Final = frozenset(
    {
        "PYTHON_WORKER_FACTORY_SECRET",
        "PYTHON_WORKER_FACTORY_SOCK_DIR",
        "PYTHON_WORKER_FACTORY_SOCK_PATH",
    }
)
"""A process that has one of these in its environment was started by a JVM to serve it."""

P = ParamSpec("P")
T = TypeVar("T")


def is_worker() -> bool:
    """Say whether this process is a worker of Spark."""
    return not OF_WORKERS.isdisjoint(os.environ)


def in_one_sentence(method: Callable[P, T]) -> Callable[P, T]:
    """Let errors of ours leave a worker without a traceback."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except SparkSourceError:
            _hide_traceback()
            raise

    return wrapper


def rows_in_one_sentence(rows: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Do the same for what yields rows."""

    @functools.wraps(rows)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from rows(*args, **kwargs)
        except SparkSourceError:
            _hide_traceback()
            raise

    return wrapper


def end_quietly() -> None:
    """Say nothing more on the terminal: the process ends, and its JVM hears of errors otherwise."""
    if is_worker():
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        os.close(nothing)


def _hide_traceback() -> None:
    if is_worker():
        os.environ[HIDES_TRACEBACK] = "1"


if is_worker():  # whatever Spark unpickles of ours imports this module
    quieten_process()
