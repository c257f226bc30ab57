"""Streams of Spark in tests, on a machine where a Python process takes long to start.

Spark waits ten seconds for the process that plans a stream, has no setting for it, and then ends
the query before it has read anything. Who waits for the end of such a query waits for its next try.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.support.patience import PATIENCE_SECONDS

NOT_IN_TIME: Final = ("Python worker failed to connect back", "Current State: INITIALIZING")


@contextmanager
def patient_streams() -> Iterator[None]:
    """Start a query again that has ended in this way, while somebody waits for it."""
    start: Callable[..., StreamingQuery] = DataStreamWriter.start

    def started(writer: DataStreamWriter, *args: Any, **given: Any) -> StreamingQuery:  # noqa: ANN401
        query = start(writer, *args, **given)
        vars(query)["start_again"] = lambda: start(writer, *args, **given)
        return query

    with (
        mock.patch.object(DataStreamWriter, "start", started),
        mock.patch.object(
            StreamingQuery, "awaitTermination", patient(StreamingQuery.awaitTermination)
        ),
        mock.patch.object(
            StreamingQuery, "processAllAvailable", patient(StreamingQuery.processAllAvailable)
        ),
    ):
        yield


def patient(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of queries that waits, and starts them again."""

    def waited(query: StreamingQuery, *args: Any) -> Any:  # noqa: ANN401 - pyspark's
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return wait(query, *args)
            except StreamingQueryException as error:
                start_again = vars(query).get("start_again")
                is_late = all(words in str(error) for words in NOT_IN_TIME)
                if start_again is None or not is_late or time.monotonic() > until:
                    raise
                query._jsq = start_again()._jsq

    return waited
