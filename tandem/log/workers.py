"""Work for several processes: the same results, in the same order, with one or with many.

Started afresh (`spawn`), because the calling process may have threads. Python code in one process
uses one core; files are read by each process itself, so only names and numbers travel.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import TracebackType
from typing import Self, TypeVar

from tandem.log.errors import WorkerError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class Workers:
    """Runs functions in `jobs` processes, or right here if that is 1. Use as a context manager."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(jobs, context)
            # Processes start with the first tasks: have them ready when there is work.
            with _interrupts_blocked():
                for _ in range(jobs):
                    self._pool.submit(usable_cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(
        self,
        function: Callable[[TaskT], ResultT],
        tasks: Sequence[TaskT],
        on_done: Callable[[TaskT], None],
        *,
        alone: bool = False,
    ) -> list[ResultT]:
        """Return `function` of each task; `on_done` is called here as each one is done.

        `alone` says that the tasks are so small that they are done here in less time.

        Raises:
            WorkerError: a process died.
        """
        if self._pool is None or alone or len(tasks) < 2:
            results = []
            for task in tasks:
                results.append(function(task))
                on_done(task)
            return results
        futures: dict[Future[ResultT], TaskT] = {
            self._pool.submit(function, task): task for task in tasks
        }
        try:
            for future in as_completed(futures):
                future.result()
                on_done(futures[future])
        except BrokenProcessPool as error:
            raise WorkerError(
                "a worker process ended before its work was done, perhaps for want of memory;"
                " run with --jobs 1"
            ) from error
        return [future.result() for future in futures]


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, not even while they load their modules.

    It goes to all processes of a terminal; the one that was called ends the others. Processes
    inherit which signals are blocked. A Ctrl-C of this moment is raised here afterwards.
    """
    resource_tracker.ensure_running()  # the process beside them: its start unblocks SIGINT again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def usable_cores() -> int:
    """Return on how many cores this process may run."""
    return len(os.sched_getaffinity(0))
