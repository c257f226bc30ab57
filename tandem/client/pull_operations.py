"""What consumers that pull can ask, as flows with the arguments that users give."""

from typing import Final

from tandem.client.core import SWITCH_SECONDS
from tandem.client.faces import operation
from tandem.client.flow import Flow
from tandem.client.pull_answer import ALL_TAGS, wanted
from tandem.client.pull_flow import Puller
from tandem.client.results import MessageQueue, PullResult

MAX_MSG_NUMS: Final = 32
"""RocketMQ's pullBatchSize."""

SWITCH_MS: Final = round(SWITCH_SECONDS * 1000)
"""How long is waited for a master by default."""


class Pulls:
    """Asks for one consumer. Flows only."""

    def __init__(self, puller: Puller) -> None:
        self._puller = puller

    def fetch_message_queues(self, topic: str) -> Flow[list[MessageQueue]]:
        """Return the readable queues of a topic, sorted; a master's are waited for."""
        return self._puller.fetch_message_queues(topic)

    def max_offset(self, queue: MessageQueue) -> Flow[int]:
        """Return the offset of the next message to be written.

        In a fenced group everything that was acknowledged as replicated is before it.
        """
        return self._puller.max_offset(queue)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int = MAX_MSG_NUMS,
        tags: str = ALL_TAGS,
        suspend_timeout_ms: int = 0,
        *,
        sql: str | None = None,
    ) -> Flow[PullResult]:
        """Ask once for messages from `offset` on; the bounds in the answer are the asked node's.

        The answer passes over messages only if the master has deleted them as well.

        Args:
            queue: where.
            offset: the first wanted, counted in messages.
            max_msg_nums: the broker may give fewer, also because of their size.
            tags: `TagA || TagB`, or `*` for all.
            suspend_timeout_ms: how long the broker holds the request if there is nothing new; 0:
                not at all.
            sql: instead of tags, an expression over the properties: "a > 5 AND b = 'x'" (SQL92).
                The broker needs `enable_property_filter`, else it refuses.

        Raises:
            MessageDamagedError: no node that answers has the next message whole.
            CompressedBodyError: a body is compressed with a codec that is not built in.
        """
        asked = wanted(tags, sql)
        return self._puller.pull(queue, offset, max_msg_nums, asked, suspend_timeout_ms)

    def fetch_consume_offset(self, queue: MessageQueue) -> Flow[int | None]:
        """Return the group's offset in a queue, None if the master knows none."""
        return self._puller.fetch_consume_offset(queue)

    def update_consume_offset(
        self, queue: MessageQueue, offset: int, *, timeout_ms: int = SWITCH_MS
    ) -> Flow[None]:
        """Set the group's offset: that of the next message to consume.

        Returns when the master has taken it. While there is none it is tried again, for this many
        milliseconds: a change of master takes up to 8 s. A new master gets the offset again, unless
        it knows a higher offset, so this consumer's commits do not go back.
        """
        return self._puller.update_consume_offset(queue, offset, timeout_ms / 1000)


class PullOperations:
    """What can be asked about queues, and the offsets of the group."""

    fetch_message_queues = operation(Pulls.fetch_message_queues)
    min_offset = operation(Puller.min_offset)
    max_offset = operation(Pulls.max_offset)
    search_offset = operation(Puller.search_offset)
    pull = operation(Pulls.pull)
    fetch_consume_offset = operation(Pulls.fetch_consume_offset)
    update_consume_offset = operation(Pulls.update_consume_offset)
