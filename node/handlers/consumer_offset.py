"""QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET."""

from __future__ import annotations

from typing import Final

import trio

from node.errors import RequestError
from node.handlers.settled import answer_when_settled
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_group, of_topic, serves
from node.tables.names import check_group_of_clients
from node.tables.reset_offsets import ResetOffsets
from node.tables.tables import Tables
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode

YOUNG_LOG_BYTES_MAX: Final = 1 << 30
"""How far before the log's end a queue may begin and still count as young.

RocketMQ asks whether the queue's first message is in memory (40 % of it, in 4.x). A constant makes
the answer independent of the machine.
"""

_PHYSICAL_OFFSET: Final = slice(28, 36)
"""PHYSICALOFFSET in a record, see `tandem.wire.message`."""


class ConsumerOffset:
    """Serves the offsets of consumer groups."""

    def __init__(
        self, store: MessageStore, tables: Tables, resets: ResetOffsets, *, timeout_seconds: float
    ) -> None:
        """Serve what these hold; a change has `timeout_seconds` to be settled."""
        self._store = store
        self._resets = resets
        self._tables = tables
        self._timeout_seconds = timeout_seconds

    @serves(
        RequestCode.QUERY_CONSUMER_OFFSET,
        (Resource.OFFSETS, Action.READ),
        of_topic("topic", Right.SUB, Right.GET),
        of_group("consumer_group", Right.SUB, Right.GET),
        header=QueryConsumerOffsetRequestHeader,
    )
    def query(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Return a committed offset.

        Unknown is code 22 and nothing else, for with any other error clients skip the queue. But
        on a young queue it is offset 0, so that a new group does not miss the first messages.

        Source: ConsumerManageProcessor.queryConsumerOffset.
        """
        self._tables.check_query()
        header = command.decode_header(QueryConsumerOffsetRequestHeader)
        offset = self._tables.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            # Absent means yes here.
            if header.set_zero_if_not_found is False or not self._is_young(
                header.topic, header.queue_id
            ):
                raise RequestError(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, maybe this group consumer boot first",
                )
            offset = 0
        return response_to(command, ext=OffsetResponseHeader(offset))

    @serves(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        (Resource.OFFSETS, Action.WRITE),
        of_topic("topic", Right.SUB, Right.UPDATE),
        of_group("consumer_group", Right.SUB, Right.UPDATE),
        header=UpdateConsumerOffsetRequestHeader,
    )
    def update(self, connection: Connection, command: RemotingCommand) -> None:
        """Remember how far a group has got; answered when that is settled.

        Ignored while the consumer has not heard of a reset: it would undo that.

        Source: ConsumerManageProcessor.updateConsumerOffset.
        """
        self._tables.check_commit()
        header = command.decode_header(UpdateConsumerOffsetRequestHeader)
        check_group_of_clients(header.consumer_group)
        config = self._tables.topics.get(header.topic)
        if config is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist, commit refused"
            )
        if not 0 <= header.queue_id < max(config.read_queue_nums, config.write_queue_nums):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, f"queueId[{header.queue_id}] is illegal"
            )
        if not self._resets.is_pending(header.consumer_group, header.topic, header.queue_id):
            self._tables.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        if not command.flag & ONEWAY_FLAG:
            deadline = trio.current_time() + self._timeout_seconds
            answer_when_settled(self._tables, connection, command, deadline)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the queue still has its first message, not far before the end of the log."""
        result = self._store.reads.get_message(topic, queue_id, 0, 1)
        if result.damaged is not None:
            raise result.damaged
        if result.min_offset > 0 or not result.body:
            return False
        physical_offset = int.from_bytes(result.body[0][_PHYSICAL_OFFSET], "big")
        return self._store.max_physical_offset - physical_offset <= YOUNG_LOG_BYTES_MAX
