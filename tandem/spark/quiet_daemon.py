"""The daemon that forks Spark's Python workers, quiet when its JVM has hung up.

    spark.python.daemon.module=tandem.spark.quiet_daemon        `local_session` says so

A session that stops, or a query that needs no more rows, closes the connections of workers. One
that had something left to write ends with a BrokenPipeError, which pyspark's daemon prints on the
terminal of whoever started the session, after a query that has succeeded. Nobody waits for these
bytes. All other errors are printed as before. Processes that plan are not concerned: Spark 4.3
starts them by `pyspark.daemon`, whatever the setting says, and on a busy machine they may still
print theirs.

Run as a program, in place of `pyspark.daemon`, whose loop finds the function that serves one
connection by its name. A version of pyspark that has no such function is left as it is.
"""

import functools
from collections.abc import Callable
from typing import Any

from pyspark import daemon

HUNG_UP = 1
"""As of a worker that is not used again."""


def quietly(serve: Callable[..., int]) -> Callable[..., int]:
    """Return `serve`, which ends as a worker that is done if the other side has hung up."""

    @functools.wraps(serve)
    def served(*args: Any) -> int:  # noqa: ANN401 - pyspark's
        try:
            return serve(*args)
        except (BrokenPipeError, ConnectionResetError):
            return HUNG_UP

    return served


if __name__ == "__main__":
    if hasattr(daemon, "worker"):
        daemon.worker = quietly(daemon.worker)
    daemon.manager()
