"""Which micro-batches of a stream are written for good: one number, kept where the topic is.

    SPARK-SINK-<query id>     a consumer group that nobody consumes for. Its offset in the first
                              queue of the topic is the number of micro-batches that are written

When every task of a micro-batch has its rows stored, the driver raises the number; Spark notes in
its checkpoint that the batch is done a moment later. A driver that dies in between makes the batch
again: then its tasks find the number raised, and send nothing. In a fenced group offsets of
groups are in the journal, so the number is where the messages are, and as safe.

The number is never more than what is stored. One that is lost (a classic group may lose the offsets
of the last seconds with its master) only means that a batch is sent again, with the same keys.

Source: Spark 4.3, FileStreamSink.addBatch, which passes over batches that its log has.
"""

import re
from collections.abc import Callable
from typing import Final, TypeVar

from tandem.client.core import ClientCore
from tandem.client.errors import ClientError
from tandem.client.flow import Flow
from tandem.client.pull_flow import Puller
from tandem.client.pull_operations import Pulls
from tandem.client.results import MessageQueue
from tandem.spark.errors import SparkSourceError
from tandem.spark.sink.kept import ClientThread
from tandem.spark.sink.options import WHOSE, SinkOptions

GROUP_PREFIX: Final = "SPARK-SINK-"

T = TypeVar("T")

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")


def group_of_query(query: str) -> str:
    """Return the name of the group that has the number of a query."""
    return GROUP_PREFIX + _NOT_IN_NAMES.sub("-", query)


def _questions(core: ClientCore, group: str) -> Pulls:
    return Pulls(Puller(core, group))


class CommittedBatches:
    """How many micro-batches of a query are written: asked by the client of a task or driver."""

    def __init__(
        self,
        options: SinkOptions,
        query: str,
        thread: ClientThread,
        questions: Callable[[ClientCore, str], Pulls] = _questions,
    ) -> None:
        self._options = options
        self._group = group_of_query(query)
        self._thread = thread
        self._pulls = questions(thread.client.core, self._group)

    def count(self) -> int:
        """Return how many are, by the highest number that a broker of the topic has.

        Raises:
            SparkSourceError: no broker says so.
        """
        try:
            offsets = [self._run(self._pulls.fetch_consume_offset(each)) for each in self._queues()]
            return max((each or 0 for each in offsets), default=0)
        except ClientError as error:
            raise self._error("ask for", error) from error

    def record(self, batch: int) -> None:
        """Note that a micro-batch is written, and with it all before it.

        Raises:
            SparkSourceError: a broker did not take it; it is not known whether another has.
        """
        try:
            for queue in self._queues():
                if (self._run(self._pulls.fetch_consume_offset(queue)) or 0) <= batch:
                    self._run(self._pulls.update_consume_offset(queue, batch + 1))
        except ClientError as error:
            raise self._error("record", error) from error

    def _queues(self) -> list[MessageQueue]:
        """Return the first queue at each broker."""
        first: dict[str, MessageQueue] = {}
        for queue in sorted(self._run(self._pulls.fetch_message_queues(self._options.topic))):
            first.setdefault(queue.broker_name, queue)
        return list(first.values())

    def _run(self, flow: Flow[T]) -> T:
        return self._thread.run(self._thread.client.shell.run, flow)

    def _error(self, what: str, error: ClientError) -> SparkSourceError:
        return SparkSourceError(
            f"{WHOSE}: could not {what} the number of written micro-batches, which is the offset of"
            f" group {self._group} in topic {self._options.topic!r}: {error}. Start the query again"
            " when the brokers are there; a user needs the right SUB on topic and group",
            self._group,
        )
