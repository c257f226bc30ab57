"""The daemon that forks Spark's Python workers: quiet when hung up on, quick between tasks.

    spark.python.daemon.module=tandem.spark.quiet_daemon        `local_session` says so

A session that stops, or a query that needs no more rows, closes the connections of workers, and so
does a minute without work. One that had something left to write, if only that nothing is left to
read, ends with a BrokenPipeError, which pyspark's daemon prints on the terminal of whoever started
the session, after a query that has succeeded. Nobody waits for these bytes. All other errors are
printed as before.

After each task pyspark has a worker look through all its objects for cycles that nobody uses. Most
of them belong to modules, which stay: the look takes tens of milliseconds, longer than to read a
thousand rows. So what is there when modules have been imported is left out of later looks. Cycles
that later tasks make are found as before.

Run as a program, in place of `pyspark.daemon`, whose loop finds the function that serves one
connection by its name. A version of pyspark that has no such function is left as it is.

Processes that plan are forked by `pyspark.daemon`, whatever the setting says. They import this
package in their first round, and are quiet from the next one on: `quieten_process`.
"""

import functools
import gc
import sys
from collections.abc import Callable
from typing import Any, Final

HUNG_UP = 1
"""As of a worker that is not used again."""

_SERVES: Final = "worker"
"""The function of `pyspark.daemon` that serves one connection."""


def quietly(serve: Callable[..., int]) -> Callable[..., int]:
    """Return `serve`, which ends as a worker that is done if the other side has hung up."""

    @functools.wraps(serve)
    def served(*args: Any) -> int:  # noqa: ANN401 - pyspark's
        try:
            return serve(*args)
        except (BrokenPipeError, ConnectionResetError):
            return HUNG_UP

    return served


def settled(serve: Callable[..., int]) -> Callable[..., int]:
    """Return `serve`, after which what belongs to modules is left out of searches for garbage."""
    modules = 0

    @functools.wraps(serve)
    def served(*args: Any) -> int:  # noqa: ANN401 - pyspark's
        nonlocal modules
        code = serve(*args)
        if len(sys.modules) != modules:
            modules = len(sys.modules)
            gc.unfreeze()  # what was left out and is nobody's by now
            gc.collect()
            gc.freeze()
        return code

    return served


def quieten_process() -> None:
    """Be so from the next connection on, if this process was forked by `pyspark.daemon`."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    serve = getattr(main, _SERVES, None)
    if spec is not None and spec.name == "pyspark.daemon" and serve is not None:
        setattr(main, _SERVES, quietly(settled(serve)))


if __name__ == "__main__":
    from pyspark import daemon

    if hasattr(daemon, "worker"):
        daemon.worker = quietly(settled(daemon.worker))
    daemon.manager()
