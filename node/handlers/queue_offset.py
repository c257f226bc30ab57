"""Looking around in the store: bounds of a queue, offset by time, messages by place and by key.

Any node answers with what it has, as in RocketMQ. A reader that must not miss what was acknowledged
says `onlyMaster`: then a node that may lack some of it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from node.errors import RequestError
from node.handlers.found_record import check_found
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_found_topic, of_topic, serves
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import UNIQUE_KEY_QUERY, RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    ViewMessageRequestHeader,
)
from tandem.wire.response_code import ResponseCode

BOUNDARY_UPPER: Final = "UPPER"


NO_TIMESTAMP: Final = -1

DEFAULT_QUERY_MAX_NUM: Final = 32
"""Source: MessageStoreConfig.defaultQueryMaxNum."""


class QueueOffset:
    """Serves requests about places in the store. An unknown queue is an empty one."""

    def __init__(self, store: MessageStore, why_behind: Callable[[], str | None]) -> None:
        """Serve `store`; `why_behind` says why it may lack what was acknowledged, None if not."""
        self._store = store
        self._why_behind = why_behind

    @serves(
        RequestCode.GET_MAX_OFFSET,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB, Right.GET),
        header=QueueRequestHeader,
    )
    def max_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_MAX_OFFSET: the queue offset of the next message."""
        header = command.decode_header(QueueRequestHeader)
        self._check_master(header)
        offset = self._store.reads.max_offset_in_queue(header.topic, header.queue_id)
        return response_to(command, ext=OffsetResponseHeader(offset))

    @serves(
        RequestCode.GET_MIN_OFFSET,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB, Right.GET),
        header=QueueRequestHeader,
    )
    def min_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET: the queue offset of the first message that is held."""
        header = command.decode_header(QueueRequestHeader)
        self._check_master(header)
        offset = self._store.reads.min_offset_in_queue(header.topic, header.queue_id)
        return response_to(command, ext=OffsetResponseHeader(offset))

    @serves(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB, Right.GET),
        header=QueueRequestHeader,
    )
    def earliest_store_time(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME: when the first message that can be read was stored.

        Source: AdminBrokerProcessor.getEarliestMsgStoretime.
        """
        header = command.decode_header(QueueRequestHeader)
        store, topic, queue_id = self._store, header.topic, header.queue_id
        first = store.reads.get_message(
            topic, queue_id, store.reads.min_offset_in_queue(topic, queue_id), 1
        )
        if first.damaged is not None:
            raise first.damaged
        messages = decode_messages(b"".join(first.body))
        timestamp_ms = messages[0].store_timestamp_ms if messages else NO_TIMESTAMP
        return response_to(command, ext=TimestampResponseHeader(timestamp_ms))

    @serves(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB, Right.GET),
        header=SearchOffsetRequestHeader,
    )
    def search(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP: the queue offset for a store time."""
        header = command.decode_header(SearchOffsetRequestHeader)
        self._check_master(header)
        offset = self._store.reads.offset_in_queue_by_time(
            header.topic,
            header.queue_id,
            header.timestamp,
            upper=header.boundary_type == BOUNDARY_UPPER,
        )
        return response_to(command, ext=OffsetResponseHeader(offset))

    def _check_master(self, header: QueueRequestHeader | SearchOffsetRequestHeader) -> None:
        reason = self._why_behind() if header.only_master else None
        if reason is not None:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"only the master knows offsets: {reason}"
            )

    @serves(
        RequestCode.QUERY_MESSAGE,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB, Right.GET),
        header=QueryMessageRequestHeader,
    )
    def query_message(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_MESSAGE: records by key, the newest ones, oldest first.

        Source: QueryMessageProcessor.queryMessage.
        """
        header = command.decode_header(QueryMessageRequestHeader)
        by_unique_key = command.ext_fields().get(UNIQUE_KEY_QUERY) == "true"
        found = self._store.reads.query_message(
            header.topic,
            header.key,
            DEFAULT_QUERY_MAX_NUM if by_unique_key else max(0, header.max_num),
            header.begin_timestamp,
            header.end_timestamp,
        )
        ext = QueryMessageResponseHeader(
            found.index_last_update_timestamp_ms, found.index_last_update_physical_offset
        )
        if not found.records:
            return response_to(
                command,
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext=ext,
            )
        for record in found.records:
            check_found(connection.caller, record, Right.SUB, Right.GET)
        body = b"".join(found.records)
        connection.note_read(len(body))
        return response_to(command, ext=ext, body=body)

    @serves(
        RequestCode.VIEW_MESSAGE_BY_ID,
        (Resource.MESSAGES, Action.READ),
        of_found_topic(Right.SUB, Right.GET),
        header=ViewMessageRequestHeader,
    )
    def view_message(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID: one record by its physical offset."""
        header = command.decode_header(ViewMessageRequestHeader)
        record = self._store.reads.look_message_by_offset(header.offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        check_found(connection.caller, record, Right.SUB, Right.GET)
        connection.note_read(len(record))
        return response_to(command, body=record)
