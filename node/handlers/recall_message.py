"""RECALL_MESSAGE: stop a message that waits for its time.

    send, with a time of its own  ->  answer with `recallHandle`
    recall, with that handle      ->  a message that cancels the first one, due with it

Both are messages of the timer topic, so a recall holds for every master that comes later. SUCCESS
says that the recall is stored: a message that is being delivered at that moment is delivered.

`recall_message_enable` is off, as in RocketMQ: a handle can be made from a topic, a time and a key
by anybody who has seen them, and would let one client stop the messages of another. Handles are
given out all the same, as there.

Source: RocketMQ 5.3.3, RecallMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from node.errors import RequestError
from node.handlers.send_message import SendMessage
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_topic, serves
from node.tables.tables import Tables
from store import PutMessage
from store.delayed.timer_request import TimerSettings
from tandem.wire.access_control import Right
from tandem.wire.message_properties import (
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    REGION,
    encode_properties,
)
from tandem.wire.recall_handle import RecallHandle, decode_recall_handle
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.reply_headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.untrusted import UnreadableError

RECALL_BODY: Final = b"0"
RECALL_TAG: Final = "_RECALL_TAG_"

_DELAY_MAX_MS: Final = TimerSettings().timer_max_delay_seconds * 1000


class RecallMessage:
    """Serves recalls, if they are switched on."""

    def __init__(
        self,
        tables: Tables,
        send: SendMessage,
        broker_name: str,
        *,
        recall_message_enable: bool,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._tables = tables
        self._send = send
        self._broker_name = broker_name
        self._is_enabled = recall_message_enable
        self._wall_clock_ms = wall_clock_ms

    @serves(
        RequestCode.RECALL_MESSAGE,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=RecallMessageRequestHeader,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """RECALL_MESSAGE."""
        header = command.decode_header(RecallMessageRequestHeader)
        if not self._is_enabled:
            raise RequestError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        self._send.check_takes_puts()
        if self._tables.topics.get(header.topic) is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{header.topic}] not exist",
            )
        now_ms = self._wall_clock_ms()
        handle = self._checked(header, now_ms)
        properties = {
            PROPERTY_TAGS: RECALL_TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_key}",
            PROPERTY_UNIQUE_KEY: handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: str(handle.deliver_ms),
            PROPERTY_BORN_TIMESTAMP: str(now_ms),
        }
        if header.producer_group:
            properties[PROPERTY_PRODUCER_GROUP] = header.producer_group
        try:
            encoded = encode_properties(properties)
        except ValueError as error:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        message = PutMessage(handle.topic, 0, RECALL_BODY, encoded, now_ms, connection.born_host)
        ext = RecallMessageResponseHeader(handle.unique_key, REGION)
        return self._send.put_again(connection, command, message, response_to(command, ext=ext))

    def _checked(self, header: RecallMessageRequestHeader, now_ms: int) -> RecallHandle:
        """Source: RecallMessageProcessor.processRequest."""
        try:
            handle = decode_recall_handle(header.recall_handle)
        except UnreadableError as error:
            raise RequestError(
                ResponseCode.ILLEGAL_OPERATION, "recall failed, recall handle is invalid"
            ) from error
        if handle.topic != header.topic:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._broker_name:
            raise RequestError(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, broker service unavailable: the handle is one of"
                f" {handle.broker_name}, this is {self._broker_name}",
            )
        if not now_ms < handle.deliver_ms < now_ms + _DELAY_MAX_MS:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle
